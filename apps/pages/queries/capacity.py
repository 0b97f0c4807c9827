"""Facts of a query's capacity for its page and for lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.planning.capacities import query_capacity, saturation_words
from apps.queries.models import Query
from apps.ui.numbers import MISSING, percent, rate
from engine.capacity.answer import KNOWN, UNKNOWN, QueryCapacity
from engine.words import server_words

__all__ = ["CapacityFacts", "capacity_cell", "capacity_facts"]


@dataclass(frozen=True)
class CapacityFacts:
    """Capacity of a query, as its page shows it."""

    query: str
    capacity: QueryCapacity

    @property
    def words(self) -> str:
        return self.capacity.words.replace(f"{self.query}/", "")

    @property
    def interval(self) -> str:
        low, high = self.capacity.low_per_s, self.capacity.high_per_s
        if low is None or high is None:
            lacking = self.capacity.unsampled
            return f"none: {lacking} of its inputs have no sample" if lacking else "none"
        return f"{rate(low)} to {rate(high)}"

    @property
    def limit(self) -> str:
        """The operator and the server that limit it."""
        limit = self.capacity.limit
        if limit is None:
            return MISSING
        operator = (limit.operator or MISSING).removeprefix(f"{self.query}/")
        return f"{operator} on {server_words(limit.server)}, {percent(limit.load)} busy now"

    @property
    def headroom(self) -> str:
        share = self.capacity.headroom_share
        return MISSING if share is None else f"{rate(self.capacity.headroom_per_s)}, {percent(share)} of the rate now"

    @property
    def tone(self) -> str:
        if self.capacity.state == UNKNOWN:
            return "watch"
        factor = self.capacity.factor
        return "bad" if factor is not None and factor < 1.0 else ""

    @property
    def saturation(self) -> str:
        """When it saturates by forecast, or why nobody knows."""
        return saturation_words(self.capacity)

    @property
    def objective(self) -> str:
        """The rate at which its objective breaks."""
        own = self.capacity.objective
        if own is not None:
            return own.words
        is_open = self.capacity.state == KNOWN and not self.capacity.objectives_known
        return "The rate at which it breaks was not looked at in this estimate." if is_open else ""

    @property
    def unknown_objectives(self) -> str:
        """Objectives, its own or of others that its rate loads, of which nobody knows when they break."""
        return " ".join(entry.words for entry in self.capacity.unknown_objectives).replace(f"{self.query}/", "")

    @property
    def first_objective(self) -> str:
        """The first objective of another that breaks, where that is before its own or it has none."""
        first, own = self.capacity.first_objective, self.capacity.objective
        return first.words if first is not None and (own is None or own.query != first.query) else ""

    @property
    def unmeasured(self) -> str:
        """Operators whose cost nobody measured, with where it is from."""
        return ", ".join(
            f"{entry.operator.removeprefix(f'{self.query}/')} ({entry.evidence})" for entry in self.capacity.unmeasured
        )


def capacity_facts(query: Query, kept: QueryCapacity | None) -> CapacityFacts | None:
    """Facts of a capacity that was kept with an estimate; None of one that was kept without."""
    return None if kept is None else CapacityFacts(query.name, query_capacity(query, kept))


def capacity_cell(query: str, kept: Mapping[str, Any] | None) -> SafeString | str:
    """Cell of a list: the rate that is sustained, and how much more than now until a server is full or its objective
    breaks, whichever is first.
    """
    if not kept:
        return MISSING
    limit, factor = kept.get("limit") or {}, kept.get("tightest_factor")
    operator = str(limit.get("operator") or "").removeprefix(f"{query}/")
    if kept.get("rate_per_s") is not None:
        if factor is None:
            why = "still measuring" if kept.get("measured_s") is not None else "headroom unknown"
        else:
            breaks = factor < (kept.get("factor") or 0.0)
            why = f"{percent(factor - 1.0)} to {'its objective' if breaks else operator}"
        return format_html('{}<br><span class="muted sm">{}</span>', rate(kept["rate_per_s"]), why)
    if kept.get("at_most_per_s") is not None:
        return format_html('<span class="muted">at most {}</span>', rate(kept["at_most_per_s"]))
    return format_html('<span class="muted">{}</span>', "unknown" if kept.get("state") == UNKNOWN else MISSING)
