"""Choice of a first placement among candidates: the best target metric of those that pass the votes (section V)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.costream.prediction import PlacementPredictions
from engine.words import counted, listed

__all__ = ["TARGETS", "PlacementChoice", "best_survivor", "choose"]

# Metrics a placement can be chosen by, and whether more is better.
TARGETS = {"T": True, "Lp": False, "Le": False}


@dataclass(frozen=True)
class HeuristicComparison:
    """A heuristic's placement beside the chosen one.

    Attributes
    ----------
    index
        Its row among the candidates.
    value
        Its predicted target metric.
    feasible
        Whether it passes the votes.
    gain
        How many times better the chosen placement is; None without one.
    """

    index: int
    value: float
    feasible: bool
    gain: float | None


@dataclass(frozen=True)
class PlacementChoice:
    """The chosen candidate, and why.

    Attributes
    ----------
    index
        Row of the chosen candidate; None if none is feasible.
    target
        Metric it was chosen by.
    value
        Its predicted target metric (tuples/s or s); None without one.
    survivors
        Candidates that pass both votes.
    inside
        Those of them within the training domain: where there are any, only they are compared.
    heuristics
        By name.
    reason
        Sentence about the choice, or why there is none.
    """

    index: int | None
    target: str
    value: float | None
    survivors: int
    inside: int
    heuristics: Mapping[str, HeuristicComparison]
    reason: str


def best_survivor(costs: FloatArray, survivors: npt.NDArray[np.bool_], target: str) -> int | None:
    """Index of the best cost (k,) among the survivors (k,), the first of equals; None without any.

    Examples
    --------
    >>> best_survivor(np.array([5.0, 3.0, 1.0]), np.array([True, True, False]), "Lp")
    1
    """
    if not survivors.any():
        return None
    signed = np.where(survivors, -costs if TARGETS[target] else costs, np.inf)
    return int(signed.argmin())


def choose(
    predictions: PlacementPredictions, target: str = "Lp", heuristics: Mapping[str, int] | None = None
) -> PlacementChoice:
    """The candidate of the best target metric among those that pass the votes.

    Candidates outside the training domain are taken only where no survivor lies within it.

    Parameters
    ----------
    heuristics
        Rows of the trivial placements by name (`CandidateSet.heuristics`).
    """
    costs, feasible = predictions.costs[target].mean, predictions.feasible
    inside = feasible & ~predictions.outside
    index = best_survivor(costs, inside if inside.any() else feasible, target)
    value = None if index is None else float(costs[index])

    def comparison(row: int) -> HeuristicComparison:
        other = float(costs[row])
        gain = None
        if value is not None:
            gain = value / other if TARGETS[target] else other / value
        return HeuristicComparison(row, other, bool(feasible[row]), gain)

    return PlacementChoice(
        index=index,
        target=target,
        value=value,
        survivors=int(feasible.sum()),
        inside=int(inside.sum()),
        heuristics={name: comparison(row) for name, row in (heuristics or {}).items()},
        reason=_reason(predictions, int(feasible.sum()), int(inside.sum())),
    )


def _reason(predictions: PlacementPredictions, survivors: int, inside: int) -> str:
    candidates = counted(len(predictions.placements), "candidate")
    if survivors:
        verb = "passes" if survivors == 1 else "pass"
        domain = f"; {inside} of them within the training domain" if inside < survivors else ""
        return f"{survivors} of {candidates} {verb} the votes{domain}."
    pressed, failed = int(predictions.backpressure.sum()), int((~predictions.success).sum())
    votes = listed([f"back-pressure for {pressed}"] * bool(pressed) + [f"failure for {failed}"] * bool(failed))
    domain = "; all of them lie outside the training domain" if predictions.outside.all() else ""
    return f"No candidate is feasible: of {candidates} the majority predicts {votes}{domain}."
