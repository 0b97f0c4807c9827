"""Changes to Spark queries: create, change, delete, apply settings, ask URLs, purge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Fault, Impossible, Malformed, SluiceError, fault_count
from apps.core.limits import MAX_FAULT
from apps.core.messages import Gone, Undelivered, address_faults, fetch
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.microbatch.fits import spark_query_announce
from apps.microbatch.models import (
    MAX_OWN_TRIGGER_S,
    MIN_OWN_TRIGGER_S,
    SETTINGS,
    MicroBatch,
    SparkQuery,
    SparkQueryOrigin,
)
from apps.microbatch.progress import documents_of, progress_ingest
from apps.microbatch.selectors import fit_in_force
from engine.errors import DocumentError
from engine.kinds import Number
from engine.microbatch.model import quantile_level

__all__ = [
    "batches_purge",
    "settings_apply",
    "spark_queries_poll",
    "spark_query_create",
    "spark_query_delete",
    "spark_query_poll",
    "spark_query_update",
]

KEEP_BATCHES = timedelta(days=7)  # of queries that go on reporting
MAX_BATCHES = 20_000  # of one query; a batch every 30 s for a week
POLL_S = 30.0
_POLL_BUDGET_S = 25.0  # of a round, after which the others wait for the next
_MAX_ANSWER_BYTES = 8 * 2**20
_OWN_SETTINGS = ("trigger_s",)
_OWN_TRIGGER = Number(least=MIN_OWN_TRIGGER_S, most=MAX_OWN_TRIGGER_S)


@transaction.atomic
def spark_query_create(
    *, cluster: Cluster, name: str, origin: str, user: User | None = None, **fields: Any
) -> SparkQuery:
    """Begin to watch a Spark query of a cluster. Settings that are given are assumed until Spark reports them.

    Raises
    ------
    Malformed
        A field's value is not allowed; a URL is missing, or given for another origin than `url`.
    Conflict
        The name is taken.
    """
    query = SparkQuery(cluster=cluster, name=name, origin=origin, created_by=user, setting_origins={})
    _assign(query, fields)
    faults = [Fault("origin", "own is the stream processor's, which registers itself")] if query.is_own else []
    _check(query, faults)
    check_free(cluster.spark_queries.all(), query, name=name)
    query.save()
    spark_query_announce(query)
    return query


@transaction.atomic
def spark_query_update(*, query: SparkQuery, **fields: Any) -> SparkQuery:
    """Change a query. Another value of a setting is in force from now on, and a new fit begins with it."""
    query = SparkQuery.objects.select_for_update(of=("self",)).get(pk=query.pk)
    before = query.setting_values
    fixed = [name for name in fields if query.is_own and name in {*SETTINGS, "name", "url", "spark_name"}]
    if fixed:
        faults = [Fault(name, f"{name} is reported by the stream processor; apply a trigger instead") for name in fixed]
        raise Malformed(f"The stream processor has {fault_count(faults)}: {faults[0].message}.", faults)
    if fields.get("spark_name", query.spark_name) != query.spark_name:
        query.spark_identity = ""
    _assign(query, fields)
    _check(query, [])
    if query.cluster is not None:
        check_free(query.cluster.spark_queries.all(), query, name=query.name)
    if query.setting_values != before:
        query.settings_since = shared_now()
    query.save()
    spark_query_announce(query)
    return query


@transaction.atomic
def spark_query_delete(*, query: SparkQuery) -> None:
    """Delete a query with its micro-batches and fits. The stream processor registers again with its next batch."""
    spark_query_announce(query)
    query.delete()


@transaction.atomic
def settings_apply(*, query: SparkQuery, user: User | None, **settings: Any) -> SparkQuery:
    """Apply settings of a plan.

    Sluice's own stream processor is told the trigger interval with the answer to its next progress, and changes over
    after the batch in work. Of any other query it is noted that its operator has applied them: they are in force from
    now on, and a new fit begins.

    Raises
    ------
    Malformed
        No setting is given, or a value is not allowed.
    Impossible
        Other settings than the trigger interval of the stream processor.
    """
    query = SparkQuery.objects.select_for_update(of=("self",)).get(pk=query.pk)
    if not settings:
        raise Malformed("There is no setting to apply.", [("settings", f"allowed: {', '.join(SETTINGS)}")])
    others = [name for name in settings if query.is_own and name not in _OWN_SETTINGS]
    if others:
        faults = [Fault(name, f"{name} of the stream processor is fixed while it runs") for name in others]
        raise Impossible(f"{faults[0].message}; allowed: trigger_s.", faults)
    if query.is_own:
        wrong: list[Fault] = []
        _OWN_TRIGGER.read(settings["trigger_s"], "", "trigger_s", wrong)
        if wrong:
            raise Malformed(f"{wrong[0].message}.", wrong)
        query.wanted_trigger_s = round(settings["trigger_s"], 3)  # Spark's triggers are whole milliseconds
    else:
        before = query.setting_values
        _assign(query, settings)
        _check(query, [])
        if query.setting_values != before:
            query.settings_since = shared_now()
    query.applied_by, query.applied_at = user, shared_now()
    query.save()
    spark_query_announce(query)
    return query


def spark_queries_poll(now: datetime | None = None) -> int:
    """Ask every URL, the longest unasked first, within 25 s; returns how many answered with progress."""
    began_s, answered = time.monotonic(), 0
    due = (now or shared_now()) - timedelta(seconds=POLL_S / 2)
    rows = SparkQuery.objects.filter(origin=SparkQueryOrigin.URL).exclude(asked_at__gt=due)
    for query in rows.order_by(F("asked_at").asc(nulls_first=True), "pk"):
        if time.monotonic() - began_s > _POLL_BUDGET_S:
            break
        answered += spark_query_poll(query=query)
    return answered


def spark_query_poll(*, query: SparkQuery) -> bool:
    """Ask a query's URL once. What is wrong with the answer is kept as the query's fault."""
    fault = ""
    try:
        text = documents_of(fetch(query.url, _MAX_ANSWER_BYTES))
        progress_ingest(query=query, documents=text.documents, unread=text.left_out)
    except (Undelivered, Gone) as error:
        fault = str(error)
    except SluiceError as error:
        fault = error.message
    rows = SparkQuery.objects.filter(pk=query.pk)
    rows.update(asked_at=shared_now(), fault=fault[:MAX_FAULT])
    if fault and fault != query.fault:
        spark_query_announce(query)
    return not fault


def batches_purge(now: datetime | None = None) -> int:
    """Purge micro-batches older than a week, except of files, those beyond `MAX_BATCHES`, and fits of before that are
    no longer in force; returns how many.
    """
    before = (now or shared_now()) - KEEP_BATCHES
    old = MicroBatch.objects.filter(received_at__lt=before).exclude(query__origin=SparkQueryOrigin.FILE)
    purged = old.delete()[0]
    for query in SparkQuery.objects.all():
        last = query.batches.order_by("-begins_at", "-batch").values_list("begins_at", flat=True)[MAX_BATCHES:]
        if edge := last.first():
            purged += query.batches.filter(begins_at__lte=edge).delete()[0]
        if fit := fit_in_force(query):
            purged += query.fits.filter(since__lt=before).exclude(pk=fit.pk).delete()[0]
    return purged


def _assign(query: SparkQuery, fields: Mapping[str, object]) -> None:
    """Take over fields. A setting that is given is assumed, unless it is known to be so already."""
    for name, value in fields.items():
        is_known = getattr(query, name) == value and query.setting_origin(name) != InputOrigin.DEFAULT
        setattr(query, name, value)
        if name in SETTINGS and not is_known:
            query.setting_origins[name] = InputOrigin.ASSUMED.value


def _check(query: SparkQuery, faults: list[Fault]) -> None:
    if query.origin == SparkQueryOrigin.URL:
        faults += address_faults(query.url)
    elif query.url:
        faults.append(Fault("url", f"a query of origin {query.origin!r} has no url; allowed with origin url"))
    try:
        quantile_level(query.statistic)
    except DocumentError as error:
        faults += error.faults
    check_row(query, faults)
