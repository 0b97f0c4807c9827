"""Conformance cases: files of documents and expected numbers, where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "mace"
FILES = sorted(CASES.glob("*.json")) if CASES.is_dir() else []


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
