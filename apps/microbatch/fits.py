"""Fits of a Spark query's micro-batches, what they predict, and how far measurement drifts from it."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_announce
from apps.microbatch.models import BatchFit, FitReason, MicroBatch, SparkQuery
from apps.microbatch.selectors import fit_in_force
from engine.errors import DocumentError
from engine.microbatch.model import DRIFT_BATCHES, BatchDrift, BatchModel, batch_drift, fit_durations
from engine.words import counted

__all__ = ["MAX_GROWTH", "FitCourse", "drift_update", "fit_refit", "spark_query_announce"]

#: Micro-batches that a fit rests on at most by itself: it takes in those that follow until it has so many.
MAX_GROWTH = 60


def spark_query_announce(query: SparkQuery) -> None:
    """Tell open pages that a Spark query changed."""
    announce("spark-queries")
    announce(f"spark-query:{query.pk}")


class FitCourse:
    """The fit in force while micro-batches are taken in one after the other, oldest first.

    The first fit is made as soon as three batches of two sizes are there; it grows with the batches that follow, until
    it rests on `MAX_GROWTH` or the query drifts. After a change of settings the old fit predicts until there is a new
    one. Warm-up batches are predicted and left out.
    """

    def __init__(self, query: SparkQuery, now: datetime) -> None:
        self._query, self._now = query, now
        self.fit = fit_in_force(query)
        self._begins_at = self._sample_begin()
        self._grows = query.drifting_since is None or self._is_replaced
        self._points = deque(self._stored() if self._wants_more else (), maxlen=MAX_GROWTH)
        self._has_grown = False

    def take(self, row: MicroBatch) -> None:
        """Predict a batch that is not stored yet, then learn from it."""
        if self.fit is not None:
            row.predicted_s, row.fit = self.fit.model.duration_s(row.rows), self.fit
            row.fit_batches = self.fit.batches
        if row.rows > 0 and not row.is_warm_up and self._wants_more and self._fits_in(row):
            self._points.append((row.begins_at, float(row.rows), row.duration_s))
            self._grow()

    def store(self) -> None:
        """Store what the fit in force has grown to."""
        if self._has_grown and self.fit is not None:
            self.fit.save()

    @property
    def _is_replaced(self) -> bool:
        """Whether settings changed since the batches that the fit in force rests on."""
        since = self._query.settings_since
        return self.fit is not None and since is not None and self.fit.first_at < since

    @property
    def _wants_more(self) -> bool:
        return self.fit is None or self._is_replaced or (self._grows and self.fit.batches < MAX_GROWTH)

    def _sample_begin(self) -> datetime | None:
        return self._query.settings_since if self.fit is None or self._is_replaced else self.fit.first_at

    def _fits_in(self, row: MicroBatch) -> bool:
        return self._begins_at is None or row.begins_at >= self._begins_at

    def _stored(self) -> list[tuple[datetime, float, float]]:
        """(begin, rows, seconds) of the newest batches of the sample, oldest first."""
        rows = MicroBatch.objects.filter(query=self._query, is_warm_up=False, rows__gt=0)
        if self._begins_at is not None:
            rows = rows.filter(begins_at__gte=self._begins_at)
        newest = rows.order_by("-begins_at", "-batch").values_list("begins_at", "rows", "duration_s")[:MAX_GROWTH]
        return [(begins_at, float(count), duration_s) for begins_at, count, duration_s in list(newest)[::-1]]

    def _grow(self) -> None:
        try:
            model = fit_durations([(rows, duration_s) for _, rows, duration_s in self._points])
        except DocumentError:
            return  # too few, or all of one size
        if self.fit is None or self._is_replaced:
            reason = FitReason.FIRST if self.fit is None else FitReason.SETTINGS
            first_at = min(begins_at for begins_at, _, _ in self._points)
            self.fit = _fit_create(self._query, model, reason, first_at, self._now)
            self._begins_at = first_at
        else:
            _assign(self.fit, model)
            self._has_grown = True


def drift_update(query: SparkQuery, now: datetime) -> BatchDrift | None:
    """Judge the newest micro-batches by what was predicted of them; the caller saves the query.

    Predictions of a fit that rested on fewer than 20 batches are not held against the query.
    """
    fit = fit_in_force(query)
    rows = MicroBatch.objects.filter(query=query, fit=fit, rows__gt=0, is_warm_up=False, fit_batches__gte=DRIFT_BATCHES)
    newest = rows.order_by("-begins_at", "-batch").values_list("duration_s", "predicted_s")[:DRIFT_BATCHES]
    drift = batch_drift(list(newest)[::-1]) if fit is not None else None
    query.drift_share = drift.share if drift else None
    query.drift_bias = drift.bias if drift else None
    was_drifting, is_drifting = query.drifting_since is not None, drift is not None and drift.is_drifting
    query.drifting_since = (query.drifting_since or now) if is_drifting else None
    if was_drifting != is_drifting:  # the attention list
        for cluster in [query.cluster] if query.cluster else Cluster.objects.all():
            cluster_announce(cluster)
    return drift


@transaction.atomic
def fit_refit(*, query: SparkQuery, user: User | None = None, reason: str = FitReason.REQUEST) -> BatchFit:
    """Fit a query anew to its newest 20 micro-batches with rows, under the present settings; to its newest 60 where
    those are of one size, as at an even rate.

    Raises
    ------
    Impossible
        Fewer than three such batches, or all of one size.
    """
    query = SparkQuery.objects.select_for_update(of=("self",)).get(pk=query.pk)
    rows = MicroBatch.objects.filter(query=query, is_warm_up=False, rows__gt=0)
    if query.settings_since is not None:
        rows = rows.filter(begins_at__gte=query.settings_since)
    newest = list(rows.order_by("-begins_at", "-batch").values_list("rows", "duration_s", "begins_at")[:MAX_GROWTH])
    sample = newest[:DRIFT_BATCHES]
    if len({count for count, _, _ in sample}) < 2:
        sample = newest
    try:
        model = fit_durations([(float(count), duration_s) for count, duration_s, _ in sample])
    except DocumentError as error:
        sizes = counted(len({count for count, _, _ in sample}), "size")
        message = (
            f"{query.name} has {counted(len(sample), 'micro-batch', 'micro-batches')} of {sizes} under its present "
            "settings, warm-up left out. A fit needs three, of two sizes."
        )
        raise Impossible(message, error.faults, code="too_few_batches") from None
    now = timezone.now()
    fit = _fit_create(query, model, reason, sample[-1][2], now, user)
    drift_update(query, now)
    query.save(update_fields=["drift_share", "drift_bias", "drifting_since"])
    spark_query_announce(query)
    return fit


def _fit_create(
    query: SparkQuery, model: BatchModel, reason: str, first_at: datetime, now: datetime, user: User | None = None
) -> BatchFit:
    former = fit_in_force(query)
    fit = BatchFit(
        query=query,
        reason=reason,
        first_at=first_at,
        since=now if former is None else max(now, former.since),  # also where the clock was set back: the newest counts
        setting_values=query.setting_values,
        requested_by=user,
    )
    _assign(fit, model)
    fit.save()
    return fit


def _assign(fit: BatchFit, model: BatchModel) -> None:
    figures: dict[str, object] = {
        "fixed_s": model.fixed_s,
        "per_row_s": model.per_row_s,
        "sd_s": model.sd_s,
        "batches": model.batches,
        "least_rows": model.least_rows,
        "most_rows": model.most_rows,
    }
    for name, value in figures.items():
        setattr(fit, name, value)
