"""How the queries of one agent share its core: the policy and its parameters, each within its safe range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Choice, Field, Number, Table

__all__ = ["POLICIES", "SCHEDULE", "ScheduleSettings"]

#: klink: least slack, those whose watermark is here first (default); stimulus-time: the earliest event time waiting;
#: fcfs: the record that has waited longest; round-robin: in turn.
POLICIES = ("klink", "stimulus-time", "fcfs", "round-robin")

SCHEDULE = Table(
    "settings of scheduling",
    Field("policy", Choice(POLICIES), help="which query runs next; klink"),
    Field("cycle_ms", Number(least=20, most=500), help="how long a choice holds (r); 120"),
    Field("confidence", Number(least=0.8, most=0.99), help="that a watermark comes within its interval (f); 0.95"),
    Field("history", Number(least=30, most=1000, whole=True), help="windows remembered of a stream (h); 400"),
    Field("memory_bytes", Number(least=65_536, most=2**30, whole=True), help="of waiting records, from which on they "
          "are what counts (b); 4,194,304"),
    Field("release_share", Number(above=0, most=1), help="of b, which is to be freed before slack counts again; 0.5"),
    Field("release_s", Number(above=0, most=60), help="after which slack counts again in any case; 3"),
    Field("starvation_s", Number(least=0.5, most=600), help="that a query with records waits at most for its turn; 5"),
    Field("backlog_periods", Number(least=0, most=10), help="of a query's windows, that its records may wait; 0.33"),
    Field("backlog_most_s", Number(least=0, most=600), help="that records of any query may wait; 5"),
)  # fmt: skip


@dataclass(frozen=True)
class ScheduleSettings:
    """Settings of one agent's scheduler (docs/models/klink.md; safe ranges as in `SCHEDULE`)."""

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

    @classmethod
    def parse(cls, document: Any) -> ScheduleSettings:
        """Read settings; fields that are not given keep their defaults.

        Raises
        ------
        DocumentError
            With every fault: unknown fields, values out of their safe range.
        """
        faults: list[Fault] = []
        read = cls.read(document, "", "", faults)
        if read is None:
            raise DocumentError(faults, "settings of scheduling")
        return read

    @classmethod
    def read(cls, document: Any, parent: str, key: str, faults: list[Fault]) -> ScheduleSettings | None:
        """As `parse`, for a document within another: faults are added, None where there were any."""
        before = len(faults)
        read = SCHEDULE.read(document, parent, key, faults)
        return None if read is BAD or len(faults) > before else cls(**read)

    def to_dict(self) -> Mapping[str, Any]:
        """As `parse` reads it."""
        return asdict(self)

    def backlog_s(self, period_s: float | None) -> float:
        """Seconds that records of a query may wait: a share of its windows' period, 0 where it has no windows."""
        return min(self.backlog_periods * period_s, self.backlog_most_s) if period_s is not None else 0.0
