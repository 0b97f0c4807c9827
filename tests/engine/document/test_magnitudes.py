"""Numbers that leave the range of floats are named where they do so; nothing overflows behind them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import COMMANDS, EngineCommand, main
from engine.document.checks import MAX_BUSY, MAX_EVENTS
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from tests.engine.samples import deployment


def chain(length: int, selectivity: float, **more: Any) -> dict[str, Any]:
    names = ["s", *(f"o{i}" for i in range(length))]
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [1, 1, 1]}],
        "nodes": [{"id": "n", "capacity_cps": 1e9}],
        "operators": [
            {
                "id": name,
                "query": "q",
                "node": "n",
                "inputs": [{"from": before, "selectivity": selectivity, "cycles_per_event": 1}],
            }
            for before, name in itertools.pairwise(names)
        ],
    } | more


def faults_of(document: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document, **options)
    return {fault.path: fault.message for fault in refused.value.faults}


def test_chain_that_multiplies_beyond_floats_names_its_first_operator() -> None:
    faults = faults_of(chain(400, 10.0))
    assert list(faults) == ["operators[15]"]  # 10^16 events: the first beyond 10^15
    assert "'o15'" in faults["operators[15]"]
    assert f"allowed: up to {MAX_EVENTS:g}" in faults["operators[15]"]


def test_chain_within_the_bound_is_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.json"
    file.write_text(json.dumps(chain(15, 10.0)))
    assert main(["estimate", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["mace_wc"] > 1e5


def test_load_that_keeps_a_core_busy_for_ever_is_refused() -> None:
    document = chain(1, 1.0)
    document["operators"][0]["inputs"][0]["cycles_per_event"] = 1e9 * MAX_BUSY * 10
    assert "the work of up to 1e+10 subintervals" in faults_of(document)["operators[0]"]


def test_polynomial_that_overflows_is_refused() -> None:
    document = chain(1, 1.0)
    document["sources"][0]["arrivals"] = [1e14] * 3
    document["operators"][0]["inputs"] = [{"from": "s", "model": {"output": [0, 0, 1], "cycles": [0, 0, 1e40]}}]
    assert "puts out up to 1e+28 events" in faults_of(document)["operators[0]"]


def test_alternative_plan_that_overflows_is_named_by_its_path() -> None:
    plan = chain(20, 10.0)["operators"]
    for operator in plan:
        operator["id"] = f"alternative-{operator['id']}"
        del operator["node"]
        operator["inputs"][0]["from"] = operator["inputs"][0]["from"].replace("o", "alternative-o")
    faults = faults_of(chain(2, 1.0, plans={"q": [plan]}), placed=False)
    assert list(faults) == ["plans.q[0][15]"]


def test_scaled_arrivals_that_overflow_are_refused() -> None:
    fine = Deployment.parse(chain(10, 10.0))
    with pytest.raises(DocumentError, match="'o9'"):
        fine.with_arrivals({"s": np.full(3, 1e6)})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("selectivity", 1e80, "of a magnitude from 1e-60 to 1e+60"),
        ("selectivity", 5e-324, "of a magnitude from 1e-60 to 1e+60"),
        ("cycles_per_event", 10**400, "allowed: a finite number of at least 0"),
    ],
)
def test_number_beyond_what_models_compute_with_is_refused(field: str, value: Any, words: str) -> None:
    document = chain(1, 1.0)
    document["operators"][0]["inputs"][0][field] = value
    assert words in faults_of(document)[f"operators[0].inputs[0].{field}"]


@pytest.mark.parametrize("width_s", [1e-40, 1e-9, 1e9])
def test_subinterval_whose_numbers_leave_whole_numbers_is_refused(width_s: float) -> None:
    """The simulator left its tables at 1e-40 s."""
    assert "a finite number from 1e-06 to 100000000" in faults_of(chain(1, 1.0, subinterval_s=width_s))["subinterval_s"]


def test_bad_file_does_not_keep_those_after_it_from_their_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text(json.dumps(chain(400, 10.0)))
    good.write_text(json.dumps(deployment()))
    assert main(["estimate", str(bad), str(good)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["error"]["faults"][0]["path"] == "operators[15]"
    assert "mace_wc" in second["result"]


def _not_a_number(document: Any) -> dict[str, Any]:
    return {"scenarios": [{"worst_s": float("nan") if document["bad"] else 1.0}]}


def _defective(document: Any) -> dict[str, Any]:
    return {"worst_s": 1.0 / (0.0 if document["bad"] else 1.0)}


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [("_not_a_number", "out-of-range", "at scenarios[0].worst_s"), ("_defective", "defect", "ZeroDivisionError")],
)
def test_answer_that_cannot_be_given_is_an_error_of_its_file_alone(
    function: str,
    code: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "pick", EngineCommand(f"{__name__}:{function}", ""))
    files = []
    for name, bad in (("bad", True), ("good", False)):
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps({"bad": bad}))
    assert main(["pick", *map(str, files)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["error"]["code"] == code
    assert words in first["error"]["message"]
    assert "result" in second
