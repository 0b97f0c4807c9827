"""Answers about fleets: the smallest pool, the cheapest mix, cost against latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.what_if_front import FrontChart
from apps.pages.what_if_parts import Result, size_row
from apps.ui.numbers import MISSING, counted, seconds

__all__ = ["Fronted", "Mixed", "Sized"]


class Sized(Result):
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


class Mixed(Result):
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


class Fronted(Result):
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
