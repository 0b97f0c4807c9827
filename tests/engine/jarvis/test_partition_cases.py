"""Conformance cases of `partition`, where they are at hand, through the command line."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "jarvis"
FILES = sorted(CASES.glob("*.json")) if CASES.is_dir() else []


@pytest.mark.skipif(not FILES, reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_case(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(file.read_text())
    status = main([case["command"], str(file)])
    line = json.loads(capsys.readouterr().out)
    given, expected = case["input"], case["expect"]
    if "error" in expected:
        assert status == 1
        assert [fault["path"].split("[")[0] for fault in line["error"]["faults"]] == [expected["error"]]
        return
    assert status == 0, line
    result = line["result"]
    scale = given["n_records"] * max(given["sizes"] or [1.0])
    assert result["objective"] == pytest.approx(expected["objective"], rel=1e-9, abs=1e-9 * scale)
    _check_feasible(result, given["budget"])
    assert result["unique"] == expected["unique"]
    if expected["unique"]:
        for key in ("e", "p", "plans", "theta", "shadow_price", "cpu"):
            assert result[key] == pytest.approx(expected[key], rel=1e-9, abs=1e-9), key


def _check_feasible(result: dict[str, Any], budget: float) -> None:
    assert result["cpu"] <= budget * (1 + 1e-12)
    assert all(1 >= above >= below >= 0 for above, below in pairwise([1.0, *result["e"]]))
