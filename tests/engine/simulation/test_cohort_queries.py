"""Queries, hosts and placements of the corpus: ranges, shares and the three rules."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.costream.documents import read_trace
from engine.simulation.cohort_queries import (
    PAPER_RANGES,
    QUERY_SHAPES,
    UNSEEN_RANGES,
    draw_hosts,
    draw_placement,
    draw_query,
    keeps_rules,
    restricted_ranges,
)
from engine.simulation.cohort_traces import TraceSettings, draw_trace, simulate_trace, trace_document, trace_seed


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
    graph = draw_query(source, "two-filters")
    weak, strong, other = (draw_hosts(source, count=9)[k] for k in (0, -1, -2))
    assert (weak.strength, strong.strength, other.strength) == (0, 2, 2)
    hosts = (weak, strong, other)
    assert keeps_rules(graph, hosts, (0, 0, 1, 2))
    assert not keeps_rules(graph, hosts, (1, 0, 0, 0))
    assert not keeps_rules(graph, hosts, (1, 2, 1, 1))


@pytest.mark.parametrize(
    "ranges", [PAPER_RANGES, UNSEEN_RANGES, restricted_ranges(PAPER_RANGES, ram_mb=(24000, 32000))]
)
def test_hosts_have_values_of_their_ranges(ranges: type(PAPER_RANGES)) -> None:
    source = random.Random(3)
    for host in (host for _ in range(100) for host in draw_hosts(source, ranges)):
        assert host.cpu_percent in ranges.cpu_percent[host.strength]
        assert host.ram_mb in ranges.ram_mb[host.strength]
        assert host.bandwidth_mbit_s in ranges.bandwidth_mbit_s[host.strength]
        assert round(1e3 * host.latency_s) in ranges.latency_ms[host.strength]


def test_unseen_hosts_share_no_value_with_the_paper_s() -> None:
    for name in ("cpu_percent", "ram_mb", "bandwidth_mbit_s", "latency_ms"):
        seen = {value for values in getattr(PAPER_RANGES, name) for value in values}
        assert not seen & {value for values in getattr(UNSEEN_RANGES, name) for value in values}


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


@pytest.mark.parametrize(("shape", "kinds"), [
    ("four-filters", "source filter filter filter filter sink"),
    ("advertisement", "source source filter join sink"),
    ("spike-detection", "source filter agg filter sink"),
    ("smart-grid-local", "source agg sink"),
])  # fmt: skip
def test_unseen_shape_has_its_operators(shape: str, kinds: str) -> None:
    assert [op.kind for op in draw_query(random.Random(4), shape).operators] == kinds.split()


def test_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="'star'; allowed: linear"):
        draw_query(random.Random(0), "star")


def test_trace_is_read_back_as_it_was_made() -> None:
    for i in range(20):
        simulated = simulate_trace(trace_seed(6, i))
        read = read_trace(trace_document(simulated))
        order = simulated.trace.graph.order
        assert read.graph.operators == tuple(simulated.trace.graph.operators[i] for i in order)
        assert read.placement == tuple(simulated.trace.placement[i] for i in order)
        assert read.hosts == simulated.trace.hosts
        assert read.label is not None
        assert simulated.trace.label is not None
        assert read.label.success == simulated.trace.label.success
        assert read.label.throughput_eps == pytest.approx(simulated.trace.label.throughput_eps)


def test_digest_tells_settings_apart() -> None:
    digests = {
        TraceSettings().digest(),
        TraceSettings(ranges=UNSEEN_RANGES).digest(),
        TraceSettings({"linear": 1.0}).digest(),
    }
    assert len(digests) == 3
    assert TraceSettings().digest() in digests
