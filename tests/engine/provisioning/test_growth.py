"""Growth by differences of loads against the whole worked out anew, and what Flow confirms."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.arrays import statistic_or_worst
from engine.document.deployment import Combine, Deployment
from engine.estimation.linear_loads import is_linear
from engine.estimation.loads import sink_events
from engine.estimation.mace import mace
from engine.estimation.query_flow import flow_queries
from engine.provisioning.changes import apply_changes
from engine.provisioning.confirmation import confirm_objectives
from engine.provisioning.growth import LoadGrowth, headroom_by_query
from engine.provisioning.question import watch_work
from engine.provisioning.what_if import mace_by_query


def woven(seed: int, statistic: str, *, varying: bool = False) -> Deployment:
    """Three queries on three nodes that read each other's operators, over links, with a split operator."""
    rng = np.random.default_rng(seed)
    d = 30
    nodes: list[dict[str, Any]] = [{"id": f"n{k}", "capacity_cps": 10.0} for k in range(3)]
    if varying:
        nodes[1] = {"id": "n1", "capacity_series_cps": rng.uniform(6.0, 14.0, d).tolist()}
    operators = []
    for q in range(3):
        for k in range(3):
            inputs = [{"from": f"o{q}{k - 1}" if k else f"s{q}"}]
            if k == 0 and q == 2:
                inputs.append({"from": "s0"})
            if k == 1 and q:
                inputs.append({"from": f"o{q - 1}{k}"})
            for entry in inputs:
                entry |= {"selectivity": float(rng.uniform(0.4, 0.9)), "cycles_per_event": float(rng.uniform(0.3, 1.2))}
            operator: dict[str, Any] = {"id": f"o{q}{k}", "query": f"q{q}", "inputs": inputs, "bytes_per_event": 4.0}
            operator["node"] = f"n{rng.integers(3)}"
            operators.append(operator)
    operators[3].pop("node")
    operators[3]["split"] = [{"node": "n0", "fraction": 0.3}, {"node": "n2", "fraction": 0.7}]
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [{"id": f"s{q}", "arrivals": rng.gamma(0.6, 5.0, d).tolist()} for q in range(3)],
            "nodes": nodes,
            "links": [{"from": f"n{a}", "to": f"n{b}", "bandwidth_bytes_s": 25.0} for a, b in pairs],
            "operators": operators,
            "objectives": [
                {"query": f"q{q}", "statistic": statistic, "bound_s": float(rng.uniform(6.0, 30.0))} for q in range(3)
            ],
        }
    )


def kept_in_full(deployment: Deployment, change: dict[str, Any], factor: float) -> bool:
    grown = apply_changes(deployment, [change | {"by": factor}])
    result, weights = mace(grown), sink_events(grown)
    series, reporter = mace_by_query(result), flow_queries(grown).reporter
    return all(
        statistic_or_worst(series[entry.query], weights[entry.query], entry.statistic) <= entry.bound_s
        and not reporter.standing(entry.query).is_endless
        for entry in grown.objectives
    )


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.9"])
def test_growth_by_differences_equals_full_evaluation(statistic: str, varying: bool) -> None:
    answers = set()
    for seed in range(24):
        deployment = woven(seed, statistic, varying=varying)
        growing = LoadGrowth(deployment)
        for query in (None, *deployment.queries):
            change = {"scale_source": "*"} if query is None else {"scale_query": query}
            keeps = growing.keeps(query)
            for factor in (1.0, 1.1, 1.3, 1.7, 2.5, 6.0):
                expected = kept_in_full(deployment, change, factor) and kept_in_full(deployment, change, 1.0)
                assert keeps(factor) is expected, (seed, query, factor)
                answers.add(expected)
    assert answers == {True, False}


def test_flow_confirms_the_tightest_growth() -> None:
    deployment = next(d for d in (woven(seed, "worst") for seed in range(40)) if LoadGrowth(d).kept_now)
    result = headroom_by_query(deployment, tightest=1, most=64.0)
    assert result.together.factor is not None, "Flow keeps every objective as it is"
    tight = min(result.queries.values(), key=lambda entry: entry.factor or 0.0)
    others = [entry for entry in result.queries.values() if entry is not tight]
    assert tight.note == ""
    assert all(not entry.confirmed and "by Mace alone" in entry.note for entry in others)


def test_loads_that_do_not_add_are_evaluated_in_full() -> None:
    deployment = replace(woven(1, "worst"), combine=Combine("max"))
    assert not is_linear(deployment)
    result = headroom_by_query(deployment, flow=False, most=64.0).together
    assert result.factor is not None
    assert kept_in_full(deployment, {"scale_source": "*"}, result.factor)
    assert not kept_in_full(deployment, {"scale_source": "*"}, result.factor * 1.02)


@pytest.mark.parametrize("statistic", ["worst", "mean"])
def test_growth_by_changes_of_a_kept_estimate_is_confirmed_by_the_whole_worked_out_anew(statistic: str) -> None:
    deployment = next(d for d in (woven(seed, statistic) for seed in range(40)) if LoadGrowth(d).kept_now)
    result = headroom_by_query(deployment, most=64.0)
    accepted = {entry.query for entry in result.figures.objectives if entry.state == "at_risk"}
    for query, headroom in result.queries.items():
        assert headroom.factor is not None and headroom.confirmed
        kept, beyond = (
            confirm_objectives(
                apply_changes(deployment, [{"scale_query": query, "by": factor}]), mace_every=1, accepted=accepted
            )
            for factor in (headroom.factor, headroom.factor * 1.05)
        )
        assert kept.miss is None
        assert headroom.unlimited or (headroom.miss is not None and beyond.miss is not None)


def test_growth_ends_with_its_budget_and_says_what_was_not_confirmed() -> None:
    deployment = next(d for d in (woven(seed, "worst") for seed in range(40)) if LoadGrowth(d).kept_now)
    result = headroom_by_query(deployment, budget_s=0.0)
    assert not result.together.confirmed and "time" in result.together.note
    assert all(not entry.confirmed for entry in result.queries.values())


class Cancelled(Exception):
    """Raised by whoever listens."""


def test_work_that_tells_nothing_is_left_within_a_second() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(tell: Any) -> None:
        begun.set()
        ended.wait(60.0)  # a long step, of which nobody hears anything
        tell(0.5, "next")

    def listen(share: float, step: str) -> None:
        if begun.is_set():
            raise Cancelled

    with pytest.raises(Cancelled):
        watch_work(work, listen)
    assert not ended.is_set(), "the wait ended before the work"
    ended.set()


def test_work_ends_with_its_next_step_once_nobody_waits() -> None:
    steps: list[int] = []
    over, go_on = threading.Event(), threading.Event()

    def work(tell: Any) -> None:
        try:
            for i in range(1_000):
                tell(i / 1_000, str(i))
                steps.append(i)
                go_on.wait(60.0)
        finally:
            over.set()

    def listen(share: float, step: str) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        watch_work(work, listen)
    go_on.set()
    assert over.wait(60.0) and steps == [0]


def test_watched_work_gives_its_answer_and_its_faults() -> None:
    told: list[tuple[float, str]] = []
    assert watch_work(lambda tell: 7, lambda share, step: told.append((share, step))) == 7

    def fail(tell: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        watch_work(fail, lambda share, step: None)
