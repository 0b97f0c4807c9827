"""Facts of a query's capacity for its page and for lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.capacities import capacity_job
from apps.jobs.models import Job, JobState
from apps.planning.capacities import query_capacity, saturation_words
from apps.queries.models import Query
from apps.ui.numbers import MISSING, percent, rate
from engine.capacity.answer import UNKNOWN, QueryCapacity
from engine.words import server_words
from engine.words.capacity import rate_words

__all__ = ["CapacityFacts", "capacity_cell", "capacity_facts"]


@dataclass(frozen=True)
class CapacityFacts:
    """Capacity of a query, as its page shows it."""

    query: str
    capacity: QueryCapacity
    job: Job | None = None  #: that looks for the rate at which its objective breaks, unless it is done

    @property
    def is_open(self) -> bool:
        """Whether nobody has looked yet when objectives break."""
        return self.capacity.factor is not None and not self.capacity.objectives_known

    @property
    def is_under_way(self) -> bool:
        return self.job is not None and not self.job.is_finished

    @property
    def words(self) -> str:
        return self.capacity.words.replace(f"{self.query}/", "")

    @property
    def interval(self) -> str:
        low, high = self.capacity.low_per_s, self.capacity.high_per_s
        if low is None or high is None:
            lacking = self.capacity.unsampled
            return f"none: {lacking} of its inputs have no sample" if lacking else "none"
        return f"{rate_words(low)} to {rate_words(high)}"

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
        more, share = self.capacity.headroom_per_s, self.capacity.headroom_share
        return MISSING if more is None or share is None else f"{rate_words(more)}, {percent(share)} of the rate now"

    @property
    def busiest_share(self) -> str:
        """Rate by the rule of DS2."""
        largest = self.capacity.busiest_share_per_s
        return "" if largest is None else f"{rate_words(largest)}, by its busiest operator alone"

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
        return "The rate at which it breaks was not looked at in this estimate." if self.is_open else ""

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
    if kept is None:
        return None
    facts = CapacityFacts(query.name, query_capacity(query, kept))
    job = capacity_job(query) if facts.is_open else None
    return facts if job is None or job.state == JobState.SUCCEEDED else replace(facts, job=job)


def capacity_cell(kept: Mapping[str, Any] | None) -> SafeString | str:
    """Cell of a list: the rate that is sustained, and how much more than now until a server is full or its objective
    breaks, whichever is first.
    """
    if not kept:
        return MISSING
    if kept.get("rate_per_s") is not None:
        why = _headroom_words(kept)
        return format_html('{}<br><span class="muted sm">{}</span>', rate(kept["rate_per_s"]), why)
    if kept.get("at_most_per_s") is not None:
        return format_html('<span class="muted">at most {}</span>', rate(kept["at_most_per_s"]))
    return format_html('<span class="muted">{}</span>', "unknown" if kept.get("state") == UNKNOWN else MISSING)


def _headroom_words(kept: Mapping[str, Any]) -> str:
    """Headroom of the rate: to a broken objective or a full server, whichever is first."""
    factor = kept.get("tightest_factor")
    if factor is None:
        if kept.get("measured_s") is not None:
            return "still measuring"
        return "headroom unknown" if kept.get("objectives_known") else "not looked at"
    return f"{percent(factor - 1.0)} to {'objective' if factor < (kept.get('factor') or 0.0) else 'full server'}"
