"""The guard of a rollout: whether a stage does well, in one query after the other. Pure: epochs in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from apps.refinement.measuring import IN_SECONDS, Measure, measure
from apps.refinement.measuring_windows import WINDOW_MEASURES, measure_windows, windows_in
from apps.refinement.recorded import EPOCH_US
from apps.refinement.spans import Case, Compared, applied_since, compared, span_after, within

__all__ = ["LEAST_RECORDS", "CaseVerdict", "Health", "judge_case"]

LEAST_RECORDS = 30
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


class Health(StrEnum):
    """What the guard says."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    WORSE = "worse"


@dataclass(frozen=True)
class CaseVerdict:
    """What is to be said of a query."""

    health: Health
    reasons: tuple[str, ...]
    measures: Mapping[str, Measure] = field(default_factory=dict)
    records: int = 0  #: judged
    epochs: int = 0  #: judged so far
    needed: int = 0
    others: int = 0  #: agents that it was compared with
    windows: int = 0  #: that closed
    of_windows: bool = False  #: it is said of all queries together, by their windows


def judge_case(case: Case) -> CaseVerdict:
    """Whether the agents that have the configuration do as well as they would without it."""
    applied = applied_since(case)
    if not applied:
        return CaseVerdict(Health.WAITING, (f"{case.query}: no epoch with c-{case.version} yet",))
    after, needed = span_after(case, applied), case.needed
    if after is None:
        return CaseVerdict(Health.WAITING, (_more(case, needed),), needed=needed)
    sides, epochs = compared(case, applied, after), (after[1] - after[0]) // EPOCH_US
    measures = (measure_windows if case.of_windows else measure)(
        sides.watched, sides.others, before=sides.before, after=after, window_us=case.window_us, limits=case.limits
    )
    windows = windows_in(sides.watched, after)
    records = sum(row.records_in for rows in sides.watched.values() for row in within(rows, after))
    if epochs < needed:
        health, reasons = Health.WAITING, (_more(case, needed - epochs),)
    elif records < LEAST_RECORDS:
        health, reasons = _quiet(case, records, epochs)
    else:
        health, reasons = _verdict(case, sides, measures, epochs)
        if health == Health.HEALTHY and case.of_windows:
            health, reasons = _by_windows(case, measures, windows, epochs)
    others = len(sides.others)
    return CaseVerdict(health, reasons, measures, records, epochs, needed, others, windows, case.of_windows)


def _more(case: Case, epochs: int) -> str:
    whole = f", in whole windows of {case.window_us / 1e6:g} s" if case.window_us > EPOCH_US else ""
    return f"{case.query}: {epochs} more epochs are needed{whole}"


def _is_over(case: Case, epochs: int) -> bool:
    """Whether it has been watched for as long as what may be chance is."""
    return epochs >= max(case.needed, min(PATIENCE * case.needed, case.most))


def _quiet(case: Case, records: int, epochs: int) -> tuple[Health, tuple[str, ...]]:
    """A query in which hardly anything happens is not waited for without end, where there are others to judge by."""
    reason = f"{case.query}: {records} records came; {LEAST_RECORDS} are the least that is judged"
    return (Health.HEALTHY if _is_over(case, epochs) else Health.WAITING), (reason,)


def _verdict(
    case: Case, sides: Compared, measures: Mapping[str, Measure], epochs: int
) -> tuple[Health, tuple[str, ...]]:
    worse = [one for one in measures.values() if one.worse]
    if worse:
        return Health.WORSE, tuple(_told(case, sides, one) for one in worse)
    unsure = [one for one in measures.values() if one.unsure]
    if unsure:
        ending = f", and is let pass after {epochs} epochs" if _is_over(case, epochs) else ""
        told = tuple(f"{_told(case, sides, one)}; that may be {_doubt(one)}{ending}" for one in unsure)
        return (Health.HEALTHY if _is_over(case, epochs) else Health.WAITING), told
    if len(measures) == 1 and case.others and not _is_over(case, epochs):
        return Health.WAITING, (f"{case.query}: none of those without it can be compared yet",)
    if len(measures) == 1:
        return Health.HEALTHY, (f"{case.query}: there is nothing to compare with, and no record overflows",)
    return Health.HEALTHY, (f"{case.query}: no measure is beyond its limit after {epochs} epochs",)


def _by_windows(
    case: Case, measures: Mapping[str, Measure], windows: int, epochs: int
) -> tuple[Health, tuple[str, ...]]:
    """Nothing is worse: with the figures of it, where enough windows have closed, or have been waited for."""
    told = [
        f"{_LABELS[key]} {_moved(one, *_SCALES[key])}"
        for key, one in measures.items()
        if key in WINDOW_MEASURES and (key == "queue" or windows)
    ]
    figures = f": {'; '.join(told)}" if told else ""
    if windows >= case.least_sweeps:
        return Health.HEALTHY, (f"{case.query}: nothing is worse over {windows} windows in {epochs} epochs{figures}",)
    few = f"{case.query}: {windows} windows closed; {case.least_sweeps} are the least that is judged"
    if _is_over(case, epochs):
        return Health.HEALTHY, (f"{few}, and it is let pass after {epochs} epochs{figures}",)
    return Health.WAITING, (f"{few}{figures}",)


def _moved(one: Measure, scale: float, unit: str) -> str:
    before = f"{one.before * scale:.4g} → " if one.before is not None else ""
    return f"{before}{one.after * scale:.4g}{unit}"


def _doubt(one: Measure) -> str:
    if one.tells:
        return "chance"
    return (
        "chance, of so few windows"
        if one.key == "window_p99"
        else "a busy host's doing, with too little to compare with"
    )


def _told(case: Case, sides: Compared, one: Measure) -> str:
    """`s2s: bytes sent per record 92 → 127 at 2 agents, +38 ± 6 % (limit +5 %); …`"""
    scale, unit = _SCALES.get(one.key, (1, ""))
    times, ending = {"overflow": (1, " points"), **dict.fromkeys(IN_SECONDS, (1, " s"))}.get(one.key, (100, " %"))
    agents, others = len(sides.watched), len(sides.others)
    text = (
        f"{case.query}: {_LABELS[one.key]} {_moved(one, scale, unit)} at {agents} "
        f"agent{'s' if agents != 1 else ''}, {_in_digits(one.change * times, 3, '+')}{_chance(one, times)}{ending} "
        f"(limit {one.limit * times:+.3g}{ending})"
    )
    if one.others_before is not None and one.others_after is not None:
        meanwhile = f"{one.others_before * scale:.4g} → {one.others_after * scale:.4g}{unit}"
        return f"{text}; {others} without it {meanwhile} meanwhile"
    if one.others_after is not None:
        return f"{text}; without it {one.others_after * scale:.4g}{unit} at {others}"
    return text


def _chance(one: Measure, times: float) -> str:
    """` ± 6`, by which a change is not known; nothing where that is nothing."""
    text = _in_digits(one.uncertainty * times, 2)
    return f" ± {text}" if text != "0" else ""


def _in_digits(number: float, digits: int, sign: str = "") -> str:
    """`+1030` rather than `+1.03e+03`: what is larger is told in whole numbers."""
    return f"{number:{sign}.0f}" if abs(number) >= 10**digits else f"{number:{sign}.{digits}g}"
