"""Answers of what-ifs as their pages show them: a sentence with the finding, and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.provisioning_scenarios import outcome_mark, outcome_state
from apps.pages.what_if_fleets import Fronted, Mixed, Sized
from apps.pages.what_if_parts import Result, first_known, query_cell, size_row
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.sweeps import Sweep
from apps.ui.numbers import counted, factor, seconds

__all__ = ["RESULTS"]


class Compared(Result):
    """Scenarios side by side."""

    @property
    def scenarios(self) -> list[dict[str, Any]]:
        return [
            {
                "name": one["name"],
                "nodes": one["node_count"],
                "cost": self.money(one["cost_per_hour"]),
                "worst": seconds(first_known(one.get("flow_s"), one.get("mace_s"))).html,
                "mace": seconds(one.get("mace_s")).html,
                "lost": seconds((one.get("lost") or {}).get("worst_s")).html,
                "lost_node": (one.get("lost") or {}).get("node"),
                "mark": outcome_mark(outcome_state(one)),
                "moves": len(one.get("moves", ())),
                "words": one.get("words", []),
                "infeasible": (one.get("infeasible") or {}).get("message", ""),
            }
            for one in self.answer["scenarios"]
        ]

    @property
    def queries(self) -> list[dict[str, Any]]:
        """A row for every query, with a cell for every scenario."""
        parts = [one.get("queries", {}) for one in self.answer["scenarios"]]
        names = dict.fromkeys(name for part in parts for name in part)
        return [{"name": name, "cells": [query_cell(part.get(name)) for part in parts]} for name in sorted(names)]

    @property
    def sentence(self) -> SafeString:
        holding = [one["name"] for one in self.answer["scenarios"] if outcome_state(one) == "holds"]
        if not holding:
            return format_html("None of {} keeps every objective.", counted(len(self.scenarios), "scenario"))
        priced = [
            one for one in self.answer["scenarios"] if one["name"] in holding and one["cost_per_hour"] is not None
        ]
        if not priced:
            return format_html("<b>{}</b> {} every objective.", ", ".join(holding), _keeps(holding))
        best = min(priced, key=lambda one: one["cost_per_hour"])
        cost = self.money(best["cost_per_hour"])
        if len(holding) == 1:
            return format_html("Only <b>{}</b> keeps every objective, for <b>{} per hour</b>.", best["name"], cost)
        words = "{} of {} keep every objective; <b>{}</b> is the cheapest of them, at <b>{} per hour</b>."
        return format_html(words, len(holding), len(self.scenarios), best["name"], cost)


def _keeps(names: Sequence[str]) -> str:
    return "keeps" if len(names) == 1 else "keep"


class Survived(Result):
    """What the loss of each node does to each query."""

    @property
    def sentence(self) -> SafeString:
        losses = self.answer["losses"]
        bad = [one for one in losses if one["breaks"] or one["infeasible"]]
        late = self._late
        if late:
            few = ", ".join(late[:4]) + (f" and {len(late) - 4} more" if len(late) > 4 else "")
            more = "Losing a node breaks no other." if not bad else f"Losing one of {len(bad)} nodes breaks more."
            words = "<b>{}</b> {} late with every node up: {}. {}"
            one = len(late) == 1
            return format_html(words, "1 query" if one else f"{len(late)} queries", "is" if one else "are", few, more)
        if not bad:
            return format_html("The loss of any <b>one of {}</b> breaks no objective.", counted(len(losses), "node"))
        worst = max(bad, key=lambda one: len(one["breaks"]))
        words = "<b>{}</b> of {} break an objective when lost; {} does most harm, to {}."
        if len(bad) == 1:
            words = "<b>{}</b> of {} breaks an objective when lost: {}, and with it {}."
        harm = ", ".join(worst["breaks"][:4]) or "what cannot be placed"
        return format_html(words, len(bad), counted(len(losses), "node"), worst["node"], harm)

    @property
    def _late(self) -> list[str]:
        """What misses its objective before anything is lost."""
        return [name for name, one in self.answer["now"].get("queries", {}).items() if one["state"] == "breached"]

    @property
    def names(self) -> list[str]:
        return list(self.answer["now"].get("queries", {}))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The present state, then every node lost: those that do harm first."""
        losses = sorted(self.answer["losses"], key=lambda one: -len(one["breaks"]) - 100 * bool(one["infeasible"]))
        first = {"node": "", "cells": self._cells(self.answer["now"]), "breaks": "", "infeasible": ""}
        return [first, *(self._row(one) for one in losses)]

    def _row(self, one: Mapping[str, Any]) -> dict[str, Any]:
        why = (one["infeasible"] or {}).get("message", "")
        return {"node": one["node"], "cells": self._cells(one), "breaks": len(one["breaks"]), "infeasible": why}

    def _cells(self, outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [query_cell(outcome.get("queries", {}).get(name)) for name in self.names]


class Grown(Result):
    """By how much each load may grow."""

    @property
    def sentence(self) -> SafeString:
        found = self.answer["together"]
        if found["factor"] is None:
            return format_html("Nothing may grow: {}.", found["note"] or "an objective is broken as it is")
        if found["unlimited"]:
            return format_html("Everything together may grow to <b>{}</b> and more.", factor(found["factor"]))
        miss = found["miss"]
        then = format_html("; then {}", miss["message"]) if miss else ""
        return format_html("Everything together may grow to <b>{}</b> its load{}.", factor(found["factor"]), then)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The least room first."""
        found = self.answer["queries"].values()
        rows = sorted(found, key=lambda one: (one["factor"] is None, one["factor"] or 0.0))
        return [
            {
                "query": one["query"],
                "factor": factor(one["factor"]).html,
                "more": "and more" if one["unlimited"] else "",
                "then": one["miss"]["message"] if one["miss"] else one["note"],
            }
            for one in rows
        ]


class Swept(Result):
    """Sizes that a job has looked at."""

    @property
    def sentence(self) -> SafeString:
        sweep = Sweep(self.answer["now"], self.answer["sizes"], {}, self.row.options.get("lose_one", True))
        if sweep.smallest is None:
            return format_html("No number up to <b>{} nodes</b> keeps every objective.", sweep.sizes[-1].nodes)
        return format_html("<b>{} nodes</b> are the fewest that keep every objective.", sweep.smallest.nodes)

    @property
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(one, self.currency) for one in self.answer["sizes"]]


RESULTS: dict[Find, Callable[[WhatIf, Mapping[str, Any]], Any]] = {
    Find.COMPARE: Compared,
    Find.SWEEP: Swept,
    Find.SMALLEST_POOL: Sized,
    Find.CHEAPEST_MIX: Mixed,
    Find.PARETO: Fronted,
    Find.SURVIVAL: Survived,
    Find.GROWTH: Grown,
}
