"""Further runs of a simulated trace: what the best prediction could know of its costs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from engine.query_graph.graph import HostNode, QueryGraph, TraceLabel
from engine.simulation.cohort import simulate_cohorts, trace_label
from engine.simulation.cohort_tables import CohortWorld

__all__ = ["rerun_label"]


def rerun_label(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placement: Sequence[int],
    *,
    seed: int,
    repeats: int = 4,
    world: CohortWorld | None = None,
) -> TraceLabel:
    """Geometric mean of `repeats` further runs (majority of the yes-no labels): the best any prediction could do.

    A cost is None where fewer than half of the runs have one.
    """
    seeds = [random.Random(seed * 1_000_003 + k).getrandbits(48) for k in range(1, repeats + 1)]
    labels = [
        trace_label(simulate_cohorts(graph, hosts, placement, seed=s, world=world), seed=s, world=world) for s in seeds
    ]

    def centre(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return math.exp(sum(map(math.log, present)) / len(present)) if 2 * len(present) >= repeats else None

    return TraceLabel(
        centre([label.throughput_eps for label in labels]),
        centre([label.processing_latency_s for label in labels]),
        centre([label.end_to_end_latency_s for label in labels]),
        sum(label.backlog_eps for label in labels) / repeats,
        2 * sum(label.backpressure for label in labels) > repeats,
        2 * sum(label.success for label in labels) > repeats,
    )
