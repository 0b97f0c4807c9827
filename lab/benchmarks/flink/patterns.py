"""Patterns of load: what a job does with each event, and how many come when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["CALM_S", "PATTERNS", "JobStage", "Pattern"]

CALM_S = 45  #: at the beginning of every pattern, when statistics are taken
_TAIL_S = 60  # after the last burst, for queues to drain


@dataclass(frozen=True)
class JobStage:
    """An operator of the job: its kind, work of one event, instances, and the option that its kind takes."""

    name: str
    kind: str
    cost_us: int
    parallelism: int = 1
    option: int = 0

    def argument(self, work: str) -> str:
        return f"{self.name}/{self.kind}/{work}/{self.cost_us}/{self.parallelism}/{self.option}"


@dataclass(frozen=True)
class Pattern:
    """A job and its schedule.

    Attributes
    ----------
    rates : sequence of (events per second, seconds)
        After the calm part.
    work : str
        ``park`` holds an operator's thread without using the processor, ``cpu`` computes.
    second : bool
        Whether a second source of the same rates takes part, for a join.
    keys : int
        Few make some replicas busier than others.
    """

    name: str
    stages: tuple[JobStage, ...]
    rates: Sequence[tuple[int, int]]
    calm_rate: int = 100
    work: str = "park"
    pad_bytes: int = 0
    keys: int = 128
    watermark_delay_ms: int = 0
    second: bool = False

    @property
    def means(self) -> list[int]:
        """Mean number of events of each second."""
        steps = [(self.calm_rate, CALM_S), *self.rates, (self.calm_rate, _TAIL_S)]
        return [rate for rate, seconds in steps for _ in range(seconds)]

    def arrivals(self, seed: int) -> list[int]:
        """Events of each second, by Poisson's law."""
        drawn: list[int] = np.random.default_rng(seed).poisson(self.means).tolist()
        return drawn


_CHAIN = (
    JobStage("parse", "filter", 1500, option=86),
    JobStage("enrich", "keyed", 5000),
    JobStage("tally", "keyed", 2500),
)
_BURST = ((320, 25),)
_FAST = (JobStage("parse", "filter", 150, option=86), JobStage("enrich", "keyed", 500), JobStage("tally", "keyed", 250))

PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern("calm", _CHAIN, ()),
        Pattern("burst", _CHAIN, _BURST),
        Pattern("two-bursts", _CHAIN, ((300, 14), (100, 10), (340, 12))),
        Pattern(
            "three-bottlenecks",
            (
                JobStage("parse", "filter", 4000, option=86),
                JobStage("enrich", "keyed", 5200),
                JobStage("tally", "keyed", 5600),
            ),
            ((320, 20),),
        ),
        Pattern(
            "skew",
            (
                JobStage("parse", "filter", 1500, option=86),
                JobStage("enrich", "keyed", 8000, 2),
                JobStage("tally", "keyed", 1500),
            ),
            ((260, 25),),
            keys=7,
        ),
        Pattern("padded", _CHAIN, _BURST, pad_bytes=1000),
        Pattern(
            "window",
            (*_CHAIN[:2], JobStage("count", "window", 0, option=5000)),
            ((300, 15),),
            keys=4,
        ),
        Pattern(
            "join",
            (_CHAIN[0], JobStage("pair", "join", 5000, option=3000)),
            ((300, 20),),
            second=True,
        ),
        Pattern("cpu-calm", _FAST, (), calm_rate=500, work="cpu"),
        Pattern("cpu-burst", _FAST, ((3200, 15),), calm_rate=500, work="cpu"),
    )
}
