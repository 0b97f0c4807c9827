"""What of a cluster needs a hand: the list beside its objectives, the most urgent first."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Exists, OuterRef
from django.utils import timezone

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.estimates.choices import ObjectiveState
from apps.estimates.models import QueryEstimate
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.forecasts.selectors import forecasts_listed, shortages
from apps.pages.context import url_of
from apps.pages.findings import Findings, headroom_of
from apps.pages.hand import Hand
from apps.pages.live_hands import live_hands
from apps.plans.selectors import plans_recommended
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query
from apps.ui.numbers import ratio, seconds, significant
from apps.ui.times import ago, short

__all__ = ["MOST", "hands_needed"]

MOST = 8


def hands_needed(findings: Findings) -> list[Hand]:
    """Over, at risk, waiting for review, and what makes the estimate less certain; pages show the first `MOST`."""
    cluster = findings.cluster
    return [
        *(_over(cluster, row) for row in findings.with_state(ObjectiveState.BREACHED)),
        *(_at_risk(cluster, row) for row in findings.with_state(ObjectiveState.AT_RISK)),
        *live_hands(cluster),
        *_waiting(cluster),
        *_threatened(findings),
        *_plans(cluster),
        *_alarm(findings),
        *_unestimated(findings),
        *_assumed(cluster),
    ]


def _threatened(findings: Findings) -> list[Hand]:
    """The first objective that the forecast sees violated, unless its query is over already."""
    cluster = findings.cluster
    row = forecasts_listed().filter(cluster=cluster).first()
    over = {one.query.name for one in findings.with_state(ObjectiveState.BREACHED)}
    found = [one for one in shortages(cluster, row) if one.query not in over] if row and not row.is_over else []
    if not found:
        return []
    first = found[0]
    with timezone.override(ZoneInfo(cluster.time_zone)):
        when = short(first.first_at)
    band = "at the 90% band" if first.band == "high" else "at the expected load"
    more = f"; {len(found) - 1} more threatened" if len(found) > 1 else ""
    title = f"{first.query} may miss its objective from {when}"
    url = url_of("pages:forecast", cluster.slug)
    return [Hand("watch", "watch", title, f"Forecast, {band}{more}", url, "Open forecast")]


def _query_url(cluster: Cluster, name: str) -> str:
    return url_of("pages:query", cluster.slug, name)


def _over(cluster: Cluster, row: QueryEstimate) -> Hand:
    gap, _ = headroom_of(row)
    title = f"{row.query.name} is {seconds(abs(gap or 0))} over"
    return Hand("bad", "bad", title, _cause(row), _query_url(cluster, row.query.name), "Open query")


def _at_risk(cluster: Cluster, row: QueryEstimate) -> Hand:
    title = f"{row.query.name} may be over its objective"
    upper = f"The upper estimate is {seconds(row.high_s, apart_from=row.bound_s)} of {seconds(row.bound_s)}."
    text = f"{upper} {_widened(row) or _cause(row)}"
    return Hand("watch", "watch", title, text, _query_url(cluster, row.query.name), "Open query")


def _widened(row: QueryEstimate) -> str:
    """That the interval alone makes it doubtful, being wide for what estimates missed lately; empty where it is not."""
    factor = ((row.result or {}).get("trust") or {}).get("factor") or 1.0
    if factor <= 1:
        return ""
    return f"Estimates were so far off lately that its interval is {significant(factor)} times as wide."


def _cause(row: QueryEstimate) -> str:
    """Which server makes it late, from the engine's answer."""
    bottleneck: dict[str, Any] = (row.result or {}).get("bottleneck") or {}
    if not bottleneck:
        return ""
    server = bottleneck.get("node") or bottleneck.get("server")
    return f"{server} runs at {ratio(bottleneck.get('load_peak'))} of capacity at its peak."


def _waiting(cluster: Cluster) -> list[Hand]:
    rows = AdmissionRequest.objects.filter(cluster=cluster, state=AdmissionState.AWAITING)
    waiting = list(rows.select_related("version__query").defer("result", "snapshot_parts").order_by("created_at"))
    if not waiting:
        return []
    first = waiting[0]
    title = "1 request waits for review" if len(waiting) == 1 else f"{len(waiting)} requests wait for review"
    url = url_of("pages:admission", cluster.slug, first.pk)
    return [Hand("review", "review", title, f"{first.version}, {ago(first.created_at)}.", url, "Open request")]


def _plans(cluster: Cluster) -> list[Hand]:
    """Queries for which a faster plan is known that nobody has taken over."""
    rows = plans_recommended(cluster)
    if not rows:
        return []
    names = ", ".join(row.query.name for row in rows[:3])
    title = f"{rows[0].query.name} has a faster plan" if len(rows) == 1 else f"{len(rows)} queries have faster plans"
    text = "The samples tell it apart from what runs." if len(rows) == 1 else f"The samples tell them apart: {names}."
    url = url_of("pages:query-plans", cluster.slug, rows[0].query.name)
    return [Hand("tune", "ok", title, text, url, "Open plans")]


def _alarm(findings: Findings) -> list[Hand]:
    alarm = (findings.run.result or {}).get("alarm") if findings.run is not None else None
    if not alarm or not alarm.get("untrusted"):
        return []
    return [Hand("watch", "watch", "The estimate is less certain here", alarm.get("message", ""), "")]


def _unestimated(findings: Findings) -> list[Hand]:
    if findings.run is None or not findings.unestimated:
        return []
    names = ", ".join(query.name for query in findings.unestimated[:3])
    return [Hand("unknown", "muted", f"{len(findings.unestimated)} not in the newest estimate", f"{names}.", "")]


def _assumed(cluster: Cluster) -> list[Hand]:
    assumed = OperatorInput.objects.filter(operator__version=OuterRef("running_version"), evidence=Evidence.ASSUMED)
    count = Query.objects.filter(Exists(assumed), cluster=cluster, state=QueryState.RUNNING).count()
    if not count:
        return []
    title = "1 query rests on assumed costs" if count == 1 else f"{count} queries rest on assumed costs"
    whose, noun = ("its", "interval is") if count == 1 else ("their", "intervals are")
    text = f"Measured statistics of {whose} operators would say how wide {whose} {noun}."
    return [Hand("assumed", "muted", title, text, url_of("pages:queries", cluster.slug))]
