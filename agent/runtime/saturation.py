"""Whether the core has had more work than it can do, for some epochs."""

from __future__ import annotations

__all__ = ["Saturation"]

USED_UP_SHARE = 0.95  # of what operators could have had
MUCH_SHARE = 0.05  # of what operators could have had: work that is left and counts
EPOCHS = 3  # alike, before it is one or the other


class Saturation:
    """Above saturation the CPU time is used up and what waits does not become less; it is over after as many epochs
    that left time or nothing to do.
    """

    def __init__(self) -> None:
        self.active = False
        self._before_ns = 0.0  # work left by the epoch before
        self._alike = 0  # epochs that speak against the present state

    def epoch(self, used_ns: float, free_ns: float, left_ns: float) -> None:
        """An epoch is over: CPU time that operators used, that they could have had, that what is left would take."""
        much = left_ns > MUCH_SHARE * free_ns
        tight = used_ns >= USED_UP_SHARE * free_ns and much and (self.active or left_ns >= self._before_ns)
        self._before_ns = left_ns
        self._alike = 0 if tight == self.active else self._alike + 1
        if self._alike == EPOCHS:
            self.active, self._alike = tight, 0
