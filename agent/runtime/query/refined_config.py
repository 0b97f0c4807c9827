"""Refined documents at an agent: accepted, refused with reasons, renewed, expired."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agent.wire import MAX_NUMBER
from engine.errors import DocumentError
from engine.klink.settings import RefinedSchedule, judge_schedule
from engine.refined_document import RefinedDocument, checksum

__all__ = ["DocumentRefusal", "NewestAccepted", "RefinedScheduleState", "RefinedState"]

CONFIG_ID = re.compile(r"c-\d{1,18}")
MAX_REASONS = 5  # reported; a torn document may have a fault in each of its fields

R = TypeVar("R", bound=RefinedDocument)


@dataclass(frozen=True)
class NewestAccepted:
    """The newest refined document of its kind that was ever taken here; kept over restarts."""

    version: int = 0
    config: str = ""
    content: str = ""  #: checksum of its content without the validity


@dataclass(frozen=True)
class DocumentRefusal:
    """A refined document that is not taken."""

    version: int | None  #: None where the document has none
    config: str | None
    reasons: tuple[str, ...]


class RefinedState(ABC, Generic[R]):
    """The refined document in force; it changes between epochs only."""

    def __init__(self, newest: NewestAccepted | None) -> None:
        self._document: Any = None
        self.newest = newest or NewestAccepted()
        self.in_force: R | None = None
        self.refused: DocumentRefusal | None = None
        self.run_out: R | None = None  #: was in force until its time was over
        self.changed = False  #: a document was accepted, dropped or refused; reset by its reporter

    @abstractmethod
    def parse(self, document: Any) -> R:
        """The document, or DocumentError with its faults."""

    @abstractmethod
    def judge(self, refined: R, current: int, now_us: int) -> list[str]:
        """Why it is refused here, where version `current` is in force."""

    @abstractmethod
    def without(self, refined: R) -> str:
        """The fallback after its TTL, in words."""

    def look(self, document: Any, now_us: int) -> None:
        """Read the document of the configuration, None for none; the same document once more changes nothing."""
        if document == self._document:
            return
        before = (self._version, self.refused)
        self._document, self.refused, self.run_out = document, None, None
        if document is None:
            self.in_force = None
        else:
            self._take(document, now_us)
        self.changed = self.changed or before != (self._version, self.refused)

    def expire(self, now_us: int) -> None:
        """Drop a document whose TTL is over."""
        if self.in_force is not None and self.in_force.stale(now_us):
            self.in_force, self.run_out, self.changed = None, self.in_force, True

    @property
    def _version(self) -> int | None:
        return self.in_force.version if self.in_force is not None else None

    def _take(self, document: Any, now_us: int) -> None:
        try:
            refined = self.parse(document)
        except DocumentError as error:
            self.refused = _torn(document, [str(fault) for fault in error.faults])
            return
        content = checksum({name: value for name, value in document.items() if name != "valid_from_us"})
        again = (refined.version, content) == (self.newest.version, self.newest.content)
        if again and refined.stale(now_us):
            self.in_force, self.run_out = None, refined
            return
        # what was taken before is taken up again or renewed; the same number with other words is not the same
        reasons = self.judge(refined, self.newest.version - again, now_us)
        if reasons:
            self.refused = DocumentRefusal(refined.version, refined.config, tuple(reasons))
        else:
            self.in_force = refined
            self.newest = NewestAccepted(refined.version, refined.config, content)

    def report(self) -> dict[str, Any]:
        """`refined` and `refused` of the heartbeat."""
        refined, refusal = self.in_force, self.refused
        return {
            "refined": {"version": refined.version, "config": refined.config} if refined is not None else None,
            "refused": {"version": refusal.version, "config": refusal.config, "reasons": list(refusal.reasons)}
            if refusal
            else None,
        }

    @property
    def fault(self) -> str:
        """That its time is over, in words; empty where it is not."""
        expired = self.run_out
        if expired is None:
            return ""
        return f"{expired.config} was valid for {expired.ttl_s:,.0f} s and is older: on with {self.without(expired)}"


class RefinedScheduleState(RefinedState[RefinedSchedule]):
    """The refined schedule of this agent."""

    def __init__(self, agent: str, newest: NewestAccepted | None) -> None:
        super().__init__(newest)
        self._agent = agent

    def parse(self, document: Any) -> RefinedSchedule:
        return RefinedSchedule.parse(document)

    def judge(self, refined: RefinedSchedule, current: int, now_us: int) -> list[str]:
        return judge_schedule(refined, current=current, agent=self._agent, now_us=now_us)

    def without(self, refined: RefinedSchedule) -> str:
        return "the schedule of the configuration"


def _torn(document: Any, faults: list[str]) -> DocumentRefusal:
    says = document if isinstance(document, Mapping) else {}
    version, config = says.get("version"), says.get("config")
    more = [f"and {len(faults) - MAX_REASONS} more"] if len(faults) > MAX_REASONS else []
    return DocumentRefusal(
        version if type(version) is int and 0 < version <= MAX_NUMBER else None,
        config if isinstance(config, str) and CONFIG_ID.fullmatch(config) else None,
        (*faults[:MAX_REASONS], *more),
    )
