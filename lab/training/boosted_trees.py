"""Fit of the fluid's residual: boosted trees by scikit-learn, turned into the arrays that the engine goes down.

Costs are fitted by absolute error in ln, votes by cross entropy in which yes and no weigh alike. Each member sees
another four fifths of the traces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.costream.residual import COSTS, VOTES
from lab.training.dataset import TraceSet

__all__ = ["SKLEARN_MISSING", "BoostingSettings", "fit_member", "fit_members"]

SKLEARN_MISSING = (
    "scikit-learn is not installed, and training needs it; this installs it: "
    ".venv/bin/python -m pip install -r lab/requirements.txt"
)

_SHARE = 0.8  # of the traces, for a member
_NOWHERE = np.finfo(np.float32).max  # threshold of a node below a leaf: everything goes left


@dataclass(frozen=True)
class BoostingSettings:
    """Settings of a fit; the defaults are those of the shipped weights."""

    members: int = 3
    cost_trees: int = 180
    vote_trees: int = 100
    depth: int = 4
    learning_rate: float = 0.1
    seed: int = 1


def fit_members(traces: TraceSet, settings: BoostingSettings, *, votes: bool = True) -> dict[str, npt.NDArray[Any]]:
    """Arrays of all members (`engine.costream.residual.array_shapes`); without those of votes where asked."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for i in range(settings.members):
        rng = np.random.default_rng(settings.seed + i)
        rows = np.sort(rng.permutation(len(traces))[: max(1, round(_SHARE * len(traces)))])
        arrays |= {f"{i}.{name}": array for name, array in fit_member(traces.subset(rows), settings, i, votes).items()}
    return arrays


def fit_member(traces: TraceSet, settings: BoostingSettings, number: int, votes: bool) -> dict[str, npt.NDArray[Any]]:
    """Arrays of one member."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    common: dict[str, Any] = {
        "max_depth": settings.depth,
        "max_leaf_nodes": 2**settings.depth,
        "learning_rate": settings.learning_rate,
        "random_state": settings.seed + number,
        "early_stopping": False,
    }
    x, known = traces.facts.summary.astype(np.float32), traces.success
    arrays: dict[str, npt.NDArray[Any]] = {}
    # Threads that wait for one another turn in circles where others want the cores: ten times as long as one alone.
    with threadpool_limits(1, user_api="openmp"):
        for i, cost in enumerate(COSTS):
            model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=settings.cost_trees, **common)
            model.fit(x[known], (traces.targets - traces.facts.costs)[known, i])
            arrays |= _tree_arrays(cost, model, settings.cost_trees, settings.depth)
        for vote, truth in zip(VOTES, (traces.backpressure, traces.success), strict=True) if votes else ():
            model = HistGradientBoostingClassifier(max_iter=settings.vote_trees, class_weight="balanced", **common)
            if truth.all() or not truth.any():  # nothing to tell apart
                arrays |= _constant_arrays(vote, 3.0 if truth.all() else -3.0, settings)
            else:
                arrays |= _tree_arrays(vote, model.fit(x, truth), settings.vote_trees, settings.depth)
    return arrays


def _tree_arrays(name: str, model: Any, trees: int, depth: int) -> dict[str, npt.NDArray[Any]]:
    """Trees of a fitted model, completed to one depth."""
    column, threshold, value = _empty(trees, depth)
    for t, (predictor,) in enumerate(model._predictors):
        _fill(predictor.nodes, 0, 0, column[t], threshold[t], value[t])
    base = np.array([float(np.ravel(model._baseline_prediction)[0])], dtype=np.float32)
    return {f"{name}.column": column, f"{name}.threshold": threshold, f"{name}.value": value, f"{name}.base": base}


def _constant_arrays(name: str, base: float, settings: BoostingSettings) -> dict[str, npt.NDArray[Any]]:
    column, threshold, value = _empty(settings.vote_trees, settings.depth)
    bases = np.array([base], dtype=np.float32)
    return {f"{name}.column": column, f"{name}.threshold": threshold, f"{name}.value": value, f"{name}.base": bases}


def _empty(trees: int, depth: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    inner = 2**depth - 1
    thresholds = np.full((trees, inner), _NOWHERE, np.float32)
    return np.zeros((trees, inner), np.uint8), thresholds, np.zeros((trees, inner + 1), np.float32)


def _fill(nodes: Any, node: int, place: int, column: Any, threshold: Any, value: FloatArray) -> None:
    """A tree from `node` on, in the complete one from `place` on; a leaf above the last level goes to its left end."""
    inner = len(column)
    row = nodes[node]
    if row["is_leaf"]:
        while place < inner:
            place = 2 * place + 1
        value[place - inner] = row["value"]
        return
    column[place], threshold[place] = row["feature_idx"], row["num_threshold"]
    _fill(nodes, row["left"], 2 * place + 1, column, threshold, value)
    _fill(nodes, row["right"], 2 * place + 2, column, threshold, value)
