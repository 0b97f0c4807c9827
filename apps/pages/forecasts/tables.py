"""Tables of a forecast: queries with their dates and probabilities, and the load histories behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.forecasts.facts import ForecastFacts, moment
from apps.pages.overview.tables import objective_text, state_and_name
from apps.pages.saved_views.bar import open_views
from apps.planning.forecast_findings import PoolFix
from apps.planning.load_histories import histories_visible
from apps.planning.models import LoadHistory
from apps.saved_views.models import SavedList
from apps.ui.marks import evidence_mark, judged_state
from apps.ui.numbers import MISSING, percent, rate, seconds
from apps.ui.tables import Column, Table
from apps.ui.times import time_tag
from engine.forecasts.answer import HoldChance, QueryForecast
from engine.words import counted

__all__ = ["histories_table", "outlook_table"]


@dataclass(frozen=True)
class _Row:
    """A query with its probability and the pool that would do."""

    query: QueryForecast
    chance: HoldChance | None
    fix: PoolFix | None


def outlook_table(request: HttpRequest, facts: ForecastFacts) -> Table:
    """Every query with an objective, the earliest violation first."""
    answer = facts.answer
    chances = answer.probability.queries if answer and answer.probability else {}
    fixes = {shortage.query: shortage.fix for shortage in facts.shortages}
    queries = answer.queries if answer else ()
    return Table(
        request,
        _columns(facts, facts.cluster.slug),
        [_Row(query, chances.get(query.query), fixes.get(query.query)) for query in queries],
        caption="Objectives over the coming weeks",
        default_sort="band",
        file_name=f"forecast-{facts.cluster.slug}",
        identify=lambda row: row.query.query,
        empty={"icon": "queries", "title": "No objective to forecast", "text": "No running query has an objective."},
    )


def _columns(facts: ForecastFacts, slug: str) -> list[Column]:
    def name(row: _Row) -> SafeString:
        query = row.query
        url = reverse("pages:query", args=[slug, query.query])
        state = "breached" if query.first_mean else "at_risk" if query.violations else "holds"
        if state == "holds" and (query.unknown or query.is_for_person):
            state = "unknown"
        return state_and_name(judged_state(state, "estimate"), query.query, url)

    def bound(row: _Row) -> SafeString:
        return objective_text(row.query.statistic, row.query.bound_s)

    def chance(row: _Row) -> float | None:
        return row.chance.holds if row.chance else None

    query, limit = attrgetter("query.query"), attrgetter("query.bound_s")
    return [
        Column("query", "Query", name, sort=query, csv=query),
        Column("bound", "Objective", bound, sort=limit, csv=limit, num=True),
        _highest("expected", "Highest, expected", "worst_mean_s", "worst_upper_s"),
        _highest("upper", "Highest, 90% band", "worst_high_s"),
        _from(facts, "risk", "At risk from", "risk"),
        _from(facts, "band", "Violated from, 90% band", "high"),
        _from(facts, "mean", "Violated from, expected", "mean"),
        Column("holds", "Holds throughout", _holds, sort=chance, csv=chance, num=True),
        Column("fix", "What would do", _fix),
    ]


def _highest(key: str, label: str, field: str, upper: str = "") -> Column:
    """The highest latency over the coming buckets, and up to what randomness may take it."""

    def shown(row: _Row) -> SafeString:
        value_s, upper_s = value(row), getattr(row.query, upper) if upper else None
        if field == "worst_mean_s" and row.query.endless_buckets:
            text = '{} <small class="muted">within a stretch; never catches up</small>'
            return format_html(text, seconds(value_s).html)
        if upper_s is None:
            return seconds(value_s).html
        text = '{} <small class="muted">up to {}</small>'
        return format_html(text, seconds(value_s).html, seconds(upper_s, apart_from=row.query.bound_s).html)

    value = attrgetter(f"query.{field}")
    return Column(key, label, shown, sort=value, csv=value, num=True, high_first=True)


def _from(facts: ForecastFacts, key: str, label: str, band: str) -> Column:
    """Column of the first violation of the objective."""

    def at(row: _Row) -> datetime | None:
        place = index(row)
        return None if place is None else facts.row.at(place)

    def index(row: _Row) -> int | None:
        violation = row.query.violations.get(band)
        return violation.index if violation else None

    return Column(key, label, lambda row: moment(at(row)), sort=index, csv=at, num=True)


def _holds(row: _Row) -> str:
    chance = row.chance
    if not chance or row.query.unknown or row.query.is_for_person:
        return MISSING
    return format_html('{} <small class="muted">± {}</small>', percent(chance.holds), percent(chance.error))


def _fix(row: _Row) -> str:
    if not row.query.violations:
        return MISSING
    if not row.fix:
        return "none of the pools judged"
    return counted(row.fix.added, "more node") if row.fix.added > 0 else "place operators anew"


def histories_table(request: HttpRequest, cluster: Cluster, *, can_change: bool) -> Table:
    """Load histories by source."""
    empty = {
        "icon": "arrivals",
        "title": "No load history yet",
        "text": "Upload the load of the past weeks, or generate one to try forecasts on.",
    }
    if can_change:
        url = reverse("pages:history-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Add a history", "action_icon": "plus"}
    return Table(
        request,
        _history_columns(cluster.slug),
        histories_visible().filter(cluster=cluster),
        caption="Load histories",
        default_sort="source",
        search=["source_id", "description"],
        search_label="Source or description",
        views=open_views(request, SavedList.HISTORIES),
        file_name=f"load-histories-{cluster.slug}",
        empty=empty,
    )


def _history_columns(slug: str) -> list[Column]:
    def name(row: LoadHistory) -> SafeString:
        return format_html('<a class="name" href="{}">{}</a>', reverse("pages:history", args=[slug, row.pk]), row)

    def missing(row: LoadHistory) -> str:
        return str(percent(row.missing / row.buckets)) if row.missing else "none"

    return [
        Column("source", "Source", name, sort="source_id", csv=lambda row: row.source_id),
        Column("about", "What arrives", lambda row: row.description or MISSING, full=True),
        Column("origin", "From", lambda row: row.get_origin_display(), sort="origin", csv=lambda row: row.origin),
        Column("evidence", "Evidence", lambda row: evidence_mark(row.evidence), csv=lambda row: row.evidence),
        Column("start", "Begins", lambda row: moment(row.starts_at), sort="starts_at", csv=lambda row: row.starts_at),
        Column("end", "Ends", lambda row: moment(row.ends_at), csv=lambda row: row.ends_at),
        Column("bucket", "Bucket", lambda row: seconds(row.bucket_s).html, csv=lambda row: row.bucket_s, num=True),
        Column("missing", "Unknown", missing, sort="missing", csv=lambda row: row.missing, num=True),
        Column("mean", "Mean rate", lambda row: rate(row.mean_eps).html, csv=lambda row: row.mean_eps, num=True),
        Column(
            "updated",
            "Stored",
            lambda row: time_tag(row.updated_at),
            sort="updated_at",
            csv=lambda row: row.updated_at,
            num=True,
            high_first=True,
        ),
    ]
