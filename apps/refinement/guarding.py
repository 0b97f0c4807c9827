"""The guard of a rollout: whether a stage does well, in one query after the other. Pure: epochs in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from apps.refinement.measuring import Limits, Measure, Span, measure
from apps.refinement.recorded import EPOCH_US
from apps.telemetry.epochs import EpochRow

__all__ = ["Case", "CaseVerdict", "Health", "judge_case"]

SETTLE_EPOCHS = 5  # after a configuration was applied its load factors may still move
LEAST_EPOCHS = 10  # on either side of a comparison
LEAST_WINDOWS = 2  # whole windows, to know how much one differs from the next
LEAST_RECORDS = 30
PATIENCE = 3  # times the least epochs, while what is worse may be so by chance


class Health(StrEnum):
    """What the guard says."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    WORSE = "worse"


@dataclass(frozen=True)
class Case:
    """One query of a configuration that is being rolled out: epochs of those that have it, and of those on the old."""

    query: str
    version: int
    window_us: int  #: from one window to the next
    size_us: int  #: of a window: what leaves when it closes was gathered over so long
    phase_us: int  #: after a window's end, when nothing of it is on its way any more
    watched: Mapping[str, Sequence[EpochRow]]
    others: Mapping[str, Sequence[EpochRow]]
    least_epochs: int
    limits: Limits


@dataclass(frozen=True)
class CaseVerdict:
    """What is to be said of a query."""

    health: Health
    reasons: tuple[str, ...]
    measures: Mapping[str, Measure] = field(default_factory=dict)
    records: int = 0  #: judged
    epochs: int = 0  #: judged so far
    needed: int = 0


def judge_case(case: Case) -> CaseVerdict:
    """Whether the agents that have the configuration do as well as they would without it."""
    applied = _applied(case)
    if not applied:
        return CaseVerdict(Health.WAITING, (f"{case.query}: no epoch with c-{case.version} yet",))
    watched = {agent: case.watched[agent] for agent in applied}
    after, needed = _after(case, watched, max(applied.values()))
    if after is None:
        return CaseVerdict(Health.WAITING, (_more(case, needed),), needed=needed)
    epochs = (after[1] - after[0]) // EPOCH_US
    records = sum(row.records_in for rows in watched.values() for row in rows if after[0] <= row.epoch_us < after[1])
    before = _before(case, watched, min(applied.values()), after)
    measures = measure(watched, case.others, before=before, after=after, window_us=case.window_us, limits=case.limits)
    if epochs < needed:
        return CaseVerdict(Health.WAITING, (_more(case, needed - epochs),), measures, records, epochs, needed)
    if records < LEAST_RECORDS:
        return CaseVerdict(*_quiet(case, records, epochs, needed), records=records, epochs=epochs, needed=needed)
    health, reasons = _verdict(case, measures, epochs, needed, len(applied))
    return CaseVerdict(health, reasons, measures, records, epochs, needed)


def _quiet(case: Case, records: int, epochs: int, needed: int) -> tuple[Health, tuple[str, ...]]:
    """A query in which hardly anything happens is not waited for without end, where there are others to judge by."""
    reason = f"{case.query}: {records} records came; {LEAST_RECORDS} are the least that is judged"
    return (Health.WAITING if epochs < PATIENCE * needed else Health.HEALTHY), (reason,)


def _applied(case: Case) -> dict[str, int]:
    """When each agent's first epoch with the configuration began."""
    found = {}
    for agent, rows in case.watched.items():
        first = next((row.epoch_us for row in rows if row.version == case.version), None)
        if first is not None:
            found[agent] = first
    return found


def _after(case: Case, watched: Mapping[str, Sequence[EpochRow]], applied_us: int) -> tuple[Span | None, int]:
    """Whole windows since all of them had it and settled, and how many epochs are needed."""
    window, least = case.window_us, case.least_epochs * EPOCH_US
    windows = max(LEAST_WINDOWS if window > EPOCH_US else 1, -(-least // window))
    needed = windows * window // EPOCH_US
    begin = _aligned(applied_us + SETTLE_EPOCHS * EPOCH_US, case) + (case.size_us if window > EPOCH_US else 0)
    end = min(rows[-1].epoch_us for rows in watched.values()) + EPOCH_US
    whole = (end - begin) // window * window
    return ((begin, begin + whole) if whole > 0 else None), needed


def _before(case: Case, watched: Mapping[str, Sequence[EpochRow]], applied_us: int, after: Span) -> Span | None:
    """As many whole windows before the first of them had it, as far as is recorded; None where that is too little."""
    window = case.window_us
    end = _aligned(applied_us, case) - (window if _aligned(applied_us, case) > applied_us else 0)
    known = max(rows[0].epoch_us for rows in watched.values())
    whole = min(after[1] - after[0], (end - known) // window * window)
    return (end - whole, end) if whole >= LEAST_EPOCHS * EPOCH_US else None


def _aligned(at_us: int, case: Case) -> int:
    """The next moment, not before `at_us`, that lies as far as can be from where windows send what they hold."""
    phase = case.phase_us % case.window_us
    return -(-(at_us - phase) // case.window_us) * case.window_us + phase


def _more(case: Case, epochs: int) -> str:
    whole = f", in whole windows of {case.window_us / 1e6:g} s" if case.window_us > EPOCH_US else ""
    return f"{case.query}: {epochs} more epochs are needed{whole}"


def _verdict(
    case: Case, measures: Mapping[str, Measure], epochs: int, needed: int, agents: int
) -> tuple[Health, tuple[str, ...]]:
    worse = [one for one in measures.values() if one.worse]
    if worse:
        return Health.WORSE, tuple(_told(case, one, agents) for one in worse)
    unsure = [one for one in measures.values() if one.unsure]
    if unsure and epochs < PATIENCE * needed:
        return Health.WAITING, tuple(f"{_told(case, one, agents)}; that may be chance" for one in unsure)
    if not measures:
        return Health.HEALTHY, (f"{case.query}: there is nothing to compare with",)
    return Health.HEALTHY, (f"{case.query}: no measure is beyond its limit after {epochs} epochs",)


_LABELS = {
    "overflow": "records overflowing",
    "bytes": "bytes sent per record",
    "latency": "delay",
    "cpu": "CPU time per record",
}


def _told(case: Case, one: Measure, agents: int) -> str:
    """`this-host/s2s: bytes sent per record 92 → 127 at 2 agents, +38 % (limit +5 %); …`"""
    scale, unit = {"overflow": (100, " %"), "cpu": (1e6, " µs"), "latency": (1, " s")}.get(one.key, (1, ""))
    relative, ending = one.key in ("bytes", "cpu"), {"overflow": " points", "latency": " s"}.get(one.key, " %")
    times = 100 if relative else 1
    moved = f"{one.before * scale:.4g} → " if one.before is not None else ""
    where = f"at {agents} agent{'s' if agents != 1 else ''}"
    text = (
        f"{case.query}: {_LABELS[one.key]} {moved}{one.after * scale:.4g}{unit} {where}, "
        f"{one.change * times:+.3g}{ending} (limit {one.limit * times:+.3g}{ending})"
    )
    if one.others_before is not None and one.others_after is not None:
        others = f"{one.others_before * scale:.4g} → {one.others_after * scale:.4g}{unit}"
        return f"{text}; {len(case.others)} without it {others} meanwhile"
    if one.others_after is not None:
        return f"{text}; without it {one.others_after * scale:.4g}{unit} at {len(case.others)}"
    return text
