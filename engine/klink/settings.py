"""Settings of an agent's scheduler, the prior of watermarks, and the refined document of settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from engine.errors import Fault
from engine.kinds import Enumeration, Number, String
from engine.records import ItemCount, Record, Words
from engine.refined_document import RefinedDocument, refusal_reasons

__all__ = ["POLICIES", "POLICY_NAMES", "RefinedSchedule", "ScheduleSettings", "WatermarkPrior", "judge_schedule"]

#: Policies by name, and how people call them. klink: least slack, those whose watermark is here first (default);
#: stimulus-time: the earliest event time waiting; fcfs: the record that has waited longest; round-robin: in turn.
POLICY_NAMES = {
    "klink": "Klink",
    "stimulus-time": "stimulus time",
    "fcfs": "first come, first served",
    "round-robin": "round robin",
}
POLICIES = tuple(POLICY_NAMES)


@dataclass(frozen=True)
class ScheduleSettings(Record):
    """Settings of one agent's scheduler (docs/models/klink.md)."""

    TITLE: ClassVar[str] = "scheduling settings"

    policy: Annotated[
        str,
        Enumeration(POLICIES),
        Words("Policy that picks the next query.", label="Scheduling policy", choices=POLICY_NAMES),
    ] = "klink"
    cycle_ms: Annotated[
        float,
        Number(least=20, most=500),
        Words("Time until the policy chooses again (r).", label="Scheduling quantum", unit="ms"),
    ] = 120.0
    confidence: Annotated[
        float,
        Number(least=0.8, most=0.99),
        Words(
            "Share of watermarks that arrive within their interval (f).",
            label="Confidence of watermark intervals",
            unit="%",
            scale=100,
        ),
    ] = 0.95
    history: Annotated[
        int,
        Number(least=30, most=1000, whole=True),
        Words("Windows of each stream that the next watermark is predicted from (h).", label="Watermark history"),
    ] = 400
    memory_bytes: Annotated[
        int,
        Number(least=65_536, most=2**30, whole=True),
        Words(
            "Above it, windows that are due run first, then the queries that free memory best (b).",
            label="Memory limit",
            unit="MiB",
            scale=2**-20,
        ),
    ] = 4 * 2**20
    release_share: Annotated[
        float,
        Number(above=0, most=1),
        Words(
            "Share freed before slack decides again; a small share makes the modes alternate.",
            label="Memory release share",
            unit="%",
            scale=100,
        ),
    ] = 0.5
    release_s: Annotated[
        float,
        Number(above=0, most=60),
        Words("Time after which slack decides again in any case.", label="Memory release time", unit="s"),
    ] = 3.0
    starvation_s: Annotated[
        float,
        Number(least=0.5, most=600),
        Words("Longest time a query with records waits to run.", label="Starvation limit", unit="s"),
    ] = 5.0
    backlog_periods: Annotated[
        float,
        Number(least=0, most=10),
        Words("Windows of the query for which its records may wait.", label="Backlog limit", unit="windows"),
    ] = 0.33
    backlog_most_s: Annotated[
        float,
        Number(least=0, most=600),
        Words("Records that wait longer are sent on unprocessed.", label="Backlog time limit", unit="s"),
    ] = 5.0

    def backlog_s(self, period_s: float | None) -> float:
        """Seconds that records of a query may wait: a share of its windows' period, 0 where it has no windows."""
        return min(self.backlog_periods * period_s, self.backlog_most_s) if period_s is not None else 0.0


_Seconds = Annotated[float, Number(least=0)]


@dataclass(frozen=True)
class Quantiles(Record):
    """Quantiles of a delay."""

    TITLE: ClassVar[str] = "quantiles"

    levels: Annotated[tuple[Annotated[float, Number(least=0, most=1)], ...], ItemCount(1, 1000), Words("ascending")]
    values_s: Annotated[tuple[_Seconds, ...], ItemCount(1, 1000), Words("the delay at each level")]

    def find_faults(self) -> Iterator[Fault]:
        """Levels without a value, and lists that fall."""
        levels, values = self.levels, self.values_s
        if len(levels) != len(values):
            yield Fault("values_s", f"values_s has {len(values)} items; allowed: {len(levels)}, one for each level")
        for name, items in (("levels", levels), ("values_s", values)):
            if any(after < before for before, after in pairwise(items)):
                yield Fault(name, f"{name} falls; allowed: ascending")


@dataclass(frozen=True)
class WatermarkPrior(Record):
    """Delays of one stream's sweeping watermarks; None where nothing is known but the period."""

    TITLE: ClassVar[str] = "a stream's watermarks"

    stream: Annotated[str, String(), Words("id of the source")]
    period_s: Annotated[float, Number(above=0), Words("from one window's end to the next")]
    epochs: Annotated[int, Number(least=0, whole=True), Words("windows behind them")]
    mean_s: Annotated[_Seconds | None, Words("of the delay from a window's end to its watermark")] = None
    variance_s2: Annotated[_Seconds | None, Words("of the delay, predictive")] = None
    quantiles: Annotated[Quantiles | None, Words("of the delay, where there are enough windows")] = None

    def find_faults(self) -> Iterator[Fault]:
        """A mean without its variance, or the reverse."""
        if (self.mean_s is None) != (self.variance_s2 is None):
            yield Fault("mean_s", "mean_s and variance_s2 stand together, or neither does")


@dataclass(frozen=True, kw_only=True)
class RefinedSchedule(RefinedDocument):
    """Refined schedule of one agent: how its queries share its core."""

    TITLE: ClassVar[str] = "a refined schedule"

    schedule: Annotated[ScheduleSettings, Words("scheduling settings")]
    fallback: Annotated[str, Enumeration(("default",)), Words("without it: settings of the agent's configuration")]


def judge_schedule(refined: RefinedSchedule, *, current: int, agent: str, now_us: int) -> list[str]:
    """Reasons of an agent to refuse a refined schedule, in words; empty if it accepts.

    `current` is the version in force, 0 while there is none; `now_us` microseconds since 1970.
    """
    return refusal_reasons(refined, current=current, agent=agent, now_us=now_us)
