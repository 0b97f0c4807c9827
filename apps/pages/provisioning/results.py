"""Answers of what-ifs: the finding in a sentence, and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.overview.tables import objective_text
from apps.pages.provisioning.charts import FrontChart
from apps.pages.provisioning.tables import outcome_mark, outcome_state
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.what_ifs.sweeps import BenchSweep
from apps.ui.numbers import MISSING, counted, factor, money, percent, seconds, seconds_range

__all__ = [
    "RESULTS",
    "FrontAnswer",
    "MixAnswer",
    "PoolSizeAnswer",
    "WhatIfAnswer",
    "first_known",
    "query_cell",
    "size_row",
]


class WhatIfAnswer:
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


class PoolSizeAnswer(WhatIfAnswer):
    """The smallest pool with its proof."""

    @property
    def sentence(self) -> SafeString:
        found = self.answer
        if found["nodes"] is None:
            kept = _kept(found)
            return format_html("No pool of up to <b>{} nodes</b> keeps {}.{}", found["most"], kept, _asides(found))
        cost = self.money(found["cost_per_hour"])
        price = "" if cost == MISSING else format_html(", for <b>{} per hour</b>", cost)
        lost = " with any one lost" if self.row.options.get("lose_one", True) else ""
        more = _more(found["added"])
        verb = "keeps" if found["nodes"] == 1 else "keep"
        noun = counted(found["nodes"], "node")
        return format_html("<b>{}</b> {} {}{}{}{}.{}", noun, verb, _kept(found), lost, price, more, _asides(found))

    @property
    def proof(self) -> dict[str, Any] | None:
        """Why one node less is not enough."""
        return self.answer["proof"]

    @property
    def proof_words(self) -> str:
        if self.proof is None:
            return "There is no smaller pool to look at: all of these nodes are there already."
        lead = f"With {counted(self.proof['nodes'], 'node')}: "
        sure = "" if self.proof["proven"] else " That is the best placement found, not a bound for every placement."
        return f"{lead}{self.proof['message']}.{sure}"

    @property
    def counterexample(self) -> dict[str, Any] | None:
        return (self.proof or {}).get("counterexample")

    @property
    def confirmation(self) -> str:
        if self.answer["nodes"] is None:
            return ""
        if self.answer["confirmed"]:
            how = self.answer.get("confirmation") or "Flow at full resolution"
            return f"Found by Mace and confirmed by {how} ({counted(self.answer['flows'], 'run')})."
        return "Found by Mace; Flow does not confirm it within the steps it was given."

    @property
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(one, self.currency) for one in self.answer["sizes"]]


def _kept(found: Mapping[str, Any]) -> str:
    """What an answer keeps: every objective, or all but those that no number of nodes keeps."""
    beyond = len(found.get("beyond", ()))
    return f"all but {counted(beyond, 'objective')}" if beyond else "every objective"


def _asides(found: Mapping[str, Any]) -> str:
    """What an answer rests on: objectives left out and why, operators to be split, a search cut short."""
    said = ""
    if beyond := found.get("beyond"):
        said += f" The others cannot be kept: {beyond[0]['message']}."
    if splits := found.get("splits"):
        first = ", ".join(f"{name} in {parts} parts" for name, parts in list(splits.items())[:3])
        more = f" and {len(splits) - 3} more operators" if len(splits) > 3 else ""
        said += f" Split: {first}{more}."
    if not found.get("complete", True):
        said += f" The time was over before smaller numbers had all been tried; at least {found['least']} by bound."
    return said


def _more(added: int | None) -> str:
    if added is None or added == 0:
        return "; they are there already" if added == 0 else ""
    return f"; {added} more than now" if added > 0 else f"; {-added} fewer than now"


class MixAnswer(WhatIfAnswer):
    """The cheapest mix of node types."""

    @property
    def sentence(self) -> SafeString:
        if self.answer["counts"] is None:
            return format_html("{}", self.message)
        sure = "every cheaper mix is proven too small" if self.answer["proven"] else "no cheaper one was found"
        cost = self.money(self.answer["cost_per_hour"])
        asides = _asides({**self.answer, "complete": True})
        kept = _kept(self.answer)
        return format_html("<b>{}</b> for <b>{} per hour</b> keep {}; {}.{}", self.words, cost, kept, sure, asides)

    @property
    def words(self) -> str:
        counts = self.answer["counts"] or {}
        return " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "No new node"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Types with how many of each."""
        counts = self.answer["counts"] or {}
        return [
            {**one, "price": self.money(one["price_per_hour"]), "count": counts.get(one["name"])}
            for one in self.row.options["types"]
        ]

    @property
    def proofs(self) -> list[dict[str, Any]]:
        return [
            {
                "pool": " and ".join(f"{n} {name}" for name, n in (one["pool"] or {}).items() if n) or "no new node",
                "cost": self.money(one["cost_per_hour"]),
                "message": one["message"],
                "proven": one["proven"],
            }
            for one in self.answer["proofs"]
        ]

    @property
    def effort(self) -> str:
        gave_up = "" if self.answer["complete"] else " The search gave up before it had looked at everything cheaper."
        refuted, tried = self.answer["refuted"], self.answer["tried"]
        return f"{refuted} cheaper mixes are refuted by a bound, {tried} were placed.{gave_up}"


class FrontAnswer(WhatIfAnswer):
    """Cost against latency."""

    @property
    def points(self) -> list[dict[str, Any]]:
        return [
            {
                "mix": " and ".join(f"{n} {name}" for name, n in one["counts"].items() if n) or "no new node",
                "cost": self.money(one["cost_per_hour"]),
                **size_row({**one, "cost_per_hour": None}, self.currency),
                "price": self.money(one["cost_per_hour"]),
            }
            for one in self.answer["points"]
        ]

    @property
    def chart(self) -> FrontChart:
        return FrontChart(self.answer["points"], self.currency, self.row.options.get("lose_one", True))

    @property
    def sentence(self) -> SafeString:
        points = self.answer["points"]
        if not points:
            return format_html("{}", "No mix of these types can be placed.")
        first, last = points[0], points[-1]
        if len(points) == 1:
            words = "One mix is worth having: <b>{}</b> for {} of new nodes per hour. No dearer one is faster."
            return format_html(words, seconds(FrontChart.latency(first)), self.money(first["cost_per_hour"]))
        words = "From <b>{}</b> for {} of new nodes per hour to <b>{}</b> for {}: {} worth having."
        noun = f"{len(points)} mixes"
        ends = [(seconds(FrontChart.latency(p)), self.money(p["cost_per_hour"])) for p in (first, last)]
        return format_html(words, *ends[0], *ends[1], noun)

    @property
    def effort(self) -> str:
        rest = "" if self.answer["complete"] else " More could be looked at."
        return f"{self.answer['tried']} mixes were placed, {self.answer['skipped']} cannot be better by a bound.{rest}"


class ScenariosAnswer(WhatIfAnswer):
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


class SurvivalAnswer(WhatIfAnswer):
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


class GrowthAnswer(WhatIfAnswer):
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


class SweepAnswer(WhatIfAnswer):
    """Sizes that a job has looked at."""

    @property
    def sentence(self) -> SafeString:
        sweep = BenchSweep(self.answer["now"], self.answer["sizes"], {}, self.row.options.get("lose_one", True))
        if sweep.smallest is None:
            return format_html("No number up to <b>{} nodes</b> keeps every objective.", sweep.sizes[-1].nodes)
        return format_html("<b>{} nodes</b> are the fewest that keep every objective.", sweep.smallest.nodes)

    @property
    def sizes(self) -> list[dict[str, Any]]:
        return [size_row(one, self.currency) for one in self.answer["sizes"]]


RESULTS: dict[Find, Callable[[WhatIf, Mapping[str, Any]], Any]] = {
    Find.COMPARE: ScenariosAnswer,
    Find.SWEEP: SweepAnswer,
    Find.SMALLEST_POOL: PoolSizeAnswer,
    Find.CHEAPEST_MIX: MixAnswer,
    Find.PARETO: FrontAnswer,
    Find.SURVIVAL: SurvivalAnswer,
    Find.GROWTH: GrowthAnswer,
}
