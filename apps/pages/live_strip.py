"""The strip of figures above a query's live results."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from django.utils import timezone

from apps.pages.findings import Stat
from apps.ui.numbers import Quantity, count, counted, seconds
from apps.ui.times import ago

if TYPE_CHECKING:
    from apps.pages.live_view import LiveView

__all__ = ["live_stats"]


def live_stats(view: LiveView) -> list[Stat]:
    """Newest result, latency, watermark, late records, alerts."""
    return [_results(view), _latency(view), _watermark(view), _late(view), _alerting(view)]


def _results(view: LiveView) -> Stat:
    if view.newest is None:
        return Stat("Newest result", Quantity("none yet"), "")
    came = ago(view.newest.received_at)
    return Stat(
        "Newest result",
        Quantity(count(view.group_count), "rows"),
        f"came {came}, of {count(view.newest.records)} records",
    )


def _latency(view: LiveView) -> Stat:
    found = view.latencies
    if not found:
        return Stat("Latency", Quantity("\N{EN DASH}"), "no window measured yet")
    middle, worst, bound = median(found), max(found), view.query.objective_bound_s
    tone = "bad" if bound and middle > bound else "watch" if bound and worst > bound else ""
    note = f"worst of {len(found)} windows {seconds(worst)}"
    return Stat("Latency", seconds(middle), f"{note}, objective {seconds(bound)}" if bound else note, tone)


def _watermark(view: LiveView) -> Stat:
    if view.said is None or view.said.watermark is None:
        return Stat("Watermark", Quantity("\N{EN DASH}"), "not reported")
    behind = (timezone.now() - view.said.watermark).total_seconds()
    value = seconds(behind) if 0 <= behind < 86_400 else Quantity(ago(view.said.watermark))
    return Stat("Watermark", value, f"behind now; waits for {view.said.waits}")


def _late(view: LiveView) -> Stat:
    # each result says how many there have been since the query began
    said = view.said or max(view.windows, key=lambda one: one.emitted_at, default=None)
    late, early = (said.late, said.early) if said else (0, 0)
    revised = sum(window.revision > 0 for window in view.windows)
    ahead = f", {counted(early, 'record')} of times too far ahead left out" if early else ""
    return Stat(
        "Late records",
        Quantity(count(late)),
        f"{revised} of {len(view.windows)} windows revised{ahead}",
        "watch" if late or early else "",
    )


def _alerting(view: LiveView) -> Stat:
    on = sum(rule.enabled for rule in view.rules)
    tone = "bad" if view.firing_count else ""
    return Stat("Alerts firing", Quantity(count(view.firing_count)), f"by {counted(on, 'rule')}", tone)
