"""What one epoch of one query at one source was: the counts of its operators and the CPU time it could have had."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EpochObservation", "OperatorEpoch", "SourceOperator"]


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """An operator that may run at the source, as far as adapting needs to know it."""

    id: str
    kind: str  #: as in the pipeline document, such as filter or aggregate
    stateful: bool = False
    window_s: float | None = None  #: of a windowed aggregate: its partial rows leave once in so long


@dataclass(frozen=True, slots=True)
class OperatorEpoch:
    """Counts of one operator behind its control proxy.

    Records may wait for the next epoch. Those by which the queue has grown are excess as those that were given up are:
    so ``overflow = max(records_in - processed - drained, 0)``, though what waits is not lost to the source. A record
    that waits and is given up in a later epoch counts once, in the one that it came in.
    """

    load_factor: float
    records_in: int
    processed: int
    drained: int  #: as planned by the load factor
    overflow: int  #: let in and not processed in this epoch, beyond what it worked off of earlier ones
    records_out: int  #: of a windowed aggregate only in epochs that closed a window
    groups: int  #: distinct groups of the epoch; 0 where the operator has none
    bytes_in: int
    bytes_out: int
    bytes_drained: int  #: of planned drain and of what was given up
    cpu_s: float


@dataclass(frozen=True, slots=True)
class EpochObservation:
    """One query in one epoch, after it has ended."""

    epoch_us: int  #: beginning of the epoch, microseconds since 1970
    epoch_s: float
    operators: tuple[OperatorEpoch, ...]  #: M of them, in the order of the chain
    budget_s: float  #: CPU seconds that this query's operators could have had
    used_s: float  #: CPU seconds that they took

    @property
    def n_records(self) -> int:
        """Records that came to the first proxy."""
        return self.operators[0].records_in if self.operators else 0

    @property
    def overflow(self) -> int:
        """Records that were let in and not processed, over all operators; those that wait included."""
        return sum(one.overflow for one in self.operators)

    @property
    def bytes_sent(self) -> int:
        """Bytes that left the source: drained, overflowing and put out by the last operator."""
        if not self.operators:
            return 0
        return sum(one.bytes_drained for one in self.operators) + self.operators[-1].bytes_out

    @property
    def idle_s(self) -> float:
        """Of the CPU time that it could have had, what it had no use for."""
        return max(self.budget_s - self.used_s, 0.0)
