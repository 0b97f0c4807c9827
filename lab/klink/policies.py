"""Policies to compare agents' with: the paper's least slack, and its competitors.

`make_policy` finds them by their names once this module is imported; the compiled simulation knows them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from engine.klink.policies import (
    MAKERS,
    MIN_WORK_MS,
    QueryPolicy,
    QueryView,
    RankedPolicy,
    due_ms,
    or_last,
    slack_ms,
)

__all__ = ["COMPARED_POLICIES"]


def _response_ratio(view: QueryView, now_ms: float) -> float:
    """Age of the record that has waited longest, for each unit of all the work that waits."""
    return (now_ms - or_last(view.arrived_ms)) / max(view.work_ms, MIN_WORK_MS)


def _rate(view: QueryView) -> float:
    """Records out per millisecond of CPU, of a record that enters now."""
    return prod(view.selectivity) / max(view.ideal_ms, MIN_WORK_MS)


COMPARED_POLICIES: dict[str, Callable[[], QueryPolicy]] = {
    "least-slack": lambda: RankedPolicy(slack_ms),
    "highest-rate": lambda: RankedPolicy(lambda view, _: -_rate(view)),
    "nearest-deadline": lambda: RankedPolicy(due_ms),
    "response-ratio": lambda: RankedPolicy(lambda view, now_ms: -_response_ratio(view, now_ms)),
}
MAKERS.update(COMPARED_POLICIES)
