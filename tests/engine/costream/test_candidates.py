"""Candidates: rules and pins hold, none occurs twice, and what rules every placement out is named."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.costream.candidates import (
    enumerate_placements,
    find_candidates,
    heuristic_placements,
)
from engine.errors import DocumentError, InfeasibleError
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph
from tests.engine.costream.ensembles import make_trace
from tests.engine.costream.rules import is_acyclic, is_ascending

STRENGTHS = [0, 0, 1, 1, 1, 2, 2, 2]
HOSTS = [HostNode(100 + 50 * j, 4000, 100, 0.01, strength) for j, strength in enumerate(STRENGTHS)]


def _join_of_chains() -> QueryGraph:
    """Two chains of four operators that meet in a ninth, which a sink reads."""
    edges = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), (3, 8), (7, 8), (8, 9)]
    return QueryGraph((OperatorNode("filter", 1, 1),) * 10, tuple(edges))


def test_drawn_candidates_keep_rules_and_pins_and_differ() -> None:
    graph, pins = _join_of_chains(), {0: 1, 4: 0, 9: 6}
    found = find_candidates(graph, HOSTS, 1000, pins, seed=5)
    placements = found.placements
    assert placements.shape == (1000, 10)
    assert not found.exhaustive
    assert len(np.unique(placements, axis=0)) == 1000
    assert is_ascending(graph, STRENGTHS, placements).all()
    assert is_acyclic(graph, placements).all()
    assert (placements[:, list(pins)] == list(pins.values())).all()
    used = {len(set(row)) for row in placements.tolist()}
    assert min(used) <= 4  # pins alone need three
    assert max(used) >= 7


def test_same_seed_draws_the_same_candidates() -> None:
    first, again, other = (find_candidates(_join_of_chains(), HOSTS, 50, seed=seed).placements for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_few_candidates_are_all_there_are() -> None:
    trace = make_trace()
    found = find_candidates(trace.graph, trace.hosts, 10_000)
    every = np.array(list(itertools.product(range(len(trace.hosts)), repeat=len(trace.graph.operators))))
    strengths = [host.strength for host in trace.hosts]
    kept = every[is_ascending(trace.graph, strengths, every) & is_acyclic(trace.graph, every)]
    assert found.exhaustive
    assert sorted(found.placements.tolist()) == kept.tolist()


def test_candidate_that_goes_back_to_a_host_is_left_out() -> None:
    chain = QueryGraph((OperatorNode("filter", 1, 1),) * 3, ((0, 1), (1, 2)))
    assert is_acyclic(chain, np.array([[0, 1, 0], [0, 1, 1], [0, 0, 1]])).tolist() == [False, True, True]


def test_candidate_whose_paths_cross_between_two_hosts_is_left_out() -> None:
    crossing = QueryGraph((OperatorNode("filter", 1, 1),) * 5, ((0, 2), (1, 3), (2, 4), (3, 4)))
    assert is_acyclic(crossing, np.array([[0, 1, 1, 0, 2], [0, 1, 0, 1, 2]])).tolist() == [False, True]


def test_heuristics_come_first_and_keep_rules_and_pins() -> None:
    graph = _join_of_chains()
    found = find_candidates(graph, HOSTS, 100, {0: 2})
    strongest, spread = (found.placements[found.heuristics[name]].tolist() for name in ("strongest", "spread"))
    assert strongest == [2] + [7] * 9
    assert spread[0] == 2
    assert spread[4] == 0
    assert spread[9] == 7
    assert len(set(spread)) > 3
    rows = np.array(list(heuristic_placements(graph, HOSTS, {0: 2}).values()))
    assert is_ascending(graph, STRENGTHS, rows).all()
    assert is_acyclic(graph, rows).all()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("hosts", [HOSTS, HOSTS[:1]], ids=["many hosts", "one host"])
def test_heuristics_keep_their_rows_at_any_count(hosts: list[HostNode], count: int) -> None:
    graph = _join_of_chains()
    found = find_candidates(graph, hosts, count)
    rows = heuristic_placements(graph, hosts)
    assert set(found.heuristics) == set(rows) == {"strongest", "spread"}
    for name, place in found.heuristics.items():
        assert tuple(found.placements[place].tolist()) == rows[name]
    assert len(found.placements) == (max(count, 2) if len(hosts) > 1 else 1)


def test_query_of_more_operators_than_a_word_has_bits_has_no_candidates() -> None:
    def chain(n: int) -> QueryGraph:
        return QueryGraph((OperatorNode("filter", 1, 1),) * n, tuple((i, i + 1) for i in range(n - 1)))

    found = find_candidates(chain(64), HOSTS[6:], 50)
    assert is_acyclic(chain(64), found.placements).all()
    with pytest.raises(DocumentError, match="a query has 65 operators; allowed: 64"):
        find_candidates(chain(65), HOSTS[6:], 50)


def test_pins_that_rule_each_other_out_are_named() -> None:
    chain = QueryGraph((OperatorNode("filter", 1, 1),) * 3, ((0, 1), (1, 2)))
    with pytest.raises(InfeasibleError) as refused:
        find_candidates(chain, HOSTS, pins={0: 7, 2: 0})
    (fault,) = refused.value.faults
    assert fault.path == "pins[2]"
    assert "pinned to a weak host behind operator 0 on a strong one" in fault.message
    with pytest.raises(InfeasibleError, match="No placement keeps the rules"):
        find_candidates(chain, HOSTS, pins={0: 2, 1: 3, 2: 2})


def test_enumeration_gives_up_beyond_its_limit() -> None:
    graph = _join_of_chains()
    assert enumerate_placements(graph, HOSTS, limit=100) is None
    assert enumerate_placements(graph, HOSTS[:1], limit=1) is not None
