"""The streaming query: spans of the broker, two keyed operators on state of Spark's, rows for the driver.

source -> generations (by partition) -> flows (by query, plan and shard; statistics by bucket) -> sink
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row, functions
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from spark_jobs.declarations import DeclaringHandle
from spark_jobs.flows import FLOWS, FlowsContext, FlowsRow, rows_of_key
from spark_jobs.generations import GENERATIONS, GenerationsContext, GenerationsStep, KeyedRow, spans_of_rows
from spark_jobs.input.entries import EntryReader
from spark_jobs.input.source import MAX_ENTRIES, KafkaTopic, spans_of, spans_of_topic
from spark_jobs.plans import PlanReader
from spark_jobs.variables import FlowVariables, GenerationsVariables, StatisticsVariables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OPERATORS", "StreamSettings", "stream_of"]

#: Names of the stateful operators in the order in which Spark numbers and reports them: from the sink on. Spark itself
#: calls all of them alike.
OPERATORS = ("flows", "generations")

_MODE, _TIME = "Update", "None"  # without timers Spark runs no batch where nothing came


@dataclass(frozen=True)
class StreamSettings:
    """Of the operators; intervals in time of arrival."""

    redis_url: str
    session: str = ""  #: of the driver; with another one all positions are told again
    buckets: int = 2
    statistics_ms: int = 10_000
    refine_ms: int = 10_000
    kafka: KafkaTopic | None = None  #: another source of frames

    def generations(self) -> GenerationsContext:
        return GenerationsContext(EntryReader(self.redis_url), PlanReader(self.redis_url), self.buckets, self.session)

    def flows(self) -> FlowsContext:
        return FlowsContext(PlanReader(self.redis_url), self.statistics_ms, self.refine_ms)


class _Generations(StatefulProcessor):
    def __init__(self, context: GenerationsContext) -> None:
        self._context = context

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._variables = GenerationsVariables(DeclaringHandle(handle))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802 - Spark's
        for row in GenerationsStep(self._variables, self._context, spans_of_rows(rows)).rows():
            yield _GENERATIONS_ROW(*row)

    def close(self) -> None:
        pass


class _Flows(StatefulProcessor):
    def __init__(self, context: FlowsContext) -> None:
        self._context = context

    def init(self, handle: StatefulProcessorHandle) -> None:
        declaring = DeclaringHandle(handle)
        self._flows, self._statistics = FlowVariables(declaring), StatisticsVariables(declaring)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802 - Spark's
        given = (KeyedRow(*row) for row in rows)
        for row in rows_of_key(key[0], given, self._flows, self._statistics, self._context):
            yield _FLOWS_ROW(*row)

    def close(self) -> None:
        pass


_GENERATIONS_ROW, _FLOWS_ROW = Row(*KeyedRow._fields), Row(*FlowsRow._fields)


def stream_of(spark: SparkSession, settings: StreamSettings, **options: int) -> DataFrame:
    """The query as a streaming data frame of `spark_jobs.flows.FLOWS`; `options` are those of the source.

    What each operator hands on is observed under its name, in the job that runs anyway.
    """
    spans = spans_of(spark, settings.redis_url, **options)
    if settings.kafka is not None:
        spans = spans.unionByName(spans_of_topic(spark, settings.kafka, options.get("max_entries", MAX_ENTRIES)))
    generations = spans.groupBy("partition").transformWithState(
        _Generations(settings.generations()), GENERATIONS, _MODE, _TIME
    )
    flows = _observed(generations, "generations").groupBy("key")
    return _observed(flows.transformWithState(_Flows(settings.flows()), FLOWS, _MODE, _TIME), "flows")


def _observed(frame: DataFrame, operator: str) -> DataFrame:
    size = functions.coalesce(functions.length("body"), functions.lit(0)) + functions.length("told")
    size_bytes = functions.coalesce(functions.sum(size), functions.lit(0))
    return frame.observe(operator, functions.count("*").alias("rows"), size_bytes.alias("bytes"))
