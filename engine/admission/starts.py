"""Search: the first later start with which the candidate passes."""

from __future__ import annotations

import numpy as np

from engine.admission.changes import Change
from engine.admission.search import Search, Settled

__all__ = ["first_start"]

_GRID = 32  # starts that are compared; between two of them the first is found by halving


def first_start(search: Search) -> Settled | None:
    """The first start on a grid over the horizon that passes, then the first between it and the one before.

    Enough must be left to judge on: ``start_horizon_share`` of the horizon, and of the candidate's mean rate.
    """
    search.tell("Searching a later start")
    every, d = search.question.mace_every, search.question.running.subintervals
    share = search.question.policy.start_horizon_share
    last = min(int(d * (1.0 - share)), _last_with_rate(search, share)) // every
    begun = next((change["p"] for change in search.changes if change["kind"] == "start_at"), 1)
    first = (begun - 1) // every + 1
    if last < first:
        return None
    step = max(1, -(-(last - first + 1) // _GRID))
    early = first - 1
    runs = search.budget
    for k in range(first, last + 1, step):
        if search.mace_passes(_change(search, k)):
            runs -= 1
            if search.flow_passes(_change(search, k)):
                return _between(search, early, k)
            if not runs:
                return None
        early = k
    return None


def _last_with_rate(search: Search, share: float) -> int:
    """The last subinterval (from 0) from which on the candidate still reads at that share of its mean rate."""
    sources = (*search.question.running.sources, *search.question.candidate.sources)
    read = {entry.source for operator in search.question.candidate.operators for entry in operator.inputs}
    d = search.question.running.subintervals
    arrivals = sum((source.arrivals for source in sources if source.id in read), np.zeros(d))
    rate = np.cumsum(arrivals[::-1])[::-1] / np.arange(d, 0, -1)
    return int(np.flatnonzero(rate >= share * rate[0])[-1])


def _between(search: Search, early: int, late: int) -> Settled | None:
    """The first start after `early` (which fails) and up to `late` (which passes by Flow) that passes in full."""
    found = late
    while late - early > 1:
        middle = (early + late) // 2
        if search.mace_passes(_change(search, middle)):
            late = middle
        else:
            early = middle
    return search.first_settled(_change(search, k) for k in dict.fromkeys((late, (late + found + 1) // 2, found)))


def _change(search: Search, k: int) -> list[Change]:
    """A start at the k-th (from 0) of Mace's subintervals."""
    p = k * search.question.mace_every + 1
    return [{"kind": "start_at", "p": p, "seconds": (p - 1) * search.question.running.subinterval_s}]
