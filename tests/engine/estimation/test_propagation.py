"""Estimates of changes equal those of the whole to the last bit, and take in no more than what differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation import flow as flow_module
from engine.estimation import propagation
from engine.estimation.base import EstimateBase
from engine.estimation.cluster_places import replica_names
from engine.estimation.estimate import Estimate, estimate
from engine.estimation.flow import flow
from engine.estimation.propagation import changed_flow, flow_base, spread_flow
from engine.estimation.reports import QueryReport
from tests.engine.estimation.clusters import other_change, random_change, random_cluster
from tests.engine.samples import deployment as document
from tests.engine.samples import entry, operator
from tests.thoroughness import examples

SEEDS = st.integers(0, 2**32 - 1)


Change = Callable[[np.random.Generator, Deployment], Deployment]


def drawn(seed: int, change: Change = random_change) -> tuple[np.random.Generator, Deployment, Deployment]:
    """A random cluster, and the same after a random change."""
    rng = np.random.default_rng(seed)
    load = float(rng.choice([0.3, 0.7, 1.0, 1.6]))
    found = random_cluster(rng, load=load, queries=int(rng.integers(2, 14)), nodes=int(rng.integers(2, 8)))
    before = Deployment.parse(found)
    return rng, before, change(rng, before)


def written(report: QueryReport) -> str:
    return json.dumps(report.answer().to_dict(), default=np.ndarray.tolist)


def check_flow(seed: int, change: Change) -> None:
    _, before, after = drawn(seed, change)
    base = flow_base(before)
    changed, whole = changed_flow(base, after), flow(after, by_input=True, trace=True)
    for query in after.queries:
        found = changed.flow if query in changed.queries else base.flow
        assert np.array_equal(found.by_query[query], whole.by_query[query]), query
        if query in changed.queries:
            assert found.hops[query] == whole.hops[query]


def check_servers(base: EstimateBase, changed: Estimate, whole: Estimate) -> None:
    """Servers of a change are those of the whole; of the others those of before are."""
    row = {server.name: i for i, server in enumerate(changed.judged.deployment.servers)}
    before = {server.name: i for i, server in enumerate(base.estimate.judged.deployment.servers)}
    for i, server in enumerate(whole.judged.deployment.servers):
        of, at = changed.judged, row.get(server.name)
        if at is None:
            of, at = base.estimate.judged, before[server.name]
        for name in ("load", "ce", "worst_s", "start"):
            assert np.array_equal(getattr(of, name)[at], getattr(whole.judged, name)[i]), (server.name, name)


@pytest.mark.parametrize("change", [random_change, other_change])
@settings(max_examples=80, derandomize=True)
@given(seed=SEEDS)
def test_flow_of_a_change_equals_that_of_the_whole(seed: int, change: Change) -> None:
    check_flow(seed, change)


@pytest.mark.slow
@pytest.mark.parametrize("change", [random_change, other_change])
@settings(max_examples=examples(1500), derandomize=True)
@given(seed=SEEDS)
def test_flow_of_any_change_equals_that_of_the_whole(seed: int, change: Change) -> None:
    check_flow(seed, change)


@settings(max_examples=6, derandomize=True)
@given(SEEDS)
def test_estimate_of_another_change_equals_that_of_the_whole(seed: int) -> None:
    check_estimate(seed, other_change)


@pytest.mark.slow
@pytest.mark.parametrize("change", [random_change, other_change])
@settings(max_examples=examples(100), derandomize=True)
@given(seed=SEEDS)
@example(seed=373)  # a batch of another query's operators
@example(seed=1612)  # a sink whose last events waited before the horizon
@example(seed=2129)  # the last input that is not linear leaves
def test_estimate_of_any_change_equals_that_of_the_whole(seed: int, change: Change) -> None:
    check_estimate(seed, change)


def check_estimate(seed: int, change: Change) -> None:
    rng, before, after = drawn(seed, change)
    every, begin = int(rng.choice([1, 4])), int(rng.choice([0, 0, 8]))
    base = EstimateBase.of(before, every)
    was = base.estimate.counted(begin)
    was_judged = {found.query: found for found in before.objectives}
    judged_anew = [found.query for found in after.objectives if was_judged.get(found.query) != found]
    changed = base.changed(after, counted_from=begin, concerned=judged_anew)
    whole = estimate(after, mace_every=every, intervals=False, counted_from=begin)
    check_servers(base, changed, whole)
    assert changed.alarm == whole.alarm
    realised = changed.realised(), whole.realised(), was.realised()
    for of_change, of_whole, of_before in ((changed, whole, was), realised):
        for query, report in of_whole.queries.items():
            known = of_change.queries.get(query) or of_before.queries[query]
            assert written(known) == written(report), query


@pytest.mark.slow
@settings(max_examples=examples(10), derandomize=True)
@given(SEEDS)
@example(9)  # what waits where the horizon begins is gone
@example(126)  # its oldest event is another one
def test_any_moved_base_equals_one_made_from_nothing(seed: int) -> None:
    rng, before, after = drawn(seed)
    every = int(rng.choice([1, 4]))
    moved = EstimateBase.of(before, every)
    for _ in range(3):
        moved, whole = moved.moved(after), EstimateBase.of(after, every)
        found, made = moved.estimate, whole.estimate
        assert moved.worst_s == whole.worst_s
        assert found.alarm == made.alarm
        for name in ("load", "ce", "worst_s", "total_s", "start"):
            assert np.array_equal(getattr(found.judged, name), getattr(made.judged, name)), name
        for had, has in ((made.flow, found.flow), (made.unburdened, found.unburdened)):
            assert (had is None) == (has is None)
            if had is not None and has is not None:
                for query in after.queries:
                    assert np.array_equal(has.by_query[query], had.by_query[query]), query
        for had_times, has_times in zip(whole.flows, moved.flows, strict=True):
            for name in replica_names(after):
                for one, other in zip(had_times.times_of(name), has_times.times_of(name), strict=True):
                    assert np.array_equal(one, other), name
        for later in (False, True):
            moves, whole_anew = (found.counted(8), made.counted(8)) if later else (found, made)
            assert list(moves.queries) == list(whole_anew.queries)
            for query, report in whole_anew.queries.items():
                assert written(moves.queries[query]) == written(report), query
        after = random_change(rng, after)


def check_change_of_a_shifted_base(seed: int) -> None:
    rng, before, stressed = drawn(seed)
    every = int(rng.choice([1, 4]))
    after = random_change(rng, stressed)
    shifted = EstimateBase.of(before, every).shifted(stressed)
    changed = shifted.changed(after)
    kept = [query for query in stressed.queries if query in after.queries]
    alone = shifted.changed(stressed, concerned=kept)
    joined, without = (estimate(found, mace_every=every) for found in (after, stressed))
    check_servers(shifted, changed, joined)
    check_servers(shifted, alone, without)
    assert changed.alarm == joined.alarm
    of_change, of_stress = changed.realised().queries, alone.realised().queries
    for query, report in joined.queries.items():
        assert written(of_change.get(query) or of_stress[query]) == written(report), query
    for query in kept:
        assert written(of_stress[query]) == written(without.queries[query]), query


@settings(max_examples=8, derandomize=True)
@given(SEEDS)
def test_change_of_what_is_under_a_stress_equals_the_whole(seed: int) -> None:
    check_change_of_a_shifted_base(seed)


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True)
@given(SEEDS)
def test_change_of_what_is_under_any_stress_equals_the_whole(seed: int) -> None:
    check_change_of_a_shifted_base(seed)


def test_stress_that_follows_no_beginnings_is_off_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "_MAX_BEGINNINGS", 0)
    differing = 0
    for seed in range(40, 60):
        _, before, after = drawn(seed)
        base, whole = flow_base(before), flow(after, by_input=True, keep_times=True)
        overlaid = base.overlaid(after, spread_flow(base, after))
        assert whole.times is not None
        for name, finish in zip(replica_names(after), whole.times.finish, strict=True):
            found = overlaid.times_of(name)
            assert found is not None
            differing += not np.array_equal(found.finish, finish)
            assert np.abs(found.finish - finish).max() <= 0.05 * max(whole.wc, after.subinterval_s), (seed, name)
    assert differing


def pairs(count: int, cycles: float) -> dict[str, Any]:
    """Queries of two operators, each on two of `count` nodes in a circle; the source brings 10 events a second."""
    operators = []
    for i in range(count):
        here, there = f"N{i}", f"N{(i + 1) % count}"
        operators.append(operator(f"q{i}.0", here, entry("s", 1.0, cycles), query=f"q{i}"))
        operators.append(operator(f"q{i}.1", there, entry(f"q{i}.0", 1.0, cycles), query=f"q{i}"))
    nodes = [{"id": f"N{i}", "capacity_cps": 100.0} for i in range(count)]
    return document(sources=[{"id": "s", "arrivals": [10.0] * 20}], nodes=nodes, operators=operators)


def concerned(cycles: float) -> frozenset[str]:
    """Queries that a third operator on N3 concerns, of ten that share their nodes with a neighbour each."""
    found = pairs(10, cycles)
    joining = operator("new.0", "N3", entry("s", 1.0, 2.0), query="new")
    after = Deployment.parse(found | {"operators": [*found["operators"], joining]})
    return changed_flow(flow_base(Deployment.parse(found)), after).queries


def test_change_with_room_concerns_the_queries_on_its_servers_alone() -> None:
    assert concerned(cycles=3.0) == {"q2", "q3", "new"}


def test_change_within_an_overload_goes_as_far_as_finishes_move() -> None:
    assert concerned(cycles=6.0) >= {"q2", "q3", "q4", "new"}


def test_same_deployment_concerns_nobody() -> None:
    found = Deployment.parse(pairs(4, 3.0))
    assert changed_flow(flow_base(found), found).queries == frozenset()


@pytest.mark.parametrize("every", [1, 4])
def test_source_from_which_loads_go_another_way_changes_no_digit(every: int) -> None:
    """Loads go by source up to a number of them, which is less at Mace's width, and by operator from there on."""
    rng = np.random.default_rng(1)
    subintervals, count = 20, (20 // every + 64) // 2
    sources = [{"id": f"s{u}", "arrivals": rng.uniform(1.0, 9.0, subintervals).tolist()} for u in range(count + 1)]
    operators = []
    for u in range(count + 1):
        place = f"N{u % 4}" if u < count else "N4"
        operators.append(operator(f"q{u}.0", place, entry(f"s{u}", 0.7, rng.uniform(0.3, 1.7)), query=f"q{u}"))
        operators.append(operator(f"q{u}.1", place, entry(f"q{u}.0", 0.7, rng.uniform(0.3, 1.7)), query=f"q{u}"))
    nodes = [{"id": f"N{i}", "capacity_cps": 100.0} for i in range(5)]
    before = Deployment.parse(document(sources=sources[:-1], nodes=nodes, operators=operators[:-2]))
    after = Deployment.parse(document(sources=sources, nodes=nodes, operators=operators))
    base = EstimateBase.of(before, every)
    changed, whole = base.changed(after), estimate(after, mace_every=every, intervals=False)
    check_servers(base, changed, whole)
    assert changed.alarm == whole.alarm
    for query, report in whole.queries.items():
        assert written(changed.queries.get(query) or base.estimate.counted(0).queries[query]) == written(report), query


def test_change_of_the_horizon_is_refused() -> None:
    short = Deployment.parse(pairs(4, 3.0))
    longer = Deployment.parse(pairs(4, 3.0) | {"sources": [{"id": "s", "arrivals": [10.0] * 21}]})
    with pytest.raises(ValueError, match="allowed: a deployment of the same subintervals"):
        changed_flow(flow_base(short), longer)


def test_times_beyond_the_memory_for_them_lie_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Deployment.parse(pairs(10, 6.0))
    after = found.without_query("q4")
    near = changed_flow(flow_base(found), after)
    monkeypatch.setattr(flow_module, "_IN_MEMORY", 0)
    far = changed_flow(flow_base(found), after)
    assert near.queries == far.queries
    assert all(np.array_equal(near.flow.by_query[query], far.flow.by_query[query]) for query in near.queries)


def test_disk_without_room_for_times_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_module, "_IN_MEMORY", 0)
    monkeypatch.setattr("os.posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        flow_base(Deployment.parse(pairs(4, 3.0)))
