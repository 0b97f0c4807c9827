"""Reading of the keyed state for people: rows and bytes by variable, and the largest keys.

A batch job of Spark's state reader on what was committed, when somebody asks: one task on one core, so that the query
keeps the others. It loads state stores of its own and touches none of the query's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import redis
from pyspark.sql import functions
from pyspark.sql.types import BinaryType, StringType, StructType

from agent.wire.broker import take_keyed_state_request, write_keyed_state
from spark_jobs.stream import OPERATORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.checkpoint import Checkpoint

__all__ = ["StateReader", "read_state"]

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
