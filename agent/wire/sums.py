"""Sums of an operator at one place, declared once: name, type, unit, meaning and merge of each.

An agent counts in `OperatorCounts`; the stream processor adds the rest of `SUMS`. The schemas of frames, the columns of
Spark and those of the console are made from them, and go by their names.

`extra.variation` is ``{"v": 1, "costs": [...], "arrivals": [...]}``: for each row of the body the `COST_SUMS` of its
runs, and for the first operator of a query the `ARRIVAL_SUMS` of its source; empty where there are none. Receivers
that know nothing of it leave it alone, as they do with another version. Rows behind the last item have none: a header
has bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

__all__ = [
    "ARRIVAL_SUMS",
    "COST_SUMS",
    "COUNTER_NAMES",
    "COUNT_SUMS",
    "EPOCH_SUMS",
    "SUMS",
    "SUM_NAMES",
    "VARIATION",
    "Merge",
    "OperatorCounts",
    "variation_columns",
    "variation_extra",
    "variation_fault",
]


class Merge(Enum):
    """Merge of the sums of several config versions in one subinterval."""

    ALL = "all"  #: they add up
    LARGEST = "largest"  #: those of the version with the most records stand for it, since fits of versions never mix


@dataclass(frozen=True, slots=True)
class OperatorSum:
    """A quantity of an operator that adds up over epochs, subintervals and places."""

    name: str
    help: str
    unit: str
    is_whole: bool = False  #: int64 on the wire, else float64
    merge: Merge = Merge.ALL


def _counted(text: str, unit: str = "records") -> Any:
    return field(default=0, metadata={"help": text, "unit": unit})


@dataclass
class OperatorCounts:
    """Counters of one operator in one epoch.

    At its end in + queued before = processed + drained + overflow + queued. All but `records_queued` are sums.
    """

    records_in: int = _counted("Records that came to the control proxy.")
    records_processed: int = _counted("Records processed, some of which may have come in before.")
    records_drained: int = _counted("Records drained as planned by the load factor.")
    records_overflow: int = _counted("Records sent on unprocessed for want of time, or shed.")
    records_queued: int = 0  #: when the epoch ended; they wait for the next
    records_out: int = _counted("Records put out.")
    bytes_in: int = _counted("Bytes of the records that came in.", "bytes")
    bytes_out: int = _counted("Bytes of the records put out.", "bytes")
    bytes_drained: int = _counted("Bytes of planned drain and overflow.", "bytes")
    cpu_ns: int = _counted("CPU time taken.", "ns")
    groups_out: int = _counted("Groups put out.", "groups")
    records_shed: int = _counted("Records lost on purpose; of first operators, at the collector as well.")


#: Counters of an agent, in the order of the wire.
COUNTER_NAMES = tuple(counter.name for counter in fields(OperatorCounts))
#: Sums that agents count.
COUNT_SUMS = tuple(
    OperatorSum(counter.name, is_whole=True, **counter.metadata)
    for counter in fields(OperatorCounts)
    if counter.metadata
)


def _fitted(name: str, text: str, unit: str, *, is_whole: bool = False) -> OperatorSum:
    return OperatorSum(name, text, unit, is_whole, Merge.LARGEST)


#: Of epochs that count for the cost, of n records, g groups and t CPU seconds: n >= 30, not drained only. They are the
#: normal equations of t = a n + b g with weights w = 1 / n^2, and moments of the cost per record.
_FIT_SUMS = (
    _fitted("sampled", "Records of the epochs that count.", "records", is_whole=True),
    _fitted("sum_wn2", "Sum of w n^2.", "epochs"),
    _fitted("sum_wng", "Sum of w n g.", "groups/record"),
    _fitted("sum_wg2", "Sum of w g^2.", "(groups/record)^2"),
    _fitted("sum_wnt", "Sum of w n t.", "s/record"),
    _fitted("sum_wgt", "Sum of w g t.", "s groups/record^2"),
    _fitted("cost_count", "Epochs that count.", "epochs", is_whole=True),
    _fitted("cost_sum", "Sum of t / n.", "s/record"),
    _fitted("cost_sum2", "Sum of (t / n)^2.", "(s/record)^2"),
)
#: Of an operator's runs of n records and t CPU seconds.
_COST_SUMS = (
    OperatorSum("runs", "Runs.", "runs"),
    OperatorSum("run_records", "Sum of n over runs.", "records"),
    OperatorSum("run_cpu_s", "Sum of t over runs.", "s"),
    OperatorSum("run_nn", "Sum of n^2 over runs.", "records^2"),
    OperatorSum("run_nt", "Sum of n t over runs.", "s records"),
    OperatorSum("run_tt", "Sum of t^2 over runs.", "s^2"),
)
#: The same of epochs, which the stream processor makes of them; n and t in all are those of the runs.
_EPOCH_SUMS = (
    OperatorSum("run_epochs", "Epochs that had runs.", "epochs"),
    OperatorSum("epoch_nn", "Sum of n^2 over epochs.", "records^2"),
    OperatorSum("epoch_nt", "Sum of n t over epochs.", "s records"),
    OperatorSum("epoch_tt", "Sum of t^2 over epochs.", "s^2"),
)
#: Of pairs of neighbouring steps of a source, at three widths; first operators alone have them.
_ARRIVAL_SUMS = tuple(
    OperatorSum(f"{step}_{part}", f"{text} of steps of about {width}.", unit)
    for step, width in (("fine", "0.2 s"), ("second", "1 s"), ("slow", "5 s"))
    for part, text, unit in (
        ("pairs", "Pairs", "pairs"),
        ("squares", "Squared differences", "records^2/s"),
        ("rates", "Rates", "records/s"),
        ("span_s", "Seconds", "s"),
    )
)
#: All sums of an operator over a subinterval, in the order of the wire.
SUMS = (
    OperatorSum("epochs", "Epochs in the sums.", "epochs", is_whole=True),
    *COUNT_SUMS,
    *_FIT_SUMS,
    *_COST_SUMS,
    *_EPOCH_SUMS,
    *_ARRIVAL_SUMS,
)
SUM_NAMES = tuple(each.name for each in SUMS)
#: Names of the sums over runs and steps, which agents tell in a frame's header (`agent.wire.sums`), and of those
#: over epochs.
COST_SUMS, EPOCH_SUMS, ARRIVAL_SUMS = (
    tuple(each.name for each in group) for group in (_COST_SUMS, _EPOCH_SUMS, _ARRIVAL_SUMS)
)
#: Sums of how costs and arrivals vary; 0 where an agent tells none.
VARIATION = (*COST_SUMS, *EPOCH_SUMS, *ARRIVAL_SUMS)


_NAME, _VERSION = "variation", 1
_DIGITS = 9  # residuals are differences of sums
_MAX_BYTES = 12_000  # of a header of 16 KiB
_MAX_SUM = 1e100  # their products are still numbers
_LISTS = {"costs": COST_SUMS, "arrivals": ARRIVAL_SUMS}


def variation_extra(costs: Sequence[Sequence[float]], arrivals: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The `extra` of a frame whose rows have these sums, row by row; of as many rows as there is room for."""
    kept: dict[str, list[list[float]]] = {"costs": [], "arrivals": []}
    size = 0
    for pair in zip(costs, arrivals, strict=True):
        rows = [[_short(value) for value in sums] for sums in pair]
        size += sum(len(json.dumps(row, separators=(",", ":"))) + 1 for row in rows)
        if size > _MAX_BYTES:
            break
        for listed, row in zip(kept.values(), rows, strict=True):
            listed.append(row)
    return {_NAME: {"v": _VERSION, **kept}} if any(map(any, kept.values())) else {}


def _short(value: float) -> float:
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def variation_fault(extra: Mapping[str, Any]) -> str:
    """Fault of the sums in a COUNTERS frame's `extra`, in words; empty where there is none, or they are not told."""
    if _NAME not in extra:
        return ""
    told = extra[_NAME]
    if not isinstance(told, Mapping):
        return f"{_NAME} is {str(told)[:80]}; allowed: an object"
    if told.get("v") != _VERSION:
        return ""
    for name, sums in _LISTS.items():
        rows = told.get(name)
        if not isinstance(rows, list):
            return f"{_NAME}.{name} is {str(rows)[:80]}; allowed: a list with an item for each row"
        for i, row in enumerate(rows):
            if not isinstance(row, list) or len(row) not in (0, len(sums)) or not all(map(_is_sum, row)):
                allowed = f"none or {len(sums)} numbers of at least 0"
                return f"{_NAME}.{name}[{i}] is {str(row)[:80]}; allowed: {allowed}"
    return ""


def _is_sum(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_SUM


def variation_columns(extra: Mapping[str, Any], rows: int) -> dict[str, list[float]]:
    """The sums as columns of so many rows; 0 where there are none.

    Raises
    ------
    ValueError
        They cannot be, or are of more rows.
    """
    if fault := variation_fault(extra):
        raise ValueError(f"extra.{fault}")
    told = extra.get(_NAME, {})
    columns = {name: [0.0] * rows for sums in _LISTS.values() for name in sums}
    for name, sums in _LISTS.items() if told.get("v") == _VERSION else ():
        if len(told[name]) > rows:
            raise ValueError(f"extra.{_NAME}.{name} has {len(told[name])} items; allowed: {rows}, the rows of the body")
        for i, row in enumerate(told[name]):
            for column, value in zip(sums, row, strict=False):
                columns[column][i] = float(value)
    return columns
