"""Which refined configuration a query goes by at this agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.runtime.taking import NewestTaken, Taking
from engine.jarvis.judging import judge
from engine.jarvis.refined import Refined

__all__ = ["Prior", "SeenHere"]


@dataclass(frozen=True)
class SeenHere:
    """What was measured at this agent; nothing while nothing is known."""

    costs_s: Sequence[float | None] = ()  #: CPU seconds per record by operator; None of one that is not known well
    n_records: float = 0.0  #: of an epoch
    budget_s: float = 0.0  #: CPU seconds of an epoch


class Prior(Taking[Refined]):
    """The refined configuration of one query with one plan; `seen` is asked when one is judged."""

    def __init__(
        self,
        *,
        query: str,
        plan: str,
        agent: str,
        operators: Sequence[str],
        newest: NewestTaken | None,
        seen: Callable[[], SeenHere],
    ) -> None:
        super().__init__(newest)
        self._query, self._plan, self._agent, self._operators = query, plan, agent, tuple(operators)
        self._seen = seen

    def parse(self, document: Any) -> Refined:
        return Refined.parse(document)

    def judge(self, refined: Refined, current: int, now_us: int) -> list[str]:
        seen = self._seen()
        return judge(
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

    def without(self, refined: Refined) -> str:
        return "local estimates" if refined.fallback == "local" else "nothing but drained records"
