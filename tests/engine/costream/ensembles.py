"""Ensembles of small random trees, and a query with hosts to predict for; nothing in them was trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.costream.documents import read_trace
from engine.costream.features import TrainingDomain
from engine.costream.prediction import Ensemble
from engine.costream.summary import SUMMARY_COLUMNS
from engine.costream.weights import ModelCard
from engine.query_graph.graph import CostTrace
from tests.engine.costream.anchors import Arrays, anchor_arrays, anchor_card

_JOIN = {"type": "join", "keytype": "int", "wpolicy": "time", "wtype": "sliding", "wsize": 4, "wslide": 2}
_AGGREGATION = {"type": "agg", "fn": "mean", "atype": "double", "gtype": "string", "wpolicy": "count"}


def trace_document() -> dict[str, Any]:
    """A two-way join on four hosts, as a line of a corpus."""
    source = {"type": "source", "rate": 400, "n_int": 2, "n_str": 1, "n_dbl": 1, "win": 4, "wout": 4}
    ops = [
        source,
        source | {"rate": 100},
        {"type": "filter", "fn": "<", "dtype": "int", "sel": 0.5, "win": 4, "wout": 4},
        _JOIN | {"sel": 0.01, "win": 4, "wout": 8},
        _AGGREGATION | {"wtype": "tumbling", "wsize": 40, "wslide": 40, "sel": 0.1, "win": 8, "wout": 3},
        {"type": "sink", "win": 3, "wout": 3},
    ]
    hosts = [
        {"cpu": 100, "ram": 2000, "bandwidth": 100, "latency": 40, "bin": 0},
        {"cpu": 200, "ram": 4000, "bandwidth": 400, "latency": 20, "bin": 0},
        {"cpu": 400, "ram": 8000, "bandwidth": 1600, "latency": 5, "bin": 1},
        {"cpu": 800, "ram": 32000, "bandwidth": 10000, "latency": 1, "bin": 2},
    ]
    label = {"T": 8.0, "Lp": 4100.0, "Le": 4200.0, "R": 0.0, "RO": 0, "S": 1}
    query = {"ops": ops, "succ": [2, 3, 3, 4, 5, -1]}
    return {"query": query, "hosts": hosts, "placement": [0, 1, 0, 2, 3, 3], "seed": 1, "label": label}


def make_trace() -> CostTrace:
    return read_trace(trace_document())


def make_card(**fields: Any) -> ModelCard:
    """A card of three members with trees of two levels, trained on hosts and placements of `make_trace`."""
    traces = [make_trace(), replace(make_trace(), placement=(3,) * 6)]
    return anchor_card(depth=2, cost_trees=4, vote_trees=3, ranges=TrainingDomain.of_traces(traces).ranges, **fields)


def make_arrays(seed: int = 0) -> Arrays:
    """Arrays of random trees, so that members differ, whose residual counts at any distance."""
    rng, card = np.random.default_rng(seed), make_card()
    arrays = anchor_arrays(card)
    for name, array in arrays.items():
        if name.endswith(".column"):
            array[:] = rng.integers(len(SUMMARY_COLUMNS), size=array.shape)
        elif name.endswith((".threshold", ".value")):
            array[:] = rng.normal(scale=0.05 if name.endswith("value") else 2.0, size=array.shape)
    return arrays


def make_ensemble(seed: int = 0) -> Ensemble:
    """Three members of random trees, which differ."""
    return Ensemble(make_arrays(seed), make_card())
