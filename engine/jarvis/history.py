"""What became of a query's changes: how long until it was stable again, from which load factors to which."""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.jarvis.controlling import QueryState
from engine.jarvis.observation import EpochObservation

__all__ = ["History"]

_KEPT = 10
_SETTLED = 2  # stable epochs in a row, after which a change is over


class History:
    """For the heartbeat."""

    def __init__(self) -> None:
        self.moves = self.stable_epochs = 0
        self.changes: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._open: dict[str, Any] | None = None
        self._epochs = 0
        self._sent: float | None = None

    def add(
        self,
        observation: EpochObservation,
        state: QueryState,
        why: str,
        old: tuple[float, ...],
        new: tuple[float, ...],
        sent: float,
    ) -> None:
        """An epoch of load factors `old` ended in this state, the next runs with `new`; `sent` is bytes a record."""
        stable = state is QueryState.STABLE
        self.stable_epochs = self.stable_epochs + 1 if stable else 0
        self.moves += old != new
        if self._open is None and not stable and old != new:
            self._begin(observation, why, old)
        elif self._open is not None:
            self._epochs += 1
        if self._open is not None:
            self._open["to"] = list(new)
            if self.stable_epochs >= _SETTLED:
                self._open.update(epochs=self._epochs - _SETTLED, bytes_after=sent)
                self._open = None
        if stable:
            self._sent = sent

    def _begin(self, observation: EpochObservation, why: str, old: tuple[float, ...]) -> None:
        self._epochs = 1
        self._open = {
            "epoch_us": observation.epoch_us,
            "why": why,
            "epochs": None,
            "from": list(old),
            "to": list(old),
            "bytes_before": self._sent,
            "bytes_after": None,
        }
        self.changes.append(self._open)
