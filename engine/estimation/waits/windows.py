"""Windows of a dataflow: which operators hold their results, and what a window's watermark waits for."""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import ON_UPDATE, Operator

__all__ = ["closes", "is_event_time", "sources_above", "watermark_delays"]


def closes(operator: Operator) -> bool:
    """Whether an operator holds its results until a window closes."""
    return operator.window is not None and operator.window.emit != ON_UPDATE


def is_event_time(operator: Operator) -> bool:
    """Whether it is a watermark that closes an operator's windows."""
    return closes(operator) and operator.window is not None and operator.window.watermark_delay_s is not None


def sources_above(deployment: Deployment) -> list[set[int]]:
    """Sources of every operator, by whatever way."""
    graph, sources = deployment.graph, len(deployment.sources)
    above = [set[int]() for _ in deployment.operators]
    for j in graph.order:
        for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]].tolist():
            above[j] |= {stream} if stream < sources else above[stream - sources]
    return above


def watermark_delays(deployment: Deployment) -> FloatArray:
    """Largest delay of the watermarks at and above every operator, (m,): a window waits for its slowest input."""
    graph, delays = deployment.graph, np.zeros(len(deployment.operators))
    for j in graph.order:
        window = deployment.operators[j].window
        above = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - len(deployment.sources)
        own = 0.0 if window is None else window.watermark_delay_s or 0.0
        delays[j] = max(own, delays[above[above >= 0]].max(initial=0.0))
    return delays
