"""Which epochs of whom are compared: whole windows, before and after, of agents whose budget stayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.refinement.measuring import Limits, Rows, Span
from apps.refinement.recorded import EPOCH_US
from apps.telemetry.epochs import EpochRow

__all__ = ["Case", "Compared", "applied_since", "compared", "span_after", "within"]

SETTLE_EPOCHS = 5  # after a configuration was applied its load factors may still move
LEAST_EPOCHS = 10  # on either side of a comparison
LEAST_WINDOWS = 2  # whole windows, to know how much one differs from the next
KEPT_EPOCHS = 840  # are told of at the most, with some to spare
STILL_EPOCHS = 30  # an agent that tells of no newer epochs is not waited for
BUDGET_CHANGE = 0.3  # of the CPU time that a query could have had; beyond it epochs are not comparable


@dataclass(frozen=True)
class Case:
    """One query of a configuration that is being rolled out: epochs of those that have it, and of those on the old."""

    query: str
    version: int
    window_us: int  #: from one window to the next
    size_us: int  #: of a window: what leaves when it closes was gathered over so long
    phase_us: int  #: after a window's end, when nothing of it is on its way any more
    watched: Rows
    others: Rows
    least_epochs: int
    limits: Limits
    schedules: bool = False  #: it changes how agents share their cores
    schedule_only: frozenset[str] = frozenset()  #: agents to which it gives nothing else for this query
    of_windows: bool = False  #: it is all queries of an agent together, and how late their windows are that counts
    least_sweeps: int = 0  #: windows that have to close for that

    def has(self, agent: str, row: EpochRow) -> bool:
        """Whether an agent ran an epoch with the configuration."""
        adapts = agent in self.schedule_only or row.version == self.version
        return adapts and (not self.schedules or row.schedule_version == self.version)

    @property
    def needed(self) -> int:
        """Epochs that are judged at least: whole windows."""
        least = -(-self.least_epochs * EPOCH_US // self.window_us)
        return max(LEAST_WINDOWS if self.window_us > EPOCH_US else 1, least) * self.window_us // EPOCH_US

    @property
    def most(self) -> int:
        """Epochs that can be judged: some are left out where windows are placed, and while what was before leaves."""
        return KEPT_EPOCHS - (self.window_us + self.size_us) // EPOCH_US


@dataclass(frozen=True)
class Compared:
    """Who is compared, and with what; without `before` and `others` with nothing."""

    watched: Rows
    others: Rows
    before: Span | None


def applied_since(case: Case) -> dict[str, int]:
    """When each agent's first epoch with the configuration began, of those that still tell of epochs."""
    newest = max((rows[-1].epoch_us for rows in (*case.watched.values(), *case.others.values())), default=0)
    found = {}
    for agent, rows in case.watched.items():
        first = next((row.epoch_us for row in rows if case.has(agent, row)), None)
        # clocks are put right to the nearest whole window
        if first is not None and newest - rows[-1].epoch_us <= STILL_EPOCHS * EPOCH_US + case.window_us:
            found[agent] = first
    return found


def span_after(case: Case, applied: Mapping[str, int]) -> Span | None:
    """Whole windows since all of them had it and settled; None before there is one."""
    window = case.window_us
    since = max(_held_since(case, agent) for agent in applied)
    begin = _aligned(since + SETTLE_EPOCHS * EPOCH_US, case)
    begin += case.size_us if window > EPOCH_US else 0  # what leaves then was gathered before
    end = min(case.watched[agent][-1].epoch_us for agent in applied) + EPOCH_US
    whole = (end - begin) // window * window
    return (begin, begin + whole) if whole > 0 else None


def compared(case: Case, applied: Mapping[str, int], after: Span) -> Compared:
    """Agents whose CPU time changed meanwhile are left out: that moves every measure. Where it did for all that are
    watched, it may be the configuration's own doing (what a query could have had depends on what the agent spends on
    sending, and on what a busy machine lets it have): they are compared with the others meanwhile, not with themselves.
    Of the others, those are left out too whose own configuration changed."""
    watched = {agent: case.watched[agent] for agent in applied}
    before = _before(case, watched, applied, after)
    meanwhile = {agent: rows for agent, rows in case.others.items() if _same_version(rows, after)}
    if before is None:
        return Compared(watched, meanwhile, None)
    steady = {agent: rows for agent, rows in watched.items() if _same_budget(rows, before, after)}
    others = {
        agent: rows
        for agent, rows in case.others.items()
        if _same_budget(rows, before, after) and _same_version(rows, (before[0], after[1]))
    }
    return Compared(steady, others, before) if steady else Compared(watched, meanwhile, None)


def within(rows: Sequence[EpochRow], span: Span) -> list[EpochRow]:
    """Rows of epochs that began in a span."""
    return [row for row in rows if span[0] <= row.epoch_us < span[1]]


def _before(case: Case, watched: Rows, applied: Mapping[str, int], after: Span) -> Span | None:
    """As many whole windows before the first of them had it, as far as each ran with one configuration; None where
    that is too little to know how much they differ."""
    window, first = case.window_us, min(applied.values())
    end = _aligned(first, case)
    end -= window if end > first else 0
    known = max(_unchanged_since(watched[agent], since) for agent, since in applied.items())
    whole = min(after[1] - after[0], (end - known) // window * window)
    least = max(LEAST_EPOCHS * EPOCH_US, LEAST_WINDOWS * window)
    return (end - whole, end) if whole >= least else None


def _held_since(case: Case, agent: str) -> int:
    """Since when an agent has had the configuration without a break, such as by being set by hand for a while."""
    rows = case.watched[agent]
    since = rows[-1].epoch_us + EPOCH_US
    for row in reversed(rows):
        if not case.has(agent, row):
            break
        since = row.epoch_us
    return since


def _unchanged_since(rows: Sequence[EpochRow], applied_us: int) -> int:
    """Since when an agent had what it had before it applied the configuration."""
    earlier = [row for row in rows if row.epoch_us < applied_us]
    since = applied_us
    for row in reversed(earlier):
        if _held(row) != _held(earlier[-1]):
            break
        since = row.epoch_us
    return since


def _aligned(at_us: int, case: Case) -> int:
    """The next moment, not before `at_us`, that lies as far as can be from where windows send what they hold."""
    phase = case.phase_us % case.window_us
    return -(-(at_us - phase) // case.window_us) * case.window_us + phase


def _same_version(rows: Sequence[EpochRow], span: Span) -> bool:
    return len({_held(row) for row in within(rows, span)}) <= 1


def _held(row: EpochRow) -> tuple[int | None, int | None]:
    """What configured an epoch."""
    return row.version, row.schedule_version


def _same_budget(rows: Sequence[EpochRow], before: Span, after: Span) -> bool:
    had, has = ([row.budget_s for row in within(rows, span)] for span in (before, after))
    if not had or not has:
        return True
    mean_had, mean_has = sum(had) / len(had), sum(has) / len(has)
    return abs(mean_has - mean_had) <= BUDGET_CHANGE * max(mean_had, mean_has)
