"""Clusters of any number of queries: five operators a query, a core a query, a horizon of 900 s in slices of 0.25 s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray

__all__ = [
    "KINDS",
    "MACE_EVERY",
    "OPERATORS",
    "SLICES",
    "Document",
    "candidate_document",
    "cluster_document",
    "node_count",
]

Document = dict[str, Any]

OPERATORS = 5  # of a query
CORES = 8  # of a node
MACE_EVERY = 4  # slices in a subinterval
_CAPACITY_CPS = 2880.0
SLICES = 3600  # of a horizon
_SLICE_S = 0.25
_EVENTS = 12.0  # of a source in a slice
_BURST_SLICES = 240  # every other minute has more events
_BOUND_S = 2.0
_SKEW = 1.1  # of the power law; 1 is Zipf's


def _uniform(queries: int, rng: np.random.Generator) -> list[Document]:
    """A chain for every query, each with a source of its own, operators on random cores."""
    places = _random_places(OPERATORS * queries, queries, rng)
    return [
        _operator(f"q{q}", i, [f"s{q}" if i == 0 else _name(f"q{q}", i - 1)], places[OPERATORS * q + i], rng)
        for q in range(queries)
        for i in range(OPERATORS)
    ]


def _power_law(queries: int, rng: np.random.Generator) -> list[Document]:
    """Trees whose sizes follow a power law, and sources whose numbers of readers do: a few have most of both."""
    sizes = _shares(queries, OPERATORS * queries - queries, rng) + 1
    readers = rng.choice(queries, queries, p=_zipf(queries))
    places = _random_places(OPERATORS * queries, queries, rng)
    operators, at = [], 0
    for q in range(queries):
        for i in range(sizes[q]):
            above = f"s{readers[q]}" if i == 0 else _name(f"q{q}", int(rng.integers(i)))
            operators.append(_operator(f"q{q}", i, [above], places[at], rng))
            at += 1
    return operators


def _giant(queries: int, rng: np.random.Generator) -> list[Document]:
    """One query of five layers: every operator reads two of the layer above it."""
    places = _random_places(OPERATORS * queries, queries, rng)
    operators = []
    for layer in range(OPERATORS):
        others = rng.permutation(queries)
        for i in range(queries):
            above = [_name("giant", (layer - 1) * queries + int(j)) for j in dict.fromkeys((i, others[i]))]
            inputs = above if layer else [f"s{i}"]
            place = places[layer * queries + i]
            operators.append(_operator("giant", layer * queries + i, inputs, place, rng))
    return operators


def _one_node(queries: int, rng: np.random.Generator) -> list[Document]:
    """The chains of `uniform` on the cores of one node, which is as fast as all nodes together."""
    return [{**operator, "node": "n0"} for operator in _uniform(queries, rng)]


KINDS: Mapping[str, Callable[[int, np.random.Generator], list[Document]]] = {
    "uniform": _uniform,
    "power-law": _power_law,
    "giant": _giant,
    "one-node": _one_node,
}


def cluster_document(kind: str, queries: int, *, load: float = 1.0, slices: int = SLICES, seed: int = 1) -> Document:
    """Deployment document of a cluster of a kind; the same for the same seed.

    With `load` 1 cores are loaded at 0.2 on average and at 0.7 at most, and nothing is late; with 1.6 every seventh
    query is.
    """
    rng = np.random.default_rng(seed)
    operators = KINDS[kind](queries, rng)
    names = dict.fromkeys(operator["query"] for operator in operators)
    nodes, capacity_cps = node_count(kind, queries), _CAPACITY_CPS
    if kind == "one-node":
        capacity_cps *= queries / CORES
    return {
        "subinterval_s": _SLICE_S,
        "sources": [{"id": f"s{u}", "arrivals": _arrivals(load, slices, rng)} for u in range(queries)],
        "nodes": [{"id": f"n{i}", "capacity_cps": capacity_cps, "cores": CORES} for i in range(nodes)],
        "operators": operators,
        "objectives": [{"query": name, "statistic": "q0.99", "bound_s": _BOUND_S} for name in names],
    }


def candidate_document(number: int, queries: int, *, kind: str | None = None) -> Document:
    """A query of two cheap operators that reads one of the sources and fits wherever there is room.

    With the `kind` of its cluster it asks for two cores of it, drawn by its number; without, for none.
    """
    name, cycles = f"new-{number}", 3.0 + 0.01 * number
    operators: list[Document] = [
        {"id": _name(name, 0), "inputs": [_input(f"s{number * 7 % queries}", 1.0, cycles)]},
        {"id": _name(name, 1), "inputs": [_input(_name(name, 0), 0.5, cycles)]},
    ]
    if kind is not None:
        rng = np.random.default_rng(number)
        for operator in operators:
            operator |= {"node": f"n{rng.integers(node_count(kind, queries))}", "core": int(rng.integers(CORES))}
    return {"query": name, "operators": operators, "objective": {"statistic": "q0.99", "bound_s": _BOUND_S}}


def node_count(kind: str, queries: int) -> int:
    """Nodes of a cluster: a core a query."""
    return 1 if kind == "one-node" else max(2, round(queries / CORES))


def _operator(query: str, i: int, above: list[str], place: tuple[int, int], rng: np.random.Generator) -> Document:
    selectivity = float(rng.choice([0.5, 1.0])) / len(above)
    cycles = float(rng.uniform(1.0, 5.0)) / len(above)
    return {
        "id": _name(query, i),
        "query": query,
        "node": f"n{place[0]}",
        "core": place[1],
        "bytes_per_event": 50.0,
        "inputs": [_input(name, selectivity, cycles) for name in above],
    }


def _input(name: str, selectivity: float, cycles: float) -> Document:
    return {"from": name, "selectivity": selectivity, "cycles_per_event": cycles}


def _name(query: str, i: int) -> str:
    return f"{query}/o{i}"


def _random_places(count: int, queries: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    nodes = rng.integers(max(2, round(queries / CORES)), size=count).tolist()
    return list(zip(nodes, rng.integers(CORES, size=count).tolist(), strict=True))


def _arrivals(load: float, slices: int, rng: np.random.Generator) -> FloatArray:
    """Events of every slice: Poisson, up to two and a half times as many in every other minute."""
    bursts = 1.0 + (np.arange(slices) // _BURST_SLICES % 2) * rng.uniform(0.0, 1.5)
    return rng.poisson(_EVENTS * load * bursts).astype(np.float64)


def _zipf(count: int) -> FloatArray:
    weights = np.arange(1, count + 1) ** -_SKEW
    return weights / weights.sum()


def _shares(parts: int, total: int, rng: np.random.Generator) -> IntArray:
    """`total` divided among parts by a power law, in a random order."""
    return rng.permutation(rng.multinomial(total, _zipf(parts)))
