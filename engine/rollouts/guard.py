"""Guard of a rollout: compares canary and control, query by query. Epochs in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.rollouts.epochs import EPOCH_US, EpochRow
from engine.rollouts.measures import (
    IN_SECONDS,
    WINDOW_MEASURES,
    Limits,
    Measure,
    Rows,
    Span,
    measure_query,
    measure_windows,
    windows_in,
)

__all__ = [
    "MIN_RECORDS",
    "CaseVerdict",
    "ComparedSides",
    "GuardCase",
    "GuardHealth",
    "compared_sides",
    "first_epochs",
    "judge_case",
    "judged_span",
    "rows_within",
]


SETTLE_EPOCHS = 5  # after a configuration was applied its load factors may still move
MIN_EPOCHS = 10  # on either side of a comparison
MIN_WINDOWS = 2  # whole windows, to know how much one differs from the next
KEPT_EPOCHS = 840  # are told of at the most, with some to spare
STILL_EPOCHS = 30  # an agent that tells of no newer epochs is not waited for
BUDGET_CHANGE = 0.3  # of the CPU time that a query could have had; beyond it epochs are not comparable


@dataclass(frozen=True)
class GuardCase:
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
        return max(MIN_WINDOWS if self.window_us > EPOCH_US else 1, least) * self.window_us // EPOCH_US

    @property
    def most(self) -> int:
        """Epochs that can be judged: some are left out where windows are placed, and while what was before leaves."""
        return KEPT_EPOCHS - (self.window_us + self.size_us) // EPOCH_US


@dataclass(frozen=True)
class ComparedSides:
    """Who is compared, and with what; without `before` and `others` with nothing."""

    watched: Rows
    others: Rows
    before: Span | None


def first_epochs(case: GuardCase) -> dict[str, int]:
    """When each agent's first epoch with the configuration began, of those that still tell of epochs."""
    newest = max((rows[-1].epoch_us for rows in (*case.watched.values(), *case.others.values())), default=0)
    found = {}
    for agent, rows in case.watched.items():
        first = next((row.epoch_us for row in rows if case.has(agent, row)), None)
        # clocks are put right to the nearest whole window
        if first is not None and newest - rows[-1].epoch_us <= STILL_EPOCHS * EPOCH_US + case.window_us:
            found[agent] = first
    return found


def judged_span(case: GuardCase, applied: Mapping[str, int]) -> Span | None:
    """Whole windows since all of them had it and settled; None before there is one."""
    window = case.window_us
    since = max(_applied_without_break_since(case, agent) for agent in applied)
    begin = _aligned(since + SETTLE_EPOCHS * EPOCH_US, case)
    begin += case.size_us if window > EPOCH_US else 0  # what leaves then was gathered before
    end = min(case.watched[agent][-1].epoch_us for agent in applied) + EPOCH_US
    whole = (end - begin) // window * window
    return (begin, begin + whole) if whole > 0 else None


def compared_sides(case: GuardCase, applied: Mapping[str, int], after: Span) -> ComparedSides:
    """Agents whose CPU time changed meanwhile are left out: that moves every measure. Where it did for all that are
    watched, it may be the configuration's own doing (what a query could have had depends on what the agent spends on
    sending, and on what a busy machine lets it have): they are compared with the others meanwhile, not with themselves.
    Of the others, those are left out too whose own configuration changed."""
    watched = {agent: case.watched[agent] for agent in applied}
    before = _baseline_span(case, watched, applied, after)
    meanwhile = {agent: rows for agent, rows in case.others.items() if _same_version(rows, after)}
    if before is None:
        return ComparedSides(watched, meanwhile, None)
    steady = {agent: rows for agent, rows in watched.items() if _same_budget(rows, before, after)}
    others = {
        agent: rows
        for agent, rows in case.others.items()
        if _same_budget(rows, before, after) and _same_version(rows, (before[0], after[1]))
    }
    return ComparedSides(steady, others, before) if steady else ComparedSides(watched, meanwhile, None)


def rows_within(rows: Sequence[EpochRow], span: Span) -> list[EpochRow]:
    """Rows of epochs that began in a span."""
    return [row for row in rows if span[0] <= row.epoch_us < span[1]]


def _baseline_span(case: GuardCase, watched: Rows, applied: Mapping[str, int], after: Span) -> Span | None:
    """As many whole windows before the first of them had it, as far as each ran with one configuration; None where
    that is too little to know how much they differ."""
    window, first = case.window_us, min(applied.values())
    end = _aligned(first, case)
    end -= window if end > first else 0
    known = max(_unchanged_since(watched[agent], since) for agent, since in applied.items())
    whole = min(after[1] - after[0], (end - known) // window * window)
    least = max(MIN_EPOCHS * EPOCH_US, MIN_WINDOWS * window)
    return (end - whole, end) if whole >= least else None


def _applied_without_break_since(case: GuardCase, agent: str) -> int:
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
        if _versions(row) != _versions(earlier[-1]):
            break
        since = row.epoch_us
    return since


def _aligned(at_us: int, case: GuardCase) -> int:
    """The next moment, not before `at_us`, that lies as far as can be from where windows send what they hold."""
    phase = case.phase_us % case.window_us
    return -(-(at_us - phase) // case.window_us) * case.window_us + phase


def _same_version(rows: Sequence[EpochRow], span: Span) -> bool:
    return len({_versions(row) for row in rows_within(rows, span)}) <= 1


def _versions(row: EpochRow) -> tuple[int | None, int | None]:
    """What configured an epoch."""
    return row.version, row.schedule_version


def _same_budget(rows: Sequence[EpochRow], before: Span, after: Span) -> bool:
    had, has = ([row.budget_s for row in rows_within(rows, span)] for span in (before, after))
    if not had or not has:
        return True
    mean_had, mean_has = sum(had) / len(had), sum(has) / len(has)
    return abs(mean_has - mean_had) <= BUDGET_CHANGE * max(mean_had, mean_has)


MIN_RECORDS = 30
PATIENCE = 3  # times the least epochs, while what is worse may be so by chance
_LABELS = {
    "overflow": "records overflowing",
    "bytes": "bytes sent per record",
    "latency": "delay",
    "cpu": "CPU time per record",
    "window": "mean latency of windows",
    "window_p99": "99 % quantile of the latency of windows",
    "queue": "records waiting, in seconds of their arrival,",
}
_SCALES = {"overflow": (100, " %"), "cpu": (1e6, " µs"), **dict.fromkeys(IN_SECONDS, (1, " s"))}


class GuardHealth(StrEnum):
    """What the guard says."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    WORSE = "worse"


@dataclass(frozen=True)
class CaseVerdict:
    """What is to be said of a query."""

    health: GuardHealth
    reasons: tuple[str, ...]
    measures: Mapping[str, Measure] = field(default_factory=dict)
    records: int = 0  #: judged
    epochs: int = 0  #: judged so far
    needed: int = 0
    others: int = 0  #: agents that it was compared with
    windows: int = 0  #: that closed
    of_windows: bool = False  #: it is said of all queries together, by their windows


def judge_case(case: GuardCase) -> CaseVerdict:
    """Whether the agents that have the configuration do as well as they would without it."""
    applied = first_epochs(case)
    if not applied:
        return CaseVerdict(GuardHealth.WAITING, (f"{case.query}: no epoch with c-{case.version} yet",))
    after, needed = judged_span(case, applied), case.needed
    if after is None:
        return CaseVerdict(GuardHealth.WAITING, (_epochs_needed_text(case, needed),), needed=needed)
    sides, epochs = compared_sides(case, applied, after), (after[1] - after[0]) // EPOCH_US
    measures = (measure_windows if case.of_windows else measure_query)(
        sides.watched, sides.others, before=sides.before, after=after, window_us=case.window_us, limits=case.limits
    )
    windows = windows_in(sides.watched, after)
    records = sum(row.records_in for rows in sides.watched.values() for row in rows_within(rows, after))
    if epochs < needed:
        health, reasons = GuardHealth.WAITING, (_epochs_needed_text(case, needed - epochs),)
    elif records < MIN_RECORDS:
        health, reasons = _verdict_on_few_records(case, records, epochs)
    else:
        health, reasons = _verdict(case, sides, measures, epochs)
        if health == GuardHealth.HEALTHY and case.of_windows:
            health, reasons = _verdict_on_windows(case, measures, windows, epochs)
    others = len(sides.others)
    return CaseVerdict(health, reasons, measures, records, epochs, needed, others, windows, case.of_windows)


def _epochs_needed_text(case: GuardCase, epochs: int) -> str:
    whole = f", in whole windows of {case.window_us / 1e6:g} s" if case.window_us > EPOCH_US else ""
    return f"{case.query}: {epochs} more epochs are needed{whole}"


def _is_over(case: GuardCase, epochs: int) -> bool:
    """Whether it has been watched for as long as what may be chance is."""
    return epochs >= max(case.needed, min(PATIENCE * case.needed, case.most))


def _verdict_on_few_records(case: GuardCase, records: int, epochs: int) -> tuple[GuardHealth, tuple[str, ...]]:
    """A query in which hardly anything happens is not waited for without end, where there are others to judge by."""
    reason = f"{case.query}: {records} records came; {MIN_RECORDS} are the least that is judged"
    return (GuardHealth.HEALTHY if _is_over(case, epochs) else GuardHealth.WAITING), (reason,)


def _verdict(
    case: GuardCase, sides: ComparedSides, measures: Mapping[str, Measure], epochs: int
) -> tuple[GuardHealth, tuple[str, ...]]:
    worse = [one for one in measures.values() if one.worse]
    if worse:
        return GuardHealth.WORSE, tuple(_measure_text(case, sides, one) for one in worse)
    unsure = [one for one in measures.values() if one.unsure]
    if unsure:
        ending = f", and is let pass after {epochs} epochs" if _is_over(case, epochs) else ""
        told = tuple(f"{_measure_text(case, sides, one)}; that may be {_chance_text(one)}{ending}" for one in unsure)
        return (GuardHealth.HEALTHY if _is_over(case, epochs) else GuardHealth.WAITING), told
    if len(measures) == 1 and case.others and not _is_over(case, epochs):
        return GuardHealth.WAITING, (f"{case.query}: none of those without it can be compared yet",)
    if len(measures) == 1:
        return GuardHealth.HEALTHY, (f"{case.query}: there is nothing to compare with, and no record overflows",)
    return GuardHealth.HEALTHY, (f"{case.query}: no measure is beyond its limit after {epochs} epochs",)


def _verdict_on_windows(
    case: GuardCase, measures: Mapping[str, Measure], windows: int, epochs: int
) -> tuple[GuardHealth, tuple[str, ...]]:
    """Nothing is worse: with the figures of it, where enough windows have closed, or have been waited for."""
    told = [
        f"{_LABELS[key]} {_change_text(one, *_SCALES[key])}"
        for key, one in measures.items()
        if key in WINDOW_MEASURES and (key == "queue" or windows)
    ]
    figures = f": {'; '.join(told)}" if told else ""
    if windows >= case.least_sweeps:
        return GuardHealth.HEALTHY, (
            f"{case.query}: nothing is worse over {windows} windows in {epochs} epochs{figures}",
        )
    few = f"{case.query}: {windows} windows closed; {case.least_sweeps} are the least that is judged"
    if _is_over(case, epochs):
        return GuardHealth.HEALTHY, (f"{few}, and it is let pass after {epochs} epochs{figures}",)
    return GuardHealth.WAITING, (f"{few}{figures}",)


def _change_text(one: Measure, scale: float, unit: str) -> str:
    before = f"{one.before * scale:.4g} → " if one.before is not None else ""
    return f"{before}{one.after * scale:.4g}{unit}"


def _chance_text(one: Measure) -> str:
    if one.tells:
        return "chance"
    return (
        "chance, of so few windows"
        if one.key == "window_p99"
        else "a busy host's doing, with too little to compare with"
    )


def _measure_text(case: GuardCase, sides: ComparedSides, one: Measure) -> str:
    """`s2s: bytes sent per record 92 → 127 at 2 agents, +38 ± 6 % (limit +5 %); …`"""
    scale, unit = _SCALES.get(one.key, (1, ""))
    times, ending = {"overflow": (1, " points"), **dict.fromkeys(IN_SECONDS, (1, " s"))}.get(one.key, (100, " %"))
    agents, others = len(sides.watched), len(sides.others)
    text = (
        f"{case.query}: {_LABELS[one.key]} {_change_text(one, scale, unit)} at {agents} "
        f"agent{'s' if agents != 1 else ''}, {_rounded_text(one.change * times, 3, '+')}{_uncertainty_text(one, times)}{ending} "
        f"(limit {one.limit * times:+.3g}{ending})"
    )
    if one.others_before is not None and one.others_after is not None:
        meanwhile = f"{one.others_before * scale:.4g} → {one.others_after * scale:.4g}{unit}"
        return f"{text}; {others} without it {meanwhile} meanwhile"
    if one.others_after is not None:
        return f"{text}; without it {one.others_after * scale:.4g}{unit} at {others}"
    return text


def _uncertainty_text(one: Measure, times: float) -> str:
    """` ± 6`, by which a change is not known; nothing where that is nothing."""
    text = _rounded_text(one.uncertainty * times, 2)
    return f" ± {text}" if text != "0" else ""


def _rounded_text(number: float, digits: int, sign: str = "") -> str:
    """`+1030` rather than `+1.03e+03`: what is larger is told in whole numbers."""
    return f"{number:{sign}.0f}" if abs(number) >= 10**digits else f"{number:{sign}.{digits}g}"
