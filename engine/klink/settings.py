"""Settings of an agent's scheduler, the prior of watermarks, and the refined document of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Enumeration, Field, FieldTable, ListOf, Number, SettingsRecord, String
from engine.refined_document import FIRST_FIELDS, LAST_FIELDS, RefinedDocument, check_checksum, refusal_reasons

__all__ = [
    "POLICIES",
    "REFINED_SCHEDULE",
    "SCHEDULE",
    "WATERMARK_PRIOR",
    "RefinedSchedule",
    "ScheduleSettings",
    "WatermarkPrior",
    "judge_schedule",
]

#: klink: least slack, those whose watermark is here first (default); stimulus-time: the earliest event time waiting;
#: fcfs: the record that has waited longest; round-robin: in turn.
POLICIES = ("klink", "stimulus-time", "fcfs", "round-robin")

SCHEDULE = FieldTable(
    "scheduling settings",
    Field("policy", Enumeration(POLICIES), help="policy that picks the next query; klink"),
    Field("cycle_ms", Number(least=20, most=500), help="scheduling quantum (r); 120"),
    Field("confidence", Number(least=0.8, most=0.99), help="of the watermark intervals (f); 0.95"),
    Field("history", Number(least=30, most=1000, whole=True), help="windows kept of each stream (h); 400"),
    Field("memory_bytes", Number(least=65_536, most=2**30, whole=True), help="of waiting records that start "
          "the memory mode (b); 4,194,304"),
    Field("release_share", Number(above=0, most=1), help="share of b to free before slack decides again; 0.5"),
    Field("release_s", Number(above=0, most=60), help="longest time of the memory mode; 3"),
    Field("starvation_s", Number(least=0.5, most=600), help="starvation limit: longest wait of a query; 5"),
    Field("backlog_periods", Number(least=0, most=10), help="periods that records of a query may wait; 0.33"),
    Field("backlog_most_s", Number(least=0, most=600), help="longest wait of any query's records; 5"),
)  # fmt: skip


@dataclass(frozen=True)
class ScheduleSettings(SettingsRecord):
    """Settings of one agent's scheduler (docs/models/klink.md; safe ranges as in `SCHEDULE`)."""

    TABLE: ClassVar[FieldTable] = SCHEDULE

    policy: str = "klink"
    cycle_ms: float = 120.0
    confidence: float = 0.95
    history: int = 400
    memory_bytes: int = 4 * 2**20
    release_share: float = 0.5
    release_s: float = 3.0
    starvation_s: float = 5.0
    backlog_periods: float = 0.33
    backlog_most_s: float = 5.0

    def backlog_s(self, period_s: float | None) -> float:
        """Seconds that records of a query may wait: a share of its windows' period, 0 where it has no windows."""
        return min(self.backlog_periods * period_s, self.backlog_most_s) if period_s is not None else 0.0


_SECONDS = Number(least=0)
_QUANTILES = FieldTable(
    "quantiles",
    Field("levels", ListOf(Number(least=0, most=1), least=1, most=1000), required=True, help="ascending"),
    Field("values_s", ListOf(_SECONDS, least=1, most=1000), required=True, help="the delay at each level"),
)
WATERMARK_PRIOR = FieldTable(
    "a stream's watermarks",
    Field("stream", String(), required=True, help="id of the source"),
    Field("period_s", Number(above=0), required=True, help="from one window's end to the next"),
    Field("mean_s", _SECONDS, nullable=True, help="of the delay from a window's end to its watermark"),
    Field("variance_s2", _SECONDS, nullable=True, help="of the delay, predictive"),
    Field("epochs", Number(least=0, whole=True), required=True, help="windows behind them"),
    Field("quantiles", _QUANTILES, nullable=True, help="of the delay, where there are enough windows"),
)


@dataclass(frozen=True, slots=True)
class WatermarkPrior:
    """Delays of one stream's sweeping watermarks; None where nothing is known but the period."""

    stream: str
    period_s: float
    epochs: int
    mean_s: float | None = None
    variance_s2: float | None = None
    levels: tuple[float, ...] = ()
    values_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> WatermarkPrior:
        """Prior of a document that `WATERMARK_PRIOR` has read without a fault."""
        quantiles = read.get("quantiles") or {"levels": (), "values_s": ()}
        return cls(
            stream=read["stream"],
            period_s=read["period_s"],
            epochs=read["epochs"],
            mean_s=read.get("mean_s"),
            variance_s2=read.get("variance_s2"),
            levels=tuple(quantiles["levels"]),
            values_s=tuple(quantiles["values_s"]),
        )

    @staticmethod
    def check(read: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
        """Faults across fields."""
        if (read.get("mean_s") is None) != (read.get("variance_s2") is None):
            faults.append(Fault(f"{path}.mean_s", "mean_s and variance_s2 stand together, or neither does"))
        quantiles = read.get("quantiles")
        if not quantiles:
            return
        levels, values = quantiles["levels"], quantiles["values_s"]
        if len(levels) != len(values):
            message = f"values_s has {len(values)} items; allowed: {len(levels)}, one for each level"
            faults.append(Fault(f"{path}.quantiles.values_s", message))
        for name, items in quantiles.items():
            if any(after < before for before, after in pairwise(items)):
                faults.append(Fault(f"{path}.quantiles.{name}", f"{name} falls; allowed: ascending"))


REFINED_SCHEDULE = FieldTable(
    "a refined schedule",
    *FIRST_FIELDS,
    Field("schedule", SCHEDULE, required=True, help="scheduling settings"),
    Field(
        "fallback", Enumeration(("default",)), required=True, help="without it: settings of the agent's configuration"
    ),
    *LAST_FIELDS,
)


@dataclass(frozen=True)
class RefinedSchedule(RefinedDocument):
    """Refined schedule of one agent: how its queries share its core."""

    schedule: ScheduleSettings

    @classmethod
    def parse(cls, document: Any) -> RefinedSchedule:
        """Read a refined schedule.

        Raises
        ------
        DocumentError
            With every fault: fields, ranges, a checksum that is not the document's.
        """
        faults: list[Fault] = []
        read = REFINED_SCHEDULE.read(document, "", "", faults)
        if read is not BAD and not faults:
            check_checksum(document, faults)
        if read is BAD or faults:
            raise DocumentError(faults, "refined schedule")
        return cls(
            config=read["config"],
            version=read["version"],
            parent=read.get("parent"),
            agent=read["agent"],
            valid_from_us=read["valid_from_us"],
            ttl_s=read["ttl_s"],
            fallback=read["fallback"],
            schedule=ScheduleSettings(**read["schedule"]),
        )


def judge_schedule(refined: RefinedSchedule, *, current: int, agent: str, now_us: int) -> list[str]:
    """Reasons of an agent to refuse a refined schedule, in words; empty if it accepts.

    `current` is the version in force, 0 while there is none; `now_us` microseconds since 1970.
    """
    return refusal_reasons(refined, current=current, agent=agent, now_us=now_us)
