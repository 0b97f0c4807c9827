"""A horizon that begins with events that wait: Mace, Flow, the walks and the simulator, and when queries catch up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from engine.simulation.run import SimulationSettings, simulate


def document(**changes: Any) -> dict[str, Any]:
    """One query of one operator on one node, at half its capacity."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [50.0] * 400}],
        "nodes": [{"id": "n", "capacity_cps": 100.0}, {"id": "m", "capacity_cps": 100.0}],
        "operators": [operator("f", "n", "s")],
    } | changes


def operator(
    name: str, node: str, source: str, *, query: str = "q", cycles: float = 1.0, selectivity: float = 1.0, **more: Any
) -> dict[str, Any]:
    entry = {"from": source, "selectivity": selectivity, "cycles_per_event": cycles} | more
    return {"id": name, "query": query, "node": node, "inputs": [entry]}


def waiting(**backlog: Any) -> list[dict[str, Any]]:
    return [{"id": "s", "arrivals": [50.0] * 400, "backlog": backlog}]


CHAIN = [
    operator("f", "n", "s", selectivity=0.7, cycles=1.2),
    operator("g", "m", "f", cycles=2.2),
]
PAUSES = [{"id": "n", "capacity_series_cps": ([0.0] * 10 + [120.0] * 10) * 20}]
SHARED = [operator("f", "n", "s"), operator("h", "n", "t", query="r")]
BURSTS = [float(rate) for rate in np.random.default_rng(1).choice([10.0, 80.0], 400)]
SITUATIONS = {
    "one server": document(sources=waiting(behind_s=60)),
    "a chain": document(sources=waiting(behind_s=60), operators=CHAIN),
    "pauses": document(sources=waiting(behind_s=60), nodes=PAUSES),
    "between operators": document(
        operators=[
            operator("f", "n", "s", selectivity=0.7),
            operator("g", "m", "f", cycles=2.0, backlog={"events": 3000}),
        ]
    ),
    "a neighbour": document(
        sources=[
            {"id": "s", "arrivals": BURSTS, "backlog": {"events": 2000, "behind_s": 100}},
            {"id": "t", "arrivals": [20.0] * 400},
        ],
        operators=SHARED,
    ),
}


@pytest.mark.parametrize("given", SITUATIONS.values(), ids=SITUATIONS)
def test_flow_agrees_with_the_simulator_on_catch_up_and_largest_latency(given: dict[str, Any]) -> None:
    deployment = Deployment.parse(given)
    reports = estimate(deployment).queries
    run, rested = (simulate(d, SimulationSettings(seed=1)) for d in (deployment, deployment.without_backlogs()))
    for query, report in reports.items():
        catch_up = report.catch_up
        assert catch_up is not None
        assert catch_up.state == "within"
        assert report.worst_s == pytest.approx(run.latency_s[run.chosen(query)].max(), rel=0.04)
        late_s = np.nan_to_num(run.series(query).maximum_s - rested.series(query).maximum_s)
        ended_s = np.flatnonzero(late_s > 0.02)[-1] + 1
        assert catch_up.at_s == pytest.approx(ended_s, rel=0.05)
        assert catch_up.low_s is not None
        assert catch_up.high_s is not None
        assert catch_up.low_s <= ended_s <= catch_up.high_s + 1.0


@pytest.mark.parametrize(("behind_s", "load"), [(20.0, 50.0), (7.3, 80.0), (100.0, 10.0), (0.4, 50.0)])
def test_one_constant_server_catches_up_after_backlog_over_free_capacity(behind_s: float, load: float) -> None:
    sources = [{"id": "s", "arrivals": [load] * 400, "backlog": {"behind_s": behind_s}}]
    report = estimate(Deployment.parse(document(sources=sources)), intervals=False).queries["q"]
    assert report.catch_up is not None
    assert report.catch_up.at_s == pytest.approx(behind_s * load / (100.0 - load), rel=1e-6)


def test_oldest_event_has_its_age_as_latency_at_least() -> None:
    report = estimate(Deployment.parse(document(sources=waiting(behind_s=1200.0)))).queries["q"]
    assert report.flow_s == pytest.approx(1200.0, rel=0.005)
    assert report.worst_s == pytest.approx(1200.0, rel=0.005)


def test_events_without_an_age_are_spread_at_the_known_rate() -> None:
    found = Deployment.parse(document(sources=waiting(events=1500))).backlogs[0]
    assert (found.events, found.behind_s, found.standing) == (1500, 30.0, "used")


def test_catching_up_beyond_the_horizon_says_when_or_never() -> None:
    later = estimate(Deployment.parse(document(sources=waiting(behind_s=1000))), intervals=False).queries["q"].catch_up
    assert later is not None
    assert (later.state, later.at_s) == ("later", pytest.approx(1000.0))
    full = document(sources=waiting(behind_s=10), operators=[operator("f", "n", "s", cycles=2.0)])
    never = estimate(Deployment.parse(full), intervals=False).queries["q"].catch_up
    assert never is not None
    assert (never.state, never.at_s) == ("never", None)


def test_stale_backlog_is_not_used_and_is_told() -> None:
    stale = Deployment.parse(document(sources=waiting(behind_s=60, age_s=901.0)))
    answer = estimate(stale).answer().to_dict()
    plain = estimate(Deployment.parse(document())).answer().to_dict()
    (told,) = answer.pop("backlogs")
    assert (told["standing"], "not used" in told["words"]) == ("stale", True)
    assert answer == plain


def test_backlog_of_seconds_without_a_rate_is_unknown() -> None:
    silent = [{"id": "s", "arrivals": [0.0] * 10, "backlog": {"behind_s": 60}}]
    (found,) = Deployment.parse(document(sources=silent)).backlogs
    assert (found.events, found.standing) == (None, "unknown_events")


def test_empty_backlog_changes_nothing() -> None:
    plain = estimate(Deployment.parse(document())).answer().to_dict()
    assert estimate(Deployment.parse(document(sources=waiting(events=0)))).answer().to_dict() == plain


def test_input_states_its_own_backlog_in_place_of_the_sources() -> None:
    operators = [operator("f", "n", "s", backlog={"events": 0}), operator("h", "m", "s", query="r")]
    deployment = Deployment.parse(document(sources=waiting(behind_s=60), operators=operators))
    assert [found.operator for found in deployment.backlogs] == ["h"]
    assert estimate(deployment, intervals=False).queries["q"].catch_up is None


def test_scaled_arrivals_leave_the_past_as_it_was() -> None:
    deployment = Deployment.parse(document(sources=waiting(behind_s=60)))
    scaled = deployment.with_arrivals({"s": np.full(400, 75.0)})
    assert [found.events for found in scaled.backlogs] == [3000.0]


@given(
    st.lists(st.floats(0.0, 120.0), min_size=4, max_size=4),
    st.floats(0.0, 500.0),
    st.floats(0.0, 500.0),
)
def test_more_backlog_never_makes_mace_smaller(arrivals: list[float], events: float, more: float) -> None:
    results = []
    for count in (events, events + more):
        sources = [{"id": "s", "arrivals": arrivals, "backlog": {"events": count, "behind_s": 10.0}}]
        results.append(mace(Deployment.parse(document(sources=sources, operators=CHAIN))))
    assert (results[1].ce >= results[0].ce - 1e-9).all()
    assert results[1].worst >= results[0].worst - 1e-12


def test_mace_begins_with_the_work_of_what_waits_on_its_whole_way() -> None:
    found = mace(Deployment.parse(document(sources=waiting(events=100), operators=CHAIN)))
    assert found.start.tolist() == pytest.approx([120.0, 154.0])
    assert found.ce[:, 0].tolist() == pytest.approx([80.0, 131.0])


def test_coarse_mace_and_fine_flow_begin_with_the_same_events() -> None:
    deployment = Deployment.parse(document(sources=waiting(behind_s=60)))
    assert mace(deployment.coarsened(7)).start.tolist() == mace(deployment).start.tolist()
    assert flow(deployment.coarsened(4), by_input=True).lead_events["q"].sum() == pytest.approx(3000.0)


def test_theorems_prove_no_upper_end_where_events_wait() -> None:
    bounds = estimate(Deployment.parse(document(sources=waiting(behind_s=60)))).answer().to_dict()["bounds"]
    assert not bounds["theorems_hold"]
    assert "events wait where the horizon begins" in bounds["words"]


def test_windows_hold_waiting_events_as_long_as_any() -> None:
    window = {"policy": "time", "type": "tumbling", "size": 10.0}
    operators = [operator("f", "n", "s") | {"kind": "aggregate", "window": window}]
    report = estimate(Deployment.parse(document(sources=waiting(behind_s=60), operators=operators))).queries["q"]
    assert 60.0 <= report.worst_s <= 71.0


def test_windows_beside_another_querys_backlog_keep_their_latency() -> None:
    window = {"policy": "time", "type": "tumbling", "size": 10.0}
    calm = operator("f", "n", "t", query="calm") | {"kind": "aggregate", "window": window}
    calm_only, late = {"id": "t", "arrivals": [20.0] * 400}, operator("g", "m", "s")
    alone = estimate(Deployment.parse(document(sources=[calm_only], operators=[calm]))).queries["calm"]
    sources = [calm_only, *waiting(behind_s=60)]
    beside = estimate(Deployment.parse(document(sources=sources, operators=[calm, late]))).queries["calm"]
    assert beside.worst_s == pytest.approx(alone.worst_s, rel=0.05)
    assert beside.mean_s == pytest.approx(alone.mean_s or 0.0, rel=0.05)


def test_time_of_catching_up_is_unknown_where_a_cost_is() -> None:
    """On every server of its own and of a neighbour with one; that it never does is sure whatever the cost."""
    unknown = operator("f", "n", "s", query="q") | {"evidence": {"kind": "unknown", "events": 5000}}
    del unknown["inputs"][0]["cycles_per_event"]
    behind = [*waiting(behind_s=60), {"id": "t", "arrivals": [20.0] * 400, "backlog": {"behind_s": 60}}]
    far = operator("g", "m", "t", query="far")

    def found(*operators: dict[str, Any]) -> dict[str, Any]:
        deployment = Deployment.parse(document(sources=behind, operators=list(operators)))
        return {name: report.catch_up for name, report in estimate(deployment, intervals=False).queries.items()}

    beside = found(unknown, far)
    assert (beside["q"].state, beside["q"].at_s, beside["far"].state) == ("unknown", None, "within")
    assert "may catch up or not" in beside["q"].words
    never = operator("after", "m", "f", query="q", cycles=3.0)
    assert found(unknown, never)["q"].state == "never"
    assert {name: entry.state for name, entry in found(unknown, operator("h", "n", "t", query="r")).items()} == {
        "q": "unknown",
        "r": "unknown",
    }
