"""Start of a local search: arrays of a problem, and first placements by vector-greedy on blocks."""

from __future__ import annotations

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled, inner
from engine.placement.local_search.bounds import feasible_cores
from engine.placement.local_search.climb import BestPlacements
from engine.placement.local_search.state import NONE, OWN, WINDOWS, BoolArray, SearchArrays, SearchState
from engine.placement.local_search.windows import rebuild
from engine.placement.problem import PlacementProblem, faults_of, held_bytes, value_of

__all__ = ["best_placements", "first_placements", "groups_of", "search_arrays", "search_state"]

# A core without capacity works this share of what the fastest can do: costs stay finite, so that one can be less.
_IDLE = 1e-9

# Series are judged in at most this many blocks.
BLOCKS = 24


def search_arrays(problem: PlacementProblem) -> SearchArrays:
    """Constant arrays of a search; loads and rates in cycles per subinterval."""
    items, d = problem.load.shape
    load = np.empty((items + 1, d))
    load[:items], load[items] = problem.load, 0.0
    base = np.zeros((problem.cores, d)) if problem.base is None else problem.base
    rates = np.array(problem.budget, dtype=np.float64, order="C")
    rates = np.maximum(rates, _IDLE * rates.max(initial=1.0))
    starts, groups = groups_of(problem)
    return SearchArrays(
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
        need=problem.needs,
        room=problem.rooms,
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


def groups_of(problem: PlacementProblem) -> tuple[IntArray, IntArray]:
    """Groups apart of every item: those of item i are groups[start[i]:start[i + 1]]."""
    lists: list[list[int]] = [[] for _ in range(problem.items)]
    for number, group in enumerate(problem.apart):
        for item in set(group):
            lists[item].append(number)
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.array([number for numbers in lists for number in numbers], dtype=np.int64)


def search_state(problem: PlacementProblem, fixed: SearchArrays, core: IntArray) -> SearchState:
    """The state of a search that stands at a placement."""
    items, cores = problem.items, problem.cores
    state = SearchState(
        core=np.array(core, dtype=np.int64),
        residual=np.zeros_like(fixed.empty),
        cost=np.zeros(cores),
        first=_whole(cores),
        after=_whole(items),
        before=_whole(items),
        held=_whole(len(problem.apart), max(1, problem.nodes)),
        used=np.zeros(problem.nodes),
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


def best_placements(state: SearchState, seed: int, finalists: int, *, climbing: bool) -> BestPlacements:
    """Nothing found yet; the first round is a climb from here, or begins with a random placement."""
    items = len(state.core)
    return BestPlacements(
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


def first_placements(problem: PlacementProblem) -> list[IntArray]:
    """Placements to begin with, the best first; they keep what is placed, or place everything anew.

    Raises
    ------
    InfeasibleError
        If nothing fits all constraints, with the reasons; or if nothing was found that does.
    """
    kept = problem.origin.copy()
    placed = np.flatnonzero(kept >= 0)
    kept[placed[~problem.allowed[placed, kept[placed]]]] = -1
    kept = within_memory(problem, kept)
    starts = [kept] if (kept < 0).all() or problem.max_moves is not None else [kept, np.full(problem.items, -1)]
    placements = []
    for start in starts:
        core = greedy(problem, start)
        if core is not None and not faults_of(problem, core):
            placements.append(core)
    if not placements:
        # The constraints decide where some go; the others follow.
        core = greedy(problem, feasible_cores(problem))
        placements = [core] if core is not None else []
    return sorted(placements, key=lambda core: value_of(problem, core)) if len(placements) > 1 else placements


def within_memory(problem: PlacementProblem, core: IntArray) -> IntArray:
    """Places without those that take a node over its memory: its largest states go, the fewest that are enough."""
    if not problem.is_limited:
        return core
    core, held, rooms = core.copy(), held_bytes(problem, core), problem.rooms
    for item in problem.by_need:
        node = problem.core_node[core[item]] if core[item] >= 0 else 0
        if core[item] >= 0 and problem.needs[item] > 0.0 and held[node] > rooms[node]:
            core[item] = -1
            held[node] -= problem.needs[item]
    return core


def greedy(problem: PlacementProblem, core: IntArray) -> IntArray | None:
    """Every item without a core (-1) where it hurts least, largest first; None if constraints leave one no core.

    Where memory leaves one none, those with the most state go first in a second try.
    """
    filled = _filled(problem, core, by_need=False)
    if filled is None and problem.is_limited:
        return _filled(problem, core, by_need=True)
    return filled


def _filled(problem: PlacementProblem, core: IntArray, *, by_need: bool) -> IntArray | None:
    items, d = problem.load.shape
    size = -(-d // BLOCKS)
    edges = np.arange(0, d, size)
    load = np.add.reduceat(problem.load, edges, axis=1)
    base = np.zeros((problem.cores, d)) if problem.base is None else problem.base
    budget = np.broadcast_to(problem.budget, base.shape)
    residual = np.add.reduceat(base - budget, edges, axis=1)
    rate = np.maximum(budget.mean(axis=1), 1e-9 * max(1.0, float(budget.max(initial=0.0))))
    starts, groups = groups_of(problem)
    held = np.zeros((len(problem.apart), max(1, problem.nodes)), dtype=np.int64)
    used = held_bytes(problem, core)
    core = core.copy()
    for item in np.flatnonzero(core >= 0):
        residual[core[item]] += load[item]
        held[groups[starts[item] : starts[item + 1]], problem.core_node[core[item]]] += 1
    weight = np.ones(items) if problem.weight is None else np.array(problem.weight, dtype=np.float64)
    # What has few places to go goes first, so that nobody who has more takes them.
    bound = problem.allowed.sum(axis=1) == 1
    need = problem.needs if by_need else np.zeros(items)
    order = np.lexsort((-problem.load.max(axis=1) * weight, -np.diff(starts), -need, ~bound))
    left = order[core[order] < 0]
    node = np.array(problem.core_node, dtype=np.int64)
    allowed = np.array(problem.allowed, dtype=np.bool_, order="C")
    memory = problem.needs, problem.rooms, used
    return (
        core if _fill(left, core, load, residual, rate, weight, node, allowed, starts, groups, held, memory) else None
    )


@compiled
def _fill(
    order: IntArray,
    core: IntArray,
    load: FloatArray,
    residual: FloatArray,
    rate: FloatArray,
    weight: FloatArray,
    node: IntArray,
    allowed: BoolArray,
    group_start: IntArray,
    groups: IntArray,
    held: IntArray,
    memory: tuple[FloatArray, FloatArray, FloatArray],
) -> bool:
    """Fill `core` in this order: least cost first, then least load at the times when the item has its own."""
    cores, blocks = residual.shape
    need, room, used = memory
    heaviest = np.zeros(cores)
    for item in range(len(core)):
        if core[item] >= 0:
            heaviest[core[item]] = max(heaviest[core[item]], weight[item])
    by_block = np.empty((blocks, cores))
    for c in range(cores):
        for p in range(blocks):
            by_block[p, c] = residual[c, p]
    overlap = np.empty(cores)
    reached, nothing = np.zeros(cores), np.zeros(blocks)
    # What each core costs already: no item can make that less.
    costs = np.zeros(cores)
    for c in range(cores):
        reached[c] = _highest(residual[c], nothing, np.inf)
        costs[c] = reached[c] * (max(heaviest[c], 1e-300) / rate[c])
    for item in order:
        add = load[item]
        changed = False
        best, best_cost, best_overlap = NONE, np.inf, np.inf
        likely = _least(reached, rate)
        for n in range(-1, cores):
            c = likely if n < 0 else n
            if costs[c] > best_cost:
                continue
            scale = max(heaviest[c], weight[item], 1e-300) / rate[c]
            # An item more never makes a core cheaper; and nothing costs less than nothing: then the overlap decides.
            if reached[c] * scale > best_cost or (best_cost == 0.0 and overlap[c] / rate[c] >= best_overlap):
                continue
            free = allowed[item, c] and (need[item] == 0.0 or used[node[c]] + need[item] <= room[node[c]])
            for g in range(group_start[item], group_start[item + 1]):
                free = free and held[groups[g], node[c]] == 0
            if not free:
                continue
            cost = _highest(residual[c], add, best_cost / scale) * scale
            if not changed and (cost == 0.0 or cost == best_cost):
                # Most items are told apart by what they cost.
                changed = True
                _overlaps(by_block, add, overlap)
                best_overlap = np.inf if best < 0 else overlap[best] / rate[best]
            if best < 0 or cost < best_cost or (cost == best_cost and overlap[c] / rate[c] < best_overlap):
                best, best_cost, best_overlap = c, cost, overlap[c] / rate[c]
        if best < 0:
            return False
        core[item] = best
        heaviest[best] = max(heaviest[best], weight[item])
        used[node[best]] += need[item]
        for p in range(blocks):
            residual[best, p] += add[p]
            by_block[p, best] += add[p]
        reached[best] = _highest(residual[best], nothing, np.inf)
        costs[best] = reached[best] * (max(heaviest[best], 1e-300) / rate[best])
        for g in range(group_start[item], group_start[item + 1]):
            held[groups[g], node[best]] += 1
    return True


@inner
def _overlaps(by_block: FloatArray, add: FloatArray, overlap: FloatArray) -> None:
    """Residual of every core at the times when an item has its load."""
    for c in range(len(overlap)):
        overlap[c] = 0.0
    for p in range(len(add)):
        row, share = by_block[p], add[p]
        for c in range(len(overlap)):
            overlap[c] += row[c] * share


@inner
def _least(reached: FloatArray, rate: FloatArray) -> int:
    """The first of the cores that are least behind."""
    at = 0
    for c in range(1, len(reached)):
        if reached[c] / rate[c] < reached[at] / rate[at]:
            at = c
    return at


@inner
def _highest(row: FloatArray, add: FloatArray, above: float) -> float:
    """Largest excess of a row with a load more; given up once it is above a limit."""
    excess, highest = 0.0, 0.0
    for p in range(len(row)):
        excess = max(0.0, excess + row[p] + add[p])
        highest = max(highest, excess)
        if highest > above:
            break
    return highest
