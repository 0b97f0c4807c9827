"""The end of one query's epoch: what it sends, what a restart needs of it, and how its next epoch runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agent.runtime.adapting import observation
from agent.runtime.chain import Chain
from agent.runtime.framing import Framer
from agent.runtime.memory import Delta, PlanNote
from agent.runtime.reporting import QueryReport
from agent.runtime.rows import epoch_row
from agent.runtime.waiting import Item
from agent.wire import FrameKind

__all__ = ["Ended", "adapt", "end_chain"]


@dataclass(frozen=True)
class Ended:
    """What a restart needs of a query after an epoch."""

    note: PlanNote
    delta: Delta
    rows: list[pa.Table]  #: of open windows
    queue: tuple[Item, ...]  #: what waits


def end_chain(
    report: QueryReport, framer: Framer, epoch_us: int, checkpoint_share: float, delays: Mapping[str, Any]
) -> Ended:
    """Frame what leaves the query's chain, and count it in the report; `delays` of its streams go with the mark."""
    chain = report.chain
    paths, closed, report.counts = chain.end_epoch(epoch_us)
    for k, tables in enumerate(paths):
        chain.checkpoints.sent(framer.tables(FrameKind.RECORDS, chain.query, chain.plan, k, tables))
    if (other := chain.config.pipeline.other_entry) is not None:
        framer.tables(FrameKind.RECORDS, chain.query, chain.plan, other, chain.take_others())
    entry = max(len(chain.stages) - 1, 0)
    if closed.emitted is not None:
        chain.checkpoints.sent(framer.tables(FrameKind.PARTIALS, chain.query, chain.plan, entry, [closed.emitted]))
    if chain.windows is not None:
        bodies = chain.checkpoints.due(chain.windows, checkpoint_share)
        framer.checkpoint(chain.query, chain.plan, entry, bodies)
    framer.mark(chain.query, chain.plan, len(paths), chain.watermark_us, final=False, delays=delays)
    delta = Delta(closed.delta, chain.queue_change())
    rows = chain.windows.tables() if chain.windows is not None else []
    note = _note(chain, entry).anew(delta, restart=closed.restart)
    return Ended(note, delta, rows, chain.queue_items())


def _note(chain: Chain, entry: int) -> PlanNote:
    return PlanNote(
        query=chain.query,
        plan=chain.plan,
        paths=len(chain.stages) + 1,
        entry=entry,
        size_us=chain.windows.size_us if chain.windows is not None else None,
        watermark_us=chain.watermark_us,
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
