"""Sums of an operator at one place, declared once: name, type, unit, meaning and merge of each.

An agent counts in `OperatorCounts`; the stream processor adds the rest of `SUMS`. The schemas of frames, the columns of
Spark and those of the console are made from them, and go by their names.
"""

from __future__ import annotations

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
    "OperatorSum",
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
#: Names of the sums over runs and steps, which agents tell in a frame's header (`agent.wire.variation`), and of those
#: over epochs.
COST_SUMS, EPOCH_SUMS, ARRIVAL_SUMS = (
    tuple(each.name for each in group) for group in (_COST_SUMS, _EPOCH_SUMS, _ARRIVAL_SUMS)
)
#: Sums of how costs and arrivals vary; 0 where an agent tells none.
VARIATION = (*COST_SUMS, *EPOCH_SUMS, *ARRIVAL_SUMS)
