"""The agent's configuration, from the console or a file.

The document is strict: an unknown field is a fault, and all faults are reported at once, each with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

from agent.collect.options import OPTIONS, CollectorOptions
from engine.dataflow import Pipeline
from engine.dataflow.operators import StreamJoinSpec
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.jarvis.settings import AdaptationSettings
from engine.kinds import Anything, Enumeration, FieldKind, Number, String
from engine.klink.settings import ScheduleSettings
from engine.records import BAD, Flag, Record, RecordOf, Words

__all__ = [
    "AgentConfig",
    "ChildConfig",
    "ParentConfig",
    "QueryConfig",
    "RelayConfig",
    "SourceConfig",
    "config_line",
]


MIN_SPOOL_BYTES = 2**20
_Name = Annotated[str, String(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "letters, digits, dots, dashes and underscores")]
_Digest = Annotated[str, String(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")]
_Type = Annotated[str, Enumeration(("int64", "float64", "string", "bool", "timestamp"))]
_Count = Annotated[int, Number(least=0, whole=True)]
_Positive = Annotated[float, Number(above=0)]
_JARVIS, _KLINK = AdaptationSettings(), ScheduleSettings()


class _Address(String):
    """Host and port of ``host:port``."""

    def __init__(self) -> None:
        super().__init__(r"[^\s:]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}", "host:port")

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        text = super().read(value, parent, key, faults)
        if text is BAD:
            return BAD
        host, _, port = text.rpartition(":")
        return host.strip("[]"), int(port)


class _Url(String):
    """An address without its last slash."""

    def __init__(self) -> None:
        super().__init__(r"https?://[^\s]+", "an address that begins with http:// or https://")

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        text = super().read(value, parent, key, faults)
        return BAD if text is BAD else text.rstrip("/")


class _PipelineKind(FieldKind):
    """The document of a pipeline."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        try:
            return Pipeline.parse(value)
        except DocumentError as error:
            path = join_path(parent, key)
            faults += [Fault(f"{path}.{fault.path}" if fault.path else path, fault.message) for fault in error.faults]
            return BAD

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


_Pipeline = Annotated[Pipeline, _PipelineKind()]


def _plan_faults(path: str, plan: str, pipeline: Pipeline) -> Iterator[Fault]:
    if pipeline.digest != plan:
        yield Fault(path, f"plan is {value_words(plan)}; allowed: the pipeline's digest {pipeline.digest}")


class _OptionsKind(FieldKind):
    """Options of some collector: read by the source, which knows its kind."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        return value

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [options.json_schema() for options in OPTIONS.values()]}


@dataclass(frozen=True, kw_only=True)
class SourceConfig(Record):
    """One stream of records and the collector that makes it."""

    TITLE: ClassVar[str] = "a source"

    kind: Annotated[str, Enumeration(tuple(OPTIONS)), Words("which collector")]
    options: Annotated[CollectorOptions, _OptionsKind(), Words("of that collector")]
    time: Annotated[_Name, Words("the column of event time")]
    columns: Annotated[Mapping[str, _Type], Words("columns of a record and their types")]
    lateness_s: Annotated[
        float, Number(least=0, most=86_400), Words("how much older than the newest a record may be; 1")
    ] = 1.0

    @classmethod
    def read(cls, document: Any, parent: str, key: str | int, faults: list[Fault]) -> SourceConfig | None:
        """Read a source and the options of its collector, all faults at once."""
        options, path = None, join_path(parent, key)
        if isinstance(document, Mapping):
            kind = document.get("kind")
            if isinstance(kind, str) and kind in OPTIONS:
                options = OPTIONS[kind].read(document.get("options", {}), path, "options", faults)
            document = {**document, "options": options}
        source = super().read(document, parent, key, faults)
        return source if options is not None else None

    def find_faults(self) -> Iterator[Fault]:
        """The time is a column and a timestamp, and every column is one that the collector makes."""
        if self.columns.get(self.time) != "timestamp":
            yield Fault("time", f"time is {value_words(self.time)}; allowed: a column of type timestamp")
        if self.options is None:
            return  # its own faults were reported
        rest = {name: kind for name, kind in self.columns.items() if name != self.time}
        made = self.options.COLUMNS
        for name, kind in rest.items():
            if made is None:
                break  # only a run shows them
            if name not in made:
                allowed = ", ".join(dict.fromkeys((self.time, *made)))
                yield Fault(f"columns.{name}", f"{self.kind} makes no {name}; allowed: {allowed}")
            elif made[name] != kind:
                yield Fault(f"columns.{name}", f"{name} is {kind}; allowed: {made[name]}")
        for fault in self.options.find_column_faults(rest):
            yield Fault(f"options.{fault.path}", fault.message)


@dataclass(frozen=True, kw_only=True)
class QueryConfig(Record):
    """One query's part at this agent.

    Load factors by hand are those of `settings`, whose method is then ``fixed``; they may be fewer than the source's
    operators: the rest are 0. `refined` is judged by the runtime: a bad one does not refuse the configuration.
    """

    TITLE: ClassVar[str] = "a query"

    query: Annotated[str, String(r"[^/\s]+/[^/\s]+", "cluster/query"), Words("cluster/query")]
    version: _Count
    plan: Annotated[_Digest, Words("digest of the pipeline")]
    pipeline: Annotated[_Pipeline, Words("the pipeline document")]
    settings: Annotated[AdaptationSettings, Words("how it is adapted; those of the method scalar")] = _JARVIS
    refined: Annotated[Any, Anything(), Words("what was learned of it, judged when the next epoch begins")] = None
    weight: Annotated[_Positive, Words("share of the budget beside the agent's other queries; 1")] = 1.0
    latency_constraint_s: Annotated[_Positive | None, Words("until a result is to be out; none")] = None
    priority: Annotated[int, Number(whole=True), Words("a step doubles the worth of being in time; 0")] = 0
    shed_late: Annotated[Flag, Words("whether records that are late everywhere may be lost; false: they are sent")] = (
        False
    )

    def find_faults(self) -> Iterator[Fault]:
        """A plan that is not the pipeline's, and load factors of operators that cannot run here."""
        yield from _plan_faults("plan", self.plan, self.pipeline)
        factors, operators = len(self.settings.load_factors), self.pipeline.source_operators
        if factors > operators:
            allowed = f"at most {operators}, the operators that may run at a source"
            yield Fault("settings.load_factors", f"load_factors has {factors} items; allowed: {allowed}")


@dataclass(frozen=True)
class ChildConfig(Record):
    """An agent below a relay, known by the hash of its secret, and the plans by query that it runs."""

    TITLE: ClassVar[str] = "a child"

    agent: _Name
    secret_hash: Annotated[_Digest, Words("SHA-256 of the child's secret")]
    queries: Annotated[
        Mapping[str, _Digest], Words("plans by query that the child runs: the relay waits for its marks")
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class RelayConfig(Record):
    """The relay role: address, accepted children and merged queries."""

    TITLE: ClassVar[str] = "a relay"

    listen: Annotated[tuple[str, int], _Address(), Words("where agents below send their frames")]
    children: Annotated[tuple[ChildConfig, ...], Words("agents whose frames it takes")]
    pipelines: Annotated[
        Mapping[str, _Pipeline], Words("pipeline documents by digest, to merge the children's partials")
    ] = field(default_factory=dict)
    idle_after_s: Annotated[_Positive, Words("a child silent for longer no longer holds the watermark back; 60")] = 60.0

    @cached_property
    def by_agent(self) -> Mapping[str, ChildConfig]:
        """Children by their ids."""
        return {child.agent: child for child in self.children}

    def find_faults(self) -> Iterator[Fault]:
        """Pipelines under a digest that is not theirs."""
        for plan, pipeline in self.pipelines.items():
            yield from _plan_faults(f"pipelines.{plan}", plan, pipeline)


@dataclass(frozen=True)
class ParentConfig(Record):
    """The relay that takes this agent's frames instead of the console."""

    TITLE: ClassVar[str] = "a parent"

    url: Annotated[str, _Url()]


@dataclass(frozen=True, kw_only=True)
class AgentConfig(Record):
    """The whole configuration of an agent."""

    TITLE: ClassVar[str] = "a configuration"

    version: _Count
    agent: Annotated[_Name, Words("id of the agent")]
    cluster: _Name
    epoch_s: Annotated[float, Number(least=0.05, most=60), Words("1")] = 1.0
    sub_epochs: Annotated[int, Number(least=1, most=1000, whole=True), Words("10")] = 10
    budget_cores: Annotated[_Positive, Words("CPU that the agent may use, in cores; 0.2")] = 0.2
    batch_records: Annotated[int, Number(least=1, most=100_000, whole=True), Words("records in a frame; 1,000")] = 1000
    spool_max_bytes: Annotated[int, Number(least=MIN_SPOOL_BYTES, most=2**50, whole=True), Words("268,435,456")] = (
        256 * 2**20
    )
    checkpoint_share: Annotated[
        float,
        Number(least=0, most=1),
        Words("copies of open windows that are sent, as a share of what else is; 0.1, and 0: none"),
    ] = 0.1
    schedule: Annotated[ScheduleSettings, Words("how the queries share the core; those of the policy klink")] = _KLINK
    refined_schedule: Annotated[Any, Anything(), Words("as it was refined, judged when the next epoch begins")] = None
    stream_delay_s: Annotated[
        float, Number(least=0, most=3600), Words("trigger and batch of the stream processor; 4")
    ] = 4.0
    sources: Mapping[str, Annotated[SourceConfig, RecordOf(SourceConfig)]]
    queries: tuple[Annotated[QueryConfig, RecordOf(QueryConfig)], ...]
    relay: Annotated[RelayConfig, RecordOf(RelayConfig)] | None = None
    parent: Annotated[ParentConfig | None, Words("a relay to send to")] = None

    def find_faults(self) -> Iterator[Fault]:
        """Queries that occur twice or read what no source has; sources and queries of a relay."""
        seen: set[str] = set()
        for i, query in enumerate(self.queries):
            if query.query in seen:
                words = f"query is {value_words(query.query)}, which another has; allowed: one of each"
                yield Fault(f"queries[{i}].query", words)
            seen.add(query.query)
            yield from self._source_faults(query.pipeline, f"queries[{i}].pipeline")
        for name, there in (("sources", self.sources), ("queries", self.queries)):
            if self.relay is not None and there:
                message = f"{name} has {len(there)}; allowed beside relay: none. Another agent watches the host"
                yield Fault(name, message)

    def _source_faults(self, pipeline: Pipeline, path: str) -> Iterator[Fault]:
        """The pipeline reads sources of this configuration, by columns and types that they have."""
        source = pipeline.document["source"]
        yield from self._stream_faults("id", source["id"], source["time"], source["columns"], f"{path}.source")
        for operator in pipeline.operators:
            if isinstance(operator.spec, StreamJoinSpec):
                spec, at = operator.spec, f"{path}.operators[{operator.index}].expression"
                columns = {name: kind.value for name, kind in spec.columns}
                yield from self._stream_faults("stream", spec.stream, spec.window.time, columns, at)

    def _stream_faults(
        self, field: str, stream: str | None, time: str, columns: Mapping[str, str], path: str
    ) -> Iterator[Fault]:
        source = self.sources.get(stream or "")
        if source is None:
            allowed = ", ".join(self.sources) or "none is configured"
            yield Fault(f"{path}.{field}", f"{field} is {value_words(stream)}; allowed: {allowed}")
            return
        if time != source.time:
            yield Fault(f"{path}.time", f"time is {value_words(time)}; allowed: {source.time}, the source's")
        for name, kind in columns.items():
            if (has := source.columns.get(name)) != kind:
                allowed = f"{name} as {has}" if has else ", ".join(source.columns)
                yield Fault(f"{path}.columns.{name}", f"{name} is {kind}; allowed: {allowed}")


def config_line(config: AgentConfig) -> str:
    """A configuration in a line of the log."""
    if config.relay is not None:
        return f"relay of {len(config.relay.children)} agents on {config.relay.listen[0]}:{config.relay.listen[1]}"
    sources = ", ".join(f"{name} ({source.kind})" for name, source in config.sources.items()) or "no sources"
    queries = ", ".join(query.query for query in config.queries) or "no queries"
    return f"{sources}; {queries}; {config.budget_cores:g} cores"
