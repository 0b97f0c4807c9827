"""Memory of each process of a console over time, and how fast it grows once the process has warmed up."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import psutil

from lab.soak.installation import SERVICES, SoakConsole

__all__ = ["MemoryGrowth", "MemorySampler"]

_EVERY_S = 2.0


@dataclass(frozen=True)
class MemoryGrowth:
    """Growth of the longest-lived process of a service over the later half of its life."""

    service: str
    lived_s: float
    resident_mb: float
    mb_per_min: float | None  # None: it did not live long enough to tell


class MemorySampler(threading.Thread):
    """Notes the resident memory of all processes until it is told to end."""

    def __init__(self, console: SoakConsole, ending: threading.Event) -> None:
        super().__init__(name="memory", daemon=True)
        self._console, self._ending = console, ending
        self._samples: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)

    def run(self) -> None:
        while not self._ending.wait(_EVERY_S):
            now = time.monotonic()
            for service in SERVICES:
                for process in self._console.family(service):
                    try:
                        self._samples[service, process.pid].append((now, process.memory_info().rss / 1e6))
                    except psutil.Error:
                        continue

    def growths(self, enough_s: float) -> list[MemoryGrowth]:
        """Growth of each service; `enough_s` is the life from which on a slope says something."""
        found = []
        for service in SERVICES:
            lives = [samples for (name, _), samples in self._samples.items() if name == service]
            if lives:
                found.append(_growth(service, max(lives, key=lambda life: life[-1][0] - life[0][0]), enough_s))
        return found


def _growth(service: str, samples: list[tuple[float, float]], enough_s: float) -> MemoryGrowth:
    lived_s = samples[-1][0] - samples[0][0]
    later = np.array([sample for sample in samples if sample[0] >= samples[0][0] + lived_s / 2])
    slope = None
    if lived_s >= enough_s:
        slope = 60.0 * float(np.polyfit(later[:, 0] - later[0, 0], later[:, 1], 1)[0])  # least squares, MB a minute
    return MemoryGrowth(service, lived_s, samples[-1][1], slope)
