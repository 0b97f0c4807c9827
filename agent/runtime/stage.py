"""An operator of a query at the agent: its control proxy, what it costs and how many records it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.runtime.cpu import OperatorCost
from agent.runtime.proxy import ControlProxy

__all__ = ["Stage"]

FORGETTING = 0.9  # of how many records an operator gave for each, with every run


@dataclass
class Stage:
    """An operator behind its control proxy."""

    operator_id: str
    fingerprint: str
    proxy: ControlProxy
    kernel: Any
    stateful: bool
    cost: OperatorCost
    _took: float = 0.0
    _gave: float = 0.0

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return self.proxy.queue.records

    @property
    def selectivity(self) -> float:
        """Records out per record in, of what ran lately; 1 before anything did."""
        return self._gave / self._took if self._took else 1.0

    def ran(self, took: int, gave: int, cpu_ns: int) -> None:
        """It has processed so many records and given so many."""
        self.cost.observe(took, cpu_ns)
        self._took, self._gave = FORGETTING * self._took + took, FORGETTING * self._gave + gave
        self.proxy.counts.records_processed += took
        self.proxy.counts.cpu_ns += cpu_ns
