"""``latency``, ``gg1``, ``order``, ``bridge``, ``plan`` and ``split``: documents, answers and faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.errors import DocumentError
from engine.planner.command import (
    bridge_command,
    gg1_command,
    latency_command,
    order_command,
    plan_command,
    split_command,
)
from tests.engine.planner.stages import NODE, WORD

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
STAGE: dict[str, Any] = {"profile": asdict(WORD), "hardware": asdict(NODE)}
SETTINGS: dict[str, Any] = {"S": 10, "M": 2, "R": 2, "B_in": 0.005, "B_sh": 0.2, "B_ch": 0.2}
LATENCY: dict[str, Any] = STAGE | SETTINGS | {"rate": 8e5}
PLAN: dict[str, Any] = STAGE | {"rate": 3e5, "s_max": 5, "spec": {"L": 1.0, "max_m": 3, "max_r": 3}}


def faults(command: Callable[[Any], Any], document: Any) -> list[str]:
    """Paths of the faults of a refused document, sorted."""
    with pytest.raises(DocumentError) as caught:
        command(document)
    return sorted(fault.path for fault in caught.value.faults)


def test_every_fault_of_a_latency_question_is_told_with_its_path() -> None:
    document = LATENCY | {"M": 2.5, "R": True, "B_sh": -0.2, "rate": float("nan"), "variant": "new", "speed": 1}
    document |= {"profile": {"alpha": 0.0, "b_in": None}, "hardware": {"n": "4"}, "kind": "normal", "x": 1}
    assert faults(latency_command, document) == [
        "B_sh", "M", "R", "hardware.n", "profile.alpha", "profile.b_in", "rate", "speed", "variant",
    ]  # fmt: skip


@pytest.mark.parametrize("x", [0, 1, -0.5, True, None, "0.9", float("inf")])
def test_level_outside_zero_and_one_is_refused_for_a_quantile(x: Any) -> None:
    assert set(faults(latency_command, LATENCY | {"kind": "cantelli", "x": x})) == {"x"}


def test_level_is_not_looked_at_for_the_mean() -> None:
    assert latency_command(LATENCY | {"kind": "mean", "x": 7}) == latency_command(LATENCY)


def test_latency_is_of_the_paper_unless_told_otherwise() -> None:
    paper, improved = (latency_command(LATENCY | {"variant": name}) for name in ("paper", "improved"))
    assert latency_command(LATENCY) == paper != improved


def test_unknown_word_for_the_maximum_is_refused() -> None:
    assert faults(latency_command, LATENCY | {"order": "rough"}) == ["order"]


@pytest.mark.parametrize("document", [None, [], 3, "latency", {}])
def test_document_of_another_kind_is_refused(document: Any) -> None:
    for command in (latency_command, gg1_command, order_command, bridge_command, plan_command, split_command):
        assert faults(command, document)


def test_queue_without_an_end_has_null_waits() -> None:
    waits = gg1_command({"ta": 1, "ca2": 1, "ts": 2, "cs2": 1})
    assert set(map(tuple, waits.values())) == {(None, None)}
    assert len(waits) == 12


def test_values_that_are_no_numbers_are_refused() -> None:
    assert faults(gg1_command, {"ta": 0, "ca2": -1, "ts": "1", "cs2": True, "ds3": None}) == [
        "ca2", "cs2", "ds3", "ta", "ts",
    ]  # fmt: skip
    assert faults(order_command, {"n": 1.5}) == ["n"]
    assert faults(bridge_command, {"N": 0, "rho": -1}) == ["N", "rho"]


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"s_max": 0}, ["s_max"]),
        ({"headroom": 1}, ["headroom"]),
        ({"headroom": -0.1, "rate": 0}, ["headroom", "rate"]),
        ({"spec": {}}, ["spec.L"]),
        ({"spec": {"L": 0, "max_m": 0, "kind": "median"}}, ["spec.L", "spec.kind", "spec.max_m"]),
        ({"spec": {"L": 1, "kind": "normal", "x": 1.0}}, ["spec.x"]),
        ({"spec": {"L": 1, "b_lo": [0.01, 0.01, 3]}}, ["spec.b_hi[2]"]),
        ({"spec": {"L": 1, "b_lo": [0.01, 0.0], "b_hi": [0.1, 2, "2"]}}, ["spec.b_hi[2]", "spec.b_lo"]),
    ],
)
def test_faults_of_a_plan_question_are_told(changes: dict[str, Any], paths: list[str]) -> None:
    assert faults(plan_command, PLAN | changes) == paths


def test_plan_with_headroom_bears_more_than_the_rate() -> None:
    plan = plan_command(PLAN | {"headroom": 0.2}).to_dict()
    assert plan["feasible"] and plan["Lambda"] >= 3e5 / 0.8
    assert plan_command(PLAN | {"headroom": 0.9}).to_dict() == {"feasible": False}


def test_plan_of_a_question_is_the_whole_answer() -> None:
    question = {"rate": 3e5, "max_nodes": 5, "constraint_s": 1.0, "max_m": 3, "max_r": 3}
    answer = plan_command(STAGE | {"question": question}).to_dict()
    assert answer["feasible"] and answer["plan"]["nodes"] == 3
    assert len(answer["curve"]) == 3
    wrong = {"question": question | {"aim": 2, "statistic": "worst"}, "profile": {"alpha": -1}}
    assert faults(plan_command, wrong) == ["profile.alpha", "question.aim", "question.statistic"]


def test_plan_of_rounds_reads_them_by_name() -> None:
    question = {"rate": 1e5, "max_nodes": 9, "constraint_s": 2.0, "max_m": 2, "max_r": 2}
    rounds: list[dict[str, Any]] = [
        {"name": "words", "profile": asdict(WORD), "emitted": 0.05},
        {"name": "ranks", "profile": {"c_map": 2e-6}, "after": ["words"]},
    ]
    answer = plan_command({"rounds": rounds, "question": question}).to_dict()
    assert answer["feasible"]
    assert [item["rate"] for item in answer["rounds"]] == pytest.approx([1e5, 4e4])
    assert answer["nodes"] == sum(item["sizing"]["plan"]["nodes"] for item in answer["rounds"])
    rounds[1] |= {"name": "words", "after": ["counts", "words"], "profile": {"c_map": "much"}}
    found = faults(plan_command, {"rounds": rounds, "question": {"rate": 0}})
    assert found == [
        "question.constraint_s", "question.max_nodes", "question.rate", "rounds[1].profile.c_map",
    ]  # fmt: skip
    rounds[1]["profile"] = {}
    assert faults(plan_command, {"rounds": rounds, "question": question}) == ["rounds[1].after[0]", "rounds[1].name"]


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"total": 0, "weights": [1]}, ["total"]),
        ({"total": 1, "weights": []}, ["weights"]),
        ({"total": "1", "weights": [0, "x"]}, ["total", "weights[1]"]),
        ({"total": 1, "weights": [1, -1]}, ["weights[1]"]),
        ({"total": 1, "weights": [0, 0]}, ["weights"]),
        ({"total": 1}, ["means", "variances", "z"]),
        ({"total": 1, "means": [1], "variances": [1, 2], "z": 1}, ["variances"]),
        ({"total": 1, "weights": [1], "means": [1]}, ["means"]),
        ({"total": 1, "weights": [1, 1], "edges": [[0, 5]]}, ["edges[0]"]),
    ],
)
def test_faults_of_a_split_are_told(document: dict[str, Any], paths: list[str]) -> None:
    assert faults(split_command, document) == paths


def test_split_follows_a_graph() -> None:
    document = {"total": 6, "weights": [1, 1, 4, 1], "edges": [[0, 1], [0, 2], [1, 3], [2, 3]]}
    assert split_command(document) == pytest.approx([1, 4, 4, 1])


def test_examples_of_the_documents_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLES / "plan.json")]) == 0
    plan = json.loads(capsys.readouterr().out)["result"]
    assert (plan["feasible"], plan["plan"]["nodes"], plan["plan"]["binding"]["limit"]) == (True, 10, "cpu")
    assert main(["latency", str(EXAMPLES / "latency.json")]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["stable"]
