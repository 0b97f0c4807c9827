"""Changes computed in an excerpt of a cluster are those of the whole, whatever the size of the cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation import excerpt
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from engine.estimation.excerpt import ClusterSurroundings
from engine.estimation.propagation import flow_base
from tests.engine.estimation.clusters import random_change, random_cluster
from tests.engine.estimation.test_propagation import SEEDS, check_servers, pairs, written
from tests.engine.samples import entry, operator


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


@pytest.mark.slow
@settings(max_examples=150, derandomize=True)
@given(st.integers(0, 400))
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
