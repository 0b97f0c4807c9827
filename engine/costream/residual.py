"""Residual of the fluid, as learned from runs: boosted trees as arrays, and how far from its training it is asked.

Every member has trees for ln of what the fluid is off by, per cost, and for the logit of each vote. All trees are
complete and of one depth, so that a batch of placements goes down all of them level by level; NumPy alone.

Source: Friedman: Greedy function approximation, a gradient boosting machine (2001), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.costream.summary import SUMMARY_COLUMNS

__all__ = [
    "COSTS",
    "VOTES",
    "Arrays",
    "BoostedTrees",
    "TrainingPoints",
    "array_shapes",
    "member_outputs",
]

Arrays = Mapping[str, npt.NDArray[Any]]

COSTS = ("T", "Lp", "Le")
VOTES = ("RO", "S")

_NEAREST = 3  # training points whose mean distance counts
_CHUNK = 64  # placements that go down together: their nodes fit the cache
_MIN_SPREAD = 0.25  # of a column: one that hardly varied in training must not make everything else distant


@dataclass(frozen=True)
class BoostedTrees:
    """t complete trees of depth d.

    Attributes
    ----------
    column, threshold
        (t, 2^d - 1): column of the summary that a node asks for, and up to which value a row goes left.
    value
        (t, 2^d): of the leaves.
    base
        What the leaves are added to.
    """

    column: npt.NDArray[np.uint8]
    threshold: npt.NDArray[np.float32]
    value: npt.NDArray[np.float32]
    base: float

    @classmethod
    def of_arrays(cls, arrays: Arrays, name: str) -> BoostedTrees:
        """Trees of an archive by the name of their output, as ``0.Le``."""
        column, threshold, value = (arrays[f"{name}.{part}"] for part in ("column", "threshold", "value"))
        return cls(column, threshold, value, float(arrays[f"{name}.base"][0]))

    def evaluate(self, summary: FloatArray) -> FloatArray:
        """Sum of the leaves that each row reaches, (k,)."""
        rows = summary.astype(np.float32)
        t, inner = self.column.shape
        first = np.arange(t) * inner
        column, threshold, value = self.column.ravel(), self.threshold.ravel(), self.value.ravel()
        sums = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            node = np.zeros((len(part), t), dtype=np.int64)
            of_row = np.arange(len(part))[:, None]
            while node[0, 0] < inner:
                at = first + node
                node = 2 * node + 1 + (part[of_row, column[at]] > threshold[at])
            sums[start : start + _CHUNK] = value[np.arange(t) * (inner + 1) + node - inner].sum(axis=1)
        return sums + self.base


def member_outputs(arrays: Arrays, members: int, summary: FloatArray) -> FloatArray:
    """Outputs of each member, (m, k, 5): residuals of T, Lp and Le in ln, logits of back-pressure and success."""
    return np.stack(
        [
            np.stack([BoostedTrees.of_arrays(arrays, f"{i}.{name}").evaluate(summary) for name in (*COSTS, *VOTES)], 1)
            for i in range(members)
        ]
    )


class TrainingPoints:
    """Summaries of runs that were trained on, by which the distance of a question is told.

    Parameters
    ----------
    points
        (p, columns), some of them.
    unit
        Of a distance: that within which 90 % of runs of the same kind lie. 1 tells nothing yet.

    Notes
    -----
    A column counts in units of its standard deviation over the points, and at least of `_MIN_SPREAD`; a distance is
    the mean of those to the `_NEAREST` nearest points, over `unit`.
    """

    def __init__(self, points: FloatArray, unit: float = 1.0) -> None:
        self._centre = points.mean(axis=0)
        self._spread = np.maximum(points.std(axis=0), _MIN_SPREAD)
        self._points, self.unit = self._scaled(points), unit
        self._squares = (self._points**2).sum(axis=1)

    def distance(self, summary: FloatArray) -> FloatArray:
        """Distance of each row, (k,)."""
        rows = self._scaled(summary)
        squared = (rows**2).sum(axis=1)[:, None] + self._squares - 2.0 * rows @ self._points.T
        nearest = np.partition(squared, _NEAREST - 1, axis=1)[:, :_NEAREST]
        mean: FloatArray = np.sqrt(np.maximum(nearest, 0.0)).mean(axis=1) / self.unit
        return mean

    def _scaled(self, rows: FloatArray) -> FloatArray:
        scaled: FloatArray = (np.asarray(rows, dtype=np.float64) - self._centre) / self._spread
        return scaled


def array_shapes(members: int, cost_trees: int, vote_trees: int, depth: int, points: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays of members and training points."""
    inner = 2**depth - 1
    shapes: dict[str, tuple[int, ...]] = {"points": (points, len(SUMMARY_COLUMNS))}
    for i in range(members):
        for names, trees in ((COSTS, cost_trees), (VOTES, vote_trees)):
            for name in names:
                shapes |= {
                    f"{i}.{name}.column": (trees, inner),
                    f"{i}.{name}.threshold": (trees, inner),
                    f"{i}.{name}.value": (trees, inner + 1),
                    f"{i}.{name}.base": (1,),
                }
    return shapes
