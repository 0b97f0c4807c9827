"""Guard of a rollout: compares canary and control, query by query. Epochs in, a verdict out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.rollouts.cases import (
    ComparedSides,
    GuardCase,
    compared_sides,
    first_epochs,
    judged_span,
    rows_within,
)
from engine.rollouts.measures import (
    EPOCH_US,
    IN_SECONDS,
    MEASURES,
    WINDOW_MEASURES,
    Measure,
    measure_query,
    measure_windows,
    windows_in,
)
from engine.solvers import solving
from engine.words import counted

__all__ = ["CaseVerdict", "GuardHealth", "StageVerdict", "judge_case", "judge_stage"]

MIN_RECORDS = 30
PATIENCE = 3  # times the needed epochs, while a measure may be worse by chance
_LABELS = {
    "overflow": "records overflowing",
    "bytes": "bytes sent per record",
    "latency": "delay",
    "cpu": "CPU time per record",
    "window": "mean window latency",
    "window_p99": "p99 of window latency",
    "queue": "time in queue",
}
_SCALES = {"overflow": (100, " %"), "cpu": (1e6, " µs"), **dict.fromkeys(IN_SECONDS, (1, " s"))}


class GuardHealth(StrEnum):
    """Health of a stage, by the guard."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    WORSE = "worse"


@dataclass(frozen=True)
class CaseVerdict:
    """Verdict on a query."""

    health: GuardHealth
    reasons: tuple[str, ...]
    measures: Mapping[str, Measure] = field(default_factory=dict)
    records: int = 0  #: judged
    epochs: int = 0  #: judged so far
    needed: int = 0
    control_agents: int = 0  #: that it was compared with
    windows: int = 0  #: that closed
    of_windows: bool = False  #: on all queries together, by their windows


@dataclass(frozen=True)
class StageFigure:
    """One measure of a stage, all queries together."""

    change: float
    uncertainty: float
    limit: float | None  #: None: it has none
    is_worse: bool
    is_doubtful: bool


@dataclass(frozen=True)
class StageVerdict:
    """Verdict on a stage, all of its cases together."""

    health: GuardHealth
    reasons: tuple[str, ...]
    figures: Mapping[str, StageFigure]  #: by measure
    epochs: int  #: judged so far
    needed: int
    control_agents: int
    windows: int
    measured_us: int | None  #: newest epoch of the canary

    @property
    def is_doubtful(self) -> bool:
        """Whether a measure is beyond its limit, for certain or perhaps by chance."""
        return any(figure.is_worse or figure.is_doubtful for figure in self.figures.values())


def judge_stage(cases: Sequence[GuardCase]) -> StageVerdict:
    """The verdict on a stage: worse where one case is, waiting where one waits, or where all have too few records."""
    solving()
    verdicts = [judge_case(case) for case in cases]
    health = GuardHealth.HEALTHY if any(verdict.records >= MIN_RECORDS for verdict in verdicts) else GuardHealth.WAITING
    for worst in (GuardHealth.WORSE, GuardHealth.WAITING):
        if any(verdict.health == worst for verdict in verdicts):
            health = worst
            break
    deciding = [verdict for verdict in verdicts if verdict.health == health] or verdicts
    return StageVerdict(
        health=health,
        reasons=tuple(reason for verdict in deciding for reason in verdict.reasons),
        figures=_stage_figures(verdicts),
        epochs=min((verdict.epochs for verdict in verdicts), default=0),
        needed=max((verdict.needed for verdict in verdicts), default=0),
        control_agents=max((verdict.control_agents for verdict in verdicts), default=0),
        windows=max((verdict.windows for verdict in verdicts), default=0),
        measured_us=max((rows[-1].epoch_us for case in cases for rows in case.canary.values()), default=None),
    )


def _stage_figures(verdicts: Sequence[CaseVerdict]) -> dict[str, StageFigure]:
    """Every measure over all queries together; of delays the one that grew most."""
    figures = {}
    for key in (*MEASURES, *WINDOW_MEASURES):
        weighed = [
            (verdict.measures[key], verdict.records)
            for verdict in verdicts
            if key in verdict.measures and verdict.of_windows == (key in WINDOW_MEASURES)
        ]
        if weighed:
            figures[key] = _weighed_figure(key, weighed)
    return figures


def _weighed_figure(key: str, weighed: Sequence[tuple[Measure, int]]) -> StageFigure:
    """Queries weigh by their expected totals: a change of many bytes counts for more than one of few."""
    worst = max((measure for measure, _ in weighed), key=lambda measure: measure.change)
    change, uncertainty = worst.change, worst.uncertainty
    weights = [measure.base * records for measure, records in weighed]
    if key not in IN_SECONDS and sum(weights) > 0:
        shares = [(measure, weight / sum(weights)) for (measure, _), weight in zip(weighed, weights, strict=True)]
        change = sum(share * measure.change for measure, share in shares)
        uncertainty = math.hypot(*(share * measure.uncertainty for measure, share in shares))
    return StageFigure(
        change=change,
        uncertainty=uncertainty,
        limit=None if math.isinf(worst.limit) else worst.limit,
        is_worse=any(measure.is_worse for measure, _ in weighed),
        is_doubtful=any(measure.is_doubtful for measure, _ in weighed),
    )


def judge_case(case: GuardCase) -> CaseVerdict:
    """The verdict on one query: whether the canary does as well as it would without the configuration."""
    applied = first_epochs(case)
    if not applied:
        return CaseVerdict(GuardHealth.WAITING, (f"{case.query}: no epoch with c-{case.version} yet",))
    after, needed = judged_span(case, applied), case.needed_epochs
    if after is None:
        return CaseVerdict(GuardHealth.WAITING, (_epochs_needed_text(case, needed),), needed=needed)
    sides, epochs = compared_sides(case, applied, after), (after[1] - after[0]) // EPOCH_US
    measures = (measure_windows if case.of_windows else measure_query)(
        sides.canary, sides.control, before=sides.before, after=after, window_us=case.window_us, limits=case.limits
    )
    windows = windows_in(sides.canary, after)
    records = sum(row.records_in for rows in sides.canary.values() for row in rows_within(rows, after))
    reasons: tuple[str, ...]
    if epochs < needed:
        health, reasons = GuardHealth.WAITING, (_epochs_needed_text(case, needed - epochs),)
    elif records < MIN_RECORDS:
        health, reasons = _verdict_on_few_records(case, records, epochs)
    else:
        health, reasons = _verdict(case, sides, measures, epochs)
        if health == GuardHealth.HEALTHY and case.of_windows:
            health, reasons = _verdict_on_windows(case, measures, windows, epochs)
    control = len(sides.control)
    return CaseVerdict(health, reasons, measures, records, epochs, needed, control, windows, case.of_windows)


def _epochs_needed_text(case: GuardCase, epochs: int) -> str:
    if case.window_us > EPOCH_US:
        return f"{case.query}: {epochs} more epochs are needed, in whole windows of {case.window_us / 1e6:g} s"
    return f"{case.query}: {epochs} more epochs are needed"


def _is_over(case: GuardCase, epochs: int) -> bool:
    """Whether the case has been watched for as long as a change within chance may be."""
    return epochs >= max(case.needed_epochs, min(PATIENCE * case.needed_epochs, case.max_epochs))


def _verdict_on_few_records(case: GuardCase, records: int, epochs: int) -> tuple[GuardHealth, tuple[str, ...]]:
    """A query with few records is awaited for a limited time: other queries may decide the stage."""
    reason = f"{case.query}: {records} records came; at least {MIN_RECORDS} are needed"
    return (GuardHealth.HEALTHY if _is_over(case, epochs) else GuardHealth.WAITING), (reason,)


def _verdict(
    case: GuardCase, sides: ComparedSides, measures: Mapping[str, Measure], epochs: int
) -> tuple[GuardHealth, tuple[str, ...]]:
    worse = [measure for measure in measures.values() if measure.is_worse]
    if worse:
        return GuardHealth.WORSE, tuple(_measure_text(case, sides, measure) for measure in worse)
    unsure = [measure for measure in measures.values() if measure.is_doubtful]
    if unsure:
        texts = tuple(f"{_measure_text(case, sides, measure)}; possibly {_chance_text(measure)}" for measure in unsure)
        if _is_over(case, epochs):
            return GuardHealth.HEALTHY, tuple(f"{text}, and passes after {epochs} epochs" for text in texts)
        return GuardHealth.WAITING, texts
    if len(measures) == 1 and case.control and not _is_over(case, epochs):
        return GuardHealth.WAITING, (f"{case.query}: no agent of the control can be compared yet",)
    if len(measures) == 1:
        return GuardHealth.HEALTHY, (f"{case.query}: nothing to compare with, and no record overflows",)
    return GuardHealth.HEALTHY, (f"{case.query}: no measure is beyond its limit after {epochs} epochs",)


def _verdict_on_windows(
    case: GuardCase, measures: Mapping[str, Measure], windows: int, epochs: int
) -> tuple[GuardHealth, tuple[str, ...]]:
    """Nothing is worse: healthy once enough windows have closed, or have been awaited long enough."""
    texts = [
        f"{_LABELS[key]} {_change_text(measure, *_SCALES[key])}"
        for key, measure in measures.items()
        if key in WINDOW_MEASURES and (key == "queue" or windows)
    ]
    figures = f": {'; '.join(texts)}" if texts else ""
    if windows >= case.min_sweeps:
        return GuardHealth.HEALTHY, (
            f"{case.query}: nothing is worse over {windows} windows in {epochs} epochs{figures}",
        )
    few = f"{case.query}: {windows} windows closed; at least {case.min_sweeps} are needed"
    if _is_over(case, epochs):
        return GuardHealth.HEALTHY, (f"{few}, and it passes after {epochs} epochs{figures}",)
    return GuardHealth.WAITING, (f"{few}{figures}",)


def _change_text(measure: Measure, scale: float, unit: str) -> str:
    before = f"{measure.before * scale:.4g} → " if measure.before is not None else ""
    return f"{before}{measure.after * scale:.4g}{unit}"


def _chance_text(measure: Measure) -> str:
    if measure.is_conclusive:
        return "by chance"
    if measure.key == "window_p99":
        return "by chance, with so few windows"
    return "because the host is busy, with too little to compare with"


def _measure_text(case: GuardCase, sides: ComparedSides, measure: Measure) -> str:
    """`s2s: bytes sent per record 92 → 127 at 2 agents, +38 ± 6 % (limit +5 %); …`"""
    scale, unit = _SCALES.get(measure.key, (1, ""))
    times, ending = {"overflow": (1, " points"), **dict.fromkeys(IN_SECONDS, (1, " s"))}.get(measure.key, (100, " %"))
    agents, control = len(sides.canary), len(sides.control)
    change = f"{_rounded_text(measure.change * times, 3, '+')}{_uncertainty_text(measure, times)}{ending}"
    text = (
        f"{case.query}: {_LABELS[measure.key]} {_change_text(measure, scale, unit)} at {counted(agents, 'agent')}, "
        f"{change} (limit {measure.limit * times:+.3g}{ending})"
    )
    if measure.control_before is not None and measure.control_after is not None:
        meanwhile = f"{measure.control_before * scale:.4g} → {measure.control_after * scale:.4g}{unit}"
        return f"{text}; control {meanwhile} at {control}"
    if measure.control_after is not None:
        return f"{text}; control {measure.control_after * scale:.4g}{unit} at {control}"
    return text


def _uncertainty_text(measure: Measure, times: float) -> str:
    """` ± 6`, the uncertainty of a change; empty where it rounds to zero."""
    text = _rounded_text(measure.uncertainty * times, 2)
    return f" ± {text}" if text != "0" else ""


def _rounded_text(number: float, digits: int, sign: str = "") -> str:
    """`+1030` rather than `+1.03e+03`: large numbers are whole."""
    return f"{number:{sign}.0f}" if abs(number) >= 10**digits else f"{number:{sign}.{digits}g}"
