"""Reading comparisons."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import QuerySet

from apps.fleet.models import Cluster
from apps.planning.choices import RunState
from apps.planning.models import PlanComparison
from apps.queries.choices import QueryState
from apps.queries.models import Query

__all__ = [
    "comparison_latest",
    "comparison_under_way",
    "comparisons_latest",
    "comparisons_visible",
    "plans_recommended",
]


def comparisons_visible() -> QuerySet[PlanComparison]:
    """Comparisons, newest first, with their query, without the bulk of their answers."""
    rows = PlanComparison.objects.select_related("query__cluster", "requested_by", "adopted")
    return rows.defer("samples", "basis")


def comparison_latest(query: Query) -> PlanComparison | None:
    """The newest comparison that has a ranking."""
    return comparisons_visible().filter(query=query, state=RunState.DONE).first()


def comparison_under_way(query: Query) -> PlanComparison | None:
    """The newest comparison, if it has not ended."""
    newest = PlanComparison.objects.select_related("job").filter(query=query).first()
    return newest if newest is not None and newest.state == RunState.COMPUTING else None


def comparisons_latest(queries: Iterable[Query]) -> dict[int, PlanComparison]:
    """The newest ranked comparison of each of several queries, by the query's key."""
    latest: dict[int, PlanComparison] = {}
    rows = PlanComparison.objects.filter(query__in=list(queries), state=RunState.DONE).defer("result")
    for row in rows.order_by("created_at"):
        latest[row.query_id] = row
    return latest


def plans_recommended(cluster: Cluster) -> list[PlanComparison]:
    """The newest comparisons of running queries with a faster plan that is not adopted yet."""
    rows = PlanComparison.objects.filter(query__cluster=cluster, query__state=QueryState.RUNNING, state=RunState.DONE)
    newest: dict[int, PlanComparison] = {}
    for row in rows.select_related("query__running_version").defer("samples", "basis", "result").order_by("created_at"):
        newest[row.query_id] = row
    return [
        row
        for row in newest.values()
        if row.recommended and row.adopted_id is None and row.running == row.query.running_version.number
    ]
