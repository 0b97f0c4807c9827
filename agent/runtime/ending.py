"""The end of one query's epoch: what it sends, what a restart needs of it, and how its next epoch runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agent.runtime.adapting import observation
from agent.runtime.chain import Chain
from agent.runtime.framing import Framer
from agent.runtime.memory import PlanNote
from agent.runtime.reporting import QueryReport
from agent.runtime.rows import epoch_row
from agent.runtime.windows import Closed
from agent.wire import FrameKind

__all__ = ["Ended", "adapt", "end_chain"]


@dataclass(frozen=True)
class Ended:
    """What a restart needs of a query after an epoch."""

    note: PlanNote
    delta: pa.Table | None  #: partial rows that the epoch added to open windows
    rows: list[pa.Table] | None  #: all of them; None where there are no windows


def end_chain(report: QueryReport, framer: Framer, epoch_us: int, checkpoint_share: float) -> Ended:
    """Frame what leaves the query's chain, and count it in the report."""
    chain = report.chain
    paths, closed, report.counts = chain.end_epoch(report.watermark_us, epoch_us)
    for k, tables in enumerate(paths):
        chain.checkpoints.sent(framer.tables(FrameKind.RECORDS, chain.query, chain.plan, k, tables))
    entry = max(len(chain.stages) - 1, 0)
    if closed.emitted is not None:
        chain.checkpoints.sent(framer.tables(FrameKind.PARTIALS, chain.query, chain.plan, entry, [closed.emitted]))
    if chain.windows is not None:
        bodies = chain.checkpoints.due(chain.windows, checkpoint_share)
        framer.checkpoint(chain.query, chain.plan, entry, bodies)
    framer.mark(chain.query, chain.plan, len(paths), report.watermark_us, final=False)
    rows = chain.windows.tables() if chain.windows is not None else None
    return Ended(_note(chain, entry, report.watermark_us, closed), closed.delta, rows)


def _note(chain: Chain, entry: int, watermark_us: int, closed: Closed) -> PlanNote:
    return PlanNote(
        query=chain.query,
        plan=chain.plan,
        paths=len(chain.stages) + 1,
        entry=entry,
        size_us=chain.windows.size_us if chain.windows is not None else None,
        watermark_us=watermark_us,
        restart=closed.restart,
        rows=closed.delta is not None,
    )


def adapt(report: QueryReport, epoch_us: int, epoch_s: float) -> dict[str, Any]:
    """Let the query's controller decide on the next epoch; the row of this one."""
    chain, version = report.chain, report.chain.adapting.version
    seen = observation(
        report.counts,
        chain.load_factors,
        epoch_us=epoch_us,
        epoch_s=epoch_s,
        budget_s=report.budget_ns / 1e9,
        used_s=report.used_ns / 1e9,
    )
    chain.adapting.epoch_over(seen, report.counts)
    return epoch_row(seen, report.counts, version)
