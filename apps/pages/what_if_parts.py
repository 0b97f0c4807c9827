"""What answers of what-ifs have in common: amounts, cells of queries, rows of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.pages.objectives import objective_text
from apps.pages.provisioning_scenarios import outcome_mark
from apps.planning.models import WhatIf
from apps.ui.numbers import MISSING, money, percent, seconds, seconds_range

__all__ = ["Result", "first_known", "query_cell", "size_row"]


class Result:
    """An answer and the question it belongs to."""

    def __init__(self, row: WhatIf, answer: Mapping[str, Any]) -> None:
        self.row, self.answer, self.currency = row, answer, row.cluster.currency

    def money(self, value: Any) -> str:
        return money(value, self.currency)

    @property
    def message(self) -> str:
        """The engine's own words, as a sentence."""
        text = str(self.answer.get("message", "")).strip()
        return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def first_known(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def query_cell(one: Mapping[str, Any] | None) -> dict[str, Any]:
    """A query in one scenario."""
    if one is None:
        return {"state": "", "value": MISSING}
    bound = one["bound_s"]
    chance = (one.get("probability") or {}).get("share")
    return {
        "state": one["state"],
        "value": seconds(one["estimate_s"], apart_from=bound).html,
        "interval": "" if one.get("high_s") is None else seconds_range(one["low_s"], one["high_s"]).html,
        "chance": "" if chance is None else percent(chance),
        "objective": objective_text(one["statistic"], bound),
    }


def size_row(one: Mapping[str, Any], currency: str) -> dict[str, Any]:
    lost = one["lost"] or {}
    late = [*one["late"], *(name for name in lost.get("late", ()) if name not in one["late"])]
    state = (
        "breached" if one["late"] or one["stuck"] else "fragile" if lost.get("late") or lost.get("stuck") else "holds"
    )
    return {
        "nodes": one["nodes"],
        "cost": money(one["cost_per_hour"], currency),
        "worst": seconds(one["worst_s"]).html,
        "lost": seconds(lost.get("worst_s")).html,
        "late": ", ".join(late[:4]) + (f" and {len(late) - 4} more" if len(late) > 4 else ""),
        "mark": outcome_mark(state),
    }
