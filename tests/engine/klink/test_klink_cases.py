"""Conformance cases of `slack`, `memory`, `pick` and `forwarding`, where they are at hand, by the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "klink"
FILES = sorted(CASES.glob("*.json")) if CASES.is_dir() else []

#: Tolerances of `slack`: relative, absolute (ms or ms2).
NEAR = {"var": (1e-9, 1e-6), "slack": (1e-9, 1e-6), "slack_alg1": (1e-9, 1e-6)}


@pytest.mark.skipif(not FILES, reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_case(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(file.read_text())
    status = main([case["command"], str(file)])
    line = json.loads(capsys.readouterr().out)
    expected = case["expect"]
    if "error" in expected:
        assert status == 1
        (fault,) = line["error"]["faults"]
        assert expected["error"] in fault["path"] or expected["error"] in fault["message"].split(";")[0]
        return
    assert status == 0, line
    _check(line["result"], expected)


def _check(result: Any, expected: Any, key: str = "") -> None:
    """Every expected key is present, to its tolerance; further keys in objects are allowed."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            _check(result[name], value, name)
    elif isinstance(expected, list):
        assert len(result) == len(expected), key
        for entry, other in zip(result, expected, strict=True):
            _check(entry, other, key)
    elif isinstance(expected, float):
        rel, absolute = NEAR.get(key, (1e-9, 1e-9))
        assert result == pytest.approx(expected, rel=rel, abs=absolute), key
    else:
        assert result == expected, key
