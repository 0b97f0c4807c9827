"""Search over the settings of a stage: largest rate within a constraint, least latency at a rate, fewest nodes.

Reference: Li, Diao, Shenoy (VLDB 2015), section 3.1, equation 1; docs/models/planner.md for the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

import numpy as np

from engine.arrays import IntArray
from engine.errors import Fault
from engine.kinds import Number
from engine.order_statistics import normal_maximum
from engine.planner.kernel import ANSWER_SIZE, UNSTABLE, SearchSpace, judge, largest_rate, least_latency
from engine.planner.latency import ModelOptions, stage_model
from engine.planner.plan import StageSettings
from engine.planner.profile import MAX_THREADS, NodeHardware, StageProfile
from engine.records import ItemCount, Record

__all__ = ["SearchLimits", "StageSearch"]

#: First intervals of a descent: B_in in seconds, B_sh and B_ch as shares of the latency aimed at.
_STARTS = (
    (0.005, 1 / 3, 1 / 3),
    (0.005, 1 / 6, 1 / 3),
    (0.005, 1 / 8, 1 / 8),
    (0.005, 1 / 2, 1 / 20),
    (0.005, 1 / 20, 1 / 2),
    (0.02, 1 / 10, 1 / 10),
    (0.05, 1 / 4, 1 / 4),
    (0.05, 1 / 3, 2 / 3),
    (0.001, 1 / 8, 1 / 100),
    (0.001, 1 / 30, 1 / 30),
    (0.1, 1 / 5, 1 / 15),
    (0.003, 1 / 15, 1 / 8),
)
_CURVE_STRIDE = 2  # a curve starts from every other of them
_FIRST_SHARE = 1e-6  # of the capacity: where a largest rate is sought from
_HIGHER = 1.00001  # step of a rate that finer numbers of threads have to bear
_ALL_THREADS = 8
_BISECTIONS = 40
_HOPELESS = 1e300
_MAX_CAPACITY = 1e18  # tuples/s of a node, where tuples cost next to nothing


_Threads = Annotated[int, Number(least=1, most=MAX_THREADS, whole=True)]
_Intervals = Annotated[tuple[Annotated[float, Number(above=0)], ...], ItemCount(3, 3)]


@dataclass(frozen=True)
class SearchLimits(Record):
    """Ranges of the settings that are tried: threads per node, and (B_in, B_sh, B_ch) in seconds."""

    TITLE: ClassVar[str] = "limits of a search"

    max_m: _Threads = 6
    max_r: _Threads = 6
    b_lo: _Intervals = (0.001, 0.005, 0.005)
    b_hi: _Intervals = (0.1, 2.0, 2.0)

    def find_faults(self) -> Iterator[Fault]:
        """Ranges that end before they begin."""
        yield from super().find_faults()
        for place, (low, high) in enumerate(zip(self.b_lo, self.b_hi, strict=True)):
            if high < low:
                yield Fault(f"b_hi[{place}]", f"item {place} is {high:g}; allowed: at least {low:g} (b_lo)")


class StageSearch:
    """Search for one stage on one kind of node; metrics are to stay within `goal_s`.

    The metric rises with the rate, so that the largest rate is found by bisection. The largest rate rises with the
    nodes up to some number, from which on more partitions cost more than a node brings.
    """

    def __init__(
        self,
        profile: StageProfile,
        hardware: NodeHardware,
        options: ModelOptions,
        limits: SearchLimits,
        goal_s: float,
    ) -> None:
        self.goal_s = goal_s
        self._model, self._limits = stage_model(profile, hardware, options), limits
        self._answer, self._place, self._best = np.zeros(ANSWER_SIZE), np.zeros(3), np.zeros(5)
        self._lowest, self._highest = np.array(limits.b_lo, dtype=float), np.array(limits.b_hi, dtype=float)
        self._starts = np.array([(b_in, b_sh * goal_s, b_ch * goal_s) for b_in, b_sh, b_ch in _STARTS])
        model = self._model
        size = model.b_in + model.alpha * model.b_out
        work = max(model.c_map + model.alpha * model.c_red, model.cores / _MAX_CAPACITY)
        self.node_capacity = model.rho_max * min(model.cores / work, model.v_net / size if size > 0.0 else math.inf)
        """Rate (tuples/s) that a node cannot exceed, whatever the settings."""
        self.space = cache(self._space)
        self.largest = cache(self._largest)

    def _space(self, nodes: int) -> SearchSpace:
        mappers, reducers = _rungs(self._limits.max_m), _rungs(self._limits.max_r)
        largest = np.array([normal_maximum(nodes * number) for number in range(1, self._limits.max_m + 1)])
        scores = np.zeros((len(mappers), len(reducers)))
        return SearchSpace(mappers, reducers, self._lowest, self._highest, self._starts, largest, scores)

    def _finer(self, space: SearchSpace) -> Iterator[SearchSpace]:
        """Numbers of threads around the best settings that `space` leaves out, in steps that are halved."""
        step = max(_gap(space.mappers, int(self._best[0])), _gap(space.reducers, int(self._best[1]))) // 2
        while step:
            mappers = _around(int(self._best[0]), step, self._limits.max_m)
            reducers = _around(int(self._best[1]), step, self._limits.max_r)
            yield space._replace(mappers=mappers, reducers=reducers, starts=self._best[None, 2:].copy())
            step //= 2

    def _settings(self, nodes: int) -> StageSettings:
        mappers, reducers, b_in_s, b_sh_s, b_ch_s = self._best.tolist()
        return StageSettings(nodes, int(mappers), int(reducers), b_in_s, b_sh_s, b_ch_s)

    def metric(self, rate: float, settings: StageSettings) -> float:
        """The metric (s) of given settings at a rate; infinite where they are not stable."""
        mappers = settings.mappers
        largest = self.space(settings.nodes).largest[mappers - 1]
        place = settings.nodes, mappers, settings.reducers, *_intervals(settings), float(largest[0]), float(largest[1])
        metric = judge(self._model, rate, *place, self._answer)
        return metric if metric < UNSTABLE else math.inf

    def is_reachable(self, rate: float, nodes: int) -> bool:
        """Whether some settings keep the goal at `rate`."""
        return self._least(rate, nodes, self.space(nodes), self.goal_s) <= self.goal_s

    def least(self, rate: float, nodes: int, first: StageSettings | None = None) -> tuple[float, StageSettings | None]:
        """Least metric at `rate` and its settings; infinite and None where none is stable. The search may begin with
        settings that are known to be good.
        """
        return self._found(self._least(rate, nodes, self.space(nodes), -1.0, first), nodes)

    def _least(
        self, rate: float, nodes: int, space: SearchSpace, goal_s: float, first: StageSettings | None = None
    ) -> float:
        self._best[:] = 0.0 if first is None else (first.mappers, first.reducers, *_intervals(first))
        arrays = self._place, self._best, self._answer
        least = least_latency(self._model, space, rate, nodes, goal_s, *arrays)
        if least > goal_s and self._best[0] > 0.0:
            for finer in self._finer(space):
                least = least_latency(self._model, finer, rate, nodes, goal_s, *arrays)
        return least

    def _found(self, metric: float, nodes: int) -> tuple[float, StageSettings | None]:
        return (metric, self._settings(nodes)) if metric < UNSTABLE else (math.inf, None)

    def _largest(self, nodes: int) -> tuple[float, StageSettings | None]:
        """Largest rate within the goal and its settings; 0 and None where none is small enough."""
        return self._largest_from(_FIRST_SHARE * nodes * self.node_capacity, nodes)

    def largest_above(self, rate: float, nodes: int) -> tuple[float, StageSettings | None]:
        """The same, sought from `rate` on, faster where that is reachable; from below where it is missed."""
        reached, settings = self._largest_from(rate, nodes)
        return self.largest(nodes) if settings is None else (reached, settings)

    def _largest_from(self, rate: float, nodes: int) -> tuple[float, StageSettings | None]:
        upper = 1.01 * nodes * self.node_capacity
        arrays = self._place, self._best, self._answer
        space = self.space(nodes)
        reached = largest_rate(self._model, space, rate, upper, nodes, self.goal_s, *arrays)
        if reached == 0.0 and self._least(rate, nodes, space, self.goal_s) <= self.goal_s:
            reached = rate
        if reached > 0.0:
            for finer in self._finer(space):
                more = largest_rate(self._model, finer, reached * _HIGHER, upper, nodes, self.goal_s, *arrays)
                reached = max(reached, more)
        return (reached, self._settings(nodes)) if reached > 0.0 else (0.0, None)

    def largest_of(self, settings: StageSettings) -> float:
        """Largest rate at which given settings keep the goal; 0 where none is small enough."""
        low, high = 0.0, 1.01 * settings.nodes * self.node_capacity
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self.metric(middle, settings) <= self.goal_s else (low, middle)
        return low

    def first_nodes(self, rate: float) -> int:
        """Fewest nodes whose capacity is not below `rate`."""
        return max(1, math.ceil(rate / self.node_capacity * (1.0 - 1e-12)))

    def fewest_nodes(self, rate: float, max_nodes: int) -> int | None:
        """Fewest nodes that reach `rate`; None where no number up to `max_nodes` does."""
        first = self.first_nodes(rate)
        if first > max_nodes:
            return None
        below, nodes, step = first - 1, first, 1
        while not self.is_reachable(rate, nodes):
            if nodes == max_nodes:
                nodes = self.best_nodes(first, max_nodes)
                if self.largest(nodes)[0] < rate:
                    return None
                below = first - 1
                break
            below, nodes, step = nodes, min(nodes + step, max_nodes), 2 * step
        while nodes - below > 1:
            middle = (below + nodes) // 2
            below, nodes = (below, middle) if self.is_reachable(rate, middle) else (middle, nodes)
        return nodes

    def best_nodes(self, first: int, last: int) -> int:
        """Number of nodes from `first` to `last` with the largest rate within the goal."""
        return _lowest_at(lambda nodes: -self.largest(nodes)[0] or math.inf, first, last)

    def least_at_best(self, rate: float, max_nodes: int) -> tuple[float, StageSettings | None]:
        """Least metric at `rate` with any number of nodes up to `max_nodes`."""

        @cache
        def least(nodes: int) -> float:
            """Unstable settings count by how far they are from stability, and hopeless ones by the nodes they lack."""
            return min(self._least(rate, nodes, self.space(nodes), -1.0), _HOPELESS / nodes)

        return self.least(rate, _lowest_at(least, min(self.first_nodes(rate), max_nodes), max_nodes))

    def curve(self, nodes: int, rates: Sequence[float], known: Sequence[StageSettings]) -> list[float]:
        """Least metric at each of ascending `rates`; infinite where none is stable.

        From the highest rate down each search begins with the settings found before, so that the curve rises. `known`
        are settings that are good at some rate.
        """
        space = self.space(nodes)
        more = [np.array([_intervals(settings)]) for settings in known]
        space = space._replace(starts=np.concatenate([space.starts[::_CURVE_STRIDE], *more]))
        metrics: list[float] = []
        settings: StageSettings | None = None
        for rate in reversed(rates):
            metric, settings = self._found(self._least(rate, nodes, space, -1.0, settings), nodes)
            metrics.append(metric)
        return metrics[::-1]


def _rungs(most: int) -> IntArray:
    """Numbers of threads from 1 to `most`: all up to 8, then half as many more each."""
    rungs = list(range(1, min(most, _ALL_THREADS) + 1))
    while rungs[-1] < most:
        rungs.append(min(rungs[-1] * 3 // 2, most))
    return np.array(rungs, dtype=np.int64)


def _gap(rungs: IntArray, number: int) -> int:
    """Distance of a rung from the further one beside it."""
    place = int(np.searchsorted(rungs, number))
    return int(max(np.diff(rungs[max(place - 1, 0) : place + 2]), default=1))


def _around(number: int, step: int, most: int) -> IntArray:
    """`number`, one less and one more by `step`, from 1 to `most`."""
    return np.unique(np.clip([number - step, number, number + step], 1, most)).astype(np.int64)


def _intervals(settings: StageSettings) -> tuple[float, float, float]:
    return settings.b_in_s, settings.b_sh_s, settings.b_ch_s


def _lowest_at(value: Callable[[int], float], first: int, last: int) -> int:
    """Where a function that falls and then rises is lowest; where it is level, the lower side is taken."""
    if last > first and value(last) < value(last - 1):
        return last
    while first < last:
        middle = (first + last) // 2
        first, last = (middle + 1, last) if value(middle + 1) < value(middle) else (first, middle)
    return first
