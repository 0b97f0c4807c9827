"""Records of plans that empty nodes: steps with their moves, who is late meanwhile, which further losses do harm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from engine.placement.answer import MoveAnswer, QueryChange
from engine.provisioning.answers.scenarios import Refusal
from engine.records import Record

__all__ = ["DelayedQuery", "EvacuationPlan", "LossMeanwhile", "PlannedStep"]


@dataclass(frozen=True)
class DelayedQuery(Record):
    """A query that moves delay, by the mean path: its largest extra latency, and how long it is late for them.

    `late_s` is the time for which its latency is over its objective and would not be without the moves: 0 without an
    objective, None where that is not known. `extra_s` is None where nobody knows how long a move takes.
    """

    query: str
    extra_s: float | None
    bound_s: float | None
    late_s: float | None


@dataclass(frozen=True)
class LossMeanwhile(Record):
    """A further node lost while the nodes are away: what it breaks or puts at risk, and why it could not be placed."""

    node: str
    breaks: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedStep(Record):
    """Nodes that are emptied together: the moves, and what they do. With a `refusal` there are none: it says why.

    Attributes
    ----------
    queries
        Every query before, and with the nodes away, at the load of the question.
    lasts_s
        Time that states travel, one move after the other, seconds.
    unknown
        Operators that move and whose state nobody has stated: how long these take is not known.
    losses
        Further nodes whose loss would do harm meanwhile. None of them: any one can be lost.
    by_mace
        Whether losses are estimates by Mace alone, which knows nothing of random costs and arrivals.
    """

    nodes: tuple[str, ...]
    refusal: Refusal | None = None
    moves: tuple[MoveAnswer, ...] = ()
    queries: tuple[QueryChange, ...] = ()
    delays: tuple[DelayedQuery, ...] = ()
    lasts_s: float = 0.0
    unknown: tuple[str, ...] = ()
    losses: tuple[LossMeanwhile, ...] = ()
    by_mace: bool = False

    @property
    def breaks(self) -> tuple[str, ...]:
        """Queries that keep their objective as it is, as far as known, and miss it with the nodes away."""
        return self._turned("breached", ("holds", "at_risk", "unknown"))

    @property
    def risks(self) -> tuple[str, ...]:
        """Queries that hold as it is, and are at risk or not known with the nodes away."""
        return self._turned("at_risk", ("holds",)) + self._turned("unknown", ("holds", "at_risk"))

    @property
    def late(self) -> tuple[DelayedQuery, ...]:
        """Queries that are late while operators move, or of which that is not known."""
        return tuple(delay for delay in self.delays if delay.bound_s is not None and delay.late_s != 0.0)

    def _turned(self, state: str, before: Collection[str]) -> tuple[str, ...]:
        return tuple(row.query for row in self.queries if row.after_state == state and row.before_state in before)


@dataclass(frozen=True, kw_only=True)
class EvacuationPlan(Record):
    """Steps of an evacuation, one after the other.

    `factors` are those of the sources whose load is a forecast; the others are as they are now.
    """

    TITLE: ClassVar[str] = "an evacuation"

    steps: tuple[PlannedStep, ...]
    back: bool
    factors: Mapping[str, float]

    @property
    def is_possible(self) -> bool:
        """Whether every node can be emptied."""
        return all(step.refusal is None for step in self.steps)

    @property
    def breaks(self) -> tuple[str, ...]:
        """Queries that miss their objective in any step."""
        return tuple(dict.fromkeys(query for step in self.steps for query in step.breaks))

    @property
    def risks(self) -> tuple[str, ...]:
        """Queries that may miss their objective in a step, or of which that is not known, and that miss it in none."""
        queries = dict.fromkeys(query for step in self.steps for query in step.risks)
        return tuple(query for query in queries if query not in self.breaks)

    @property
    def lasts_s(self) -> float:
        """Time that states travel on the way out, and back where operators come back, in seconds."""
        return sum(step.lasts_s for step in self.steps) * (2.0 if self.back else 1.0)
