"""How an estimate stands against a latency objective."""

from __future__ import annotations

from typing import Any

from engine.elements import Objective

__all__ = ["against"]


def against(objective: Objective | None, estimate_s: float, high_s: float | None) -> dict[str, Any]:
    """How an estimate stands against its objective: breached, at risk (only the upper end is over) or holding."""
    if objective is None:
        return {"state": "none", "headroom_s": None, "headroom_share": None}
    bound = objective.bound_s
    state = "holds"
    if estimate_s > bound:
        state = "breached"
    elif high_s is not None and high_s > bound:
        state = "at_risk"
    return {"state": state, "headroom_s": bound - estimate_s, "headroom_share": (bound - estimate_s) / bound}
