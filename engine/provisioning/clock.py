"""The time of a long question: progress that never goes back, a budget, and signs of life during long steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from engine.estimation.estimate import Progress

__all__ = ["ProgressClock"]

_EVERY_S = 1.0
Found = TypeVar("Found")


class ProgressClock:
    """Tells progress and knows when the time is over.

    Parameters
    ----------
    progress : callable, optional
        Told the share done and the step in words; an exception it raises ends the question.
    budget_s : float, optional
        Seconds after which nothing new is begun.
    """

    def __init__(self, progress: Progress | None = None, budget_s: float | None = None) -> None:
        self._tell = progress or (lambda share, step: None)
        self._began, self._budget_s = time.monotonic(), budget_s
        self._share, self._ended = 0.0, False

    @property
    def is_over(self) -> bool:
        if self._ended:
            return True
        return self._budget_s is not None and time.monotonic() - self._began > self._budget_s

    def tell(self, share: float | None, step: str) -> None:
        """Report a step; without a share it stays where it is."""
        self._share = max(self._share, min(share or 0.0, 1.0))
        self._tell(self._share, step)

    def during(self, step: str, work: Callable[[], Found]) -> Found:
        """Do `work`, which may take long, and tell every second that it goes on."""
        self.tell(None, step)
        began = time.monotonic()
        with ThreadPoolExecutor(1, "provisioning") as threads:
            future = threads.submit(work)
            try:
                while wait([future], _EVERY_S).not_done:
                    self.tell(None, f"{step}, {time.monotonic() - began:.0f} s")
            except BaseException:
                self._ended = True
                raise
            return future.result()
