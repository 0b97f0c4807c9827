"""Heartbeats: the report of an agent every two seconds. Little of it is written to the database."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import redis
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agent.wire import broker
from agent.wire.heartbeat import AgentQueryReport, FactorChangeReport, Heartbeat
from apps.core.clock import shared_now
from apps.core.errors import Missing
from apps.core.events import announce
from apps.core.limits import DIGEST_LENGTH, MAX_KIND, MAX_QUERY_PATH, MAX_SLUG, MAX_STATE_TEXT, MAX_VERSION_TEXT
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.directory import plans_of
from apps.telemetry.epochs import epochs_add
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_state
from apps.telemetry.streams import stream_client
from engine.records import Record, Words
from engine.rollouts.measures import EpochRow, Sweep, WatermarkForecast

__all__ = ["HEARTBEAT_S", "HeartbeatAnswer", "HeartbeatSerializer", "agent_heartbeat"]

_MAX_FAULTS = 50
_MAX_EPOCHS = 120
_MAX_CHANGES = 10
_MAX_FACTORS = 64
_MAX_SWEEPS = 20
_MAX_SPANS = 40
_MAX_TEXT = 400
_MAX_WHOLE = 2**53
_MAX_NUMBER = 1e12


class _InvalidReport(ValueError):
    """An invalid value and what is allowed."""


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_WHOLE:
        raise _InvalidReport("a whole number, 0 or more")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _MAX_NUMBER:
        raise _InvalidReport("a number, 0 or more")
    return float(value)


def _signed(value: Any) -> float:
    if type(value) not in (int, float) or not -_MAX_NUMBER <= value <= _MAX_NUMBER:
        raise _InvalidReport("a number")
    return float(value)


def _moment(value: Any) -> int:
    if type(value) is not int or not -_MAX_WHOLE <= value <= _MAX_WHOLE:
        raise _InvalidReport("whole microseconds since 1970")
    return value


def _forecast(value: Any) -> WatermarkForecast:
    if not isinstance(value, list) or len(value) != len(WatermarkForecast._fields):
        raise _InvalidReport("a list of mean, least and most")
    return WatermarkForecast(*map(_moment, value))


def _sweeps(value: Any) -> tuple[Sweep, ...]:
    return tuple(map(_sweep, _few(value, _MAX_SWEEPS)))


def _sweep(value: Any) -> Sweep:
    if not isinstance(value, list) or len(value) != len(Sweep._fields):
        raise _InvalidReport("lists of deadline, least, most, arrived, swept and emitted")
    deadline, least_us, most_us, *later = value
    return Sweep(_moment(deadline), _or_none(_moment)(least_us), _or_none(_moment)(most_us), *map(_moment, later))


def _spans(value: Any) -> tuple[tuple[float, float], ...]:
    spans = []
    for span in _few(value, _MAX_SPANS):
        if not isinstance(span, list) or len(span) != 2:
            raise _InvalidReport("lists of start and length")
        spans.append((_number(span[0]), _number(span[1])))
    return tuple(spans)


def _few(value: Any, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise _InvalidReport(f"a list of at most {limit}")
    return value


def _factors(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > _MAX_FACTORS:
        raise _InvalidReport(f"a list of at most {_MAX_FACTORS} numbers")
    for factor in value:
        if type(factor) not in (int, float) or not 0 <= factor <= 1:
            raise _InvalidReport("numbers from 0 to 1")
    return tuple(map(float, value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _InvalidReport("a text")
    return value[:_MAX_TEXT]


def _or_none(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else kind(value)


def _or(default: Any, kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reader of a field that may be left out."""
    return lambda value: default if value is None else kind(value)


# fields of a row in the order of `EpochRow`
_EPOCH: Mapping[str, Callable[[Any], Any]] = {
    "e": _whole,
    "p": _factors,
    "n": _whole,
    "bi": _whole,
    "bs": _whole,
    "o": _whole,
    "u": _number,
    "b": _number,
    "i": _number,
    "d": _or_none(_number),
    "v": _or_none(_whole),
    "q": _or(0, _whole),
    "qb": _or(0, _whole),
    "l": _or_none(_signed),
    "x": _or_none(_forecast),
    "w": _or((), _sweeps),
    "t": _or((), _spans),
    "s": _or_none(_whole),
    "oc": _or(0, _whole),
    "ot": _or(0, _whole),
    "sl": _or(0, _whole),
}
_CHANGE: Mapping[str, Callable[[Any], Any]] = {
    "epoch_us": _whole,
    "why": _text,
    "epochs": _or_none(_whole),
    "from": _factors,
    "to": _factors,
    "bytes_before": _or_none(_number),
    "bytes_after": _or_none(_number),
}


class _RowsField(serializers.Field):
    """A list of objects, the newest last: the last `limit` of them are read, unknown fields ignored."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": list, **options})

    def read(self, data: Any, kinds: Mapping[str, Callable[[Any], Any]], limit: int) -> list[dict[str, Any]]:
        if not isinstance(data, list):
            raise serializers.ValidationError("allowed: a list")
        return [_object(row, kinds, place) for place, row in enumerate(data[-limit:])]


@extend_schema_field({"type": "array", "items": {"type": "object"}, "maxItems": _MAX_EPOCHS})
class EpochsField(_RowsField):
    """Rows of epochs: `e` when it began (microseconds), `p` load factors, `n` records in, `bi` bytes in, `bs` bytes
    sent, `o` records overflowing, `u` CPU seconds used, `b` to be had and `i` idle, `d` delay in seconds or null, `v`
    refined version or null. Of scheduling, each of which may be missing: `q` records waiting and `qb` their bytes, `l`
    slack in seconds, `x` the next sweeping watermark as expected, `w` windows that were swept, `t` when it ran, `s`
    version of the agent's refined schedule. Of latency constraints: `oc` windows or records that were counted, `ot` of
    these in time, `sl` records that were late everywhere and shed."""

    def to_internal_value(self, data: Any) -> list[EpochRow]:
        return [EpochRow(*row.values()) for row in self.read(data, _EPOCH, _MAX_EPOCHS)]


@extend_schema_field({"type": "array", "items": {"type": "object"}, "maxItems": _MAX_CHANGES})
class ChangesField(_RowsField):
    """The last changes of load factors and the time each took to settle."""

    def to_internal_value(self, data: Any) -> list[FactorChangeReport]:
        rows = self.read(data, _CHANGE, _MAX_CHANGES)
        return [cast(FactorChangeReport, {**row, "from": list(row["from"]), "to": list(row["to"])}) for row in rows]


def _object(row: Any, kinds: Mapping[str, Callable[[Any], Any]], place: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise serializers.ValidationError(f"row {place} is no object")
    read = {}
    for name, kind in kinds.items():
        try:
            read[name] = kind(row.get(name))
        except _InvalidReport as wrong:
            raise serializers.ValidationError(f"{name} of row {place}: allowed: {wrong}") from None
    return read


class SpoolSerializer(serializers.Serializer):
    frames = serializers.IntegerField(min_value=0, default=0)
    bytes = serializers.IntegerField(min_value=0, default=0)
    limit_bytes = serializers.IntegerField(min_value=0, default=0)
    state = serializers.ChoiceField(["ok", "filling", "full", "disk-full"], default="ok")


class _Faults(serializers.ListField):
    """Texts for people, cut if too many or too long: a refused report helps nobody."""

    child = serializers.CharField(allow_blank=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": list, **options})

    def to_internal_value(self, data: Any) -> list[str]:
        return [text[:_MAX_TEXT] for text in super().to_internal_value(data)[:_MAX_FAULTS]]


class _Text(serializers.CharField):
    """A text for people, cut if too long."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": "", "allow_blank": True, **options})

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data)[:_MAX_TEXT]


class RefinedReportSerializer(serializers.Serializer):
    """The refined document that is in force."""

    version = serializers.IntegerField(min_value=1)
    config = serializers.CharField(max_length=MAX_KIND)


class RefusedReportSerializer(serializers.Serializer):
    """The refined document that was refused last, with reasons. An unreadable one has neither number nor name."""

    version = serializers.IntegerField(min_value=0, allow_null=True, default=None)
    config = serializers.CharField(max_length=MAX_KIND, allow_null=True, default=None)
    reasons = _Faults()


class ScheduleReportSerializer(serializers.Serializer):
    """Report on the scheduling of an agent's queries."""

    policy = serializers.CharField(max_length=MAX_STATE_TEXT, help_text="Policy of scheduling.")
    mode = serializers.CharField(
        max_length=MAX_KIND, default="", allow_blank=True, help_text="Mode: latency, memory or saturated."
    )
    memory_bytes = serializers.IntegerField(min_value=0, max_value=_MAX_WHOLE, default=0, help_text="Waiting records.")
    memory_bound = serializers.IntegerField(min_value=0, max_value=_MAX_WHOLE, default=0)
    cycle_ms = serializers.FloatField(min_value=0, max_value=1e6, default=0.0, help_text="Scheduling quantum.")
    starved = serializers.IntegerField(
        min_value=0, max_value=_MAX_WHOLE, default=0, help_text="Quanta given because of the starvation limit."
    )
    reason = _Text(help_text="Reason of the mode.")
    refined = RefinedReportSerializer(allow_null=True, default=None)
    refused = RefusedReportSerializer(allow_null=True, default=None)


class QueryReportSerializer(serializers.Serializer):
    query = serializers.CharField(max_length=MAX_QUERY_PATH)
    plan = serializers.CharField(max_length=DIGEST_LENGTH, default="", allow_blank=True)
    state = serializers.CharField(max_length=MAX_STATE_TEXT, default="", allow_blank=True)
    watermark_us = serializers.IntegerField(allow_null=True, default=None)
    load_factors = serializers.ListField(child=serializers.FloatField(), default=list, max_length=64)
    phase = serializers.CharField(max_length=MAX_KIND, default="", allow_blank=True)
    adapting = serializers.CharField(
        max_length=MAX_STATE_TEXT, default="", allow_blank=True, help_text="State of the last epoch."
    )
    reason = _Text(help_text="Reason of the load factors.")
    z = serializers.FloatField(allow_null=True, default=None, help_text="Effective budget over budget.")
    refined = RefinedReportSerializer(allow_null=True, default=None)
    refused = RefusedReportSerializer(allow_null=True, default=None)
    moves = serializers.IntegerField(min_value=0, default=0, help_text="How often load factors were changed.")
    stable_epochs = serializers.IntegerField(min_value=0, default=0)
    late = _Text(help_text="Why no watermark closes its windows; empty if they close.")
    changes = ChangesField()
    epochs = EpochsField()
    faults = _Faults()


class CollectorReportSerializer(serializers.Serializer):
    source = serializers.CharField(max_length=MAX_SLUG)
    kind = serializers.CharField(max_length=MAX_KIND, default="", allow_blank=True)
    state = serializers.CharField(max_length=MAX_STATE_TEXT, default="", allow_blank=True)
    records = serializers.IntegerField(min_value=0, default=0)
    shed = serializers.IntegerField(min_value=0, default=0)
    faults = _Faults()


class HeartbeatSerializer(serializers.Serializer):
    """Heartbeat of an agent. Unknown fields are kept unread."""

    life = serializers.RegexField(r"\A[A-Za-z0-9_-]{1,64}\Z")
    version = serializers.CharField(max_length=MAX_VERSION_TEXT, default="", allow_blank=True)
    time = serializers.FloatField(min_value=0, max_value=1e11, help_text="The agent's clock, seconds since 1970.")
    uptime_s = serializers.FloatField(min_value=0, default=0.0)
    rss_bytes = serializers.IntegerField(min_value=0, default=0)
    cpu_cores = serializers.FloatField(min_value=0, default=0.0, help_text="CPU used, in cores.")
    budget_cores = serializers.FloatField(min_value=0, default=0.0)
    spool = SpoolSerializer(required=False)
    sent_seq = serializers.IntegerField(min_value=0, max_value=_MAX_WHOLE, default=0)
    acked_seq = serializers.IntegerField(min_value=0, max_value=_MAX_WHOLE, default=0)
    committed_seq = serializers.IntegerField(
        min_value=0, max_value=_MAX_WHOLE, default=0, help_text="What it was told to be committed, and has dropped."
    )
    config_version = serializers.IntegerField(min_value=0, default=0)
    schedule = ScheduleReportSerializer(required=False, allow_null=True, help_text="Missing of agents that have none.")
    queries = QueryReportSerializer(many=True, default=list)
    collectors = CollectorReportSerializer(many=True, default=list)
    faults = _Faults()


@dataclass(frozen=True)
class HeartbeatAnswer(Record):
    """Answer to a heartbeat."""

    time: Annotated[float, Words("The console's clock, seconds since 1970.")]
    config_version: int
    accepted_seq: Annotated[int | None, Words("null: not known, Redis does not answer.")]
    committed_seq: int


HEARTBEAT_S = 2.0
WRITE_S = 5.0  # a row is written no more often, unless the agent's state has changed
ANNOUNCE_S = 2.0
_GENERATIONS = 4  # of one agent are remembered
_SAMPLES = 8


@dataclass
class _AgentMemory:
    """State of an agent that this process keeps between heartbeats."""

    written: float = 0.0
    state: str = ""
    version: int = 0
    refined: Mapping[str, tuple[Any, Any]] | None = None
    offsets: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


_log = logging.getLogger(__name__)
_heard: dict[str, _AgentMemory] = {}
_announced: dict[str, float] = {}
_lock = threading.Lock()


def agent_heartbeat(*, agent_id: str, report: Heartbeat) -> HeartbeatAnswer:
    """Take a heartbeat; the answer holds the time, the version of the configuration, and the progress of the frames.

    `accepted_seq` is null while Redis does not answer: nobody knows then. `committed_seq` is what the database knows to
    be behind the stream processor's checkpoint, so that an agent drops nothing that a lost Redis would ask for again.
    """
    present = shared_now()
    now = present.timestamp()
    rows = {row["query"]: row["epochs"] for row in report.get("queries", ()) if row.get("epochs")}
    report = {**report, "queries": [_without_epochs(row) for row in report.get("queries", ())]}
    agent = Agent.objects.select_related("cluster").filter(pk=agent_id).first()
    if agent is None:
        raise Missing("The agent was deleted. Enrol it again with a token.")
    memory = _heard.setdefault(agent_id, _AgentMemory())
    accepted, committed = _progress(agent, report)
    if accepted is not None:  # else Redis is away
        _store_epochs(agent_id, rows)
    agent.heartbeat, agent.life, agent.last_seen = dict(report), report["life"], present
    agent.clock_offset_s = _offset(memory, report["time"] - now)
    agent.version = report["version"]
    lives = {**agent.committed, agent.life: committed}
    state = agent_state(agent).state
    refined = _refined(report)
    acknowledged = refined != memory.refined
    version = report.get("config_version", 0)
    changed = acknowledged or (state, version) != (memory.state, memory.version)
    if changed or time.monotonic() - memory.written >= WRITE_S:
        memory.written = time.monotonic()
        memory.state, memory.version, memory.refined = state, version, refined
        agent.committed = {life: lives[life] for life in list(lives)[-_GENERATIONS:]}
        agent.save(update_fields=["heartbeat", "life", "last_seen", "clock_offset_s", "version", "committed"])
        if acknowledged:
            config_acknowledged.send_robust(Agent, agent=agent)
        _announce(agent.cluster.slug, changed)
    return HeartbeatAnswer(now, agent.config_version, accepted, agent.committed.get(agent.life, 0))


def _without_epochs(row: AgentQueryReport) -> AgentQueryReport:
    kept = row.copy()
    kept.pop("epochs", None)
    return kept


def _store_epochs(agent: str, rows: Mapping[str, Sequence[EpochRow]]) -> None:
    """Store epochs of queries with an assignment of the agent, present or past."""
    if not rows:
        return
    mine = plans_of(agent)
    try:
        epochs_add(agent, {query: own for query, own in rows.items() if query in mine})
    except redis.RedisError as error:
        _log.warning("epochs of agent %s are not stored: %s", agent, error)


def _refined(report: Heartbeat) -> dict[str, tuple[Any, Any]]:
    """Acknowledgements by query, and of the schedule under an empty name: versions in force and last refused."""
    rows = {row["query"]: row for row in report["queries"]} | {"": report.get("schedule") or {}}
    return {name: (row.get("refined"), row.get("refused")) for name, row in rows.items()}


def _progress(agent: Agent, report: Heartbeat) -> tuple[int | None, int]:
    """Accepted and committed sequence numbers. Frames the agent was told are committed it has dropped already."""
    floor = max(agent.committed.get(report["life"], 0), report.get("committed_seq", 0))
    try:
        progress = broker.generation_progress(stream_client(), str(agent.pk), report["life"], floor)
    except redis.RedisError:
        return None, floor
    return progress.accepted_seq, progress.committed_seq


def _offset(memory: _AgentMemory, sample: float) -> float:
    """Clock skew: the agent's clock minus ours. Each sample is too low by its request's duration: the highest is best.

    A clock set forward shows at once, one set back when the samples before it are forgotten.
    """
    memory.offsets.append(sample)
    return max(memory.offsets)


def _announce(cluster: str, changed: bool) -> None:
    """Tell open pages of a changed state at once, of new numbers every few seconds."""
    with _lock:
        now = time.monotonic()
        if not changed and now - _announced.get(cluster, 0.0) < ANNOUNCE_S:
            return
        _announced[cluster] = now
    announce(f"telemetry:{cluster}")
