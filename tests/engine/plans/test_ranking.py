"""Ranking of plans: told apart on common samples, how many more events would tell, samples, and drift."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main as engine
from engine.document.deployment import Deployment
from engine.document.elements import Batch, Replica
from engine.errors import DocumentError, InfeasibleError
from engine.estimation.mace import mace
from engine.plans.answer import OneNode, PlanRanking
from engine.plans.comparison import compare
from engine.plans.ranking import QueryPlan, rank, standard_error
from engine.plans.samples import drift
from lab.plans.samples import sample, with_sample


def batched(
    source: str, selectivity: float, cycles: float, spread: float, seed: int, size: int = 100
) -> dict[str, Any]:
    """An input with eight batches that lie about its means."""
    draw = np.random.default_rng(seed)
    batches = [
        {"events": size, "outputs": size * selectivity * a, "cycles": size * cycles * b}
        for a, b in draw.normal(1.0, spread, (8, 2))
    ]
    return {"from": source, "selectivity": selectivity, "cycles_per_event": cycles, "batches": batches}


def operator(name: str, entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "query": "q", "kind": "map", "stateless": True, "inputs": [entry], **more}


def running(spread: float = 0.01, objective: str = "worst") -> Deployment:
    """`parse` and `hot` on one of two nodes, overloaded for ten seconds; hot does not read what parse writes."""
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": "s", "arrivals": [100.0] * 10 + [10.0] * 50}],
            "nodes": [{"id": "a", "capacity_cps": 1000.0}, {"id": "b", "capacity_cps": 1000.0}],
            "operators": [
                operator("parse", batched("s", 1.0, 12.0, spread, 1), node="a", reads=["x"], writes=["y"]),
                operator("hot", batched("parse", 0.2, 2.0, spread, 2), node="a", kind="filter", reads=["x"], writes=[]),
                {
                    "id": "other",
                    "query": "z",
                    "node": "b",
                    "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1}],
                },
            ],
            "objectives": [{"query": "q", "statistic": objective, "bound_s": 2.0}],
        }
    )


def plan_of(deployment: Deployment) -> tuple[Any, ...]:
    return tuple(deployment.operators[i] for i in deployment.operators_of("q"))


@pytest.mark.parametrize("objective", ["worst", "mean", "q0.9"])
def test_better_plan_is_recommended(objective: str) -> None:
    deployment = running(objective=objective)
    answer = compare(deployment, "q", {"v1": plan_of(deployment)}, running="v1")
    document = answer.to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == PlanRanking.parse(document).to_dict() == document
    first, second = answer.plans
    assert (first.key, second.key, answer.recommended) == ("r1", "v1", "r1")
    assert (answer.finding.kind, answer.finding.key) == ("better", "r1")
    assert first.estimate_s < second.estimate_s and first.low_s <= first.estimate_s <= first.high_s
    assert str(first.steps[0].words) == "filter `hot` moved before `parse`"
    assert first.placement == second.placement  # the difference is the plan's alone
    assert answer.against_running["r1"].told_apart
    assert first.cost_cps / second.cost_cps == pytest.approx((2 + 0.2 * 12) / (12 + 2))


def test_plans_can_be_ranked_on_one_node() -> None:
    deployment = running()
    ranking = rank(deployment, "q", [QueryPlan("v1", plan_of(deployment))], node=OneNode(500.0))
    alone = replace(deployment.without_query("z"), nodes=(replace(deployment.nodes[0], capacity_cps=500.0),))
    assert ranking.plans[0].mace_s == pytest.approx(mace(alone).worst)
    assert ranking.plans[0].mace_s == pytest.approx(10 * (1400 - 500) / 500)


def wider(deployment: Deployment, factor: float) -> tuple[Any, ...]:
    """The same plan, dearer: the shared sample, each cost times a factor."""
    first, second = plan_of(deployment)
    entry = first.inputs[0]
    batches = tuple(replace(b, cycles=b.cycles * factor) for b in entry.batches)
    changed = replace(entry, cycles_per_event=entry.cycles_per_event * factor, batches=batches)
    return replace(first, inputs=(changed,)), second


def test_common_operators_do_not_widen_the_interval_of_a_difference() -> None:
    """Their intervals overlap by far, and still the sample tells them apart."""
    deployment = running(spread=0.1)
    ranking = rank(
        deployment, "q", [QueryPlan("v1", plan_of(deployment)), QueryPlan("v2", wider(deployment, 1.15))], running="v1"
    )
    first, two = ranking.plans
    assert first.high_s > two.low_s
    apart = ranking.against_running["v2"]
    assert apart.told_apart and apart.seconds > 0
    alone = float(np.hypot(*(np.std(plan.replicates) for plan in ranking.plans)))
    assert apart.error_s < alone * np.sqrt(7)


def test_indistinguishable_plans_state_the_events_needed() -> None:
    """The error falls as one over the square root of the events: that many more are indeed enough."""
    deployment = running(spread=0.3)
    first, second = plan_of(deployment)
    other = batched("s", 1.0, 14.0, 0.3, 7)
    dearer = replace(first, inputs=Deployment.parse(_alone(other)).operators[0].inputs), second
    ranking = rank(deployment, "q", [QueryPlan("v1", (first, second)), QueryPlan("v2", dearer)], running="v1")
    apart = ranking.against_running["v2"]
    assert not apart.told_apart and not apart.equal and apart.more_events > 0
    assert ranking.recommended is None
    grown = (ranking.plans[0].sample_events + apart.more_events) / ranking.plans[0].sample_events
    assert 3 * apart.error_s / np.sqrt(grown) <= abs(apart.seconds) - ranking.resolution_s + 1e-9


def _alone(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [1.0]}],
        "nodes": [{"id": "a", "capacity_cps": 1.0}],
        "operators": [{"id": "parse", "node": "a", "inputs": [entry]}],
    }


def test_plans_without_samples_are_ranked() -> None:
    deployment = running()
    bare = tuple(replace(op, inputs=tuple(replace(e, batches=()) for e in op.inputs)) for op in plan_of(deployment))
    answer = compare(deployment.without_query("q").extended(bare), "q", {"v1": bare}, running="v1")
    assert (answer.finding.kind, answer.finding.more_events) == ("unclear", 500)
    assert answer.plans[0].low_s < answer.plans[0].high_s, "random costs need no sample"


def test_equal_plans_are_reported_as_equal() -> None:
    deployment = running()
    alone = plan_of(deployment)[:1]
    answer = compare(deployment, "q", {"v1": alone, "v2": (replace(alone[0], id="parse2"),)}, running="v1")
    assert answer.finding.kind == "equal"
    assert answer.against_running["v2"].more_events is None


def test_streams_read_by_other_queries_are_not_rewritten() -> None:
    deployment = running()
    reader = replace(
        deployment.operators[2], id="leech", inputs=(replace(deployment.operators[2].inputs[0], source="hot"),)
    )
    answer = compare(deployment.extended([reader]), "q", {"v1": plan_of(deployment)}, running="v1")
    assert answer.finding.kind == "alone"
    (refusal,) = answer.rewriting["v1"].refused
    assert refusal.words == "nothing is rewritten: leech, which is no part of the query, reads hot"


def test_plan_that_fits_no_node_is_reported() -> None:
    deployment = running()
    new = replace(plan_of(deployment)[0], id="new", replicas=())
    with pytest.raises(InfeasibleError):
        rank(deployment, "q", [QueryPlan("v2", (new,))], closed=["a", "b"])
    astray = replace(new, inputs=(replace(new.inputs[0], source="nothing"),))
    with pytest.raises(DocumentError, match="nothing"):
        rank(deployment, "q", [QueryPlan("v2", (astray,))])


def test_plan_is_not_compared_on_a_draining_node_that_it_asks_for() -> None:
    deployment = running()
    new = replace(plan_of(deployment)[0], id="new", replicas=(Replica("b"),))
    (asked,) = rank(deployment, "q", [QueryPlan("v2", (new,))]).plans
    (draining,) = rank(deployment, "q", [QueryPlan("v2", (new,))], closed=["b"]).plans
    assert [{part.node for part in plan.placement["new"]} for plan in (asked, draining)] == [{"b"}, {"a"}]


# -- samples
def test_sample_counts_input_and_output_of_operators() -> None:
    plan = plan_of(running())
    ticks = count(step=7)
    result = sample(
        plan,
        {
            "parse": lambda event, position: [event, event],
            "hot": lambda event, position: [event] if event % 4 == 0 else [],
        },
        [("s", i) for i in range(1000)],
        clock=lambda: next(ticks),
    )
    assert result.events == {"s": 500}
    assert len(result.batches["parse", 0]) == len(result.batches["hot", 0]) == 8
    parse, hot = with_sample(plan, result)
    assert (parse.inputs[0].selectivity, parse.inputs[0].cycles_per_event) == (2.0, 7.0)
    assert hot.inputs[0].selectivity == 0.25
    assert (hot.evidence.kind, hot.evidence.events) == ("measured", 1000)
    assert not result.unseen


def test_operator_without_a_function_is_refused_by_name() -> None:
    with pytest.raises(DocumentError, match="'hot' has no function"):
        sample(plan_of(running()), {"parse": lambda event, position: []}, [])
    result = sample(plan_of(running()), {"parse": lambda e, p: [], "hot": lambda e, p: [e]}, [("s", 1), ("s", 2)])
    assert result.unseen == (("hot", 0),)
    assert with_sample(plan_of(running()), result)[1] == plan_of(running())[1]


# -- drift
def drawn(rng: np.random.Generator, selectivity: float, cycles: float = 1000.0) -> dict[tuple[str, str], list[Batch]]:
    """Four inputs, 500 events each in eight batches, costs with a coefficient of variation of one half."""
    return {
        (f"o{i}", "s"): [
            Batch(float(n), float(rng.binomial(n, selectivity)), float(rng.gamma(4.0, cycles / 4.0, n).sum()))
            for n in rng.multinomial(500, [1 / 8] * 8)
        ]
        for i in range(4)
    }


@pytest.mark.parametrize("selectivity", [0.02, 0.3, 0.95])
def test_drift_test_has_less_than_one_percent_false_alarms(selectivity: float) -> None:
    rng, checks = np.random.default_rng(5), 1500
    alarms = sum(drift(drawn(rng, selectivity), drawn(rng, selectivity)).significant for _ in range(checks))
    assert alarms <= 0.01 * checks


def test_drift_is_detected_and_named() -> None:
    rng = np.random.default_rng(6)
    result = 0
    for _ in range(50):
        new = drawn(rng, 0.3)
        new["o2", "s"] = drawn(rng, 0.5, 1400.0)["o2", "s"]
        answer = drift(drawn(rng, 0.3), new)
        result += {c.what for c in answer.changes if c.significant} == {"selectivity", "cycles_per_event"}
        assert all(change.operator == "o2" for change in answer.changes[:1])
    assert result >= 45


def test_equal_or_missing_sample_is_no_drift() -> None:
    old = drawn(np.random.default_rng(7), 0.3)
    assert [change.p for change in drift(old, old).changes] == [1.0] * 8
    answer = drift(old, old | {("o0", "s"): [], ("new", "s"): []})
    assert answer.untested == (("o0", "s"),) and not answer.significant


def test_single_batch_with_events_is_not_tested_for_drift() -> None:
    key, empty = ("o0", "s"), Batch(0.0, 0.0, 0.0)
    answer = drift({key: [Batch(500.0, 150.0, 1e6), empty]}, {key: [Batch(500.0, 151.0, 1.01e6), empty]})
    assert answer.untested == (key,) and not answer.changes


def test_plans_command_ranks_the_plans_of_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = running()
    plans = {"q": (tuple(replace(op, replicas=()) for op in wider(deployment, 0.5)),)}
    path = tmp_path / "d.json"
    path.write_text(json.dumps(replace(deployment, plans=plans).to_document()))
    assert engine(["plans", "--query", "q", "--hop-cycles", "1", str(path)]) == 0
    answer = json.loads(capsys.readouterr().out)["result"]["q"]
    assert {plan["key"] for plan in answer["plans"]} >= {"running", "plan1", "r1"}
    assert answer["finding"]["kind"] == "better"
    assert engine(["plans", "--query", "zz", str(path)]) == 1
    assert "allowed: q, z" in capsys.readouterr().out


def test_jackknife_error_of_a_mean_is_the_usual_standard_error() -> None:
    sample = np.array([1.0, 2.0, 4.0, 7.0])
    left_out = (sample.sum() - sample) / 3
    assert standard_error(left_out) == pytest.approx(sample.std(ddof=1) / 2)
