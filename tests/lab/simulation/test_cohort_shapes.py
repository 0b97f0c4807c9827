"""Queries and hosts that no model was trained on, and further runs of a trace."""

from __future__ import annotations

import random

import pytest

from engine.simulation.cohort import draw_trace
from engine.simulation.cohort_queries import (
    PAPER_RANGES,
    HardwareRanges,
    draw_hosts,
    draw_placement,
    draw_query,
    keeps_rules,
)
from lab.simulation.cohort_reruns import rerun_label
from lab.simulation.cohort_shapes import UNSEEN_RANGES, UNSEEN_SHAPES, restricted_ranges


def test_placements_of_unseen_shapes_keep_the_rules() -> None:
    source = random.Random(1)
    for shape in list(UNSEEN_SHAPES) * 20:
        graph, hosts = draw_query(source, shape), draw_hosts(source)
        assert keeps_rules(graph, hosts, draw_placement(source, graph, hosts))


@pytest.mark.parametrize("ranges", [UNSEEN_RANGES, restricted_ranges(PAPER_RANGES, ram_mb=(24000, 32000))])
def test_hosts_have_values_of_their_ranges(ranges: HardwareRanges) -> None:
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


@pytest.mark.parametrize(("shape", "kinds"), [
    ("four-filters", "source filter filter filter filter sink"),
    ("advertisement", "source source filter join sink"),
    ("spike-detection", "source filter agg filter sink"),
    ("smart-grid-local", "source agg sink"),
])  # fmt: skip
def test_unseen_shape_has_its_operators(shape: str, kinds: str) -> None:
    assert [op.kind for op in draw_query(random.Random(4), shape).operators] == kinds.split()


def test_further_runs_of_a_seed_give_one_label() -> None:
    trace = draw_trace(7)
    arguments = (trace.graph, trace.hosts, trace.placement)
    assert rerun_label(*arguments, seed=7) == rerun_label(*arguments, seed=7)
