"""Choice of a first placement among candidates: the best target metric of those that pass the votes (section V).

Candidates that would overload a node come after all that would not, however good their own metric is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.costream.prediction import PlacementPredictions
from engine.records import Fact

__all__ = ["TARGETS", "PlacementChoice", "choose", "rank_survivors"]

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
        The choice, or why there is none.
    """

    index: int | None
    target: str
    value: float | None
    survivors: int
    inside: int
    heuristics: Mapping[str, HeuristicComparison]
    reason: Fact

    @property
    def words(self) -> Fact:
        """Sentence about it."""
        return Fact("costream.infeasible", cause=self.reason) if self.index is None else self.reason


def rank_survivors(predictions: PlacementPredictions, target: str = "Lp", strain: FloatArray | None = None) -> IntArray:
    """Rows of the candidates that pass the votes, the best first, int64 (k',).

    Those that would overload no node come first, then the least strain; among them those within the training domain;
    then counts the target metric, and of equals the first.

    Parameters
    ----------
    strain
        Float (k,): load that a candidate would bring, over what is left, of the node where that is most; up to 1 it
        fits.
    """
    rows = np.flatnonzero(predictions.feasible)
    costs = predictions.costs[target].mean
    signed = -costs if TARGETS[target] else costs
    over = np.zeros(len(costs)) if strain is None else np.where(strain > 1.0, strain, 0.0)
    ranked: IntArray = rows[np.lexsort((rows, signed[rows], predictions.outside[rows], over[rows]))]
    return ranked


def choose(
    predictions: PlacementPredictions,
    target: str = "Lp",
    heuristics: Mapping[str, int] | None = None,
    strain: FloatArray | None = None,
    index: int | None = None,
) -> PlacementChoice:
    """The first of `rank_survivors`, or the candidate of row `index`.

    Parameters
    ----------
    heuristics
        Rows of the trivial placements by name (`CandidateSet.heuristics`).
    strain
        As for `rank_survivors`.
    """
    costs, feasible = predictions.costs[target].mean, predictions.feasible
    inside = feasible & ~predictions.outside
    if index is None:
        ranked = rank_survivors(predictions, target, strain)
        index = int(ranked[0]) if len(ranked) else None
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
        reason=_reason(predictions, int(feasible.sum()), int(inside.sum()), _strained(feasible, strain)),
    )


def _strained(feasible: npt.NDArray[np.bool_], strain: FloatArray | None) -> int:
    """Survivors that would overload a node."""
    return 0 if strain is None else int((feasible & (strain > 1.0)).sum())


def _reason(predictions: PlacementPredictions, survivors: int, inside: int, strained: int) -> Fact:
    candidates = len(predictions.placements)
    if survivors:
        domain = Fact("costream.some_inside", inside=inside) if inside < survivors else ""
        load = Fact("costream.some_strained", strained=strained) if strained else ""
        return Fact("costream.chosen", survivors=survivors, candidates=candidates, domain=domain, load=load)
    counts = {"backpressure": int(predictions.backpressure.sum()), "failure": int((~predictions.success).sum())}
    votes = [Fact(f"costream.{kind}", count=count) for kind, count in counts.items() if count]
    domain = Fact("costream.all_outside") if predictions.outside.all() else ""
    return Fact("costream.outvoted", candidates=candidates, votes=votes, domain=domain)
