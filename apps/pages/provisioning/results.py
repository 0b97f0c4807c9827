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
from apps.ui.numbers import MISSING, factor, money, percent, seconds, seconds_range
from engine.words import counted

__all__ = [
    "RESULTS",
    "CheapestMixAnswer",
    "FrontAnswer",
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


def query_cell(query: Mapping[str, Any] | None) -> dict[str, Any]:
    """A query in one scenario."""
    if query is None:
        return {"state": "", "value": MISSING}
    bound = query["bound_s"]
    chance = (query.get("probability") or {}).get("share")
    return {
        "state": query["state"],
        "value": seconds(query["estimate_s"], apart_from=bound).html,
        "interval": "" if query.get("high_s") is None else seconds_range(query["low_s"], query["high_s"]).html,
        "chance": "" if chance is None else percent(chance),
        "objective": objective_text(query["statistic"], bound),
    }


def size_row(size: Mapping[str, Any], currency: str) -> dict[str, Any]:
    lost = size["lost"] or {}
    late = [*size["late"], *(name for name in lost.get("late", ()) if name not in size["late"])]
    state = (
        "breached" if size["late"] or size["stuck"] else "fragile" if lost.get("late") or lost.get("stuck") else "holds"
    )
    return {
        "nodes": size["nodes"],
        "cost": money(size["cost_per_hour"], currency),
        "worst": seconds(size["worst_s"]).html,
        "lost": seconds(lost.get("worst_s")).html,
        "late": ", ".join(late[:4]) + (f" and {len(late) - 4} more" if len(late) > 4 else ""),
        "mark": outcome_mark(state),
    }


class PoolSizeAnswer(WhatIfAnswer):
    """The smallest pool with its proof."""

    @property
    def sentence(self) -> SafeString:
        answer = self.answer
        if answer["nodes"] is None:
            kept = _kept_words(answer)
            return format_html(
                "No pool of up to <b>{} nodes</b> keeps {}.{}", answer["most"], kept, _condition_words(answer)
            )
        cost = self.money(answer["cost_per_hour"])
        price = "" if cost == MISSING else format_html(", for <b>{} per hour</b>", cost)
        lost = " with any one lost" if self.row.options.get("lose_one", True) else ""
        more = _added_words(answer["added"])
        verb = "keeps" if answer["nodes"] == 1 else "keep"
        noun = counted(answer["nodes"], "node")
        return format_html(
            "<b>{}</b> {} {}{}{}{}.{}", noun, verb, _kept_words(answer), lost, price, more, _condition_words(answer)
        )

    @property
    def proof(self) -> dict[str, Any] | None:
        """Proof that one node less is not enough."""
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
        return [size_row(size, self.currency) for size in self.answer["sizes"]]


def _kept_words(answer: Mapping[str, Any]) -> str:
    """Objectives that an answer keeps: every one, or all but those that no number of nodes keeps."""
    beyond = len(answer.get("beyond", ()))
    return f"all but {counted(beyond, 'objective')}" if beyond else "every objective"


def _condition_words(answer: Mapping[str, Any]) -> str:
    """Conditions of an answer: objectives left out and why, operators to be split, a search cut short."""
    said = ""
    if beyond := answer.get("beyond"):
        said += f" The others cannot be kept: {beyond[0]['message']}."
    if splits := answer.get("splits"):
        first = ", ".join(f"{name} in {parts} parts" for name, parts in list(splits.items())[:3])
        more = f" and {len(splits) - 3} more operators" if len(splits) > 3 else ""
        said += f" Split: {first}{more}."
    if not answer.get("complete", True):
        said += f" The time was over before smaller numbers had all been tried; at least {answer['least']} by bound."
    return said


def _added_words(added: int | None) -> str:
    if added is None or added == 0:
        return "; they are there already" if added == 0 else ""
    return f"; {added} more than now" if added > 0 else f"; {-added} fewer than now"


class CheapestMixAnswer(WhatIfAnswer):
    """The cheapest mix of node types."""

    @property
    def sentence(self) -> SafeString:
        if self.answer["counts"] is None:
            return format_html("{}", self.message)
        sure = "every cheaper mix is proven too small" if self.answer["proven"] else "no cheaper one was found"
        cost = self.money(self.answer["cost_per_hour"])
        asides = _condition_words({**self.answer, "complete": True})
        kept = _kept_words(self.answer)
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
            {**option, "price": self.money(option["price_per_hour"]), "count": counts.get(option["name"])}
            for option in self.row.options["types"]
        ]

    @property
    def proofs(self) -> list[dict[str, Any]]:
        return [
            {
                "pool": " and ".join(f"{n} {name}" for name, n in (proof["pool"] or {}).items() if n) or "no new node",
                "cost": self.money(proof["cost_per_hour"]),
                "message": proof["message"],
                "proven": proof["proven"],
            }
            for proof in self.answer["proofs"]
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
                "mix": " and ".join(f"{n} {name}" for name, n in point["counts"].items() if n) or "no new node",
                "cost": self.money(point["cost_per_hour"]),
                **size_row({**point, "cost_per_hour": None}, self.currency),
                "price": self.money(point["cost_per_hour"]),
            }
            for point in self.answer["points"]
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
                "name": scenario["name"],
                "nodes": scenario["node_count"],
                "cost": self.money(scenario["cost_per_hour"]),
                "worst": seconds(first_known(scenario.get("flow_s"), scenario.get("mace_s"))).html,
                "mace": seconds(scenario.get("mace_s")).html,
                "lost": seconds((scenario.get("lost") or {}).get("worst_s")).html,
                "lost_node": (scenario.get("lost") or {}).get("node"),
                "mark": outcome_mark(outcome_state(scenario)),
                "moves": len(scenario.get("moves", ())),
                "words": scenario.get("words", []),
                "infeasible": (scenario.get("infeasible") or {}).get("message", ""),
            }
            for scenario in self.answer["scenarios"]
        ]

    @property
    def queries(self) -> list[dict[str, Any]]:
        """A row for every query, with a cell for every scenario."""
        parts = [scenario.get("queries", {}) for scenario in self.answer["scenarios"]]
        names = dict.fromkeys(name for part in parts for name in part)
        return [{"name": name, "cells": [query_cell(part.get(name)) for part in parts]} for name in sorted(names)]

    @property
    def sentence(self) -> SafeString:
        holding = [scenario["name"] for scenario in self.answer["scenarios"] if outcome_state(scenario) == "holds"]
        if not holding:
            return format_html("None of {} keeps every objective.", counted(len(self.scenarios), "scenario"))
        priced = [
            scenario
            for scenario in self.answer["scenarios"]
            if scenario["name"] in holding and scenario["cost_per_hour"] is not None
        ]
        if not priced:
            return format_html("<b>{}</b> {} every objective.", ", ".join(holding), _keeps(holding))
        best = min(priced, key=lambda scenario: scenario["cost_per_hour"])
        cost = self.money(best["cost_per_hour"])
        if len(holding) == 1:
            return format_html("Only <b>{}</b> keeps every objective, for <b>{} per hour</b>.", best["name"], cost)
        words = "{} of {} keep every objective; <b>{}</b> is the cheapest of them, at <b>{} per hour</b>."
        return format_html(words, len(holding), len(self.scenarios), best["name"], cost)


def _keeps(names: Sequence[str]) -> str:
    return "keeps" if len(names) == 1 else "keep"


class SurvivalAnswer(WhatIfAnswer):
    """Answer to the loss of each node: the queries that it breaks."""

    @property
    def sentence(self) -> SafeString:
        losses = self.answer["losses"]
        bad = [loss for loss in losses if loss["breaks"] or loss["infeasible"]]
        late = self._late
        if late:
            few = ", ".join(late[:4]) + (f" and {len(late) - 4} more" if len(late) > 4 else "")
            more = "Losing a node breaks no other." if not bad else f"Losing one of {len(bad)} nodes breaks more."
            words = "<b>{}</b> {} late with every node up: {}. {}"
            is_single = len(late) == 1
            return format_html(
                words, "1 query" if is_single else f"{len(late)} queries", "is" if is_single else "are", few, more
            )
        if not bad:
            return format_html("The loss of any <b>one of {}</b> breaks no objective.", counted(len(losses), "node"))
        worst = max(bad, key=lambda is_single: len(is_single["breaks"]))
        words = "<b>{}</b> of {} break an objective when lost; {} does most harm, to {}."
        if len(bad) == 1:
            words = "<b>{}</b> of {} breaks an objective when lost: {}, and with it {}."
        harm = ", ".join(worst["breaks"][:4]) or "what cannot be placed"
        return format_html(words, len(bad), counted(len(losses), "node"), worst["node"], harm)

    @property
    def _late(self) -> list[str]:
        """Queries that miss their objective before any node is lost."""
        return [name for name, query in self.answer["now"].get("queries", {}).items() if query["state"] == "breached"]

    @property
    def names(self) -> list[str]:
        return list(self.answer["now"].get("queries", {}))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The present state, then every node lost: those that do harm first."""
        losses = sorted(
            self.answer["losses"], key=lambda lost_node: -len(lost_node["breaks"]) - 100 * bool(lost_node["infeasible"])
        )
        first = {"node": "", "cells": self._cells(self.answer["now"]), "breaks": "", "infeasible": ""}
        return [first, *(self._row(loss) for loss in losses)]

    def _row(self, loss: Mapping[str, Any]) -> dict[str, Any]:
        why = (loss["infeasible"] or {}).get("message", "")
        return {"node": loss["node"], "cells": self._cells(loss), "breaks": len(loss["breaks"]), "infeasible": why}

    def _cells(self, outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [query_cell(outcome.get("queries", {}).get(name)) for name in self.names]


class GrowthAnswer(WhatIfAnswer):
    """By how much each load may grow."""

    @property
    def sentence(self) -> SafeString:
        together = self.answer["together"]
        if together["factor"] is None:
            return format_html("Nothing may grow: {}.", together["note"] or "an objective is broken as it is")
        if together["unlimited"]:
            return format_html("Everything together may grow to <b>{}</b> and more.", factor(together["factor"]))
        miss = together["miss"]
        then = format_html("; then {}", miss["message"]) if miss else ""
        return format_html("Everything together may grow to <b>{}</b> its load{}.", factor(together["factor"]), then)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The least room first."""
        queries = self.answer["queries"].values()
        rows = sorted(queries, key=lambda query: (query["factor"] is None, query["factor"] or 0.0))
        return [
            {
                "query": row["query"],
                "factor": factor(row["factor"]).html,
                "more": "and more" if row["unlimited"] else "",
                "then": row["miss"]["message"] if row["miss"] else row["note"],
            }
            for row in rows
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
        return [size_row(size, self.currency) for size in self.answer["sizes"]]


RESULTS: dict[Find, Callable[[WhatIf, Mapping[str, Any]], Any]] = {
    Find.COMPARE: ScenariosAnswer,
    Find.SWEEP: SweepAnswer,
    Find.SMALLEST_POOL: PoolSizeAnswer,
    Find.CHEAPEST_MIX: CheapestMixAnswer,
    Find.PARETO: FrontAnswer,
    Find.SURVIVAL: SurvivalAnswer,
    Find.GROWTH: GrowthAnswer,
}
