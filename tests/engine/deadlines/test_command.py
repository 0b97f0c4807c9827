"""`subset` of the command line: conformance cases where they are at hand, weights, faults."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.deadlines.command import command
from engine.errors import DocumentError

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "planner"
FILES = [file for file in sorted(CASES.glob("*.json")) if json.loads(file.read_text())["command"] == "subset"]


@pytest.mark.skipif(not FILES, reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_case(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(file.read_text())
    status = main(["subset", str(file)])
    line = json.loads(capsys.readouterr().out)
    if "error" in case["expect"]:
        assert status == 1
        return
    assert line["result"]["size"] == case["expect"]["size"]
    assert line["result"]["total_cost"] == pytest.approx(case["expect"]["total_cost"], rel=1e-9)


def test_weights_are_answered_with_what_the_best_may_weigh_more() -> None:
    tasks = [{"deadline": 4, "cost": 4, "weight": 4}, {"deadline": 4, "cost": 1, "weight": 2}]
    found = command({"tasks": tasks}).to_dict()
    assert found == {"size": 1, "total_cost": 1.0, "kept": [1], "weight": 2.0, "short": 3.0}


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, ["tasks"]),
        ([], [""]),
        ({"tasks": [{"deadline": float("nan"), "cost": -1}]}, ["tasks[0].deadline", "tasks[0].cost"]),
        ({"tasks": [{"deadline": "1", "cost": True}], "now": float("inf")},
         ["tasks[0].deadline", "tasks[0].cost", "now"]),
        ({"tasks": [{"deadline": 1, "cost": 1, "weight": 0}, {"cost": 1}]}, ["tasks[0].weight", "tasks[1].deadline"]),
        ({"tasks": [{"deadline": 1e300, "cost": 1e300}]}, ["tasks[0].deadline", "tasks[0].cost"]),
    ],
)  # fmt: skip
def test_every_fault_is_named(document: Any, paths: list[str]) -> None:
    with pytest.raises(DocumentError) as refused:
        command(document)
    assert [fault.path for fault in refused.value.faults] == paths
