"""Answer about a group, as records. Nothing here computes: processes that only read answers need no compiler loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from engine.records import Record, Words

__all__ = ["GroupAnswer", "MemberVerdict"]


@dataclass(frozen=True)
class MemberVerdict(Record):
    """Verdicts about a member of a group: beside those before it, once all are in, and alone."""

    TITLE: ClassVar[str] = "a member's verdicts"

    query: str
    beside: Annotated[str, Words("Verdict beside those before it that fit, in the order given; an estimate.")]
    beside_headline: str
    is_fitting: Annotated[bool, Words("Whether it is one of those that fit in the order given.")]
    together: Annotated[str, Words("Verdict once all are in; empty: they cannot all be placed.")] = ""
    together_headline: str = ""
    alone: Annotated[str, Words("Verdict alone; empty: it was not looked for, for the group passes.")] = ""
    alone_headline: str = ""


@dataclass(frozen=True)
class GroupAnswer(Record):
    """Answer about a group: one verdict, the worst of the members and of everybody else with all of them in."""

    TITLE: ClassVar[str] = "an answer about a group"

    verdict: str
    headline: str
    because_of: Annotated[str, Words("Name of the member whose finding the headline is.")]
    members: tuple[MemberVerdict, ...]

    @property
    def fitting(self) -> tuple[str, ...]:
        """Queries of the members that fit together, each beside those before it; an estimate."""
        return tuple(member.query for member in self.members if member.is_fitting)
