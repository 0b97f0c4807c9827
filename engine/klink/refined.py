"""The refined document of an agent's scheduling: settings that were learned or chosen for it, with their version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Choice, Field, Table
from engine.klink.settings import SCHEDULE, ScheduleSettings
from engine.refined import FIRST, LAST, RefinedDocument, check_seal, not_for_here

__all__ = ["DOCUMENT", "RefinedSchedule", "judge"]

DOCUMENT = Table(
    "a refined schedule",
    *FIRST,
    Field("schedule", SCHEDULE, required=True, help="settings of scheduling"),
    Field("fallback", Choice(("default",)), required=True, help="without it: settings of the agent's configuration"),
    *LAST,
)


@dataclass(frozen=True)
class RefinedSchedule(RefinedDocument):
    """How the queries of one agent share its core."""

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
        read = DOCUMENT.read(document, "", "", faults)
        if read is not BAD and not faults:
            check_seal(document, faults)
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


def judge(refined: RefinedSchedule, *, current: int, agent: str, now_us: int) -> list[str]:
    """Why an agent refuses a refined schedule, in words; empty where it takes it.

    `current` is the version in force, 0 while there is none; `now_us` microseconds since 1970.
    """
    return not_for_here(refined, current=current, agent=agent, now_us=now_us)
