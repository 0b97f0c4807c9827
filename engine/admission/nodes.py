"""Search: the least capacity of new nodes with which the candidate passes, placed again and using all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from engine.admission.changes import Change, joined
from engine.admission.scenario import core_capacity_cps, largest_node, scenario_of
from engine.admission.search import Search, Settled, gallop, largest
from engine.deployment import Node
from engine.errors import InfeasibleError

__all__ = ["least_capacity", "replaced"]

_PARTS = 64  # a node's capacity is searched in 64ths of the largest one's
_MOST_NODES = 3


def least_capacity(search: Search) -> Settled | None:
    """One node of the least capacity; failing that, two or three like the largest."""
    search.tell("Searching the least extra capacity")
    like = largest_node(search.question.running)
    if like is None:
        return None
    moves = replaced(search)
    if moves and search.flow_passes(moves) and search.settle(moves):
        return None  # placed again it passes on the nodes there are
    full = core_capacity_cps(like)
    names = _new_names(search)

    @cache
    def one(spared: int) -> list[Change]:
        # Counted in parts that are spared, so that more of it is harder, as in the other searches.
        return _with_moves(search, [_node(names[0], like, full * (_PARTS - spared) / _PARTS)])

    def by_mace(spared: int) -> bool:
        return _is_used(search, one(spared)) and search.mace_passes(one(spared))

    def by_flow(spared: int) -> bool:
        return _is_used(search, one(spared)) and search.flow_passes(one(spared))

    if by_mace(0) or by_flow(0):
        guess = largest(0, _PARTS - 1, by_mace) or 0
        found = gallop(guess, 0, _PARTS - 1, by_flow, search.budget + 2)
        capacities = () if found is None else (one(spared) for spared in _less(found))
        settled = search.first_settled(more for more in capacities if _is_used(search, more))
        if settled:
            return settled
    several = (
        _with_moves(search, [_node(name, like, full) for name in names[:count]]) for count in range(2, _MOST_NODES + 1)
    )
    return search.first_settled(more for more in several if _is_used(search, more) and search.flow_passes(more))


def _is_used(search: Search, more: Sequence[Change]) -> bool:
    """Whether the candidate would be on every new node: one that stays empty would cure nothing."""
    scenario = search.scenario(more)
    added = {change["id"] for change in more if change["kind"] == "add_node"}
    return scenario is not None and added <= set(scenario.nodes_of(search.question.candidate.query))


def _less(spared: int) -> Iterator[int]:
    """`spared`, and less of it in steps that double, down to none."""
    step = 2
    while spared > 0:
        yield spared
        spared, step = spared - step, step * 2
    yield 0


def _node(name: str, like: Node, capacity_cps: float) -> Change:
    return {
        "kind": "add_node",
        "id": name,
        "like": like.id,
        "capacity_cps": _rounded_up(capacity_cps),
        "cores": like.cores,
    }


def _rounded_up(value: float, digits: int = 3) -> float:
    """The next number with three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit * (1.0 - 1e-12)) * unit


def _new_names(search: Search) -> list[str]:
    taken = {node.id for node in search.question.running.nodes}
    taken |= {change["id"] for change in search.changes if change["kind"] == "add_node"}
    free = (name for k in itertools.count(1) if (name := f"new-{k}") not in taken)
    return list(itertools.islice(free, _MOST_NODES))


def _with_moves(search: Search, added: Sequence[Change]) -> list[Change]:
    """The new nodes, and the moves it takes to place again what was asked for on certain nodes."""
    return [*added, *replaced(search, added)]


def replaced(search: Search, more: Sequence[Change] = ()) -> list[Change]:
    """Moves that put the candidate where it would go had it asked for no nodes; splits stay as they are."""
    candidate = search.question.candidate
    asked = {op.id: op.replicas[0] for op in candidate.operators if len(op.replicas) == 1}
    if not asked:
        return []
    free = replace(
        candidate,
        operators=tuple(replace(op, replicas=()) if op.id in asked else op for op in candidate.operators),
    )
    changes = [c for c in search.changes if c["kind"] != "move" or c["operator"] not in asked]
    try:
        found = scenario_of(replace(search.question, candidate=free), joined(changes, more))
    except InfeasibleError:
        return []
    moved = {change["operator"] for change in search.changes if change["kind"] == "move"}
    places = found.replicas_of(candidate.query)
    return [
        {"kind": "move", "operator": name, "node": places[name][0].node, "core": places[name][0].core}
        for name, replica in asked.items()
        if places[name] != (replica,) or name in moved
    ]
