"""Pauses between attempts that fail."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass
class Backoff:
    """Pauses that double from `first_s` to `max_s`, each spread at random by up to the share `spread`.

    The spread keeps senders that were cut off together from coming back at once.

    >>> backoff = Backoff(0.5, 3.0)
    >>> [backoff.next_s() for _ in range(4)]
    [0.5, 1.0, 2.0, 3.0]
    >>> backoff.reset()
    >>> backoff.next_s()
    0.5
    """

    first_s: float
    max_s: float
    spread: float = 0.0
    _pause_s: float = field(default=0.0, init=False, repr=False)

    def reset(self) -> None:
        """Begin with `first_s` again: an attempt has succeeded."""
        self._pause_s = 0.0

    def exhaust(self) -> None:
        """Go on with `max_s`: an early attempt has no prospect."""
        self._pause_s = self.max_s

    def next_s(self, *, at_least_s: float = 0.0, max_s: float | None = None) -> float:
        """Pause after a failed attempt.

        Parameters
        ----------
        at_least_s
            Shortest pause that the other side asks for; it may exceed the maximum.
        max_s
            Another maximum for this pause and those after it that give none smaller.
        """
        doubled_s = 2 * self._pause_s if self._pause_s else self.first_s
        self._pause_s = min(doubled_s, self.max_s if max_s is None else max_s)
        return max(self._pause_s, at_least_s) * random.uniform(1 - self.spread, 1 + self.spread)
