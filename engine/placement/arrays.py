"""The arrays a compiled search works on, made from a problem."""

from __future__ import annotations

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray
from engine.placement.kernels import OWN, WINDOWS, Fixed, State
from engine.placement.problem import Problem
from engine.placement.walk import Best
from engine.placement.windows import rebuild

__all__ = ["best_of", "fixed_of", "groups_of", "state_of"]

# A core without capacity works this share of what the fastest can do: costs stay finite, so that one can be less.
_IDLE = 1e-9


def fixed_of(problem: Problem) -> Fixed:
    """What does not change in a search; loads and rates in cycles per subinterval."""
    items, d = problem.load.shape
    load = np.empty((items + 1, d))
    load[:items], load[items] = problem.load, 0.0
    base = np.zeros((problem.cores, d)) if problem.base is None else problem.base
    rates = np.array(problem.budget, dtype=np.float64, order="C")
    rates = np.maximum(rates, _IDLE * rates.max(initial=1.0))
    starts, groups = groups_of(problem)
    return Fixed(
        load=load,
        upto=_running(load, np.empty((d + 1, items))),
        empty=np.ascontiguousarray(base - problem.budget),
        rates=rates,
        done=np.cumsum(rates, axis=1),
        most=rates.max(axis=1),
        node=np.array(problem.core_node, dtype=np.int64),
        allowed=np.array(problem.allowed, dtype=np.bool_, order="C"),
        weight=np.zeros(0) if problem.weight is None else np.array(problem.weight, dtype=np.float64),
        group_start=starts,
        groups=groups,
        origin=problem.origin.copy(),
        max_moves=-1 if problem.max_moves is None else problem.max_moves,
    )


@compiled
def _running(load: FloatArray, upto: FloatArray) -> FloatArray:
    """Sums of the first rows of `load` before each subinterval, (d + 1, items); a few rows at a time stay in cache.

    numpy makes `upto`: it asks for large pages, without which most of the time is page faults.
    """
    d, items = load.shape[1], upto.shape[1]
    for i in range(items):
        upto[0, i] = 0.0
    for first in range(0, items, 64):
        last = min(first + 64, items)
        for p in range(d):
            for i in range(first, last):
                upto[p + 1, i] = upto[p, i] + load[i, p]
    return upto


def groups_of(problem: Problem) -> tuple[IntArray, IntArray]:
    """Groups apart of every item: those of item i are groups[start[i]:start[i + 1]]."""
    lists: list[list[int]] = [[] for _ in range(problem.items)]
    for number, group in enumerate(problem.apart):
        for item in set(group):
            lists[item].append(number)
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.array([number for numbers in lists for number in numbers], dtype=np.int64)


def state_of(problem: Problem, fixed: Fixed, core: IntArray) -> State:
    """The state of a search that stands at a placement."""
    items, cores = problem.items, problem.cores
    state = State(
        core=np.array(core, dtype=np.int64),
        residual=np.zeros_like(fixed.empty),
        cost=np.zeros(cores),
        first=_whole(cores),
        after=_whole(items),
        before=_whole(items),
        held=_whole(len(problem.apart), int(problem.core_node.max(initial=0)) + 1),
        begin=_whole(WINDOWS),
        end=_whole(WINDOWS),
        hits=_whole(WINDOWS),
        order=_whole(WINDOWS),
        of_item=np.zeros((WINDOWS, items + 1)),
        of_core=np.zeros((WINDOWS, cores)),
        own=_whole(cores, OWN, 2),
        own_sum=np.zeros((cores, OWN)),
        own_next=_whole(cores),
        away=_whole(1),
        dirty=np.zeros(cores, dtype=np.bool_),
        counts=_whole(3),
    )
    rebuild(fixed, state)
    return state


def best_of(state: State, seed: int, finalists: int, *, climbing: bool) -> Best:
    """Nothing found yet; the first round is a climb from here, or begins with a random placement."""
    items = len(state.core)
    return Best(
        core=state.core.copy(),
        residual=np.zeros_like(state.residual),
        cost=np.full(len(state.cost), np.inf),
        value=np.array([np.inf]),
        ends=np.zeros((finalists, items), dtype=np.int64),
        end_values=np.full(finalists, np.inf),
        rounds=np.array([0, int(climbing)]),
        random=np.array([seed], dtype=np.uint64),
    )


def _whole(*shape: int) -> IntArray:
    return np.zeros(shape, dtype=np.int64)
