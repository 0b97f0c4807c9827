"""How long records may wait for their operators, and how many: what is above it goes on to the stream processor."""

from __future__ import annotations

from collections.abc import Sequence

from agent.runtime.chain import Chain
from engine.klink.settings import ScheduleSettings

__all__ = ["QUEUED_SHARE", "give_up"]

QUEUED_SHARE = 1 / 2  # of what an epoch may take in; sources have the rest, or live ones would lose records


def give_up(chains: Sequence[Chain], schedule: ScheduleSettings, *, until_us: int, most_bytes: float) -> None:
    """At an epoch's end: what would have waited too long by the next one's, then the oldest of what is too much.

    So no record waits for longer than the query's backlog limit, and with a limit below an epoch none outlives one.
    """
    for chain in chains:
        chain.give_up_inner()
        period_s = chain.period_us / 1e6 if chain.period_us is not None else None
        chain.give_up_older(until_us - int(schedule.backlog_s(period_s) * 1e6))
    while sum(chain.queued_bytes for chain in chains) > most_bytes:
        waiting = (chain for chain in chains if chain.arrived_us is not None)
        min(waiting, key=lambda one: one.arrived_us or 0).give_up_first()
