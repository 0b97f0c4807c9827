"""The agent's configuration, from the console or a file: its field tables and its parsed form.

The document is strict: an unknown field is a fault, and all faults are reported at once, each with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.collect.options import COLUMNS_OF, KINDS, OPTIONS, check_options
from engine.dataflow import Pipeline
from engine.dataflow.operators import StreamJoinSpec
from engine.errors import DocumentError, Fault, value_words
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, Flag, ListOf, MapOf, Number, RecordOf, String
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import ScheduleSettings

__all__ = [
    "CHILD",
    "CONFIG",
    "QUERY",
    "RELAY",
    "SOURCE",
    "AgentConfig",
    "ChildConfig",
    "ParentConfig",
    "QueryConfig",
    "RelayConfig",
    "SourceConfig",
    "config_line",
]


TYPES = ("int64", "float64", "string", "bool", "timestamp")
MIN_SPOOL_BYTES = 2**20
NAME = String(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "letters, digits, dots, dashes and underscores")
QUERY_NAME = String(r"[^/\s]+/[^/\s]+", "cluster/query")
DIGEST = String(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")
ADDRESS = String(r"[^\s:]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}", "host:port")
URL = String(r"https?://[^\s]+", "an address that begins with http:// or https://")

SOURCE = FieldTable(
    "a source",
    Field("kind", Enumeration(KINDS), required=True, help="which collector"),
    Field("options", Anything(), help="of that collector"),
    Field("time", NAME, required=True, help="the column of event time"),
    Field("columns", MapOf(Enumeration(TYPES)), required=True, help="columns of a record and their types"),
    Field("lateness_s", Number(least=0, most=86_400), help="how much older than the newest a record may be; 1"),
)
QUERY = FieldTable(
    "a query",
    Field("query", QUERY_NAME, required=True, help="cluster/query"),
    Field("version", Number(least=0, whole=True), required=True),
    Field("plan", DIGEST, required=True, help="digest of the pipeline"),
    Field("pipeline", Anything(), required=True, help="the pipeline document"),
    Field("settings", RecordOf(AdaptationSettings), help="how it is adapted; those of the method scalar"),
    Field("refined", Anything(), nullable=True, help="what was learned of it, judged when the next epoch begins"),
    Field("weight", Number(above=0), help="share of the budget beside the agent's other queries; 1"),
    Field("latency_constraint_s", Number(above=0), nullable=True, help="until a result is to be out; none"),
    Field("priority", Number(whole=True), help="a step doubles the worth of being in time; 0"),
    Field("shed_late", Flag(), help="whether records that are late everywhere may be lost; false: they are sent"),
)
CHILD = FieldTable(
    "a child",
    Field("agent", NAME, required=True),
    Field("secret_hash", DIGEST, required=True, help="SHA-256 of the child's secret"),
    Field("queries", MapOf(DIGEST), help="plans by query that the child runs: the relay waits for its marks"),
)
RELAY = FieldTable(
    "a relay",
    Field("listen", ADDRESS, required=True, help="where agents below send their frames"),
    Field("children", ListOf(CHILD), required=True, help="agents whose frames it takes"),
    Field("pipelines", MapOf(Anything()), help="pipeline documents by digest, to merge the children's partials"),
    Field("idle_after_s", Number(above=0), help="a child silent for longer no longer holds the watermark back; 60"),
)
CONFIG = FieldTable(
    "a configuration",
    Field("version", Number(least=0, whole=True), required=True),
    Field("agent", NAME, required=True, help="id of the agent"),
    Field("cluster", NAME, required=True),
    Field("epoch_s", Number(least=0.05, most=60), help="1"),
    Field("sub_epochs", Number(least=1, most=1000, whole=True), help="10"),
    Field("budget_cores", Number(above=0), help="CPU that the agent may use, in cores; 0.2"),
    Field("batch_records", Number(least=1, most=100_000, whole=True), help="records in a frame; 1,000"),
    Field("spool_max_bytes", Number(least=MIN_SPOOL_BYTES, most=2**50, whole=True), help="268,435,456"),
    Field(
        "checkpoint_share",
        Number(least=0, most=1),
        help="copies of open windows that are sent, as a share of what else is; 0.1, and 0: none",
    ),
    Field("schedule", RecordOf(ScheduleSettings), help="how the queries share the core; those of the policy klink"),
    Field("refined_schedule", Anything(), nullable=True, help="as it was refined, judged when the next epoch begins"),
    Field("stream_delay_s", Number(least=0, most=3600), help="trigger and batch of the stream processor; 4"),
    Field("sources", MapOf(SOURCE), required=True),
    Field("queries", ListOf(QUERY), required=True),
    Field("relay", RELAY, nullable=True),
    Field("parent", FieldTable("a parent", Field("url", URL, required=True)), nullable=True, help="a relay to send to"),
)


@dataclass(frozen=True)
class SourceConfig:
    """One stream of records and the collector that makes it."""

    name: str
    kind: str
    options: Mapping[str, Any]
    time: str
    columns: Mapping[str, str]
    lateness_s: float = 1.0


@dataclass(frozen=True)
class QueryConfig:
    """One query's part at this agent.

    Load factors by hand are those of `settings`, whose method is then ``fixed``; they may be fewer than the source's
    operators: the rest are 0. `refined` is judged by the runtime: a bad one does not refuse the configuration.
    """

    query: str
    version: int
    plan: str
    pipeline: Pipeline
    settings: AdaptationSettings
    refined: Any = None
    weight: float = 1.0
    latency_constraint_s: float | None = None
    priority: int = 0
    shed_late: bool = False


@dataclass(frozen=True)
class ChildConfig:
    """An agent below a relay, known by the hash of its secret, and the plans by query that it runs."""

    agent: str
    secret_hash: str
    queries: Mapping[str, str]


@dataclass(frozen=True)
class RelayConfig:
    """The relay role: address, accepted children and merged queries."""

    listen: tuple[str, int]
    children: Mapping[str, ChildConfig]
    pipelines: Mapping[str, Pipeline]
    idle_after_s: float = 60.0


@dataclass(frozen=True)
class ParentConfig:
    """The relay that takes this agent's frames instead of the console."""

    url: str


@dataclass(frozen=True)
class AgentConfig:
    """The whole configuration of an agent."""

    version: int
    agent: str
    cluster: str
    epoch_s: float
    sub_epochs: int
    budget_cores: float
    batch_records: int
    spool_max_bytes: int
    sources: Mapping[str, SourceConfig]
    queries: tuple[QueryConfig, ...]
    relay: RelayConfig | None
    parent: ParentConfig | None
    checkpoint_share: float = 0.1
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    stream_delay_s: float = 4.0
    refined_schedule: Any = None  #: judged by the runtime: a bad one does not refuse the configuration

    @classmethod
    def parse(cls, document: Any) -> AgentConfig:
        """Read a configuration.

        Raises
        ------
        DocumentError
            With every fault of the document: fields, types, unknown sources, plans that are not their digest.
        """
        faults: list[Fault] = []
        read = CONFIG.read(document, "", "", faults)
        if read is BAD:
            raise DocumentError(faults, "configuration")
        sources = _sources(read, faults)
        queries = _queries(read, sources, faults)
        relay = _relay(read, faults)
        if faults:
            raise DocumentError(faults, "configuration")
        return cls(
            version=read["version"],
            agent=read["agent"],
            cluster=read["cluster"],
            epoch_s=read.get("epoch_s", 1.0),
            sub_epochs=read.get("sub_epochs", 10),
            budget_cores=read.get("budget_cores", 0.2),
            batch_records=read.get("batch_records", 1000),
            spool_max_bytes=read.get("spool_max_bytes", 256 * 2**20),
            sources=sources,
            queries=tuple(queries),
            relay=relay,
            parent=ParentConfig(read["parent"]["url"].rstrip("/")) if read.get("parent") else None,
            checkpoint_share=read.get("checkpoint_share", 0.1),
            schedule=read.get("schedule") or ScheduleSettings(),
            stream_delay_s=read.get("stream_delay_s", 4.0),
            refined_schedule=read.get("refined_schedule"),
        )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _sources(read: Mapping[str, Any], faults: list[Fault]) -> dict[str, SourceConfig]:
    documents = read["sources"]
    kept: dict[str, SourceConfig] = {}
    for name, says in documents.items() if _is_object(documents) else ():
        path = f"sources.{name}"
        if says is BAD or says["kind"] is BAD:
            continue
        options = OPTIONS[says["kind"]].read(says.get("options", {}), path, "options", faults)
        if options is BAD or says["columns"] is BAD:
            continue
        _check_columns(says, options, path, faults)
        check_options(says["kind"], options, says["columns"], says["time"], f"{path}.options", faults)
        lateness_s = says.get("lateness_s", 1.0)
        kept[name] = SourceConfig(name, says["kind"], options, says["time"], says["columns"], lateness_s)
    return kept


def _check_columns(says: Mapping[str, Any], options: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    """The time column is there and a timestamp, and every column is one that the collector makes."""
    columns, time = says["columns"], says["time"]
    if time is not BAD and columns.get(time) not in ("timestamp", BAD):
        faults.append(Fault(f"{path}.time", f"time is {value_words(time)}; allowed: a column of type timestamp"))
    made = None if time is BAD else COLUMNS_OF[says["kind"]](options, time)
    if made is None:
        return
    for name, kind in columns.items():
        if name not in made:
            faults.append(
                Fault(f"{path}.columns.{name}", f"{says['kind']} makes no {name}; allowed: {', '.join(made)}")
            )
        elif kind is not BAD and made[name] != kind:
            faults.append(Fault(f"{path}.columns.{name}", f"{name} is {kind}; allowed: {made[name]}"))


def _queries(read: Mapping[str, Any], sources: Mapping[str, SourceConfig], faults: list[Fault]) -> list[QueryConfig]:
    kept: list[QueryConfig] = []
    seen: set[str] = set()
    for i, says in enumerate(read["queries"] if read["queries"] is not BAD else ()):
        if says is BAD:
            continue
        path = f"queries[{i}]"
        pipeline = _pipeline(says["pipeline"], says["plan"], f"{path}.pipeline", f"{path}.plan", faults)
        if says["query"] in seen:
            faults.append(
                Fault(
                    f"{path}.query", f"query is {value_words(says['query'])}, which another has; allowed: one of each"
                )
            )
        if pipeline is None or BAD in (says["query"], says["version"], says["plan"]):
            continue
        seen.add(says["query"])
        _check_sources(pipeline, sources, read["sources"], f"{path}.pipeline", faults)
        settings = _settings(says.get("settings", AdaptationSettings()), pipeline, f"{path}.settings", faults)
        kept.append(
            QueryConfig(
                says["query"],
                says["version"],
                says["plan"],
                pipeline,
                settings,
                says.get("refined"),
                says.get("weight", 1.0),
                latency_constraint_s=says.get("latency_constraint_s"),
                priority=says.get("priority", 0),
                shed_late=says.get("shed_late", False),
            )
        )
    return kept


def _settings(read: Any, pipeline: Pipeline, path: str, faults: list[Fault]) -> AdaptationSettings:
    if read is BAD:
        return AdaptationSettings()  # its faults were reported
    factors = read.load_factors
    if len(factors) > pipeline.source_operators:
        allowed = f"at most {pipeline.source_operators}, the operators that may run at a source"
        faults.append(Fault(f"{path}.load_factors", f"load_factors has {len(factors)} items; allowed: {allowed}"))
    return read  # type: ignore[no-any-return]


def _pipeline(document: Any, plan: Any, path: str, plan_path: str, faults: list[Fault]) -> Pipeline | None:
    try:
        pipeline = Pipeline.parse(document)
    except DocumentError as error:
        faults.extend(Fault(f"{path}.{fault.path}" if fault.path else path, fault.message) for fault in error.faults)
        return None
    if plan is not BAD and pipeline.digest != plan:
        faults.append(
            Fault(plan_path, f"plan is {value_words(plan)}; allowed: the pipeline's digest {pipeline.digest}")
        )
    return pipeline


def _check_sources(
    pipeline: Pipeline, sources: Mapping[str, SourceConfig], given: Any, path: str, faults: list[Fault]
) -> None:
    """The pipeline reads sources of this configuration, by columns and types that they have."""
    source = pipeline.document["source"]
    _check_stream("id", source["id"], source["time"], source["columns"], sources, given, f"{path}.source", faults)
    for operator in pipeline.operators:
        if isinstance(operator.spec, StreamJoinSpec):
            spec, at = operator.spec, f"{path}.operators[{operator.index}].expression"
            columns = {name: kind.value for name, kind in spec.columns}
            _check_stream("stream", spec.stream, spec.window.time, columns, sources, given, at, faults)


def _check_stream(
    field: str,
    stream: str | None,
    time: str,
    columns: Mapping[str, str],
    sources: Mapping[str, SourceConfig],
    given: Any,
    path: str,
    faults: list[Fault],
) -> None:
    source = sources.get(stream or "")
    if source is None:
        if not _is_object(given) or stream not in given:  # else its own faults were reported
            allowed = ", ".join(given) if _is_object(given) and given else "none is configured"
            faults.append(Fault(f"{path}.{field}", f"{field} is {value_words(stream)}; allowed: {allowed}"))
        return
    if time != source.time:
        faults.append(Fault(f"{path}.time", f"time is {value_words(time)}; allowed: {source.time}, the source's"))
    for name, kind in columns.items():
        if source.columns.get(name) != kind:
            has = source.columns.get(name)
            allowed = f"{name} as {has}" if has else ", ".join(source.columns)
            faults.append(Fault(f"{path}.columns.{name}", f"{name} is {kind}; allowed: {allowed}"))


def _relay(read: Mapping[str, Any], faults: list[Fault]) -> RelayConfig | None:
    says = read.get("relay")
    if not says:
        return None
    pipelines = {}
    for digest, document in says.get("pipelines", {}).items():
        path = f"relay.pipelines.{digest}"
        if pipeline := _pipeline(document, digest, path, path, faults):
            pipelines[digest] = pipeline
    for name in ("sources", "queries"):
        if read[name]:
            message = f"{name} has {len(read[name])}; allowed beside relay: none. Another agent watches the host"
            faults.append(Fault(name, message))
    children = says["children"]
    if faults or says["listen"] is BAD or children is BAD:
        return None
    host, _, port = says["listen"].rpartition(":")
    return RelayConfig(
        listen=(host.strip("[]"), int(port)),
        children={
            child["agent"]: ChildConfig(child["agent"], child["secret_hash"], child.get("queries", {}))
            for child in children
        },
        pipelines=pipelines,
        idle_after_s=says.get("idle_after_s", 60.0),
    )


def config_line(config: AgentConfig) -> str:
    """A configuration in a line of the log."""
    if config.relay is not None:
        return f"relay of {len(config.relay.children)} agents on {config.relay.listen[0]}:{config.relay.listen[1]}"
    sources = ", ".join(f"{source.name} ({source.kind})" for source in config.sources.values()) or "no sources"
    queries = ", ".join(query.query for query in config.queries) or "no queries"
    return f"{sources}; {queries}; {config.budget_cores:g} cores"
