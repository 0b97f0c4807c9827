"""Control proxies and the operators behind them: load factors, drained records, costs, lengths of runs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from agent.runtime.cpu import OperatorCost, records_within
from agent.runtime.query.record_queue import RecordQueue
from agent.wire import OperatorCounts

__all__ = ["ControlProxy", "OperatorStage", "doubt_costs", "run_length"]


ROUNDING = 1e-9  # of a record: 0.1 ten times over is one record
FORGETTING = 0.9  # of how many records an operator gave for each, with every run
_SEED = 1  # the same records pass in every run with the same batches
LONG_RUN_NS = 30_000_000  # of a run with all that follows from it, by which a cycle may be exceeded


_WARM_UP_RUNS = 8  # of an operator: they load what later ones find


class RunCosts:
    """Sums over an operator's runs, without its first few."""

    def __init__(self) -> None:
        self._warming = _WARM_UP_RUNS
        self._sums = [0.0] * 6

    def add(self, records: int, cpu_ns: int) -> None:
        """It ran."""
        if self._warming:
            self._warming -= 1
            return
        t = cpu_ns / 1e9
        for i, more in enumerate((1, records, t, records * records, records * t, t * t)):
            self._sums[i] += more

    def take(self) -> list[float]:
        """Sums since the last call, those of `agent.wire.COST_SUMS`; empty without runs."""
        sums, self._sums = self._sums, [0.0] * 6
        return sums if sums[0] else []


class ControlProxy:
    """Lets the share `load_factor` of its input into the operator's queue; the rest is drained.

    The share is kept over time: what rounding leaves is carried over, so after n records those that passed differ from
    ``load_factor * n`` by less than one. Where in a batch they begin is drawn: records often come sorted, and of a
    source that asks all in turn the same ones would else pass in every round.

    Notes
    -----
    At every epoch's end ``in + queued before = processed + drained + overflow + queued``. Records that are given up
    are overflow: they go on to the stream processor, unprocessed. So are those that are shed, which nobody processes.
    """

    def __init__(self, load_factor: float, period_us: int | None = None) -> None:
        self.load_factor = load_factor
        self.counts = OperatorCounts()
        self.queue = RecordQueue(period_us)
        self.drained: list[pa.Table] = []
        self._carry = 0.0
        self._draw = random.Random(_SEED)

    def admit(self, table: pa.Table, arrived_us: int = 0, least_us: int = 0) -> None:
        """Records arrive; they came to the agent then, and none is of an earlier event time."""
        records = table.num_rows
        if not records:
            return
        self.counts.records_in += records
        self.counts.bytes_in += table.nbytes
        passing = self._passing(records)
        start = self._draw.randrange(records) if 0 < passing < records else 0
        self.queue.put(_slices_around(table, start, passing), arrived_us, least_us)
        if passing < records:
            rest = _slices_around(table, (start + passing) % records, records - passing)
            self.counts.records_drained += rest.num_rows
            self._drain(rest)

    def _passing(self, records: int) -> int:
        exact = self._carry + records * self.load_factor
        passing = min(records, math.floor(exact + ROUNDING))
        self._carry = exact - passing
        return passing

    def refuse(self, table: pa.Table) -> None:
        """Records that were let in but cannot be processed here go on unprocessed."""
        self.counts.records_overflow += table.num_rows
        self._drain(table)

    def overflow(self, records: int) -> None:
        """The first of those that wait go on unprocessed."""
        if records:
            self.refuse(self.queue.take(records).table)

    def shed(self, records: int) -> None:
        """The first of those that wait are lost."""
        if records:
            self.queue.take(records)
            self.counts.records_overflow += records
            self.counts.records_shed += records

    def end_epoch(self) -> tuple[list[pa.Table], OperatorCounts]:
        """Records to send to this operator's other half, and the epoch's counters."""
        drained, counts = self.drained, self.counts
        counts.records_queued = self.queue.records
        self.drained, self.counts = [], OperatorCounts()
        return drained, counts

    def _drain(self, table: pa.Table) -> None:
        self.counts.bytes_drained += table.nbytes
        self.drained.append(table)


def _slices_around(table: pa.Table, start: int, count: int) -> pa.Table:
    """`count` records from `start` on, going on at the beginning behind the last one."""
    head = table.slice(start, count)
    if head.num_rows == count:
        return head
    return pa.concat_tables([head, table.slice(0, count - head.num_rows)])


@dataclass
class OperatorStage:
    """An operator behind its control proxy."""

    operator_id: str
    fingerprint: str
    proxy: ControlProxy
    kernel: Any
    stateful: bool
    cost: OperatorCost
    runs: RunCosts = field(default_factory=RunCosts)
    _took: float = 0.0
    _gave: float = 0.0

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return self.proxy.queue.records

    @property
    def selectivity(self) -> float:
        """Recent records out per record in; 1 before the first run."""
        return self._gave / self._took if self._took else 1.0

    def ran(self, took: int, gave: int, cpu_ns: int) -> None:
        """Note a run: records processed, records put out, CPU time."""
        self.cost.observe(took, cpu_ns)
        self.runs.add(took, cpu_ns)
        self._took, self._gave = FORGETTING * self._took + took, FORGETTING * self._gave + gave
        self.proxy.counts.records_processed += took
        self.proxy.counts.cpu_ns += cpu_ns


def run_length(stages: Sequence[OperatorStage], stage: OperatorStage, left_ns: float) -> int:
    """Records for the operator's next run: no more than it and those behind it are done with in the time left.

    What is begun and not done by the epoch's end goes on unprocessed, and was begun in vain. Nor are they more than
    take some time in all, unless they are few.
    """
    fixed_ns, record_ns, share = 0.0, 0.0, 1.0
    for later in stages[stages.index(stage) :]:
        fixed, per_record = later.cost.believed()
        fixed_ns, record_ns, share = fixed_ns + fixed, record_ns + share * per_record, share * later.selectivity
    longest = max(records_within(LONG_RUN_NS, fixed_ns, record_ns), stage.cost.worth_a_run())
    fitting = min(stage.cost.records_within(left_ns), records_within(left_ns, fixed_ns, record_ns))
    return min(stage.waiting, fitting, longest)


def doubt_costs(stages: Sequence[OperatorStage], counts: Sequence[OperatorCounts]) -> None:
    """After an epoch: where an operator did nothing though records waited, it or one behind it was thought too dear."""
    waited = False
    for stage, counted in zip(stages, counts, strict=True):
        waited = waited or counted.records_overflow > 0 or counted.records_queued > 0
        if waited and not counted.records_processed:
            stage.cost.doubt()
