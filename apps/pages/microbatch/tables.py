"""Tables of Spark queries and of their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.microbatch.models import MicroBatch, SparkQuery
from apps.microbatch.selectors import fit_in_force, spark_queries_visible, spark_query_state
from apps.pages.saved_views.bar import open_views
from apps.saved_views.models import SavedList
from apps.ui.marks import state_mark
from apps.ui.numbers import MISSING, count, percent, scaled, seconds
from apps.ui.tables import Column, Table
from apps.ui.times import exact, time_tag

__all__ = ["BatchInterval", "batches_table", "intervals_of", "spark_queries_table"]


@dataclass(frozen=True)
class BatchInterval:
    """A batch, and the seconds since the one before it began, in which its rows came."""

    batch: MicroBatch
    interval_s: float

    @property
    def utilisation(self) -> float:
        """Share of the interval in which the batch ran; more than 1 where it held up the next."""
        return self.batch.duration_s / self.interval_s if self.interval_s > 0 else 0.0


def intervals_of(batches: Sequence[MicroBatch]) -> list[BatchInterval]:
    """Batches that follow the one before them in the same run, oldest first."""
    return [
        BatchInterval(batch, (batch.begins_at - before.begins_at).total_seconds())
        for before, batch in pairwise(batches)
        if (batch.run_id, batch.batch) == (before.run_id, before.batch + 1)
    ]


def spark_queries_table(request: HttpRequest, cluster: Cluster, *, can_change: bool) -> Table:
    """Spark queries of a cluster, with the stream processor."""
    empty = {
        "icon": "jobs",
        "title": "No Spark query yet",
        "text": (
            "Upload a progress file, name a URL that answers with progress, or paste a listener into the "
            "application. Sluice then predicts each micro-batch and tells when they drift from their predictions."
        ),
    }
    if can_change:
        url = reverse("pages:spark-query-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Watch a Spark query", "action_icon": "plus"}
    return Table(
        request,
        _query_columns(cluster),
        spark_queries_visible(cluster),
        caption="Spark queries",
        default_sort="query",
        views=open_views(request, SavedList.SPARK_QUERIES),
        file_name=f"spark-queries-{cluster.slug}",
        empty=empty,
    )


def _query_columns(cluster: Cluster) -> list[Column]:
    def name(query: SparkQuery) -> SafeString:
        url = reverse("pages:spark-query", args=[cluster.slug, query.pk])
        return format_html('<a class="name" href="{}">{}</a>', url, query.name)

    return [
        Column("query", "Query", name, sort="name", csv=lambda query: query.name),
        Column("origin", "Origin", lambda query: query.get_origin_display(), sort="origin"),
        Column("state", "State", lambda query: state_mark(_state(query)), csv=_state),
        Column(
            "newest",
            "Newest",
            lambda query: time_tag(query.last_batch_at),
            sort="last_batch_at",
            csv=lambda query: query.last_batch_at,
            high_first=True,
        ),
        Column("trigger", "Trigger", _trigger, sort="trigger_s", csv=lambda query: query.trigger_s, num=True),
        Column("fixed", "Fixed time", _fixed, csv=_fixed_csv, num=True),
        Column("per_row", "Per row", _per_row, csv=_per_row_csv, num=True),
        Column("distance", "Distance", _distance, sort="drift_share", csv=lambda query: query.drift_share, num=True),
        Column("batches", "Micro-batches", lambda query: count(query.batch_count), sort="batch_count", num=True),
    ]


def _state(query: SparkQuery) -> str:
    return "drifting" if query.drifting_since else spark_query_state(query).value


def _trigger(query: SparkQuery) -> Any:
    return seconds(query.trigger_s).html if query.trigger_s else "no pause"


def _fixed(query: SparkQuery) -> Any:
    fit = fit_in_force(query)
    return MISSING if fit is None else seconds(fit.fixed_s).html


def _fixed_csv(query: SparkQuery) -> Any:
    fit = fit_in_force(query)
    return None if fit is None else fit.fixed_s


def _per_row(query: SparkQuery) -> Any:
    fit = fit_in_force(query)
    return MISSING if fit is None else seconds(fit.per_row_s).html


def _per_row_csv(query: SparkQuery) -> Any:
    fit = fit_in_force(query)
    return None if fit is None else fit.per_row_s


def _distance(query: SparkQuery) -> Any:
    return MISSING if query.drift_share is None else percent(query.drift_share).html


def batches_table(
    request: HttpRequest, query: SparkQuery, batches: list[MicroBatch], intervals: list[BatchInterval]
) -> Table:
    """The newest micro-batches, measured and predicted."""
    by_batch = {interval.batch.pk: interval for interval in intervals}
    return Table(
        request,
        _batch_columns(by_batch),
        batches,
        caption="Micro-batches",
        default_sort="-begins",
        page_size=20,
        file_name=f"micro-batches-{query.pk}",
        empty={"icon": "jobs", "title": "No micro-batch yet", "text": "They appear here as their progress arrives."},
    )


def _batch_columns(intervals: dict[int, BatchInterval]) -> list[Column]:
    def utilisation(batch: MicroBatch) -> float | None:
        return intervals[batch.pk].utilisation if batch.pk in intervals else None

    return [
        Column("batch", "Batch", _number, sort=lambda batch: (batch.begins_at, batch.batch), csv=_number),
        Column("begins", "Began", _began, sort=lambda batch: batch.begins_at, csv=_began_csv, high_first=True),
        Column(
            "rows",
            "Rows",
            lambda batch: scaled(batch.rows).html,
            sort=lambda batch: batch.rows,
            csv=lambda batch: batch.rows,
            num=True,
        ),
        Column(
            "duration",
            "Duration",
            lambda batch: seconds(batch.duration_s, apart_from=batch.predicted_s).html,
            sort=lambda batch: batch.duration_s,
            csv=lambda batch: batch.duration_s,
            num=True,
        ),
        Column("predicted", "Predicted", _predicted, csv=lambda batch: batch.predicted_s, num=True),
        Column("distance", "Distance", _share, csv=_share_csv, num=True),
        Column("utilisation", "Utilisation", lambda batch: _percent(utilisation(batch)), csv=utilisation, num=True),
    ]


def _number(batch: MicroBatch) -> str:
    return f"{batch.batch}"


def _began(batch: MicroBatch) -> SafeString:
    local = timezone.localtime(batch.begins_at)
    day = "" if local.date() == timezone.localdate() else f"{local.day} {local:%b}, "
    moment = batch.begins_at.isoformat()
    return format_html(
        '<time datetime="{}" title="{}">{}{}</time>', moment, exact(batch.begins_at), day, f"{local:%H:%M:%S}"
    )


def _began_csv(batch: MicroBatch) -> Any:
    return batch.begins_at


def _predicted(batch: MicroBatch) -> Any:
    if batch.is_warm_up:
        return format_html('<span class="muted">{}</span>', "warm-up")
    return MISSING if batch.predicted_s is None else seconds(batch.predicted_s, apart_from=batch.duration_s).html


def _share_csv(batch: MicroBatch) -> float | None:
    return batch.duration_s / batch.predicted_s - 1 if batch.predicted_s and not batch.is_warm_up else None


def _share(batch: MicroBatch) -> Any:
    share = _share_csv(batch)
    if share is None:
        return MISSING
    sign = "+" if share > 0 else "\u2212" if share < 0 else ""
    return format_html("{}{}", sign, percent(abs(share)).html)


def _percent(share: float | None) -> Any:
    return MISSING if share is None else percent(share).html
