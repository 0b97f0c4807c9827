"""Curves of a decision: latencies and loads over the horizon of what changes most."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from engine.admission.answer import Curves, DecisionCurves
from engine.admission.evaluation import CURVE_POINTS, Evaluation
from engine.arrays import FloatArray

__all__ = ["decision_curves"]

_MAX_NEIGHBOURS = _MAX_CURVES = 8
_CHANGED_S, _CHANGED_SHARE = 0.005, 0.005  # smaller changes of a latency, also as a share of its bound, are none
_CHANGED_LOAD = 0.005
_DIGITS = 4


def decision_curves(
    before: Evaluation,
    after: Evaluation | None,
    alternatives: Mapping[str, Evaluation],
    unknown: Collection[str] = (),
) -> DecisionCurves:
    """Curves of what runs, of the decision, and of its alternatives.

    Parameters
    ----------
    before, after : Evaluation
        `after` is None where the candidate fits nowhere.
    alternatives : mapping
        By their ids.
    unknown : collection of str
        Queries whose latency is no estimate of this model: they get no curve.
    """
    grid = before.mace.deployment
    loads_before = before.node_loads
    changed = {
        name: _changed_curves(before, loads_before, outcome, unknown)
        for name, outcome in ({"": after} | dict(alternatives)).items()
        if outcome is not None
    }
    names = {kind: {name for outcome in changed.values() for name in outcome[kind]} for kind in ("queries", "nodes")}
    return DecisionCurves(
        grid.subinterval_s * -(-grid.subintervals // CURVE_POINTS),
        {
            "queries": {name: _seconds(before.paths[name]) for name in before.outcomes if name in names["queries"]},
            "nodes": {name: _shares(load) for name, load in loads_before.items() if name in names["nodes"]},
        },
        changed.pop("", {}),
        changed,
    )


def _changed_curves(
    before: Evaluation, loads_before: Mapping[str, FloatArray], after: Evaluation, unknown: Collection[str]
) -> dict[str, Curves]:
    """Curves of the queries and nodes that an outcome changes most, each in the order of what would run."""
    moves: dict[str, float] = {}
    for name, outcome in after.outcomes.items():
        if name in unknown:
            continue
        known = before.outcomes.get(name)
        if known is outcome and after.paths[name] is before.paths[name]:
            continue
        if known is None:
            moves[name] = np.inf
            continue
        by_s = max(abs(outcome.estimate_s - known.estimate_s), _distance(after.paths[name], before.paths[name]))
        if by_s >= max(_CHANGED_S, _CHANGED_SHARE * (outcome.bound_s or 0.0)) or outcome.state != known.state:
            # Who loses or wins its objective comes before who only moves.
            moves[name] = by_s / (outcome.bound_s or by_s or 1.0) + 1e6 * (outcome.state != known.state)
    loads = after.node_loads
    rises = {
        name: _distance(load, loads_before[name]) if name in loads_before else np.inf for name, load in loads.items()
    }
    busier = {name: by for name, by in rises.items() if by >= _CHANGED_LOAD}
    return {
        "queries": {name: _seconds(after.paths[name]) for name in _largest(moves, _MAX_NEIGHBOURS + 1)},
        "nodes": {name: _shares(loads[name]) for name in _largest(busier, _MAX_CURVES)},
    }


def _largest(values: Mapping[str, float], most: int) -> list[str]:
    kept = set(sorted(values, key=lambda name: -values[name])[:most])
    return [name for name in values if name in kept]


def _distance(a: FloatArray, b: FloatArray) -> float:
    return float(np.abs(a - b).max(initial=0.0))


def _seconds(path: FloatArray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in path.tolist()]


def _shares(load: FloatArray) -> list[float]:
    return np.round(load, 6).tolist()  # finer than it is shown: else its peak would be rounded twice
