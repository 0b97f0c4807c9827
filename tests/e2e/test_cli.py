"""`./sluice admit` against a running console: what a pipeline would do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.installation import Api, Installation

SLUG = "gate"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster(api: Api) -> str:
    """One node of 1,000 cycles/s, and 10 events/s."""
    api.post("clusters", {"slug": SLUG, "name": "Gate", "subinterval_s": 1, "horizon_s": 60})
    api.post("node-pools", {"cluster": SLUG, "name": "std", "capacity_cps": 1000.0, "cores": 1})
    api.post("nodes", {"cluster": SLUG, "pool": "std", "name": "n1"})
    api.post("arrivals", {"cluster": SLUG, "source_id": "clicks", "counts": [2.5] * 240})
    return SLUG


def admit(console: Installation, file: Path, *more: str, token: str = "") -> subprocess.CompletedProcess[str]:
    """The command as the launcher starts it."""
    environment = os.environ | {"SLUICE_SERVER": console.url, "SLUICE_TOKEN": token or console.token}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-P", "-m", "client", "admit", str(file), "--cluster", SLUG, *more]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def query(folder: Path, name: str, cycles: float) -> Path:
    operators = [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": cycles}]}]
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"query": name, "operators": operators}))
    return file


def test_pipeline_stops_at_what_does_not_fit(console: Installation, cluster: str, api: Api, tmp_path: Path) -> None:
    fits, does_not = query(tmp_path, "fits", 50.0), query(tmp_path, "does-not", 250.0)

    passed = admit(console, fits, "--objective", "worst:2", "--apply")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert passed.stdout.startswith("ADMIT  fits\n") and "applied" in passed.stdout
    assert api.get(f"queries?cluster={SLUG}&name=fits")["results"][0]["state"] == "running"

    stopped = admit(console, does_not, "--objective", "worst:2", "--json")
    told = json.loads(stopped.stdout)
    assert (stopped.returncode, told["exit_status"], told["admission"]["verdict"]) == (3, 3, "reject")
    assert api.get(f"queries?cluster={SLUG}&name=does-not")["results"][0]["state"] == "draft"


def test_token_that_is_not_known_is_told(console: Installation, cluster: str, tmp_path: Path) -> None:
    refused = admit(console, query(tmp_path, "any", 50.0), token="slu_nobody")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "does not take the token of SLUICE_TOKEN" in refused.stderr
