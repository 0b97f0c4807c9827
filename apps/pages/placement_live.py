"""What is said of a placement search while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.pages.placement_curve import search_curve
from apps.placements.choices import RunState
from apps.placements.models import PlacementRun
from apps.ui.numbers import MISSING, percent, seconds

__all__ = ["Search"]


class Search:
    """The best so far of `run`, against its bound."""

    run: PlacementRun
    proposal: Mapping[str, Any]

    @property
    def is_searching(self) -> bool:
        return self.run.state == RunState.SEARCHING

    @cached_property
    def live(self) -> Mapping[str, Any]:
        return self.run.live or {}

    @property
    def live_curve(self) -> SafeString:
        return search_curve(self.live.get("trace") or [], self._bound, self.run.budget_s, share=self._is_share)

    @property
    def live_sentence(self) -> str:
        """Best so far 5.4 s after 1.2 s of 5 s; no placement can be below 5.1 s."""
        value, cores = self.live.get("value_s"), self.live.get("cores_s")
        spent = f"{seconds(self.live.get('elapsed_s'))} of {seconds(self.run.budget_s)}"
        if value is None and cores is None:
            return "The first placement is on its way."
        if value is None:
            return f"{self._value(cores)} after {spent} by the cores alone; links are counted next."
        text = f"Best so far {self._value(value)} after {spent}"
        if cores is not None and cores < value:
            text += f", {self._value(cores)} by the cores alone"
        return f"{text}; no placement can be below {self._value(self._bound)}." if self._bound else f"{text}."

    @property
    def live_gap(self) -> str:
        value, bound = self.live.get("value_s"), self._bound
        return str(percent(value / bound - 1)) if value and bound else MISSING

    @property
    def _bound(self) -> float | None:
        found = self.live.get("bound_s") if self.is_searching else self.proposal.get("bound_s")
        return found or None

    @property
    def _is_share(self) -> bool:
        return self.run.objective != "worst"

    def _value(self, value: Any) -> str:
        return str(percent(value) if self._is_share else seconds(value))
