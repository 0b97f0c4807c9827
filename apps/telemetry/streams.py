"""Streams of frames in Redis: client, limits, and their figures, also as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, QuerySet
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.retry import Retry

from agent.wire import broker, generations
from apps.core.errors import Unavailable
from apps.core.metrics import Family, Metric
from apps.telemetry.directory import forget_facts_on_commit
from apps.telemetry.models import Agent, KnownPlan

__all__ = [
    "ASSUMED_TRIGGER_S",
    "PLANS_KEPT",
    "StateKey",
    "StateReading",
    "StreamFigures",
    "generations_purge",
    "limits",
    "plans_purge",
    "redis_or_unavailable",
    "state_reading",
    "state_reading_request",
    "stream_client",
    "stream_families",
    "stream_figures",
    "stream_state",
    "stream_trigger_s",
]

ASSUMED_TRIGGER_S = 2.0  #: what SLUICE_STREAM_TRIGGER_S is unless it is set
_MAX_TRIGGER_S = 600.0  # that the stream processor's settings allow
_TIMEOUT_S = 3.0
_RETRY_S = 2.0


def stream_client() -> redis.Redis:
    """The client of this process, with connections kept. A second try is safe: every script may be repeated."""
    return _client(settings.REDIS_URL)


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=1.0, socket_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 1))


def limits() -> broker.BrokerLimits:
    """Limits of the data that waits for the stream processor."""
    return broker.BrokerLimits(total_bytes=settings.STREAM_MAX_BYTES, retry_after_s=_RETRY_S)


@contextmanager
def redis_or_unavailable() -> Iterator[redis.Redis]:
    """The client; whatever Redis refuses (it is away, full, loading, read-only) becomes a 503 to come back from."""
    try:
        yield stream_client()
    except redis.RedisError as error:
        word = "does not answer" if isinstance(error, (redis.ConnectionError, redis.TimeoutError)) else "takes nothing"
        raise Unavailable(f"Redis {word} at present. Try again in a moment.", retry_after_s=_RETRY_S) from error


def stream_state() -> broker.StreamProcessorReport:
    """Report of the stream processor about itself; `{"state": "away"}` when it is silent, `unknown` without Redis."""
    try:
        state = broker.stream_state(stream_client())
    except (redis.RedisError, ValueError):
        return {"state": "unknown"}
    return state or {"state": "away"}


def stream_trigger_s() -> float:
    """Trigger interval that the stream processor reports; the usual one while it reports none."""
    trigger_s = stream_state().get("trigger_s")
    if isinstance(trigger_s, bool) or not isinstance(trigger_s, (int, float)):
        return ASSUMED_TRIGGER_S
    return float(trigger_s) if 0.0 < trigger_s <= _MAX_TRIGGER_S else ASSUMED_TRIGGER_S


PLANS_KEPT = timedelta(days=30)  # longer than results of them are, so that each of these has its pipeline
_NOTED = timedelta(days=1)  # `used_at` is written so often at the least


@transaction.atomic
def plans_purge(now: datetime | None = None) -> int:
    """Note which plans queries have, and forget those that none had for long; returns how many are gone.

    A plan is kept as long as an agent that had a part in it has not been heard of since: what it still holds would be
    refused, and everything behind it with it.
    """
    now = now or timezone.now()
    KnownPlan.objects.filter(live__isnull=False, digest=F("live__plan")).update(used_at=now)
    old = KnownPlan.objects.filter(used_at__lt=now - PLANS_KEPT).exclude(Exists(_silent_since()))
    gone = old.count()
    if gone:
        old.delete()
        forget_facts_on_commit()
    return gone


def generations_purge(now: datetime | None = None) -> int:
    """Name lives that nobody can send for; the stream processor forgets them. Returns how many are named anew."""
    now_ms = round((now or timezone.now()).timestamp() * 1000)
    try:
        known = generations.known_generations(
            stream_client(), now_ms
        )  # before the agents: one that joins now is among these
        agents = {str(pk) for pk in Agent.objects.values_list("pk", flat=True)}
        return generations.mark_expired(stream_client(), generations.expired_generations(known, agents, now_ms))
    except redis.RedisError:
        return 0  # named an hour later


def _silent_since() -> QuerySet[Any]:
    """Parts of agents that were last heard of while the plan was in use."""
    ended = ExpressionWrapper(OuterRef("used_at") + _NOTED, output_field=DateTimeField())
    parts = KnownPlan.agents.through.objects.filter(knownplan=OuterRef("pk"))
    return parts.filter(agent__last_seen__gte=OuterRef("created_at"), agent__last_seen__lte=ended)


@dataclass(frozen=True)
class OperatorFigures:
    """One stateful operator after the last batch; totals count since the stream processor's start. None: not known."""

    operator: str
    rows: float | None = None
    updated_rows: float | None = None
    memory_bytes: float | None = None
    disk_bytes: float | None = None
    update_s: float | None = None
    commit_s: float | None = None
    batches_since_snapshot: float | None = None
    output_rows: float | None = None
    output_bytes: float | None = None
    updated_rows_total: float | None = None
    commit_s_total: float | None = None
    output_rows_total: float | None = None
    output_bytes_total: float | None = None


@dataclass(frozen=True)
class StreamFigures:
    """The last batch with records and the sums since the start; `operators` are in the order of the data's way."""

    state: str
    trigger_s: float | None = None
    behind_s: float | None = None
    lag: float | None = None
    records: float | None = None
    batch_s: float | None = None
    batches_total: float | None = None
    records_total: float | None = None
    batch_s_total: float | None = None
    operators: tuple[OperatorFigures, ...] = ()

    @property
    def rows(self) -> float | None:
        """Rows of state of all operators."""
        return self._sum("rows")

    @property
    def size_bytes(self) -> float | None:
        """State on disk of all operators."""
        return self._sum("disk_bytes")

    def _sum(self, name: str) -> float | None:
        values = [value for operator in self.operators if (value := getattr(operator, name)) is not None]
        return sum(values) if values else None


@dataclass(frozen=True)
class StateVariable:
    """A state variable: its keys, entries and their bytes."""

    operator: str
    variable: str
    kind: str
    keys: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class StateKey:
    """Entries of one key in one variable."""

    operator: str
    variable: str
    key: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class StateReading:
    """A reading of the keyed state; `fault` says why there is nothing in it."""

    read_at: datetime
    took_s: float
    batch: int | None
    variables: tuple[StateVariable, ...]
    keys: tuple[StateKey, ...]
    complete: bool
    fault: str


def stream_figures(message: broker.StreamProcessorReport | None = None) -> StreamFigures:
    """Figures in the stream processor's report, which is read from Redis unless given."""
    message = stream_state() if message is None else message
    progress = message.get("progress")
    progress = progress if isinstance(progress, Mapping) else {}
    names = [field.name for field in fields(StreamFigures) if field.name not in {"state", "lag", "operators"}]
    lag = message.get("lag")
    operators = [
        OperatorFigures(
            str(row.get("operator", "")),
            **{field.name: _number(row.get(field.name)) for field in fields(OperatorFigures)[1:]},
        )
        for row in progress.get("operators") or []
    ]
    return StreamFigures(
        state=str(message.get("state", "unknown")),
        lag=sum(lag.values()) if isinstance(lag, Mapping) and lag else None,
        operators=tuple(reversed(operators)),  # Spark names them from the sink on
        **{name: _number({**message, **progress}.get(name)) for name in names},
    )


def state_reading() -> StateReading | None:
    """The last reading of the keyed state; None where there was none within a day, or Redis does not answer."""
    try:
        report = broker.keyed_state(stream_client())
    except (redis.RedisError, ValueError):
        return None
    if report is None:
        return None
    return StateReading(
        read_at=datetime.fromtimestamp(report["read_at"], UTC),
        took_s=report["took_s"],
        batch=report.get("batch"),
        variables=tuple(StateVariable(**row) for row in report["variables"]),
        keys=tuple(StateKey(**row) for row in report["keys"]),
        complete=report.get("complete", True),
        fault=report.get("fault", ""),
    )


def state_reading_request() -> None:
    """Ask the stream processor to read its keyed state, which it does at most once a minute.

    Raises
    ------
    Unavailable
        Redis does not answer.
    """
    with redis_or_unavailable() as client:
        broker.request_keyed_state(client)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


_OF_ALL = (
    Metric("sluice_stream_trigger_seconds", "Trigger interval of the streaming query.", "trigger_s"),
    Metric("sluice_stream_behind_seconds", "Age of the oldest frame that waits.", "behind_s"),
    Metric("sluice_stream_backlog_frames", "Frames that wait.", "lag"),
    Metric("sluice_stream_last_batch_seconds", "Duration of the last micro-batch with records.", "batch_s"),
    Metric("sluice_stream_batch_records", "Records of the last micro-batch with records.", "records"),
    Metric("sluice_stream_batches_total", "Micro-batches with records since the start.", "batches_total"),
    Metric("sluice_stream_batch_seconds_total", "Duration of micro-batches since the start.", "batch_s_total"),
    Metric("sluice_stream_records_total", "Records since the start.", "records_total"),
)
_OF_OPERATORS = (
    Metric("sluice_stream_state_rows", "Rows of keyed state.", "rows"),
    Metric("sluice_stream_state_memory_bytes", "Memory of the state stores.", "memory_bytes"),
    Metric("sluice_stream_state_disk_bytes", "State on disk.", "disk_bytes"),
    Metric(
        "sluice_stream_state_snapshot_age_batches", "Micro-batches since the oldest snapshot.", "batches_since_snapshot"
    ),
    Metric("sluice_stream_state_last_commit_seconds", "Commit time of the last micro-batch.", "commit_s"),
    Metric("sluice_stream_state_commit_seconds_total", "Commit time since the start.", "commit_s_total"),
    Metric("sluice_stream_state_updated_rows_total", "Rows written since the start.", "updated_rows_total"),
    Metric("sluice_stream_output_rows_total", "Rows handed on since the start.", "output_rows_total"),
    Metric("sluice_stream_output_bytes_total", "Bytes handed on since the start.", "output_bytes_total"),
)


_READY = Metric("sluice_stream_ready", "Whether the stream processor is ready.")


def stream_families(figures: StreamFigures) -> Iterator[Family]:
    """The metrics; what is not known is left out.

    Examples
    --------
    >>> [sample.value for family in stream_families(StreamFigures("away")) for sample in family.samples]
    [0.0]
    """
    yield _READY.family(((), float(figures.state == "ready")))
    for metric in _OF_ALL:
        yield metric.family(((), getattr(figures, metric.field)))
    for metric in _OF_OPERATORS:
        named = replace(metric, labels=("operator",))
        yield named.family(*(((row.operator,), getattr(row, metric.field)) for row in figures.operators))
