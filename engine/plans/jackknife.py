"""Standard errors of Flow by the jackknife over batches of the sample behind its statistics.

Each of up to eight groups of batches is left out in turn, at every input at once, and Flow is run again. With estimates
x_g the standard error is sqrt((G - 1) / G * sum (x_g - mean)^2). Plans that share a sample leave out the same groups,
so the error of their difference is that of the paired estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Batch
from engine.document.topology import DataflowGraph
from engine.estimation.flow import Flow, flow

__all__ = ["Z", "jackknife", "standard_error"]

Z = 3.0  # standard errors from which on a difference is told apart
_GROUPS = 8


def jackknife(deployment: Deployment, *, slices: int = 1) -> tuple[Flow, ...]:
    """Flow (by input) once per group of batches left out; empty where no input has two batches."""
    graphs = (_without_group(deployment, g) for g in range(_groups(deployment)))
    return tuple(flow(deployment, slices=slices, graph=graph, by_input=True) for graph in graphs)


def standard_error(replicates: Sequence[float] | FloatArray) -> FloatArray:
    """Jackknife standard error over the first axis of `replicates`, shape (G, ...)."""
    values = np.asarray(replicates, dtype=np.float64)
    count = len(values)
    return np.asarray(np.sqrt((count - 1) / count * ((values - values.mean(axis=0)) ** 2).sum(axis=0)))


def _groups(deployment: Deployment) -> int:
    most = max((len(e.batches) for operator in deployment.operators for e in operator.inputs), default=0)
    return min(most, _GROUPS) if most >= 2 else 0


def _without_group(deployment: Deployment, group: int) -> DataflowGraph:
    """The dataflow with every input's statistics as if group `group` of its batches had not been sampled.

    The given selectivity and cost are scaled by the ratio of the sample's means, so that an interval belongs to the
    numbers that were estimated with even where they are not exactly the sample's.
    """
    graph = deployment.graph
    scale = np.ones((2, len(graph.in_stream)))
    inputs = (entry for operator in deployment.operators for entry in operator.inputs)
    for k, entry in enumerate(inputs):
        if entry.is_sampled:
            scale[:, k] = _ratios(entry.batches, group)
    return replace(graph, output=graph.output * scale[0][:, None], cycles=graph.cycles * scale[1][:, None])


def _ratios(batches: tuple[Batch, ...], group: int) -> tuple[float, float]:
    """Selectivity and cost without one group over those of all batches; 1 where the sample is empty."""
    groups = min(len(batches), _GROUPS)
    if group >= groups:
        return 1.0, 1.0
    kept = [batch for i, batch in enumerate(batches) if i * groups // len(batches) != group]
    share = _total(kept, "events") / (_total(batches, "events") or 1.0)
    if share <= 0.0:
        return 1.0, 1.0
    outputs, cycles = _total(batches, "outputs"), _total(batches, "cycles")
    return (
        _total(kept, "outputs") / outputs / share if outputs > 0.0 else 1.0,
        _total(kept, "cycles") / cycles / share if cycles > 0.0 else 1.0,
    )


def _total(batches: Sequence[Batch], name: str) -> float:
    return float(sum(getattr(batch, name) for batch in batches))
