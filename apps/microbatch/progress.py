"""Progress of Spark queries: taken in once, predicted, and learned from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Annotated, Any

from django.db import transaction
from django.db.models import Count

from apps.core.clock import shared_now
from apps.core.errors import Fault, Impossible, Malformed, Missing, TooLarge, from_engine
from apps.core.limits import MAX_GENERATION, MAX_NAME
from apps.fleet.choices import InputOrigin
from apps.microbatch.fits import FitCourse, drift_update, fit_refit, spark_query_announce
from apps.microbatch.models import FitReason, MicroBatch, SparkQuery, SparkQueryOrigin
from apps.queries.arrivals.text import read_text
from apps.queries.arrivals.uploads import text_limit_bytes
from engine.errors import DocumentError
from engine.errors import Fault as EngineFault
from engine.microbatch.model import DRIFT_BATCHES, WARM_UP_BATCHES
from engine.microbatch.progress import BatchProgress, ProgressReading, offset_of, read_progress, usual_trigger_s
from engine.microbatch.progress_text import ProgressText, read_progress_text
from engine.records import Record, Words
from engine.words import listed

__all__ = ["MAX_DOCUMENTS", "ProgressAnswer", "documents_of", "own_progress_ingest", "progress_ingest"]

MAX_DOCUMENTS = 20_000  # in one request or file
OWN_NAME = "Stream processor"
_AHEAD = timedelta(days=1)  # a batch of another clock; one further ahead would stay the newest for ever
_MAX_FAULTS = 20
_TRIGGER_BATCHES = 25
_ALIKE = 0.1
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class ProgressAnswer(Record):
    """Outcome of progress that was taken in."""

    accepted: Annotated[int, Words("Micro-batches stored.")]
    repeated: Annotated[int, Words("Known already.")]
    idle: Annotated[int, Words("Without a batch.")]
    left_out: Annotated[int, Words("Of other queries than `spark_name`.")]
    unread: Annotated[tuple[str, ...], Words("What could not be read and was left out, such as a last line cut off.")]
    settings: Annotated[dict[str, float] | None, Words("Settings to change to, such as {trigger_s: 2.0}.")]


def documents_of(data: bytes) -> ProgressText:
    """The progress objects of a body or file: JSON in any arrangement, an event log or a driver's log, also packed.

    Raises
    ------
    Malformed
        It is no text, or nothing in it is progress.
    TooLarge
        More than `MAX_DOCUMENTS`, or it unpacks to more than is taken.
    """
    try:
        progress = read_progress_text(read_text(data, limit_bytes=text_limit_bytes()))
    except RecursionError:
        raise Malformed("The progress nests deeper than any that Spark writes.") from None
    except DocumentError as error:
        raise from_engine(error) from None
    if len(progress.documents) > MAX_DOCUMENTS:
        count = f"{len(progress.documents):,}"
        raise TooLarge(f"It holds {count} micro-batches; allowed: {MAX_DOCUMENTS:,} at once. Send it in parts.")
    return progress


def own_progress_ingest(*, documents: Sequence[Any], settings: Mapping[str, object]) -> ProgressAnswer:
    """Take in progress of Sluice's own stream processor, which registers itself with its first.

    Parameters
    ----------
    settings : mapping
        Settings of `SETTINGS` that it runs with, as of these micro-batches.
    """
    defaults = {"name": OWN_NAME, "auto_refit": True}  # nobody has to press a button for what Sluice ships
    query, _ = SparkQuery.objects.get_or_create(origin=SparkQueryOrigin.OWN, defaults=defaults)
    return progress_ingest(query=query, documents=documents, settings=settings)


@transaction.atomic
def progress_ingest(
    *,
    query: SparkQuery,
    documents: Sequence[Any],
    settings: Mapping[str, object] | None = None,
    unread: Sequence[EngineFault] = (),
) -> ProgressAnswer:
    """Take in micro-batches of a query, each once; all of them or, where more than a few are faulty, none.

    Batches without rows or work are not stored. A batch is predicted by the fit then in force, and the fit and the
    drift follow (`apps.microbatch.fits`). A setting that Spark reports is measured from then on; one that differs from
    what it was begins a new fit.

    Raises
    ------
    Malformed
        With every fault; progress of several queries, or of another query than before.
    Missing
        The query was deleted meanwhile.
    """
    row = SparkQuery.objects.select_for_update(of=("self",)).filter(pk=query.pk).first()
    if row is None:  # a URL may answer after its query was deleted
        raise Missing(f"The Spark query {query.name} is not watched any more.")
    query = row
    kept, left_out = _of_query(query, documents)
    try:
        reading = read_progress(kept) if kept else ProgressReading((), 0, 0)
    except DocumentError as error:
        raise from_engine(error) from None
    now = shared_now()
    _check(reading.batches, now)
    fresh = _unknown(query, reading.batches)
    query.reported_at, query.fault = now, ""
    if reading.batches:
        query.spark_identity = _identity(reading.batches[-1].name, reading.batches[-1].query_id)
    if not _is_outdated(query, reading.batches, fresh):
        _learn(query, _measured(kept, reading, settings or {}), fresh, now)
        _learn_trigger(query, fresh)
    course = FitCourse(query, now)
    rows = [_row(query, batch, is_warm_up, now) for batch, is_warm_up in _with_warm_up(query, fresh)]
    for row in rows:
        course.take(row)
    course.store()
    MicroBatch.objects.bulk_create(rows, batch_size=500)
    drift = drift_update(query, now)
    query.save()
    if query.auto_refit and drift is not None and drift.is_drifting and drift.batches == DRIFT_BATCHES:
        with suppress(Impossible):  # the newest batches are of one size: the flag stays and says so
            fit_refit(query=query, reason=FitReason.DRIFT)
    spark_query_announce(query)
    wanted = query.wanted_trigger_s
    return ProgressAnswer(
        accepted=len(rows),
        repeated=reading.repeated + len(reading.batches) - len(rows),
        idle=reading.idle,
        left_out=left_out,
        settings=None if wanted is None else {"trigger_s": wanted},
        unread=tuple(map(str, (*unread, *reading.left_out))),
    )


# -- which of it is the query's


def _of_query(query: SparkQuery, documents: Sequence[Any]) -> tuple[list[Any], int]:
    """The documents of the query that is watched, and how many others there are."""
    kept = [document for document in documents if _is_named(query, document)]
    if query.origin == SparkQueryOrigin.FILE and documents and not kept:  # a listener posts those of others as well
        others = listed(sorted({_identity_of(document) or "a query without a name" for document in documents}), 5)
        raise _not_one(f"no progress of {query.spark_name!r} is in it; there is progress of {others}")
    identities = {_identity_of(document) for document in kept} - {""}
    if not query.spark_name and query.spark_identity:
        identities |= {query.spark_identity} if identities else set()
    if not query.spark_name and len(identities) > 1:
        raise _not_one(f"several Spark queries report: {listed(sorted(identities), 5)}; choose one by spark_name")
    return kept, len(documents) - len(kept)


def _not_one(message: str) -> Malformed:
    return Malformed(f"{message[0].upper()}{message[1:]}.", [Fault("spark_name", message)])


def _is_named(query: SparkQuery, document: Any) -> bool:
    """Whether a document is of the query's name; what is no object is kept, so that its fault is told."""
    if not query.spark_name or not isinstance(document, Mapping):
        return True
    return query.spark_name in (document.get("name"), document.get("id"))


def _identity_of(document: Any) -> str:
    return _identity(document.get("name"), document.get("id")) if isinstance(document, Mapping) else ""


def _identity(name: Any, query_id: Any) -> str:
    return next((text[:MAX_NAME] for text in (name, query_id) if isinstance(text, str) and text), "")


# -- what of it is stored


def _check(batches: Sequence[BatchProgress], now: datetime) -> None:
    """Refuse values that Spark does not report and the database cannot hold."""
    faults = [fault for batch in batches for fault in _faults(batch, now + _AHEAD)][:_MAX_FAULTS]
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)


def _faults(batch: BatchProgress, latest: datetime) -> Iterable[Fault]:
    path = f"batch {batch.batch}"
    for name, texts in (("durationMs", batch.parts_s), ("stateOperators", [state.operator for state in batch.state])):
        if not all(map(_is_storable, texts)):
            yield Fault(f"{path}.{name}", f"a name in {name} holds a zero or half a character; allowed: text")
    for name, text in (("runId", batch.run_id), ("id", batch.query_id), ("name", batch.name)):
        if len(text) > MAX_GENERATION or not _is_storable(text):
            allowed = f"up to {MAX_GENERATION}, none of them zero or a half"
            yield Fault(f"{path}.{name}", f"{name} has {len(text)} characters; allowed: {allowed}")
    if batch.begins_at > latest:
        yield Fault(f"{path}.timestamp", f"timestamp is {batch.begins_at.isoformat()}; allowed: up to a day from now")


def _is_storable(text: str) -> bool:
    """Whether PostgreSQL takes a text: JSON can write a zero character, and one half of a surrogate pair."""
    return _UNSTORABLE.search(text) is None


def _unknown(query: SparkQuery, batches: Sequence[BatchProgress]) -> list[BatchProgress]:
    if not batches:
        return []
    numbers = [batch.batch for batch in batches]
    stored = MicroBatch.objects.filter(
        query=query, run_id__in={batch.run_id for batch in batches}, batch__range=(min(numbers), max(numbers))
    )
    known = set(stored.values_list("run_id", "batch"))
    return [batch for batch in batches if (batch.run_id, batch.batch) not in known]


def _with_warm_up(query: SparkQuery, batches: Sequence[BatchProgress]) -> Iterable[tuple[BatchProgress, bool]]:
    """Batches, and whether each is one of the first with rows of its run."""
    stored = MicroBatch.objects.filter(query=query, run_id__in={batch.run_id for batch in batches}, rows__gt=0)
    first = Counter(dict(stored.order_by().values_list("run_id").annotate(Count("pk"))))
    for batch in batches:
        yield batch, first[batch.run_id] < WARM_UP_BATCHES
        first[batch.run_id] += batch.rows > 0


def _row(query: SparkQuery, batch: BatchProgress, is_warm_up: bool, now: datetime) -> MicroBatch:
    figures = [{name: value for name, value in asdict(state).items() if value is not None} for state in batch.state]
    return MicroBatch(
        query=query,
        run_id=batch.run_id,
        batch=batch.batch,
        begins_at=batch.begins_at,
        rows=batch.rows,
        rows_per_s=batch.rows_per_s,
        duration_s=batch.duration_s,
        parts_s=dict(batch.parts_s),
        state=figures,
        event_lag_s=batch.event_lag_s,
        trigger_s=query.trigger_s if batch.trigger_s is None else batch.trigger_s,
        is_warm_up=is_warm_up,
        received_at=now,
    )


# -- what it tells of the settings


def _is_outdated(query: SparkQuery, batches: Sequence[BatchProgress], fresh: Sequence[BatchProgress]) -> bool:
    """Whether later batches are known already, as where a post is repeated: their settings count, not these."""
    if not batches or not fresh:
        return bool(batches)
    return MicroBatch.objects.filter(query=query, begins_at__gt=fresh[-1].begins_at).exists()


def _measured(documents: Sequence[Any], reading: ProgressReading, reported: Mapping[str, object]) -> dict[str, object]:
    """Settings that the progress tells of, and those that the query reports beside it."""
    measured: dict[str, Any] = {}
    if reading.batches and reading.batches[-1].state:
        measured["stateful"] = True
        counts = [state.shuffle_partitions for state in reading.batches[-1].state if state.shuffle_partitions]
        if counts:
            measured["shuffle_partitions"] = int(max(counts))
    if partitions := max(map(_input_partitions, documents[-1:]), default=0):
        measured["input_partitions"] = partitions
    measured |= reported
    if reading.batches and reading.batches[-1].trigger_s is not None:
        measured["trigger_s"] = reading.batches[-1].trigger_s
    return measured


def _input_partitions(document: Any) -> int:
    """Partitions of Kafka sources, whose offsets are {topic: {partition: offset}}."""
    sources = document.get("sources") if isinstance(document, Mapping) else None
    given = sources if isinstance(sources, list) else []
    ends = [source.get("endOffset") for source in given if isinstance(source, Mapping)]
    offsets = [end for end in map(offset_of, ends) if isinstance(end, Mapping)]
    return sum(len(topic) for end in offsets for topic in end.values() if isinstance(topic, Mapping))


def _learn(query: SparkQuery, measured: Mapping[str, Any], fresh: Sequence[BatchProgress], now: datetime) -> None:
    """Take over measured settings. A value that nobody had given before is no change."""
    origins = {name: query.setting_origin(name) for name in measured}
    has_changed = any(
        origins[name] != InputOrigin.DEFAULT and getattr(query, name) != value for name, value in measured.items()
    )
    for name, value in measured.items():
        setattr(query, name, value)
        query.setting_origins[name] = InputOrigin.MEASURED.value
    if has_changed:
        same = takewhile(lambda batch: batch.trigger_s in {None, query.trigger_s}, reversed(fresh))
        query.settings_since = min((batch.begins_at for batch in same), default=now)


def _learn_trigger(query: SparkQuery, fresh: Sequence[BatchProgress]) -> None:
    """Take the trigger interval from the distance of batches, where neither Spark nor a person has given it."""
    is_told = not fresh or fresh[-1].trigger_s is not None
    if is_told or query.is_own or query.setting_origin("trigger_s") == InputOrigin.ASSUMED:
        return
    run_id = fresh[-1].run_id
    stored = MicroBatch.objects.filter(query=query, run_id=run_id).order_by("batch")[:_TRIGGER_BATCHES]
    batches = [row.progress for row in stored] + [batch for batch in fresh if batch.run_id == run_id]
    trigger_s = usual_trigger_s(sorted(batches, key=lambda batch: batch.batch)[WARM_UP_BATCHES:_TRIGGER_BATCHES])
    if trigger_s is None:
        return
    is_measured = query.setting_origin("trigger_s") == InputOrigin.MEASURED
    if is_measured and abs(trigger_s - query.trigger_s) <= _ALIKE * query.trigger_s:
        return
    if is_measured:
        query.settings_since = min(batch.begins_at for batch in batches)
    query.trigger_s = trigger_s
    query.setting_origins["trigger_s"] = InputOrigin.MEASURED.value
