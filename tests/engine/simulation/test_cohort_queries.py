"""Queries, hosts and placements of the corpus: ranges, shares and the three rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from engine.query_graph.graph import OperatorNode, QueryGraph
from engine.simulation.cohort import TraceSettings, draw_trace, trace_seed
from engine.simulation.cohort_queries import (
    PAPER_RANGES,
    QUERY_SHAPES,
    draw_hosts,
    draw_placement,
    draw_query,
    keeps_rules,
)


def test_placements_keep_the_rules_and_their_pins() -> None:
    source = random.Random(1)
    for shape in list(QUERY_SHAPES) * 20:
        graph, hosts = draw_query(source, shape), draw_hosts(source)
        placement = draw_placement(source, graph, hosts)
        assert keeps_rules(graph, hosts, placement)
        pinned = draw_placement(source, graph, hosts, {0: 0})
        assert pinned[0] == 0


def test_rules_forbid_weaker_hosts_and_the_way_back() -> None:
    source = random.Random(2)
    kinds = ("source", "filter", "filter", "sink")
    graph = QueryGraph(tuple(OperatorNode(kind, 5, 5) for kind in kinds), ((0, 1), (1, 2), (2, 3)))
    weak, strong, other = (draw_hosts(source, count=9)[k] for k in (0, -1, -2))
    assert (weak.strength, strong.strength, other.strength) == (0, 2, 2)
    hosts = (weak, strong, other)
    assert keeps_rules(graph, hosts, (0, 0, 1, 2))
    assert not keeps_rules(graph, hosts, (1, 0, 0, 0))
    assert not keeps_rules(graph, hosts, (1, 2, 1, 1))


def test_hosts_have_values_of_their_ranges() -> None:
    source, ranges = random.Random(3), PAPER_RANGES
    for host in (host for _ in range(100) for host in draw_hosts(source, ranges)):
        assert host.cpu_percent in ranges.cpu_percent[host.strength]
        assert host.ram_mb in ranges.ram_mb[host.strength]
        assert host.bandwidth_mbit_s in ranges.bandwidth_mbit_s[host.strength]
        assert round(1e3 * host.latency_s) in ranges.latency_ms[host.strength]


def test_shapes_have_the_paper_s_shares_and_sizes() -> None:
    traces = [draw_trace(trace_seed(5, i)) for i in range(1000)]
    sources = Counter(sum(op.kind == "source" for op in trace.graph.operators) for trace in traces)
    for k, share in ((1, 0.35), (2, 0.34), (3, 0.31)):
        assert sources[k] / len(traces) == pytest.approx(share, abs=0.04)
    assert 5.9 < sum(len(trace.graph.operators) for trace in traces) / len(traces) < 6.4
    aggregated = sum(any(op.kind == "agg" for op in trace.graph.operators) for trace in traces)
    assert 0.45 < aggregated / len(traces) < 0.55
    for trace in traces:  # one filter is never right after another
        kinds = [op.kind for op in trace.graph.operators]
        assert not any(kinds[a] == kinds[b] == "filter" for a, b in trace.graph.edges)


def test_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="'star'; allowed: linear"):
        draw_query(random.Random(0), "star")


def test_digest_tells_settings_apart() -> None:
    digests = {
        TraceSettings().digest(),
        TraceSettings(ranges=replace(PAPER_RANGES, ram_mb=((1500,),) * 3)).digest(),
        TraceSettings({"linear": 1.0}).digest(),
    }
    assert len(digests) == 3
    assert TraceSettings().digest() in digests
