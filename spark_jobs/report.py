"""Reports of the stream processor about itself, and about its keyed state on request.

A batch job of Spark's state reader on what was committed, when somebody asks: one task on one core, so that the query
keeps the others. It loads state stores of its own and touches none of the query's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
import redis
from pyspark.sql import functions
from pyspark.sql.types import BinaryType, StringType, StructType

from agent.wire.broker import (
    PARTITIONS,
    oldest_at_s,
    read_reach,
    take_keyed_state_request,
    write_keyed_state,
    write_state,
)
from spark_jobs.plans import FlowKey, LivePlan
from spark_jobs.session import Options
from spark_jobs.sink import BatchFacts
from spark_jobs.stream import OPERATORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.checkpoint import Checkpoint

__all__ = ["StateReader", "StatusReport", "read_state", "stream_report"]

_PERIOD_S = 2.0
_MAX_BEHIND = 10_000


def family_rss_bytes() -> dict[str, int]:
    """Resident bytes of the JVM and of Python."""
    sizes = {"jvm": 0, "python": 0}
    head = psutil.Process()
    for process in (head, *head.children(recursive=True)):
        try:
            sizes["jvm" if process.name() == "java" else "python"] += process.memory_info().rss
        except psutil.Error:
            continue
    return sizes


class StatusReport:
    """Thread that writes `sluice:stream:state` and runs periodic duties."""

    def __init__(self, client: redis.Redis, options: Options, also: Callable[[], None]) -> None:
        self._client, self._options, self._also = client, options, also
        self._facts: dict[str, Any] = {"state": "starting", "since": time.time()}
        self._ended = threading.Event()
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        self.more: Callable[[], Mapping[str, Any]] = dict

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop with a last report."""
        self._ended.set()
        self._thread.join(_PERIOD_S * 2)
        self._write()

    def say(self, state: str, fault: str | None = None) -> None:
        """Enter a state; `fault` is the reason where it is not ready."""
        if (state, fault) != (self._facts["state"], self._facts.get("fault")):
            print(f"stream processor: {state}{f': {fault}' if fault else ''}", file=sys.stderr, flush=True)
            since = self._facts["since"] if state == self._facts["state"] else time.time()
            self._facts = {"state": state, "since": since, "fault": fault}
            self._write()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            failed = [report for duty in (self._also, self._write) if (report := _failure(duty))]
            if failed and failed != self._failed:
                print(f"stream processor: {'; '.join(failed)}", file=sys.stderr, flush=True)
            self._failed = failed

    def _write(self) -> None:
        facts = dict(self._facts)
        fault = facts.pop("fault", None)
        report = facts | {
            "pid": os.getpid(),
            "spark": pyspark.__version__,
            "master": self._options.master,
            "trigger_s": self._options.trigger_s,
            "rss_bytes": family_rss_bytes(),
            **self.more(),
        }
        report["faults"] = [*([fault] if fault else []), *self._failed, *report.get("faults", [])]
        try:
            write_state(self._client, report)
        except redis.RedisError:
            return  # readers see from Redis itself that it is down


def _failure(duty: Callable[[], None]) -> str:
    """Do it; how it failed, as on a full disk. The thread goes on, or the whole would count as away."""
    try:
        duty()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def stream_report(facts: BatchFacts, live: Mapping[FlowKey, LivePlan], client: redis.Redis) -> dict[str, Any]:
    """The part of the report that batches tell; of live queries that they did not speak of yet, that nobody came."""
    waiting = facts.waiting
    flows = {key: _not_heard(plan) for key, plan in live.items()} | facts.flows
    by_watermark = sorted(flows.items(), key=lambda item: item[1]["watermark_us"] or 0)
    return {
        "batch": facts.step,
        "lag": _lag(facts, client),
        "behind_s": _behind_s(facts, client),
        "queries": {
            query: {"plan": plan, "unknown": waiting.get(query, 0)} | told for (query, plan), told in by_watermark
        },
        "quarantined": facts.count("quarantined"),
        "duplicates": facts.count("duplicates"),
        "gaps": facts.count("gaps"),
        "waiting": sum(waiting.values()),
    }


def _not_heard(plan: LivePlan) -> dict[str, Any]:
    nothing = {"excluded": [], "windows_open": 0, "late": 0, "early": 0}
    return nothing | {"watermark_us": None, "waiting_for": list(plan.agents)}


def _behind_s(facts: BatchFacts, client: redis.Redis) -> float | None:
    """Age of the oldest entry that is not processed yet; 0 where there is none, None while Redis is away."""
    try:
        oldest = [oldest_at_s(client, number, facts.read_to(number)) for number in range(PARTITIONS)]
        seconds, microseconds = client.time()  # entries are stamped by Redis' clock, and aged by it
    except redis.RedisError:
        return None
    oldest_s = min((at_s for at_s in oldest if at_s is not None), default=None)
    return 0.0 if oldest_s is None else round(max(0.0, seconds + microseconds / 1e6 - oldest_s), 3)


def _lag(facts: BatchFacts, client: redis.Redis) -> dict[str, int]:
    """Entries that are not processed yet."""
    try:
        return {
            str(number): read_reach(client, number, facts.read_to(number), _MAX_BEHIND, 2**40).entries
            for number in range(PARTITIONS)
        }
    except redis.RedisError:
        return {}


_PAUSE_S = 60.0  # from the end of a reading to the next
_LIMIT_S = 30.0  # of one reading
_MAX_KEYS = 200
_MAX_READ = 50_000
_MAX_FAULT = 300
_GROUP = "state-reading"
_NUMBER_BYTES = 8
_VALUES = ("value", "user_map_value", "list_element")  # column of value, map and list states
_KINDS = {"ValueState": "value", "MapState": "map", "ListState": "list"}


class StateReader:
    """Thread that reads the state when it is asked for, at most once a minute."""

    def __init__(self, spark: SparkSession, client: redis.Redis, checkpoint: Callable[[], Checkpoint]) -> None:
        self._spark, self._redis, self._checkpoint = spark, client, checkpoint
        self._asked = threading.Event()
        self._free_at_s = 0.0
        threading.Thread(target=self._run, name="state", daemon=True).start()

    def look(self) -> None:
        """Take up a request, unless the last reading is under way or less than a minute ago."""
        is_free = not self._asked.is_set() and time.monotonic() >= self._free_at_s
        if is_free and take_keyed_state_request(self._redis):
            self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            reading = self._reading()
            self._free_at_s = time.monotonic() + _PAUSE_S
            self._asked.clear()
            try:
                write_keyed_state(self._redis, reading)
            except redis.RedisError:
                continue  # who asked sees that nothing came, and asks again

    def _reading(self) -> dict[str, Any]:
        """A reading with its time and duration; a fault in its place where there is one."""
        began_at, began_s = time.time(), time.monotonic()
        context = self._spark.sparkContext
        context.setJobGroup(_GROUP, "keyed state", interruptOnCancel=True)
        timer = threading.Timer(_LIMIT_S, context.cancelJobGroup, [_GROUP])
        timer.start()
        try:
            checkpoint = self._checkpoint()
            found = read_state(self._spark, checkpoint.path, checkpoint.last_batch())
        except Exception as error:  # whatever it is, the query goes on and the reading says it
            is_late = time.monotonic() - began_s >= _LIMIT_S
            lines = str(error).splitlines() or [type(error).__name__]
            fault = f"it took longer than {_LIMIT_S:.0f} s and was given up" if is_late else lines[0]
            found = {"variables": [], "keys": [], "fault": fault[:_MAX_FAULT]}
        finally:
            timer.cancel()
        return {"read_at": round(began_at, 3), "took_s": round(time.monotonic() - began_s, 3), **found}


def read_state(spark: SparkSession, path: str, batch: int) -> dict[str, Any]:
    """Variables of the state after a batch, and the keys that are largest over all of them.

    Parameters
    ----------
    path
        Of a checkpoint.
    batch
        Number of a committed batch; -1 is none, and gives nothing.

    Returns
    -------
    dict
        `variables` with operator, variable, kind, keys, rows and bytes, and up to 200 `keys` with operator, variable,
        key, rows and bytes. Bytes are those of texts and tables, and 8 for every number. `complete` is false where
        there are more keys than are read: the smallest are then left out.
    """
    if batch < 0:
        return {"variables": [], "keys": [], "fault": "no batch is committed yet"}
    variables = list(_variables(spark, path))
    frames = [_entries(spark, path, batch, operator, variable) for operator, variable, _ in variables]
    entries = reduce(lambda some, more: some.union(more), frames).coalesce(1)
    by_key = entries.groupBy("operator", "variable", "key").agg(
        functions.count("*").alias("rows"), functions.sum("bytes").alias("bytes")
    )
    keys = by_key.orderBy(functions.desc("bytes")).limit(_MAX_READ).toArrow().to_pylist()
    of_variables = [_totals(keys, *variable) for variable in variables]
    return {"batch": batch, "variables": of_variables, "keys": keys[:_MAX_KEYS], "complete": len(keys) < _MAX_READ}


def _variables(spark: SparkSession, path: str) -> Iterator[tuple[str, str, str]]:
    """Operator, variable and kind, as the checkpoint's metadata name them."""
    rows = spark.read.format("state-metadata").load(path).select("operatorId", "operatorProperties").distinct()
    for number, properties in sorted(map(tuple, rows.collect())):
        for variable in json.loads(properties)["stateVariables"]:
            yield OPERATORS[number], variable["stateName"], _KINDS[variable["stateVariableType"]]


def _entries(spark: SparkSession, path: str, batch: int, operator: str, variable: str) -> DataFrame:
    """A row for each entry of a variable."""
    options = {"operatorId": OPERATORS.index(operator), "stateVarName": variable, "batchId": batch}
    frame = spark.read.format("statestore").options(**options).load(path)
    key = frame.schema["key"].dataType
    value = next(name for name in _VALUES if name in frame.columns)
    columns = frame.schema[value].dataType
    assert isinstance(key, StructType)
    assert isinstance(columns, StructType)
    sizes = [
        functions.coalesce(functions.length(f"{value}.{column.name}"), functions.lit(0))
        if isinstance(column.dataType, (BinaryType, StringType))
        else functions.lit(_NUMBER_BYTES)
        for column in columns
    ]
    return frame.select(
        functions.lit(operator).alias("operator"),
        functions.lit(variable).alias("variable"),
        functions.col(f"key.{key[0].name}").cast("string").alias("key"),
        reduce(lambda some, more: some + more, sizes).alias("bytes"),
    )


def _totals(keys: list[dict[str, Any]], operator: str, variable: str, kind: str) -> dict[str, Any]:
    own = [key for key in keys if (key["operator"], key["variable"]) == (operator, variable)]
    sums = {name: sum(key[name] for key in own) for name in ("rows", "bytes")}
    return {"operator": operator, "variable": variable, "kind": kind, "keys": len(own), **sums}
