"""Cases of the guard: a query's epochs at canary and control, and the spans of them that are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.rollouts.measures import EPOCH_US, EpochRow, Limits, Rows, Span

__all__ = [
    "ComparedSides",
    "GuardCase",
    "StageTerms",
    "WindowTimes",
    "compared_sides",
    "first_epochs",
    "judged_span",
    "query_case",
    "rows_within",
    "schedule_case",
]

SETTLE_EPOCHS = 5  # after a configuration was applied its load factors may still change
MIN_EPOCHS = 10  # on either side of a comparison
MIN_WINDOWS = 2  # whole windows, to know how much one differs from the next
KEPT_EPOCHS = 840  # fewer than are kept, with some to spare
STILL_EPOCHS = 30  # an agent without newer epochs is not waited for
BUDGET_CHANGE = 0.3  # of the budget of a query; beyond it epochs are not comparable
MIN_SWEEPS = 10  #: windows that have to close before a schedule is judged by them
_MAX_WINDOW_US = 120_000_000  # longer windows are not awaited whole: one more or less tells little
_MAX_AWAITED_EPOCHS = 300  # for windows to close; what is judged otherwise is known long before


class WindowTimes(NamedTuple):
    """Windows of a query, in microseconds; an epoch where it has none."""

    period_us: int  #: from one window to the next
    size_us: int  #: records of so long leave when a window closes
    phase_us: int  #: after a window's end, when all of its records have left

    @property
    def has_windows(self) -> bool:
        """Whether there are windows of more than an epoch."""
        return self.period_us > EPOCH_US


EPOCH_TIMES = WindowTimes(EPOCH_US, EPOCH_US, 0)


@dataclass(frozen=True, slots=True)
class StageTerms:
    """Terms of the present stage: the version on trial, the epochs it takes, and by how much it may be worse."""

    version: int
    min_epochs: int
    limits: Limits


@dataclass(frozen=True)
class GuardCase:
    """One query of a configuration on trial: epochs of the canary that has it, and of the control on the old one."""

    query: str
    version: int
    window_us: int  #: from one window to the next
    size_us: int  #: of a window: records of so long leave when it closes
    phase_us: int  #: after a window's end, when all of its records have left
    canary: Rows
    control: Rows
    min_epochs: int
    limits: Limits
    has_schedule: bool = False  #: the configuration changes how agents share their cores
    schedule_only: frozenset[str] = frozenset()  #: agents to which it gives nothing else for this query
    of_windows: bool = False  #: all queries of an agent together, judged by the latency of their windows
    min_sweeps: int = 0  #: windows that have to close for that

    def is_applied(self, agent: str, row: EpochRow) -> bool:
        """Whether an agent ran an epoch with the configuration."""
        adapts = agent in self.schedule_only or row.version == self.version
        return adapts and (not self.has_schedule or row.schedule_version == self.version)

    @property
    def needed_epochs(self) -> int:
        """Epochs that are judged at least: whole windows."""
        windows = -(-self.min_epochs * EPOCH_US // self.window_us)
        return max(MIN_WINDOWS if self.window_us > EPOCH_US else 1, windows) * self.window_us // EPOCH_US

    @property
    def max_epochs(self) -> int:
        """Epochs that can be judged: some are lost to aligning windows, and while older records leave."""
        return KEPT_EPOCHS - (self.window_us + self.size_us) // EPOCH_US

    @property
    def duration_epochs(self) -> int:
        """Epochs from the moment the configuration is applied until the case may be decided, at the least."""
        return SETTLE_EPOCHS + self.size_us // EPOCH_US + self.needed_epochs


@dataclass(frozen=True)
class ComparedSides:
    """Canary and control as they are compared; without `before` and `control` there is nothing to compare with."""

    canary: Rows
    control: Rows
    before: Span | None


def query_case(terms: StageTerms, query: str, times: WindowTimes) -> GuardCase:
    """The case of one query, without epochs yet. Windows too long for two of them to be kept are judged by epochs."""
    return _fitting(_case(terms, query, times))


def schedule_case(terms: StageTerms, agents: Iterable[str], times: Iterable[WindowTimes]) -> GuardCase:
    """The case of a schedule: all queries of each agent together, over enough epochs for windows to close.

    `times` are those of every query at every agent.
    """
    periods = [window for window in times if window.has_windows]
    awaited = [window for window in periods if window.period_us <= _MAX_WINDOW_US]
    case = _case(terms, "scheduling", max(awaited, default=EPOCH_TIMES))
    epochs_per_window = 1 / sum(EPOCH_US / window.period_us for window in periods) if periods else 0.0
    enough = min(math.ceil(MIN_SWEEPS * epochs_per_window), _MAX_AWAITED_EPOCHS)
    return _fitting(
        replace(
            case,
            min_epochs=max(case.min_epochs, enough),
            has_schedule=True,
            schedule_only=frozenset(agents),
            of_windows=True,
            min_sweeps=MIN_SWEEPS if periods else 0,
        )
    )


def _case(terms: StageTerms, query: str, times: WindowTimes) -> GuardCase:
    return GuardCase(query, terms.version, *times, {}, {}, terms.min_epochs, terms.limits)


def _fitting(case: GuardCase) -> GuardCase:
    if case.needed_epochs <= case.max_epochs:
        return case
    return replace(case, window_us=EPOCH_US, size_us=EPOCH_US, phase_us=0)


def first_epochs(case: GuardCase) -> dict[str, int]:
    """The start of each agent's first epoch with the configuration; agents without recent epochs are left out."""
    newest = max((rows[-1].epoch_us for rows in (*case.canary.values(), *case.control.values())), default=0)
    first_by_agent = {}
    for agent, rows in case.canary.items():
        first = next((row.epoch_us for row in rows if case.is_applied(agent, row)), None)
        # clock skew is corrected to the nearest whole window
        if first is not None and newest - rows[-1].epoch_us <= STILL_EPOCHS * EPOCH_US + case.window_us:
            first_by_agent[agent] = first
    return first_by_agent


def judged_span(case: GuardCase, applied: Mapping[str, int]) -> Span | None:
    """Whole windows since all canary agents applied the configuration and settled; None before there is one."""
    window = case.window_us
    since = max(_applied_without_break_since(case, agent) for agent in applied)
    begin = _aligned(since + SETTLE_EPOCHS * EPOCH_US, case)
    begin += case.size_us if window > EPOCH_US else 0  # records that leave before are older
    end = min(case.canary[agent][-1].epoch_us for agent in applied) + EPOCH_US
    whole = (end - begin) // window * window
    return (begin, begin + whole) if whole > 0 else None


def compared_sides(case: GuardCase, applied: Mapping[str, int], after: Span) -> ComparedSides:
    """Canary and control without agents whose budget changed meanwhile: that moves every measure.

    Where the budget changed for the whole canary, the configuration itself may be the cause (the budget of a query
    depends on what the agent spends on sending, and on what a busy host leaves to it): then the canary is compared with
    the control alone, not with its own past. Control agents whose configuration changed are left out too.
    """
    canary = {agent: case.canary[agent] for agent in applied}
    before = _baseline_span(case, canary, applied, after)
    meanwhile = {agent: rows for agent, rows in case.control.items() if _same_version(rows, after)}
    if before is None:
        return ComparedSides(canary, meanwhile, None)
    steady = {agent: rows for agent, rows in canary.items() if _same_budget(rows, before, after)}
    control = {
        agent: rows
        for agent, rows in case.control.items()
        if _same_budget(rows, before, after) and _same_version(rows, (before[0], after[1]))
    }
    return ComparedSides(steady, control, before) if steady else ComparedSides(canary, meanwhile, None)


def rows_within(rows: Sequence[EpochRow], span: Span) -> list[EpochRow]:
    """Rows of epochs that began in a span."""
    return [row for row in rows if span[0] <= row.epoch_us < span[1]]


def _baseline_span(case: GuardCase, canary: Rows, applied: Mapping[str, int], after: Span) -> Span | None:
    """As many whole windows before the first agent applied it, each agent with one configuration; None where these
    are too few to know how much they differ."""
    window, first = case.window_us, min(applied.values())
    end = _aligned(first, case)
    end -= window if end > first else 0
    known_since = max(_unchanged_since(canary[agent], since) for agent, since in applied.items())
    whole = min(after[1] - after[0], (end - known_since) // window * window)
    minimum = max(MIN_EPOCHS * EPOCH_US, MIN_WINDOWS * window)
    return (end - whole, end) if whole >= minimum else None


def _applied_without_break_since(case: GuardCase, agent: str) -> int:
    """Start of the last uninterrupted run of epochs with the configuration; settings by hand interrupt it."""
    rows = case.canary[agent]
    since = rows[-1].epoch_us + EPOCH_US
    for row in reversed(rows):
        if not case.is_applied(agent, row):
            break
        since = row.epoch_us
    return since


def _unchanged_since(rows: Sequence[EpochRow], applied_us: int) -> int:
    """Start of the run of epochs with the configuration that was in force before."""
    earlier = [row for row in rows if row.epoch_us < applied_us]
    since = applied_us
    for row in reversed(earlier):
        if _versions(row) != _versions(earlier[-1]):
            break
        since = row.epoch_us
    return since


def _aligned(at_us: int, case: GuardCase) -> int:
    """The next moment, not before `at_us`, farthest from where windows send their records."""
    phase = case.phase_us % case.window_us
    return -(-(at_us - phase) // case.window_us) * case.window_us + phase


def _same_version(rows: Sequence[EpochRow], span: Span) -> bool:
    return len({_versions(row) for row in rows_within(rows, span)}) <= 1


def _versions(row: EpochRow) -> tuple[int | None, int | None]:
    """Versions of the refined document and of the schedule in an epoch."""
    return row.version, row.schedule_version


def _same_budget(rows: Sequence[EpochRow], before: Span, after: Span) -> bool:
    had, has = ([row.budget_s for row in rows_within(rows, span)] for span in (before, after))
    if not had or not has:
        return True
    mean_had, mean_has = sum(had) / len(had), sum(has) / len(has)
    return abs(mean_has - mean_had) <= BUDGET_CHANGE * max(mean_had, mean_has)
