"""Parallelisms of a query side by side: rates, keys, slots, hosts, restarts, neighbours, and simulated servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.document.deployment import Deployment, Replica
from engine.errors import DocumentError
from engine.estimation.base import EstimateBase
from engine.parallelism.answer import ParallelismPlan
from engine.parallelism.job import JobPlace, ScalableJob, document_job, feed_of
from engine.parallelism.plan import plan_parallelism
from engine.parallelism.question import ParallelismQuestion
from engine.simulation.run import SimulationSettings, simulate


def measured(name: str, above: str, cost: float, core: int, **more: Any) -> dict[str, Any]:
    """An operator of 1000 cycles/s cores, its cost in batches that differ by 2 %."""
    batches = [{"events": 100, "outputs": 100, "cycles": 100 * cost * share} for share in (0.98, 1.02, 1.0, 1.0)]
    entry = {"from": above, "selectivity": 1.0, "cycles_per_event": cost, "batches": batches}
    evidence = {"kind": "measured", "events": 1e5}
    return {"id": name, "query": "q", "node": "n", "core": core, "evidence": evidence, "inputs": [entry], **more}


def counted(rate: float = 400.0, cores: int = 8, bound_s: float = 0.5, steps: int = 120, **count: Any) -> Deployment:
    """`read` takes 0.5 cycles an event, `count` by key 2: one thread of it is full at 500 events/s."""
    keyed = {"kind": "aggregate", "stateless": False, "keyed": True} | count
    return Deployment.parse(
        {
            "subinterval_s": 0.5,
            "sources": [{"id": "s", "arrivals": [rate * 0.5] * steps}],
            "nodes": [{"id": "n", "capacity_cps": 1000.0, "cores": cores}],
            "operators": [
                measured("read", "s", 0.5, 0, kind="source"),
                measured("count", "read", 2.0, 1, **keyed),
            ],
            "objectives": [{"query": "q", "statistic": "q0.99", "bound_s": bound_s}],
        }
    )


def plan_of(
    deployment: Deployment, job: ScalableJob | None = None, *, closed: Sequence[str] = (), **question: Any
) -> ParallelismPlan:
    base, asked = EstimateBase.of(deployment, 1), ParallelismQuestion.parse(question)
    return plan_parallelism(base, job or document_job(deployment, "q"), asked, closed=closed)


def test_keyed_operator_gains_by_its_key_groups() -> None:
    deployment = counted()
    job = document_job(deployment, "q")
    shared = replace(job.operators["count"], shares=(0.5, 0.5), parallelism=2)
    deployment = deployment.with_placement({"count": [Replica("n", 1, 0.5), Replica("n", 2, 0.5)]})
    plan = plan_of(deployment, replace(job, operators={**job.operators, "count": shared}), parallelism=[2, 3])
    two, three = plan.choices
    assert two.is_now and two.rate_per_s == pytest.approx(1000.0)
    # the busiest of three has 43 of 128 groups
    assert three.rate_per_s == pytest.approx(500.0 * 128 / 43)
    assert (three.skew, three.busiest_share) == ("measured", pytest.approx(43 / 128))
    assert three.gain_low == three.gain == pytest.approx(128 / 43 / 2)


def test_keys_of_a_single_subtask_are_not_known_to_be_even() -> None:
    plan = plan_of(counted(rate=600.0), parallelism=[1, 2])
    one, two = plan.choices
    assert two.skew == "assumed_even" and two.gain == pytest.approx(2.0)
    assert two.low_per_s is not None and two.low_per_s < 500.0  # one key may have all events
    assert one.latency_state == "breached" and two.latency_state == "at_risk"
    assert plan.recommended == 2 and plan.is_if_even
    assert "if keys are even, which nobody measured" in plan.words


def test_join_of_which_the_document_does_not_say_that_it_is_keyed_is_split_by_its_keys() -> None:
    one, two = plan_of(counted(kind="join", keyed=None), parallelism=[1, 2]).choices
    assert one.operators["count"] == 1 and two.gain == pytest.approx(2.0)


def test_global_aggregate_limits_whatever_the_parallelism() -> None:
    plan = plan_of(counted(keyed=False), parallelism=[1, 4])
    assert [choice.operators["count"] for choice in plan.choices] == [1, 1]
    assert plan.choices[1].gain == pytest.approx(1.0)
    assert "all its events have to meet" in str(plan.operators[1].grounds)


def test_unknown_cost_gives_no_gain_and_no_rate() -> None:
    plan = plan_of(counted(evidence={"kind": "predicted", "events": 10.0}), parallelism=[1, 2])
    assert [(choice.state, choice.gain, choice.rate_per_s) for choice in plan.choices] == [("unknown", None, None)] * 2
    assert plan.recommended is None and plan.operators[1].autoscaler is None


def test_cores_of_a_host_are_shared_by_all_its_slots() -> None:
    deployment = counted()
    place = JobPlace(slots=8, free=7, host="h", host_cores=2.0)
    plan = plan_of(deployment, replace(document_job(deployment, "q"), places={"n": place}), parallelism=[4])
    *_, four = plan.choices
    # two cores, whatever the slots: 2,000 cycles/s for 2.5 an event
    assert four.rate_per_s is not None and four.rate_per_s <= 800.0 * 1.001
    assert any("No core is left on h" in str(note) for note in four.notes)
    waiting = replace(place, waits=True)
    plan = plan_of(deployment, replace(document_job(deployment, "q"), places={"n": waiting}), parallelism=[4])
    assert plan.choices[-1].rate_per_s == pytest.approx(2000.0)


def test_parallelism_beyond_the_slots_has_no_figures() -> None:
    *_, choice = plan_of(counted(cores=4), parallelism=[9]).choices
    assert (choice.state, choice.slots, choice.slots_short, choice.rate_per_s) == ("no_slots", 9, 6, None)


def beside(**limits: Any) -> Deployment:
    """`counted` on n, which has cores for three of `count`; m has cores for four, and an operator of another query."""
    document = counted(cores=4).to_document() | {"constraints": limits}
    other = measured("other", "s", 0.1, 0) | {"query": "p", "node": "m"}
    document["nodes"] = [*document["nodes"], {"id": "m", "capacity_cps": 1000.0, "cores": 4}]  # type: ignore[misc]
    document["operators"] = [*document["operators"], other]  # type: ignore[misc]
    return Deployment.parse(document)


def test_subtasks_are_added_on_any_node_without_limits() -> None:
    *_, five = plan_of(beside(), parallelism=[5]).choices
    assert five.rate_per_s is not None
    assert {replica.node for replica in five.placement["count"]} == {"n", "m"}


LIMITS = [
    ({}, ["m"]),
    ({"pin": {"count": "n"}}, []),
    ({"forbid": {"count": ["m"]}}, []),
    ({"apart": [["count", "other"]]}, []),
]


@pytest.mark.parametrize(("limits", "closed"), LIMITS)
def test_no_subtask_is_added_where_its_operator_may_not_be(limits: dict[str, Any], closed: list[str]) -> None:
    _, three, five = plan_of(beside(**limits), closed=closed, parallelism=[3, 5]).choices
    assert {replica.node for replica in three.placement["count"]} == {"n"}
    assert five.state in ("no_host", "no_slots") and five.slots_short > 0
    assert (five.rate_per_s, five.placement) == (None, {})


def test_fewer_subtasks_leave_a_draining_node_first() -> None:
    deployment = beside().with_placement({"count": [Replica("m", 0, 0.5), Replica("n", 2, 0.5)]})
    one, _ = plan_of(deployment, closed=["m"], parallelism=[1]).choices
    assert {replica.node for replica in one.placement["count"]} == {"n"}


def test_partitions_cap_a_source() -> None:
    *_, choice = plan_of(counted(), parallelism=[4], partitions={"read": 2}).choices
    assert choice.operators == {"read": 2, "count": 4}
    assert "read has fewer subtasks" in str(choice.notes[0])


def test_restart_builds_a_backlog_that_is_caught_up_by_what_is_left() -> None:
    *_, choice = plan_of(counted(), parallelism=[2], restart_s=30.0).choices
    restart = choice.restart
    assert restart is not None
    assert (restart.events, restart.basis) == (pytest.approx(400.0 * 30.0), "stated")
    assert restart.back_s == pytest.approx(30.0 + 12_000.0 / (1000.0 - 400.0))


def test_assumed_restart_counts_the_bytes_of_state() -> None:
    deployment = counted(state_bytes=2e9)
    restart = document_job(deployment, "q").restart_at(2)
    assert restart.basis == "assumed"
    assert (restart.low_s, restart.high_s) == (pytest.approx(5.0 + 10.0), pytest.approx(60.0 + 100.0))


def test_neighbour_whose_core_is_taken_is_named() -> None:
    document = counted(rate=600.0, cores=2).to_document()
    beside = measured("other", "t", 2.0, 0, kind="map") | {"query": "beside"}
    document["operators"] += [beside]  # type: ignore[operator]
    document["sources"] += [{"id": "t", "arrivals": [62.5] * 120}]  # type: ignore[operator]
    document["objectives"] += [{"query": "beside", "statistic": "q0.99", "bound_s": 0.5}]  # type: ignore[operator]
    deployment = Deployment.parse(document)
    job = replace(document_job(deployment, "q"), places={"n": JobPlace(8, 7, "n", 2.0)})
    *_, choice = plan_of(deployment, job, parallelism=[2], operators=["count"]).choices
    # core 0 has 0.3 of read, 0.25 of other and 0.6 of count then
    assert choice.breaks == ("beside",)


def test_scale_down_falls_behind() -> None:
    deployment = counted(rate=600.0).with_placement({"count": [Replica("n", 1, 0.5), Replica("n", 2, 0.5)]})
    one, two = plan_of(deployment, parallelism=[1, 2]).choices
    assert one.rate_per_s == pytest.approx(500.0) and one.latency_state == "breached"
    assert one.restart is not None and one.restart.back_s is None
    assert two.latency_state == "holds"


def test_nothing_is_recommended_by_statistics_of_seconds() -> None:
    written: dict[str, Any] = counted().to_document() | {"objectives": []}
    assert plan_of(Deployment.parse(written), parallelism=[1, 2]).recommended == 1
    written["operators"][1]["measured_s"] = 15.0
    rough = plan_of(Deployment.parse(written), parallelism=[1, 2])
    assert rough.recommended is None and any("measuring" in str(note) for note in rough.notes)


def test_faults_of_a_question_name_what_is_allowed() -> None:
    with pytest.raises(DocumentError) as refused:
        plan_of(counted(keyed=False), operators=["cuont", "count"], partitions={"count": 3})
    assert [fault.path for fault in refused.value.faults] == ["operators[0]", "operators[1]", "partitions.count"]
    assert "did you mean 'count'" in str(refused.value.faults[0].message)
    assert "keeps its parallelism: all its events have to meet" in str(refused.value.faults[1].message)


@pytest.mark.parametrize(
    ("strategies", "kind", "expected"),
    [
        (["hash", "hash"], "join", "keyed"),
        (["rebalance"], "window", "spread"),
        (["forward"], "window", "forward"),
        (["forward"], "map", "spread"),
        (["global"], "aggregate", "global"),
        (["custom"], "map", "unknown"),
        (["broadcast"], "map", "broadcast"),
    ],
)
def test_feed_follows_the_exchanges(strategies: list[str], kind: str, expected: str) -> None:
    operator = Deployment.parse(counted().to_document()).operators[1]
    assert feed_of(strategies, replace(operator, kind=kind, stateless=None)) == expected


@pytest.mark.parametrize("parallelism", [2, 3])
def test_rate_is_what_simulated_servers_keep_up_with(parallelism: int) -> None:
    *_, choice = plan_of(counted(), parallelism=[parallelism]).choices
    assert choice.rate_per_s is not None
    for share, keeps_up in ((0.95, True), (1.05, False)):
        loaded = counted(rate=share * choice.rate_per_s, steps=60).with_placement(choice.placement)
        simulated = simulate(loaded, replace(SimulationSettings(), drawn_arrivals=False))
        late = simulated.latency_s[-200:].mean()
        # overloaded by 5 % for 30 s, the last events are some 1.4 s late
        assert (late < 0.2) if keeps_up else (late > 0.8)
