"""Base of the collectors: the columns they fill, their faults in words, and the end of a stream."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from agent.wire import MAX_NUMBER

__all__ = ["LATEST_US", "TIMESTAMP", "Collector", "batch_of", "digest_of", "schema_of"]

LATEST_US = MAX_NUMBER  #: what never comes
TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": TIMESTAMP,
}
_MAX_FAULTS = 20


class Collector(ABC):
    """Base of the collectors; beside `poll` and its like (`agent.runtime.Source`) they report their own state."""

    replayable = False
    kind = ""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.records_shed = 0
        self.records_given = 0
        self.state = "starting"
        self._reported_shed = 0
        self._schema = schema
        self._faults: dict[str, str] = {}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @abstractmethod
    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        """See `agent.runtime.Source`, as for the next."""

    @abstractmethod
    def watermark_us(self) -> int: ...

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of files, sockets and threads."""

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        if position is not None:
            raise ValueError(f"{self.name} is a {self.kind} and cannot be gone on from a position")

    def fault(self, about: str, says: str | None) -> None:
        """Set the fault of one part, or clear it."""
        if says is None:
            self._faults.pop(about, None)
        elif about in self._faults or len(self._faults) < _MAX_FAULTS:
            self._faults[about] = says

    def report(self) -> dict[str, Any]:
        """Report of this collector in the heartbeat."""
        sheds, self._reported_shed = self.records_shed > self._reported_shed, self.records_shed
        return {
            "source": self.name,
            "kind": self.kind,
            "state": "shedding" if sheds else self.state,
            "records": self.records_given,
            "shed": self.records_shed,
            "faults": list(self._faults.values()),
        }

    def given(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The answer of a poll: the batch, counted, or nothing."""
        self.records_given += batch.num_rows
        return [batch] if batch.num_rows else []


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of a source's columns."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def digest_of(options: Mapping[str, Any]) -> str:
    """Names options, so that a position under others is recognised."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


def batch_of(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """The columns that the schema asks for, in its order."""
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
