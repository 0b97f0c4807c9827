"""Changes computed in an excerpt of a cluster are those of the whole, whatever the size of the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation import excerpt
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from engine.estimation.excerpt import ClusterSurroundings
from engine.estimation.propagation import flow_base
from tests.engine.estimation.clusters import random_change, random_cluster
from tests.engine.estimation.test_propagation import SEEDS, check_servers, pairs, written
from tests.engine.samples import deployment as document
from tests.engine.samples import entry, operator
from tests.thoroughness import examples


@pytest.fixture(scope="module", autouse=True)
def _excerpts_of_any_size() -> None:
    """Small clusters are looked at in excerpts as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(excerpt, "_LARGE_SHARE", 2.0)
        yield


def check_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load, queries, nodes = float(rng.choice([0.3, 0.7, 1.0, 1.6])), int(rng.integers(2, 30)), int(rng.integers(2, 25))
    before = Deployment.parse(random_cluster(rng, load=load, queries=queries, nodes=nodes))
    after, every, begin = random_change(rng, before), int(rng.choice([1, 4])), int(rng.choice([0, 0, 8]))
    base = EstimateBase.of(before, every)
    was, changed = base.estimate.counted(begin), base.changed(after, counted_from=begin)
    whole = estimate(after, mace_every=every, intervals=False, counted_from=begin)
    check_servers(base, changed, whole)
    assert changed.alarm == whole.alarm
    realised = changed.realised(), whole.realised(), was.realised()
    for of_change, of_whole, of_before in ((changed, whole, was), realised):
        for query, report in of_whole.queries.items():
            assert written(of_change.queries.get(query) or of_before.queries[query]) == written(report), query


@settings(max_examples=8, derandomize=True)
@given(SEEDS)
def test_change_in_an_excerpt_equals_that_of_the_whole(seed: int) -> None:
    check_change(seed)


@pytest.mark.night
@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True)
@given(st.integers(0, 400))
@example(117)  # what waits is elsewhere
def test_any_change_in_an_excerpt_equals_that_of_the_whole(seed: int) -> None:
    check_change(seed)


def surroundings(count: int) -> tuple[ClusterSurroundings, Deployment]:
    """Those of `count` pairs of operators in a circle of nodes, and the same after a third operator joins on N3."""
    found = pairs(count, 3.0)
    joining = operator("new.0", "N3", entry("s", 1.0, 2.0), query="new")
    before = Deployment.parse(found)
    return ClusterSurroundings(before, flow_base(before).cluster, 1), before.extended(
        Deployment.parse(found | {"operators": [*found["operators"], joining]}).operators[-1:]
    )


def test_excerpt_is_no_larger_for_a_larger_cluster() -> None:
    sizes = []
    for count in (12, 48):
        around, after = surroundings(count)
        difference = around.difference(after)
        assert difference is not None
        found = around.around(difference, difference.servers, ())
        assert found is not None
        sizes.append(len(found.operators))
    assert sizes[0] == sizes[1] < 24


def test_excerpt_holds_the_queries_on_the_servers_of_a_change_whole() -> None:
    around, after = surroundings(12)
    difference = around.difference(after)
    assert difference is not None
    found = around.around(difference, difference.servers, ())
    assert found is not None
    assert found.queries == {"q2", "q3"}
    assert found.servers >= {"N2", "N3", "N4"}
    assert found.operators >= {"q2.0", "q2.1", "q3.0", "q3.1", "q1.1", "q4.0"}


def test_change_of_what_is_common_to_all_has_no_difference_of_its_own() -> None:
    around, after = surroundings(12)
    assert around.difference(replace(after, scheduling="fcfs")) is None


def islands(count: int) -> Deployment:
    """Queries of two operators, each alone on a node that takes what comes first."""
    found = pairs(count, 2.0)
    for item in found["operators"]:
        item["node"] = f"N{item['query'][1:]}"
    return Deployment.parse(found | {"nodes": [{**node, "scheduling": "fcfs"} for node in found["nodes"]]})


def test_change_where_other_policies_run_takes_in_all_that_is_tied_to_it_and_no_more() -> None:
    before = islands(12)
    joining = operator("new.0", "N3", entry("s", 1.0, 2.0), query="new")
    whole = Deployment.parse(pairs(12, 2.0) | {"operators": [*pairs(12, 2.0)["operators"], joining]})
    after = before.extended(whole.operators[-1:])
    base = EstimateBase.of(before)
    changed = base.changed(after)
    assert set(changed.queries) == {"q3", "new"}
    assert {operator.id for operator in changed.deployment.operators} == {"q3.0", "q3.1", "new.0"}
    expected = estimate(after, intervals=False)
    assert expected.queries["q3"].gap is not None
    for query, report in changed.queries.items():
        assert written(report) == written(expected.queries[query])
    assert written(expected.queries["q4"]) == written(base.estimate.counted(0).queries["q4"])


def check_move(before: Deployment, after: Deployment) -> None:
    """A base that is moved has the numbers of one made from nothing."""
    moved, whole = EstimateBase.of(before).moved(after), EstimateBase.of(after)
    assert moved.estimate.alarm == whole.estimate.alarm
    for query, report in whole.estimate.queries.items():
        assert written(moved.estimate.queries[query]) == written(report), query


def island_document(count: int = 6) -> dict[str, Any]:
    """Queries of one operator on a node each, every one with a source of its own."""
    return document(
        sources=[{"id": f"s{i}", "arrivals": [10.0] * 20} for i in range(count)],
        nodes=[{"id": f"N{i}", "capacity_cps": 100.0} for i in range(count)],
        operators=[operator(f"q{i}.0", f"N{i}", entry(f"s{i}", 1.0, 9.0), query=f"q{i}") for i in range(count)],
    )


def test_age_that_follows_from_other_arrivals_is_that_of_the_whole() -> None:
    found = island_document()
    found["operators"][0]["inputs"][0]["backlog"] = {"events": 100.0}
    before = Deployment.parse(found)
    check_move(before, before.with_arrivals({"s0": [2.5] * 20}))


def test_backlog_of_a_source_that_grew_old_is_that_of_the_whole() -> None:
    before, later = island_document(), island_document()
    before["sources"][0]["backlog"], later["sources"][0]["backlog"] = {"behind_s": 5.0}, {"behind_s": 50.0}
    check_move(Deployment.parse(before), Deployment.parse(later))


def test_query_that_gains_an_operator_elsewhere_keeps_its_other_ends() -> None:
    found = island_document()
    found["operators"][0]["inputs"][0]["cycles_per_event"] = 11.0
    before = Deployment.parse(found)
    branch = operator("q0.1", "N5", entry("s0", 1.0, 0.1), query="q0")
    check_move(before, Deployment.parse(found | {"operators": [*found["operators"], branch]}))


def test_source_that_a_probe_makes_speak_is_that_of_all_who_read_it() -> None:
    found = island_document()
    found["sources"].append({"id": "silent", "arrivals": [0.0] * 20})
    found["operators"][1]["inputs"].append(entry("silent", 1.0, 90.0))
    joining = operator("new.0", "N4", entry("silent", 1.0, 1.0), query="new")
    before, after = Deployment.parse(found), Deployment.parse(found | {"operators": [*found["operators"], joining]})
    check_move(before, after)
    check_move(after, before)


def test_alarm_knows_the_nodes_that_are_there_and_the_operators_that_end_a_query() -> None:
    found = island_document()
    found["operators"][0]["inputs"][0]["cycles_per_event"] = 20.0
    before = Deployment.parse(found)
    gone = found | {"nodes": found["nodes"][1:], "operators": found["operators"][1:]}
    check_move(before, Deployment.parse(gone))
    reader = operator("r.0", "N3", entry("q2.0", 1.0, 1.0), query="r")
    check_move(Deployment.parse(found | {"operators": [*found["operators"], reader]}), before)
