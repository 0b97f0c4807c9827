"""The latency bump of a move: what queries wait longer because an operator is paused while its state travels.

The operator is at its new place, and a gate before it lets nothing through for as long as the move lasts: what arrives
meanwhile waits, then all of it comes at once and is worked off beside everything else there. The bump is the largest
difference that makes to any slice of any query, by Flow. The pause begins when most work arrives for the operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from engine.deployment import Constraints, Deployment, Input, Node, Operator, Replica
from engine.elements import FloatArray, frozen_array
from engine.flow import flow
from engine.loads import loads_of
from engine.placement.moves import Step
from engine.placement.ranking import standing

__all__ = ["Bumps"]

_LEAD = 128  # slices before the pause
_TAIL = 384  # slices after it
_MOST_OPERATORS = 600  # that Flow follows for one bump
_MOST_RUNS = 40  # moves whose bump is found by Flow; beyond, the pause alone is told
_GATE = "\0gate"


@dataclass(eq=False)
class Bumps:
    """Bumps of moves made one after the other, starting from `deployment` as it is."""

    deployment: Deployment
    runs: int = 0

    def __call__(self, n: int, step: Step, lasts_s: float) -> tuple[float, str | None]:
        """Extra latency in seconds of the `n`-th move, and the query it hits most."""
        self.deployment = self.deployment.with_placement({step.operator.id: step.new})
        if lasts_s <= 0.0:
            return 0.0, None
        near = self._near(step)
        if near is None or self.runs >= _MOST_RUNS:
            return lasts_s, step.operator.query
        self.runs += 1
        return _bump(near, step.operator.id, lasts_s)

    def _near(self, step: Step) -> Deployment | None:
        """Queries on the cores the operator comes to, and what they read; None if those are too many."""
        whole = standing(self.deployment)
        if step.operator.id not in whole.operator_index:
            return None
        cores = {(part.node, part.core) for part in step.new}
        kept = {op.id for op in whole.operators if any((part.node, part.core) in cores for part in op.replicas)} | {
            step.operator.id
        }
        queries = {op.query for op in whole.operators if op.id in kept and op.query}
        kept |= {op.id for op in whole.operators if op.query in queries}
        todo = list(kept)
        while todo:
            for entry in whole.operators[whole.operator_index[todo.pop()]].inputs:
                if entry.source in whole.operator_index and entry.source not in kept:
                    kept.add(entry.source)
                    todo.append(entry.source)
        if len(kept) > _MOST_OPERATORS:
            return None
        return replace(
            whole,
            operators=tuple(op for op in whole.operators if op.id in kept),
            objectives=(),
            priorities={},
            constraints=Constraints(),
            plans={},
        )


def _bump(near: Deployment, name: str, lasts_s: float) -> tuple[float, str | None]:
    """Between the pauses of whole slices next to `lasts_s` in proportion."""
    slices = lasts_s / near.subinterval_s
    below, above = math.floor(slices), math.ceil(slices)
    begins, window = _window(near, name, above)
    base = _gated(window, name, begins, 0)
    high = _extra(base, _gated(window, name, begins, above))
    if below == above:
        return high
    low = _extra(base, _gated(window, name, begins, below)) if below else (0.0, None)
    return low[0] + (high[0] - low[0]) * (slices - below), high[1]


def _extra(base: dict[str, FloatArray], paused: dict[str, FloatArray]) -> tuple[float, str | None]:
    extra = {query: float((paused[query] - base[query]).max(initial=0.0)) for query in base}
    worst = max(extra, key=lambda query: extra[query], default=None)
    return (0.0, None) if worst is None or extra[worst] <= 0.0 else (extra[worst], worst)


def _window(near: Deployment, name: str, pause: int) -> tuple[int, Deployment]:
    """Slices around the time at which most work arrives for the operator during a pause, and where it begins there."""
    work = loads_of(near).operator(np.array([near.operator_index[name]])).load[0]
    running = np.concatenate([[0.0], np.cumsum(work)])
    length = min(pause, len(work))
    begins = int((running[length:] - running[:-length]).argmax())
    first, last = max(0, begins - _LEAD), begins + pause + _TAIL

    def cut(series: FloatArray, fill: float) -> FloatArray:
        part = series[first:last]
        return frozen_array(np.concatenate([part, np.full(last - first - len(part), fill)]))

    return begins - first, replace(
        near,
        subintervals=last - first,
        sources=tuple(replace(source, arrivals=cut(source.arrivals, 0.0)) for source in near.sources),
        nodes=tuple(
            node
            if node.capacity_series_cps is None
            else replace(node, capacity_series_cps=cut(node.capacity_series_cps, float(node.capacity_series_cps[-1])))
            for node in near.nodes
        ),
    )


def _gated(window: Deployment, name: str, begins: int, pause: int) -> dict[str, FloatArray]:
    """Latency of every query with a gate before the operator that is shut for `pause` slices."""
    operator = window.operators[window.operator_index[name]]
    open_cps = np.full(window.subintervals, 1e30)
    open_cps[begins : begins + pause] = 0.0
    gate = Node(_GATE, capacity_series_cps=frozen_array(open_cps))
    size = {op.id: op.bytes_per_event for op in window.operators}
    gates = tuple(
        Operator(
            f"{_GATE}{k}",
            (Replica(_GATE),),
            (Input(entry.source, 1.0, 1.0),),
            bytes_per_event=size.get(entry.source, 0.0),
            query=operator.query,
        )
        for k, entry in enumerate(operator.inputs)
    )
    inputs = tuple(replace(entry, source=gates[k].id) for k, entry in enumerate(operator.inputs))
    # Before the gate there is the way into the operator's node: the same links, to the gate.
    into = operator.replicas[0].node
    links = tuple(replace(link, target=_GATE) for link in window.links if link.target == into)
    gated = replace(
        window,
        nodes=(*window.nodes, gate),
        links=(*window.links, *links),
        operators=(*(replace(op, inputs=inputs) if op.id == name else op for op in window.operators), *gates),
    )
    return flow(gated, by_input=True).by_query
