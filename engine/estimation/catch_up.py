"""When queries have caught up with what waits where the horizon begins.

A query has caught up when its latencies are those that it would have with nothing waiting; from there on they stay so.
On one server that is when it first runs empty: backlog / (capacity - load) where both are constant.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.estimation.flow import Flow
from engine.estimation.mace import Mace
from engine.latency_state import LATER, NEVER, WITHIN, CatchUp

__all__ = ["catch_up_of"]

_SAME = 0.02  # share of a slice by which latencies may differ and still be the same
_FULL = 1.0 - 1e-9


def catch_up_of(query: str, flowed: Flow, unburdened: Flow, mace: Mace, servers: IntArray) -> CatchUp | None:
    """When `query` has caught up; None where nothing that waits holds it up.

    Parameters
    ----------
    flowed, unburdened : Flow
        Flow with what waits, and without.
    mace : Mace
        Of the same deployment, with what waits.
    servers : array
        Servers that the query's events pass.
    """
    deployment = mace.deployment
    horizon_s = deployment.subintervals * deployment.subinterval_s
    with_it, without = flowed.by_query[query], unburdened.by_query[query]
    width_s = horizon_s / len(with_it)
    late_s = np.maximum(with_it - without, 0.0)
    held = np.flatnonzero(late_s > _SAME * width_s)
    waits = flowed.lead_of_query(query)
    if not len(held) and not waits.any():
        return None
    if len(held) and held[-1] >= len(with_it) - 1:
        return _beyond(mace, servers, horizon_s)
    at_s = _end_of(late_s, held, width_s, float(mace.start_s[servers].max(initial=0.0)))
    if waits.any() and flowed.lead is not None:
        # Waiting events alone, where none comes behind them: when the last of them is through.
        at_s = max(at_s, float((waits - flowed.lead.ages_s).max()) if not len(held) else 0.0)
    if at_s >= horizon_s:
        return _beyond(mace, servers, horizon_s)
    return CatchUp(WITHIN, at_s, None, None, horizon_s)


def _end_of(late_s: FloatArray, held: IntArray, width_s: float, start_s: float) -> float:
    """Instant at which what a slice is late by has gone to 0, as fast as it went in the slice before.

    `start_s` is what the horizon begins with.
    """
    if not len(held):
        return 0.0
    last = int(held[-1])
    end_s, rest_s = (last + 1) * width_s, float(late_s[last])
    before_s = float(late_s[last - 1]) if last else start_s
    fall_s = before_s - rest_s
    return end_s + (min(1.0, rest_s / fall_s) * width_s if fall_s > 0.0 else 0.0)


def _beyond(mace: Mace, servers: IntArray, horizon_s: float) -> CatchUp:
    """Later or never, by the servers that are still behind at the end and their mean load."""
    behind = [i for i in servers.tolist() if mace.ce[i, -1] > 0.0]
    offered = mace.deployment.capacities.T
    at_s = horizon_s
    for i in behind:
        per_s = float(offered[i].mean())
        free_per_s = per_s - float(mace.load[i].sum()) / horizon_s
        if free_per_s <= (1.0 - _FULL) * per_s:
            return CatchUp(NEVER, None, None, None, horizon_s)
        at_s = max(at_s, horizon_s + float(mace.ce[i, -1]) / free_per_s)
    return CatchUp(LATER, at_s if behind else None, None, None, horizon_s)
