"""The queries of one agent as its scheduler sees them, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.sources.facts import moment_of
from apps.pages.sources.schedule_charts import clock_of, line_mark
from apps.rollouts.scheduled_queries import MIN_IN_TIME, ScheduledQuery
from apps.ui.marks import icon
from apps.ui.numbers import MISSING, bytes_size, count, percent, seconds, seconds_range
from apps.ui.tables import Column, Table
from engine.words import counted

__all__ = ["schedule_table"]

_SEARCH_FROM = 12  # queries


def schedule_table(request: HttpRequest, slug: str, agent: str, lines: Sequence[ScheduledQuery]) -> Table:
    """Queries by name; sorted and exported as lists are."""
    return Table(
        request,
        _columns(slug),
        list(lines),
        caption=f"Queries at {agent}",
        default_sort="query",
        search=(lambda line: line.name) if len(lines) > _SEARCH_FROM else None,
        search_label="Query",
        page_size=100,
        file_name=f"schedule-{slug}-{agent}",
        identify=lambda line: line.name,
    )


def _columns(slug: str) -> list[Column]:
    return [
        Column("query", "Query", lambda line: _named(slug, line), sort=lambda line: line.name,
               csv=lambda line: line.name),
        Column("state", "State", _state, sort=_by_state,
               csv=lambda line: line_mark(line).label, full=True),
        Column("slack", "Slack", _slack, sort=lambda line: line.slack_s, csv=lambda line: line.slack_s, num=True,
               css=lambda line: "watch" if (line.slack_s or 0) < 0 else ""),
        Column("waiting", "Waiting", _waiting, sort=lambda line: line.queued, csv=lambda line: line.queued, num=True,
               high_first=True),
        Column("limit", "Backlog limit", lambda line: seconds(line.backlog_s).html, sort=lambda line: line.backlog_s,
               csv=lambda line: line.backlog_s, num=True),
        Column("deadline", "Window ends", lambda line: _clock(line.deadline_us), sort=lambda line: line.deadline_us,
               csv=lambda line: _moment(line.deadline_us), num=True),
        Column("expected", "Watermark expected", _expected, sort=lambda line: (line.expected or (None,))[0],
               csv=lambda line: _moment((line.expected or (None,))[0]), num=True, short="Expected"),
        Column("arrived", "Last arrival", _arrived, sort=_last_delay, csv=_last_delay, num=True, high_first=True),
        Column("hits", "As expected", _hits, sort=lambda line: line.hit_rate, csv=lambda line: line.hit_rate, num=True,
               css=lambda line: "watch" if line.is_off else ""),
        Column("mean", "Latency, mean", lambda line: seconds(line.latency_mean_s).html, num=True, short="Mean",
               high_first=True, sort=lambda line: line.latency_mean_s, csv=lambda line: line.latency_mean_s),
        Column("p99", "p99", _p99, sort=lambda line: line.latency_p99_s, csv=lambda line: line.latency_p99_s, num=True,
               high_first=True),
        Column("on-time", "On time", _on_time, sort=lambda line: line.in_time_share,
               csv=lambda line: line.in_time_share, num=True,
               css=lambda line: "watch" if _is_often_late(line) else ""),
    ]  # fmt: skip


def _named(slug: str, line: ScheduledQuery) -> SafeString:
    url = reverse("pages:query-live", args=[slug, line.name])
    period = f"every {seconds(line.period_s)}" if line.period_s is not None else "no windows"
    text = '<span class="nm"><a class="name" href="{}">{}</a> <small class="muted">{}</small></span>'
    return format_html(text, url, line.name, period)


def _by_state(line: ScheduledQuery) -> tuple[bool, str]:
    """Queries that need attention come first."""
    mark = line_mark(line)
    return mark.tone != "watch", mark.label


def _state(line: ScheduledQuery) -> SafeString:
    mark = line_mark(line)
    return format_html('<span class="st {}">{}{}</span>', mark.tone, icon(mark.drawing), mark.label)


def _slack(line: ScheduledQuery) -> SafeString:
    return seconds(line.slack_s).html


def _waiting(line: ScheduledQuery) -> Any:
    if line.queued is None:
        return MISSING
    if not line.queued:
        return format_html('<span class="muted">{}</span>', "none")
    return format_html('<span title="{}">{}</span>', bytes_size(line.queued_bytes), count(line.queued))


def _clock(moment_us: int | None) -> str:
    return clock_of(moment_us) if moment_us is not None else MISSING


def _moment(moment_us: Any) -> datetime | None:
    return moment_of(moment_us)


def _expected(line: ScheduledQuery) -> Any:
    """As delays after the window's end, beside which the last one's stands."""
    if line.expected is None or line.deadline_us is None:
        return format_html('<span class="muted">{}</span>', "not yet" if line.period_s else MISSING)
    low, high = (round(max(moment - line.deadline_us, 0) / 1e6, 2) for moment in line.expected[1:])
    title = f"{clock_of(line.expected[1])} to {clock_of(line.expected[2])}"
    return format_html('<span title="{}">+{}</span>', title, seconds_range(low, high).html)


def _last_delay(line: ScheduledQuery) -> float | None:
    return line.sweeps[-1].delay_s if line.sweeps else None


def _arrived(line: ScheduledQuery) -> Any:
    if not line.sweeps:
        return MISSING
    last = line.sweeps[-1]
    return format_html('<span title="{}">+{}</span>', clock_of(last.arrived_us), seconds(last.delay_s).html)


def _hits(line: ScheduledQuery) -> Any:
    if line.hit_rate is None:
        return MISSING
    text = "{} <small>of {}</small>"
    return format_html(text, percent(line.hit_rate).html, count(len(line.judged)))


def _is_often_late(line: ScheduledQuery) -> bool:
    return line.in_time_share is not None and line.in_time_share < MIN_IN_TIME


def _on_time(line: ScheduledQuery) -> Any:
    if line.in_time_share is None:
        return MISSING
    kind = "window" if line.period_s is not None else "record"
    title = f"{count(line.in_time)} of {counted(line.timed, kind)}"
    if line.shed_late:
        title = f"{title}; {counted(line.shed_late, 'record')} shed"
    return format_html('<span title="{}">{}</span>', title, percent(line.in_time_share).html)


def _p99(line: ScheduledQuery) -> Any:
    few = 0 < len(line.sweeps) < 100
    title = f"The longest of {len(line.sweeps)}" if few else ""
    return format_html('<span title="{}">{}</span>', title, seconds(line.latency_p99_s).html)
