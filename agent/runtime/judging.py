"""Which refined configuration a query goes by at this agent: taken, refused with reasons, renewed, run out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.wire import MOST_NUMBER
from engine.errors import DocumentError
from engine.jarvis.judging import judge
from engine.jarvis.refined import Refined, checksum

__all__ = ["NewestTaken", "Prior", "Refusal", "SeenHere"]

CONFIG_ID = re.compile(r"c-\d{1,18}")
MOST_REASONS = 5  # told; a torn document may have a fault in each of its fields


@dataclass(frozen=True)
class NewestTaken:
    """The newest refined configuration of a query that was ever taken here; kept over restarts."""

    version: int = 0
    config: str = ""
    content: str = ""  #: what it says, apart from how long it holds, as a checksum


@dataclass(frozen=True)
class SeenHere:
    """What was measured at this agent; nothing while nothing is known."""

    costs_s: Sequence[float | None] = ()  #: CPU seconds per record by operator; None of one that is not known well
    n_records: float = 0.0  #: of an epoch
    budget_s: float = 0.0  #: CPU seconds of an epoch


@dataclass(frozen=True)
class Refusal:
    """A refined configuration that is not taken."""

    version: int | None  #: None where the document says none
    config: str | None
    reasons: tuple[str, ...]


class Prior:
    """The refined configuration of one query with one plan, looked at between epochs only."""

    def __init__(
        self, *, query: str, plan: str, agent: str, operators: Sequence[str], newest: NewestTaken | None
    ) -> None:
        self._query, self._plan, self._agent, self._operators = query, plan, agent, tuple(operators)
        self._document: Any = None
        self.newest = newest or NewestTaken()
        self.in_force: Refined | None = None
        self.refused: Refusal | None = None
        self.run_out: Refined | None = None  #: was in force until its time was over
        self.news = False  #: something was taken, given up or refused; whoever tells the console sets it back

    def look(self, document: Any, now_us: int, seen: SeenHere) -> None:
        """What the configuration holds now, None for nothing; the same document once more changes nothing."""
        if document == self._document:
            return
        before = (self._version, self.refused)
        self._document, self.refused, self.run_out = document, None, None
        if document is None:
            self.in_force = None
        else:
            self._judge(document, now_us, seen)
        self.news = self.news or before != (self._version, self.refused)

    def expire(self, now_us: int) -> None:
        """Let go of what has come to the end of its time."""
        if self.in_force is not None and self.in_force.stale(now_us):
            self.in_force, self.run_out, self.news = None, self.in_force, True

    @property
    def _version(self) -> int | None:
        return self.in_force.version if self.in_force is not None else None

    def _judge(self, document: Any, now_us: int, seen: SeenHere) -> None:
        try:
            refined = Refined.parse(document)
        except DocumentError as error:
            self.refused = _torn(document, [str(fault) for fault in error.faults])
            return
        content = checksum({name: value for name, value in document.items() if name != "valid_from_us"})
        again = (refined.version, content) == (self.newest.version, self.newest.content)
        if again and refined.stale(now_us):
            self.in_force, self.run_out = None, refined
            return
        # what was taken before is taken up again or renewed; the same number with other words is not the same
        current = self.newest.version - again
        reasons = judge(
            refined,
            current=current,
            query=self._query,
            plan=self._plan,
            agent=self._agent,
            operators=self._operators,
            now_us=now_us,
            n_records=seen.n_records,
            budget_s=seen.budget_s,
            known_costs=seen.costs_s,
        )
        if reasons:
            self.refused = Refusal(refined.version, refined.config, tuple(reasons))
        else:
            self.in_force = refined
            self.newest = NewestTaken(refined.version, refined.config, content)

    def report(self) -> dict[str, Any]:
        """`refined` and `refused` of the heartbeat."""
        one, no = self.in_force, self.refused
        return {
            "refined": {"version": one.version, "config": one.config} if one is not None else None,
            "refused": {"version": no.version, "config": no.config, "reasons": list(no.reasons)} if no else None,
        }

    @property
    def fault(self) -> str:
        """That its time is over, in words; empty where it is not."""
        if self.run_out is None:
            return ""
        goes_on = "local estimates" if self.run_out.fallback == "local" else "nothing but drained records"
        return f"{self.run_out.config} was valid for {self.run_out.ttl_s:,.0f} s and is older: on with {goes_on}"


def _torn(document: Any, faults: list[str]) -> Refusal:
    says = document if isinstance(document, Mapping) else {}
    version, config = says.get("version"), says.get("config")
    more = [f"and {len(faults) - MOST_REASONS} more"] if len(faults) > MOST_REASONS else []
    return Refusal(
        version if type(version) is int and 0 < version <= MOST_NUMBER else None,
        config if isinstance(config, str) and CONFIG_ID.fullmatch(config) else None,
        (*faults[:MOST_REASONS], *more),
    )
