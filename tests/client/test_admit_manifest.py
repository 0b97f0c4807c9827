"""`./sluice admit MANIFEST.yaml`: what is asked, printed, and said by the exit status."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

MANIFEST = "apiVersion: flink.apache.org/v1beta1\nkind: FlinkDeployment\nmetadata: {name: orders}\n"
REVIEWS = "POST /api/v1/kubernetes-reviews"


def review(basis: str = "verdict", verdict: str = "admit", allowed: bool = True, **more: Any) -> dict[str, Any]:
    row = {"kind": "FlinkDeployment", "namespace": "streams", "name": "orders", "basis": basis, "verdict": verdict}
    return {**row, "allowed": allowed, "state": "preview", "message": "Because.", "warnings": [], **more}


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        yield running


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(MANIFEST)
    return path


def test_the_text_of_a_manifest_is_sent_as_it_is(console: FakeConsole, manifest: Path, capsys: Any) -> None:
    console.replies[REVIEWS] = [Reply(200, {"allowed": True, "reviews": [review()]})]
    assert main(["admit", str(manifest), "--cluster", "prod"]) == 0
    ((_, _, body),) = console.asked
    assert (body["manifest"], body["cluster"], body["mode"]) == (MANIFEST, "prod", "preview")
    assert "ALLOWED  FlinkDeployment streams/orders  (admit)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reviews", "options", "status"),
    [
        ([review()], [], 0),
        ([review(verdict="reject", allowed=False)], [], 3),
        ([review(verdict="admit_with_changes", allowed=False)], [], 3),
        ([review(verdict="admit_with_changes", allowed=False)], ["--accept-changes"], 0),
        ([review(verdict="review")], [], 4),
        ([review(verdict="queue", allowed=False)], [], 4),
        ([review("running", "")], [], 0),
        ([review("less", "")], [], 4),
        ([review("unknown", "")], [], 1),
        ([review("late", "")], [], 1),
        ([review(), review(verdict="reject", allowed=False), review("unknown", "")], [], 3),
        ([review(), review("unknown", "")], [], 1),
        ([review()], ["--apply"], 4),
        ([review(state="applied")], ["--apply"], 0),
        ([], [], 1),
    ],
)
def test_the_exit_status_is_that_of_the_worst_object(
    console: FakeConsole, manifest: Path, reviews: list[Any], options: list[str], status: int
) -> None:
    console.replies[REVIEWS] = [Reply(200, {"allowed": True, "reviews": reviews})]
    assert main(["admit", str(manifest), "--cluster", "prod", *options]) == status


def test_json_with_a_kind_is_a_manifest_and_a_query_is_none(console: FakeConsole, tmp_path: Path) -> None:
    console.replies[REVIEWS] = [Reply(200, {"allowed": True, "reviews": [review()]})]
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment"}))
    assert main(["admit", str(path), "--cluster", "prod"]) == 0
    assert console.asked[0][0] == REVIEWS


def test_a_manifest_comes_from_the_standard_input(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    console.replies[REVIEWS] = [Reply(200, {"allowed": True, "reviews": [review()]})]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(MANIFEST.encode())))
    assert main(["admit", "-", "--cluster", "prod"]) == 0


def test_options_of_a_query_are_refused_beside_a_manifest(console: FakeConsole, manifest: Path, capsys: Any) -> None:
    assert main(["admit", str(manifest), "--cluster", "prod", "--objective", "worst:2"]) == 1
    assert "annotations" in capsys.readouterr().err and not console.asked
