"""How long a run of an operator is, given what it and the operators behind it cost."""

from __future__ import annotations

from collections.abc import Sequence

from agent.runtime.cpu import records_within
from agent.runtime.proxy import Counts
from agent.runtime.stage import Stage

__all__ = ["doubt", "run_of"]

LONG_RUN_NS = 30_000_000  # of a run with all that follows from it, by which a turn may be exceeded


def run_of(stages: Sequence[Stage], stage: Stage, left_ns: float) -> int:
    """Records for the operator's next run: no more than it and those behind it are done with in the time left.

    What is begun and not done by the epoch's end goes on unprocessed, and was begun in vain. Nor are they more than
    take some time in all, unless they are few.
    """
    fixed_ns, record_ns, share = 0.0, 0.0, 1.0
    for one in stages[stages.index(stage) :]:
        fixed, per_record = one.cost.believed()
        fixed_ns, record_ns, share = fixed_ns + fixed, record_ns + share * per_record, share * one.selectivity
    most = max(records_within(LONG_RUN_NS, fixed_ns, record_ns), stage.cost.worth_a_run())
    fitting = min(stage.cost.records_within(left_ns), records_within(left_ns, fixed_ns, record_ns))
    return min(stage.waiting, fitting, most)


def doubt(stages: Sequence[Stage], counts: Sequence[Counts]) -> None:
    """After an epoch: where an operator did nothing though records waited, it or one behind it was thought too dear."""
    waited = False
    for stage, counted in zip(stages, counts, strict=True):
        waited = waited or counted.records_overflow > 0 or counted.records_queued > 0
        if waited and not counted.records_processed:
            stage.cost.doubt()
