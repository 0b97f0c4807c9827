"""Loads of a scheduling simulation: queries and arrivals."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrivals",
    "SimulatedOperator",
    "SimulatedQuery",
    "SimulationSetting",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimulatedOperator:
    """Operator of a simulated query."""

    cost_ms: float  #: CPU time of an event into it
    selectivity: float = 1.0  #: events out per event in


@dataclass(frozen=True)
class SimulatedQuery:
    """Query of a simulation; its windows have their deadlines at `first_ms` and every `period_ms` from then on."""

    id: str
    operators: tuple[SimulatedOperator, ...]
    period_ms: float | None = None  #: None: it has no windows
    first_ms: float = 0.0
    nodes: tuple[int, ...] = (0,)  #: one, or two: operators before `split` on the first, the others on the second
    split: int = 0
    event_bytes: float = 100.0
    waits_ms: float = math.inf  #: that an event may wait before it overflows

    @property
    def cost_ms(self) -> float:
        """CPU time of an event through the whole pipeline."""
        return float(
            sum(reach * operator.cost_ms for reach, operator in zip(self.reaches, self.operators, strict=True))
        )

    @property
    def reaches(self) -> list[float]:
        """Events that come to each operator, per event of the source."""
        return list(
            itertools.accumulate([1.0, *(operator.selectivity for operator in self.operators[:-1])], lambda x, y: x * y)
        )


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of a query: events by bins, watermarks by windows (rows) and streams (columns)."""

    events: Array  #: (bins,), that come until the bin begins
    stimulus_ms: Array  #: (bins,), the earliest event time of these
    marks_ms: Array  #: (windows, streams), when the watermark comes; infinite where none does
    mean_ms: Array  #: (windows, streams), mean delay that the window's epoch has shown
    square_ms2: Array  #: (windows, streams), mean of squared delays


@dataclass(frozen=True)
class SimulationSetting:
    """Setting of a simulation: nodes, cores, policy, limits."""

    policy: str
    tick_ms: float = 10.0
    cycle_ms: float = 120.0
    cores: int = 4  #: of each node
    nodes: int = 1
    intake_s: float = math.inf  #: of work that may wait for each core; what comes above is refused
    link_ms: float = 0.0  #: from one node to another
    forwarding: bool = True  #: nodes tell each other of delays and costs
    starvation_ms: float = math.inf
    saturated_ms: float = 2_000.0
    memory_bytes: float = math.inf
    release_share: float = 0.5
    release_s: float = 3.0
    history: int = 400
    epoch_ms: float = 1_000.0
    drain_s: float = 0.0  #: that it goes on after the last bin, without new events, until all windows are swept
    seed: int = 0
