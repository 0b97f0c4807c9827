"""Figures of the stream processor's batches and keyed state, as it reports them: for pages, REST and Prometheus."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import redis

from agent.wire import broker
from apps.telemetry.ingest.streams import redis_or_unavailable, stream_client, stream_state

__all__ = [
    "OperatorFigures",
    "StateKey",
    "StateReading",
    "StateVariable",
    "StreamFigures",
    "state_reading",
    "state_reading_request",
    "stream_figures",
]


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


def stream_figures(said: Mapping[str, Any] | None = None) -> StreamFigures:
    """Figures in the stream processor's report, which is read from Redis unless given."""
    said = stream_state() if said is None else said
    progress = said.get("progress")
    progress = progress if isinstance(progress, Mapping) else {}
    names = [field.name for field in fields(StreamFigures) if field.name not in {"state", "lag", "operators"}]
    lag = said.get("lag")
    operators = [
        OperatorFigures(
            str(row.get("operator", "")),
            **{field.name: _number(row.get(field.name)) for field in fields(OperatorFigures)[1:]},
        )
        for row in progress.get("operators") or []
    ]
    return StreamFigures(
        state=str(said.get("state", "unknown")),
        lag=sum(lag.values()) if isinstance(lag, Mapping) and lag else None,
        operators=tuple(reversed(operators)),  # Spark names them from the sink on
        **{name: _number({**said, **progress}.get(name)) for name in names},
    )


def state_reading() -> StateReading | None:
    """The last reading of the keyed state; None where there was none within a day, or Redis does not answer."""
    try:
        said = broker.keyed_state(stream_client())
    except (redis.RedisError, ValueError):
        return None
    if said is None:
        return None
    return StateReading(
        read_at=datetime.fromtimestamp(said["read_at"], UTC),
        took_s=said["took_s"],
        batch=said.get("batch"),
        variables=tuple(StateVariable(**row) for row in said["variables"]),
        keys=tuple(StateKey(**row) for row in said["keys"]),
        complete=said.get("complete", True),
        fault=said.get("fault", ""),
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
