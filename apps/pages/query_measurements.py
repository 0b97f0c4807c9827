"""What telemetry measured of a live query's operators, and when it is enough."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import OperatorEvidence, evidence_of_operators
from apps.queries.models import Query
from apps.ui.numbers import MISSING, count, counted, percent, scaled, seconds, significant
from apps.ui.times import clock_time

__all__ = ["MeasuredOperators"]

_MEASURED = ("where", "selectivity", "cycles", "events", "span", "subintervals")


class MeasuredOperators:
    """The operators of a live query with their evidence; empty for a query that never ran live."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @cached_property
    def rows(self) -> list[OperatorEvidence]:
        return evidence_of_operators(self.query)

    @property
    def sentence(self) -> str:
        """3 of 5 operators are ready; count wants 240 more events, about 3 min."""
        ready = sum(one.ready for one in self.rows)
        first = f"{ready} of {counted(len(self.rows), 'operator')} {'is' if ready == 1 else 'are'} ready"
        waiting = next((one for one in self.rows if not one.ready), None)
        return f"{first}." if waiting is None else f"{first}; {waiting.operator}: {waiting.text}."

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [_line(one) for one in self.rows]


def _line(one: OperatorEvidence) -> dict[str, Any]:
    row = one.statistic
    waiting = {
        "operator": one.operator,
        "ready": one.ready,
        "text": one.text,
        "reason": row.reason if row else "",
        "since": clock_time(one.lacking_since) if one.lacking_since else "",
    }
    if row is None:
        return {**waiting, **dict.fromkeys(_MEASURED, MISSING), "last": None}
    return {
        **waiting,
        "where": _where(one.shares),
        "selectivity": _with_half(significant(row.selectivity), row.selectivity, one.selectivity_half),
        "cycles": _with_half(scaled(row.cycles_per_event).html, row.cycles_per_event, one.cycles_half),
        "events": count(row.events),
        "span": seconds((row.last_at - row.first_at).total_seconds()).html,
        "subintervals": _subintervals(row),
        "last": row.last_at,
    }


def _where(shares: dict[str, float]) -> str:
    """agent-1 38%, stream processor 24%: the largest three."""
    listed = sorted(shares.items(), key=lambda pair: -pair[1])
    more = f", {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(f"{name} {percent(share)}" for name, share in listed[:3]) + more or MISSING


def _with_half(text: Any, value: float, half: float | None) -> SafeString:
    """0.52 ± 3%."""
    if half is None or half == float("inf") or value <= 0.0:
        return format_html("{}", text)
    return format_html('{} <small class="muted">± {}</small>', text, percent(half / value).html)


def _subintervals(row: OperatorStatistic) -> SafeString:
    others = [(row.extrapolated, "extrapolated"), (row.missing, "missing")]
    told = ", ".join(f"{count(number)} {word}" for number, word in others if number)
    return format_html('{} <small class="muted">{}</small>', count(row.whole), told)
