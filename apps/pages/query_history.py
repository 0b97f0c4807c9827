"""The list of a query's estimates."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html

from apps.estimates.models import QueryEstimate
from apps.pages.context import url_of
from apps.queries.models import Query
from apps.ui.marks import state_mark
from apps.ui.numbers import MISSING, percent, seconds, seconds_range
from apps.ui.tables import Column, Table
from apps.ui.times import time_tag

__all__ = ["estimates_table"]


def estimates_table(request: HttpRequest, query: Query) -> Table:
    """Newest first."""
    rows = QueryEstimate.objects.filter(query=query).select_related("run", "version").defer("series", "result")
    return Table(
        request,
        _columns(),
        rows.defer("run__result", "run__snapshot_parts", "series", "result"),
        caption="Estimates",
        default_sort="-at",
        file_name=f"estimates-{query.name}",
        empty={
            "icon": "overview",
            "title": "No estimates yet",
            "text": "A query is estimated with everything else that runs, from the moment it is admitted.",
        },
    )


def _interval(row: QueryEstimate) -> Any:
    if row.high_s is None:
        return MISSING
    return seconds_range(row.low_s, row.high_s, apart_from=row.bound_s).html


def _when(row: QueryEstimate) -> Any:
    tag = time_tag(row.run.created_at, relative=False)
    url = url_of("pages:job", row.run.job_id) if row.run.job_id else ""
    return format_html('<a class="name" href="{}">{}</a>', url, tag) if url else tag


def _columns() -> list[Column]:
    return [
        Column("at", "Estimated", _when, sort="run__created_at", csv=lambda row: row.run.created_at, high_first=True),
        Column("state", "State", lambda row: state_mark(row.state), sort="state", csv=lambda row: row.state),
        Column("version", "Version", lambda row: row.version.number, sort="version__number", num=True),
        Column(
            "estimate",
            "Estimate",
            lambda row: seconds(row.estimate_s, apart_from=row.bound_s).html,
            sort="estimate_s",
            csv=lambda row: row.estimate_s,
            num=True,
            high_first=True,
        ),
        Column("interval", "Interval, 90%", _interval, csv=lambda row: row.high_s, num=True, short="Interval"),
        Column(
            "objective",
            "Objective",
            lambda row: seconds(row.bound_s).html,
            sort="bound_s",
            csv=lambda row: row.bound_s,
            num=True,
        ),
        Column(
            "headroom",
            "Headroom",
            lambda row: percent(row.headroom_share).html,
            sort="headroom_share",
            csv=lambda row: row.headroom_share,
            num=True,
        ),
        Column(
            "worst",
            "Worst case",
            lambda row: seconds(row.worst_s).html,
            sort="worst_s",
            csv=lambda row: row.worst_s,
            num=True,
        ),
        Column(
            "mace", "Mace", lambda row: seconds(row.mace_s).html, sort="mace_s", csv=lambda row: row.mace_s, num=True
        ),
    ]
