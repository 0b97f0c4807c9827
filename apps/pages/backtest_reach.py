"""From when on a cluster's arrivals are recorded, and what those records are."""

from __future__ import annotations

from functools import cached_property

from apps.backtests.records import Reach, reach_of
from apps.fleet.models import Cluster
from apps.pages.backtest_words import period_words
from apps.ui.numbers import counted

__all__ = ["ReachFacts"]

_KINDS = {"measured": "telemetry", "history": "load history"}


class ReachFacts:
    """What a backtest can be made of."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @cached_property
    def found(self) -> list[Reach]:
        return reach_of(self.cluster)

    @property
    def sentence(self) -> str:
        if not self.found:
            return "Nothing was recorded of this cluster's arrivals yet."
        first, last = min(one.first for one in self.found), max(one.last for one in self.found)
        return f"Records reach from {period_words(first, last)}: {' and '.join(self.kinds)}."

    @property
    def kinds(self) -> list[str]:
        """telemetry of 3 sources, load history of 10 sources."""
        parts = []
        for kind, words in _KINDS.items():
            sources = {one.source for one in self.found if one.kind == kind}
            if sources:
                parts.append(f"{words} of {counted(len(sources), 'source')}")
        return parts
