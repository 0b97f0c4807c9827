"""Collectors: where an agent's records come from. `make_collector` builds one from its configuration."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from agent.collect.options import (
    CollectorOptions,
    GeneratorOptions,
    HostMetricsOptions,
    LogFileOptions,
    ReplayOptions,
    TcpProbeOptions,
)
from agent.settings import ReadableFolders
from agent.wire import MAX_NUMBER

if TYPE_CHECKING:
    from agent.config import SourceConfig

__all__ = ["LATEST_US", "TIMESTAMP", "Collector", "batch_of", "digest_of", "make_collector"]

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

    def fault(self, about: str, document: str | None) -> None:
        """Set the fault of one part, or clear it."""
        if document is None:
            self._faults.pop(about, None)
        elif about in self._faults or len(self._faults) < _MAX_FAULTS:
            self._faults[about] = document

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


def digest_of(options: CollectorOptions) -> str:
    """Names options, so that a position under others is recognised."""
    return hashlib.sha256(json.dumps(options.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def batch_of(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """The columns that the schema asks for, in its order."""
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def make_collector(name: str, config: SourceConfig, readable: ReadableFolders | None = None) -> Collector:
    """The collector of a source, which reads `readable` files alone. It opens nothing before it is first polled."""
    readable = readable or ReadableFolders()
    # in the order of the alphabet, as pipelines have their columns
    schema = schema_of(dict(sorted(config.columns.items())))
    match config.options:  # each is imported where it is asked for: an agent starts with what it needs
        case TcpProbeOptions() as options:
            from agent.collect.tcp_probe import TcpProbe

            return TcpProbe(name, schema, config.time, options)
        case HostMetricsOptions() as options:
            from agent.collect.host_metrics import HostMetrics

            return HostMetrics(name, schema, config.time, options)
        case LogFileOptions() as options:
            from agent.collect.log_file import LogFileCollector

            return LogFileCollector(name, schema, config.time, options, lateness_s=config.lateness_s, readable=readable)
        case ReplayOptions() as options:
            from agent.collect.replay import ReplayCollector

            return ReplayCollector(name, schema, config.time, options, lateness_s=config.lateness_s, readable=readable)
        case GeneratorOptions() as options:
            from agent.collect.generator import LoadGenerator

            return LoadGenerator(name, schema, config.time, options)
    raise ValueError(f"{name} has options of no collector: {config.options}")
