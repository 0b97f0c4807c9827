"""Plans as tasks read them: which queries a batch goes by, and their operators.

The driver writes every version of the plan of record into Redis and names its number in the offsets of the source, so
a batch that runs again goes by the same plan, and queries come and go without a restart. A version is small; the
queries in it lie beside it, and pipelines by their digests, since they change seldom.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import redis

from engine.dataflow.arrow.kernels import AggregateKernel, Kernel, RowKernel, StreamJoinKernel, kernel
from engine.dataflow.pipeline import Pipeline
from spark_jobs.input.entries import ask_redis

__all__ = [
    "PIPELINES",
    "PLAN_NUMBER",
    "SUBINTERVAL_US",
    "VERSIONS_KEPT",
    "FlowKey",
    "LivePlan",
    "PlanReader",
    "PlanVersion",
    "aggregate_of",
    "is_divisible",
    "is_usable",
    "operator_of",
    "plan_key",
    "queries_key",
    "row_operator",
    "stream_join_of",
]

PLAN_NUMBER = "sluice:stream:plan"  #: number of the newest version
PIPELINES = "sluice:stream:pipelines"  #: documents by digest
VERSIONS_KEPT = 20  #: versions that Redis holds: a batch that runs again goes by its own
SUBINTERVAL_US = 60_000_000  #: of queries the console does not name
_RETAIN_S, _IDLE_AFTER_S = 900.0, 15.0
_PATIENCE_S = 60.0  # for a version that Redis lost: the driver writes it again

FlowKey = tuple[str, str]  #: query and plan


def plan_key(version: int) -> str:
    """Where a version lies in Redis."""
    return f"sluice:stream:plan:{version}"


def queries_key(number: int) -> str:
    """Where the queries of versions lie in Redis."""
    return f"sluice:stream:queries:{number}"


@dataclass(frozen=True)
class LivePlan:
    """A live query and its settings, as the console reports them."""

    query: str
    plan: str
    agents: tuple[str, ...] = ()
    subinterval_us: int = SUBINTERVAL_US
    retain_us: int = int(_RETAIN_S * 1e6)
    idle_after_ms: int = int(_IDLE_AFTER_S * 1e3)
    started_us: int = 0  #: when it was last started: another moment is another run
    shards: int = 1  #: parts of its groups, each with a state of its own

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> LivePlan:
        """One item of the console's answer."""
        return cls(
            str(item["query"]),
            str(item["plan"]),
            tuple(str(agent) for agent in item.get("agents", ())),
            round(float(item.get("subinterval_s") or SUBINTERVAL_US / 1e6) * 1e6),
            round(float(item.get("retain_s") or _RETAIN_S) * 1e6),
            round(float(item.get("idle_after_s") or _IDLE_AFTER_S) * 1e3),
            int(item.get("started_us") or 0),
            int(item.get("shards") or 1),
        )

    @property
    def key(self) -> FlowKey:
        return self.query, self.plan


@dataclass(frozen=True)
class PlanVersion:
    """The plan of record as one batch goes by it."""

    number: int = 0
    live: Mapping[FlowKey, LivePlan] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()  #: digests that the console does not know, or that do not parse
    idle: Mapping[FlowKey, int] = field(default_factory=dict)  #: not live at this time of arrival, milliseconds
    gone: frozenset[FlowKey] = frozenset()  #: no longer live, of which states are still kept
    forgotten: frozenset[tuple[str, str]] = frozenset()  #: generations that nobody sends for any more

    @cached_property
    def _by_query(self) -> Mapping[str, LivePlan]:
        return {plan.query: plan for plan in self.live.values()}

    def settings(self, query: str, plan: str) -> LivePlan:
        """Settings of a flow; one no longer live keeps its query's settings and names no agents."""
        if (live_plan := self.live.get((query, plan))) is not None:
            return live_plan
        other = self._by_query.get(query)
        if other is None:
            return LivePlan(query, plan)
        return LivePlan(query, plan, (), other.subinterval_us, other.retain_us, other.idle_after_ms)

    def widths_us(self) -> dict[str, int]:
        """Length of a subinterval by query."""
        return {query: plan.subinterval_us for query, plan in self._by_query.items()}


@dataclass(frozen=True)
class PlanReader:
    """Reads plans from Redis; it is sent to tasks, so it holds no connection."""

    redis_url: str
    patience_s: float = _PATIENCE_S

    def newest(self) -> int:
        """Number of the newest version.

        Raises
        ------
        RedisAway
        """
        return int(_there(self, lambda client: client.get(PLAN_NUMBER), PLAN_NUMBER))

    def version(self, number: int) -> PlanVersion:
        """A version of the plan of record.

        Raises
        ------
        RedisAway
            Redis does not answer, or does not hold the version for as long as it may be waited for.
        """
        return _version(self, number) if number else PlanVersion()

    def find_pipeline(self, digest: str) -> Pipeline | None:
        """The pipeline of a digest; None where the driver has not got it, or not yet.

        Raises
        ------
        RedisAway
        """
        if digest not in _parsed:
            document: Any = ask_redis(self.redis_url, lambda client: client.hget(PIPELINES, digest), self.patience_s)
            if document is None:
                return None
            _remember(digest, document)
        return _parsed[digest]

    def pipeline(self, digest: str) -> Pipeline:
        """The pipeline of a digest that the driver has.

        Raises
        ------
        RedisAway
            Also where Redis has lost it for longer than the driver needs to write it again.
        """
        if digest not in _parsed:
            _remember(digest, _there(self, lambda client: client.hget(PIPELINES, digest), f"pipeline {digest[:12]}"))
        return _parsed[digest]


_MAX_PARSED = 20_000
_parsed: dict[str, Pipeline] = {}  # of this process: Python workers are kept from batch to batch


def _remember(digest: str, document: bytes) -> None:
    if len(_parsed) >= _MAX_PARSED:
        _parsed.clear()
    _parsed[digest] = Pipeline.parse(json.loads(document))


@lru_cache(maxsize=8)
def _version(reader: PlanReader, number: int) -> PlanVersion:
    def read(client: redis.Redis) -> Any:
        """The version; the newest where so many came after it that it is gone, as while a batch takes very long."""
        text, newest = client.get(plan_key(number)), int(client.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
        return text if text is not None or newest < number + VERSIONS_KEPT else client.get(plan_key(newest))

    document = json.loads(_there(reader, read, plan_key(number)))
    return PlanVersion(
        number,
        _queries(reader, int(document["queries"])),
        frozenset(document["unknown"]),
        {(query, plan): asked_ms for query, plan, asked_ms in document["idle"]},
        frozenset((query, plan) for query, plan in document["gone"]),
        frozenset((agent, life) for agent, life in document["forgotten"]),
    )


@lru_cache(maxsize=2)
def _queries(reader: PlanReader, number: int) -> dict[FlowKey, LivePlan]:
    plans = [LivePlan.of(item) for item in _read(reader, queries_key(number))]
    return {plan.key: plan for plan in plans}


def _read(reader: PlanReader, key: str) -> Any:
    return json.loads(_there(reader, lambda client: client.get(key), key))


def _there(reader: PlanReader, read: Callable[[redis.Redis], Any], name: str) -> Any:
    """An answer that the driver has written; waited for where Redis has lost it."""

    def ask(client: redis.Redis) -> Any:
        found = read(client)
        if found is None:
            raise redis.ConnectionError(f"{name} is not there; the driver writes it again")
        return found

    return ask_redis(reader.redis_url, ask, reader.patience_s)


class _PipelineKey:
    """A pipeline as a key: plans of one digest are one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __hash__(self) -> int:
        return hash(self.pipeline.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PipelineKey) and self.pipeline.digest == other.pipeline.digest


def operator_of(pipeline: Pipeline, index: int) -> Kernel:
    """The operator at `index`."""
    return _made(_PipelineKey(pipeline), index)


def aggregate_of(pipeline: Pipeline) -> AggregateKernel:
    """The first aggregate; every live query has one."""
    assert pipeline.aggregate is not None
    operator = operator_of(pipeline, pipeline.aggregate)
    assert isinstance(operator, AggregateKernel)
    return operator


def row_operator(pipeline: Pipeline, index: int) -> RowKernel:
    """A stateless operator."""
    operator = operator_of(pipeline, index)
    assert isinstance(operator, RowKernel)
    return operator


def stream_join_of(pipeline: Pipeline) -> StreamJoinKernel:
    """The join with another stream, of a pipeline that has one."""
    assert pipeline.stream_join is not None
    operator = operator_of(pipeline, pipeline.stream_join)
    assert isinstance(operator, StreamJoinKernel)
    return operator


def is_usable(pipeline: Pipeline) -> bool:
    """Whether the pipeline has results: by window, from an aggregate."""
    return pipeline.aggregate is not None and pipeline.window is not None


def is_divisible(pipeline: Pipeline) -> bool:
    """Whether groups may be computed apart: what follows the aggregate looks at rows one by one, and no streams are
    joined.
    """
    assert pipeline.aggregate is not None
    after = pipeline.operators[pipeline.aggregate + 1 :]
    return pipeline.stream_join is None and all(
        isinstance(operator_of(pipeline, operator.index), RowKernel) for operator in after
    )


@lru_cache(maxsize=1000)
def _made(plan: _PipelineKey, index: int) -> Kernel:
    return kernel(plan.pipeline, index)
