"""Rows of the bench's tables: queries and pools with the chosen number of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.objectives import objective_text
from apps.ui.numbers import seconds_range

__all__ = ["PoolRow", "QueryRow"]


@dataclass(frozen=True)
class QueryRow:
    """A query with the chosen number of nodes. `estimate_s` and what follows come from a job, once it is done."""

    name: str
    url: str
    statistic: str
    bound_s: float | None
    mace_s: float | None
    state: str
    label: str
    resolution_s: float
    estimate_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    probability: float | None = None

    @property
    def objective(self) -> SafeString:
        return objective_text(self.statistic, self.bound_s)

    @property
    def interval(self) -> Any:
        if self.high_s is None:
            return format_html('<span class="muted">{}</span>', "none yet")
        return seconds_range(self.low_s, self.high_s, apart_from=self.bound_s).html


@dataclass(frozen=True)
class PoolRow:
    """Nodes of a pool, now and with the chosen number."""

    name: str
    now: int
    then: int
    size: str
    price: float | None
