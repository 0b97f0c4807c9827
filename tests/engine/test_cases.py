"""Conformance cases of estimates and of the planner: documents and expected numbers, where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.planner.command import latency_command

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases")
FILES = sorted((CASES / "mace").glob("*.json"))
PLANNER_FILES = sorted((CASES / "planner").glob("*.json"))


def differences(result: Any, expected: Any, path: str, tolerance: float) -> list[str]:
    """Where `found` is not as expected; more keys are welcome."""
    if isinstance(expected, dict):
        missing = [f"{path}.{key} is missing" for key in expected if key not in result]
        both = (key for key in expected if key in result)
        return missing + [
            d for key in both for d in differences(result[key], expected[key], f"{path}.{key}", tolerance)
        ]
    if isinstance(expected, list):
        if len(result) != len(expected):
            return [f"{path} has {len(result)} items, expected {len(expected)}"]
        pairs = enumerate(zip(result, expected, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{path}[{i}]", tolerance)]
    if isinstance(expected, float | int) and not isinstance(expected, bool) and result is not None:
        close = abs(result - expected) <= tolerance * max(1.0, abs(expected))
        return [] if close else [f"{path} is {result}, expected {expected}"]
    return [] if result == expected else [f"{path} is {result}, expected {expected}"]


@pytest.mark.skipif(not FILES, reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_conformance_case_has_the_expected_result(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(file.read_text())
    status = main([case["command"], str(file)])
    line = json.loads(capsys.readouterr().out)
    expected = case["expect"]
    if "error" in expected:
        assert status == 1
        assert line["error"]["faults"], line
        return
    assert status == 0, line
    result = line["result"]
    # A tie between servers may be broken either way: the bottleneck only counts where the worst value is unique.
    if "bottleneck" in expected:
        worst = [server["mace_wc"] for server in expected["servers"].values()]
        if worst.count(max(worst)) > 1:
            expected = {key: value for key, value in expected.items() if not key.startswith("bottleneck")}
    assert differences(result, expected, file.stem, case.get("tol", 1e-9)) == []


def deviations(result: Any, expected: Any, path: str, tolerance: float) -> list[str]:
    """Where `result` is further from the expected than a share of it; more keys are welcome."""
    if isinstance(expected, dict):
        return [d for key in expected for d in deviations(result[key], expected[key], f"{path}.{key}", tolerance)]
    if isinstance(expected, list) and result is not None:
        pairs = enumerate(zip(result, expected, strict=True))
        return [d for i, (a, b) in pairs for d in deviations(a, b, f"{path}[{i}]", tolerance)]
    if isinstance(expected, float | int) and not isinstance(expected, bool) and result is not None:
        close = abs(result - expected) <= tolerance * max(1e-12, abs(result), abs(expected)) + 1e-15
        return [] if close else [f"{path} is {result}, expected {expected}"]
    return [] if result == expected else [f"{path} is {result}, expected {expected}"]


@pytest.mark.skipif(not PLANNER_FILES, reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("file", PLANNER_FILES, ids=lambda file: file.stem)
def test_planner_case_has_the_expected_result(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads(file.read_text())
    status = main([case["command"], str(file)])
    line = json.loads(capsys.readouterr().out)
    expected = case["expect"]
    if isinstance(expected, dict) and "error" in expected:
        assert status == 1
        assert line["error"]["faults"], line
        return
    assert status == 0, line
    if case["command"] == "plan":
        check_plan(case["input"], line["result"], expected)
    else:
        assert deviations(line["result"], expected, file.stem, case["tol"]) == []


def check_plan(question: dict[str, Any], result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Nodes and rate count; of the settings, which are not unique, that they are in range and keep the constraint."""
    assert result["feasible"] == expected["feasible"]
    if not expected["feasible"]:
        return
    spec = question["spec"]
    assert result["S"] == expected["S"]
    assert result["Lambda"] >= expected["Lambda_at_least"]
    assert 1 <= result["M"] <= spec.get("max_m", 6)
    assert 1 <= result["R"] <= spec.get("max_r", 6)
    bounds = zip(spec.get("b_lo", (0.001, 0.005, 0.005)), spec.get("b_hi", (0.1, 2, 2)), strict=True)
    for name, (low, high) in zip(("B_in", "B_sh", "B_ch"), bounds, strict=True):
        assert low <= result[name] <= high
    stage = {name: question[name] for name in ("profile", "hardware")}
    settings = {name: result[name] for name in ("S", "M", "R", "B_in", "B_sh", "B_ch")}
    model = {"variant": "improved"} | {
        name: spec[name] for name in ("variant", "mean", "var", "kind", "x") if name in spec
    }
    at_max_rate = latency_command(stage | settings | model | {"rate": result["Lambda"]})
    assert at_max_rate.metric <= spec["L"]
