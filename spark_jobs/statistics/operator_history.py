"""Measurements kept of operators: decayed sums by operator, agent and volume.

Everything adds up and refers, agent by agent, to its newest epoch, to which later and earlier epochs are decayed
alike: neither their order of arrival matters, nor a clock that is behind. Load factors move every few epochs and are
no key. Epochs are kept apart by the number of records that the operator processed, in levels of half an octave, on
which costs and groups depend; and by plan and configuration version, which never mix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import REFINEMENTS
from spark_jobs.statistics.updates import sent_schema

__all__ = ["CYCLES", "CYCLE_SUMS", "HALF_LIFE_S", "MIN_RECORDS", "OPERATORS", "REST", "OperatorHistory", "add_epochs"]


MIN_RECORDS = 30  # an epoch with fewer is no sample of the cost per record


HALF_LIFE_S = 300.0
FORGOTTEN_MS = 3_600_000  # of a silent agent
REST = -1  #: level of epochs that say too little of costs
_MIN_WEIGHT = 0.1  # of an epoch: rows that weigh less are forgotten

_CHAIN = [("query", pa.string()), ("plan", pa.string()), ("place", pa.string()), ("entry", pa.int16())]
_NAMES = [("operator", pa.string()), ("fingerprint", pa.string())]
_OF = ["query", "plan", "place", "entry", "config_version"]
_SUMS = [
    "epochs", "records_in", "bytes_in", "records_processed", "records_out", "bytes_out", "groups_out", "granted_s",
    "sum_wng", "sum_wg2", "sum_wnt", "sum_wgt", "cost_sum2",
]  # fmt: skip
CYCLE_SUMS = ["closings", "epochs", "records_processed", "records_out", "bytes_out"]

#: Decayed sums of epochs by level, under the names of `agent.wire.SUMS`.
OPERATORS = pa.schema(
    [
        *_CHAIN,
        *_NAMES,
        ("config_version", pa.int64()),
        ("level", pa.int16()),
        *((name, pa.float64()) for name in _SUMS),
        ("newest_us", pa.int64()),
    ]
)

#: Whole windows of aggregates, decayed; and what came since the last one closed, as it is.
CYCLES = pa.schema(
    [
        *_CHAIN,
        ("config_version", pa.int64()),
        *((name, pa.float64()) for name in CYCLE_SUMS),
        ("open_epochs", pa.int64()),
        ("open_records", pa.int64()),
        ("begun", pa.bool_()),  # a closing was seen: what the next one closes is whole
    ]
)


@dataclass(frozen=True)
class OperatorHistory:
    """Everything learned."""

    step: int = 0  #: that last changed it
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)  #: epoch (microseconds) and arrival by agent
    told_ms: int = 0  #: time of the last report
    operators: pa.Table = field(default_factory=OPERATORS.empty_table)
    cycles: pa.Table = field(default_factory=CYCLES.empty_table)
    sent: pa.Table = field(default_factory=sent_schema(REFINEMENTS).empty_table)  #: rows last sent to the console


def add_epochs(
    before: OperatorHistory, epochs: pa.Table, aggregate_of: Callable[[str], int | None], at_ms: int, step: int
) -> OperatorHistory:
    """Take in rows of `EPOCHS` that agents counted.

    Parameters
    ----------
    aggregate_of
        Entry of the windowed aggregate of a plan; None where it has none, or the plan is not known.
    at_ms
        When the last of them arrived; an epoch of a clock that is ahead counts as of then.
    """
    rows = epochs.filter(epochs["measured"])
    at_us = pc.min_element_wise(rows["epoch_us"], 1000 * at_ms)
    rows = rows.set_column(rows.schema.get_field_index("epoch_us"), "epoch_us", at_us)
    newest = _newest(before, rows, at_ms)
    since = {place: _weight(newest[place][0] - at_us) for place, (at_us, _) in before.newest.items() if place in newest}
    weights = _weight(_column([newest[place][0] for place in rows["place"].to_pylist()]) - _column(rows["epoch_us"]))
    operators = _added([_decayed(before.operators, _SUMS, since), _summands(rows, weights)])
    operators = operators.filter(pc.greater_equal(operators["epochs"], _MIN_WEIGHT)).combine_chunks()
    cycles = _Cycles(_decayed(before.cycles, CYCLE_SUMS, since))
    cycles.add(_of_aggregates(rows, weights, aggregate_of))
    return replace(before, step=step, newest=newest, operators=operators, cycles=cycles.table(operators))


def _newest(before: OperatorHistory, rows: pa.Table, at_ms: int) -> dict[str, tuple[int, int]]:
    newest = {place: seen for place, seen in before.newest.items() if at_ms - seen[1] < FORGOTTEN_MS}
    for row in rows.group_by("place").aggregate([("epoch_us", "max")]).to_pylist():
        newest[row["place"]] = max(row["epoch_us_max"], newest.get(row["place"], (0, 0))[0]), at_ms
    return newest


def _weight(age_us: Any) -> Any:
    return np.exp2(-age_us / 1e6 / HALF_LIFE_S)


def _column(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def _decayed(table: pa.Table, names: list[str], by: dict[str, float]) -> pa.Table:
    """Rows of agents that are known still, their sums times a weight of the agent."""
    weights = _column([by.get(place, 0.0) for place in table["place"].to_pylist()])
    for name in names:
        scaled = pa.array(_column(table[name]) * weights)
        table = table.set_column(table.schema.get_field_index(name), name, scaled)
    return table.filter(pa.array(weights > 0.0, pa.bool_()))


def _summands(rows: pa.Table, weights: Any) -> pa.Table:
    """A row of `OPERATORS` for each row of `EPOCHS`."""
    n, g, t = (rows[name].to_numpy().astype(float) for name in ("records_processed", "groups_out", "cpu_ns"))
    usable = n >= MIN_RECORDS
    per = np.where(usable, 1.0 / np.maximum(n, 1.0), 0.0)
    t = t / 1e9
    values = {
        "epochs": np.ones(len(n)),
        "records_processed": n,
        "groups_out": g,
        "granted_s": rows["granted_cpu_ns"].to_numpy() / 1e9,
        "sum_wng": g * per,
        "sum_wg2": (g * per) ** 2,
        "sum_wnt": t * per,
        "sum_wgt": g * t * per**2,
        "cost_sum2": (t * per) ** 2,
    }
    values |= {name: rows[name].to_numpy() for name in ("records_in", "bytes_in", "records_out", "bytes_out")}
    level = np.where(usable, np.rint(2.0 * np.log2(np.maximum(n, 1.0))), REST).astype(np.int16)
    keys = {name: rows[name] for name in ("query", "plan", "place", "entry", "operator", "fingerprint")}
    keys |= {"config_version": rows["config_version"], "level": pa.array(level)}
    sums = {name: pa.array(values[name] * weights, pa.float64()) for name in _SUMS}
    return pa.table(keys | sums | {"newest_us": rows["epoch_us"]}).select(OPERATORS.names).cast(OPERATORS)


def _added(parts: list[pa.Table]) -> pa.Table:
    """Rows of one key as one."""
    keys = [name for name in OPERATORS.names if name not in {*_SUMS, "newest_us"}]
    groups = pa.concat_tables(parts).group_by(keys, use_threads=False)
    added = groups.aggregate([*((name, "sum") for name in _SUMS), ("newest_us", "max")])
    plain = [name.removesuffix("_sum").removesuffix("_max") for name in added.column_names]
    return added.rename_columns(plain).select(OPERATORS.names).cast(OPERATORS)


def _of_aggregates(rows: pa.Table, weights: Any, aggregate_of: Callable[[str], int | None]) -> list[tuple[Any, ...]]:
    """Key, epoch, weight and counts of the epochs of aggregates over windows, in the order of their epochs."""
    entries = {plan: aggregate_of(plan) for plan in pc.unique(rows["plan"]).to_pylist()}
    names = [*_OF, "epoch_us", "records_processed", "records_out", "bytes_out"]
    columns = [rows[name].to_pylist() for name in names]
    listed = [
        (fields[:5], fields[5], weight, *fields[6:])
        for *fields, weight in zip(*columns, weights.tolist(), strict=True)
        if entries[fields[1]] == fields[3]
    ]
    return sorted(((tuple(key), *rest) for key, *rest in listed), key=lambda fields: fields[:2])


class _Cycles:
    """Windows from closing to closing. The first closing of a version belongs to a window that began earlier, and
    only begins one.
    """

    def __init__(self, cycles: pa.Table) -> None:
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {
            tuple(row[name] for name in _OF): row for row in cycles.to_pylist()
        }

    def add(self, epochs: list[tuple[Any, ...]]) -> None:
        for key, listed in groupby(epochs, key=lambda epoch: epoch[0]):
            row = self._rows.setdefault(key, defaultdict(int, dict(zip(_OF, key, strict=True)), begun=False))
            for _, _, weight, records, out, bytes_out in listed:
                row["open_epochs"] += 1
                row["open_records"] += records
                if out:
                    self._close(row, weight, out, bytes_out)

    def _close(self, row: dict[str, Any], weight: float, out: int, bytes_out: int) -> None:
        if row["begun"]:
            closed = (1, row["open_epochs"], row["open_records"], out, bytes_out)
            for name, value in zip(CYCLE_SUMS, closed, strict=True):
                row[name] += weight * value
        row |= {"open_epochs": 0, "open_records": 0, "begun": True}

    def table(self, operators: pa.Table) -> pa.Table:
        """Those whose operators are still known."""
        keys = set(zip(*(operators[name].to_pylist() for name in _OF), strict=True))
        rows = [{name: row[name] for name in CYCLES.names} for key, row in self._rows.items() if key in keys]
        return pa.Table.from_pylist(rows, schema=CYCLES)
