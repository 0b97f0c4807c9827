"""Accuracy of predictions: q-errors, balanced accuracy of votes, and the record of a model on one cluster.

A model that was trained on simulated runs says nothing certain of a cluster that it never saw: off its corpus intervals
of 80 % held in 44 to 65 % of runs. So no verdict rests on a prediction alone before runs of the cluster bear it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.words import counted, percent_words

__all__ = [
    "BORNE_OUT_QUERIES",
    "BORNE_OUT_RUNS",
    "RECORDED_RUNS",
    "PredictionRecord",
    "balanced_accuracy",
    "q_errors",
    "q_quantiles",
]


def q_errors(true: npt.ArrayLike, predicted: npt.ArrayLike) -> FloatArray:
    """Relative deviations max(true/predicted, predicted/true), at least 1 (section VII).

    Raises
    ------
    ValueError
        If a value is not finite or not above 0: such a run has no q-error, and would make any mean meaningless.

    Examples
    --------
    >>> q_errors([50, 3], [100, 2]).tolist()
    [2.0, 1.5]
    """
    values, others = np.asarray(true, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    for name, array in (("true", values), ("predicted", others)):
        if not (np.isfinite(array) & (array > 0)).all():
            raise ValueError(f"a {name} value is not a finite number above 0; q-errors need such")
    return np.maximum(values / others, others / values)


def q_quantiles(errors: FloatArray) -> dict[str, float]:
    """Median and 95 % quantile of q-errors, linear between ranks.

    Examples
    --------
    >>> q_quantiles(q_errors([1, 1, 1], [1, 2, 4]))
    {'q50': 2.0, 'q95': 3.8}
    """
    q50, q95 = np.quantile(errors, (0.5, 0.95)).tolist()
    return {"q50": q50, "q95": q95}


def balanced_accuracy(true: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Mean of the accuracies on runs with and on runs without the property; of one where the other does not occur.

    Examples
    --------
    >>> balanced_accuracy([1, 1, 1, 0], [1, 1, 1, 1])
    0.5
    """
    truth, guess = np.asarray(true, dtype=bool), np.asarray(predicted, dtype=bool)
    classes = [truth == value for value in (True, False)]
    return float(np.mean([(guess == truth)[members].mean() for members in classes if members.any()]))


#: Scored runs from which on a record counts. A model whose intervals hold in 65 % of runs passes with one in 200.
BORNE_OUT_RUNS = 30
#: Queries that they must be of: hours of one query say much the same thing again and again.
BORNE_OUT_QUERIES = 3
#: Share of them that must be as predicted: of a model whose intervals hold 90 % of runs 82 in 100 pass.
BORNE_OUT_SHARE = 0.85
#: The newest runs that a record counts.
RECORDED_RUNS = 100


@dataclass(frozen=True)
class PredictionRecord:
    """Record of the model in force on a cluster.

    Attributes
    ----------
    runs
        Scored runs, the newest `RECORDED_RUNS` at most: the latency was predicted before, and observed.
    held
        Those whose observed latency lay within the interval, and whose votes, where observed, were right.
    queries
        Queries that they are of.
    """

    runs: int = 0
    held: int = 0
    queries: int = 0

    @property
    def coverage(self) -> float | None:
        """Share of runs that held; None without any."""
        return self.held / self.runs if self.runs else None

    @property
    def is_borne_out(self) -> bool:
        """Whether verdicts may rest on what the model predicts for this cluster.

        Examples
        --------
        >>> [PredictionRecord(30, held, 3).is_borne_out for held in (25, 26)]
        [False, True]
        >>> PredictionRecord(29, 29, 3).is_borne_out or PredictionRecord(90, 90, 1).is_borne_out
        False
        """
        enough = self.runs >= BORNE_OUT_RUNS and self.queries >= BORNE_OUT_QUERIES
        return enough and self.held >= BORNE_OUT_SHARE * self.runs

    @property
    def words(self) -> str:
        """Clause on why the record is not enough yet, or what it is."""
        if not self.runs:
            return f"no run of this cluster has been scored; {self._missing_words}"
        done = f"{self.held} of {counted(self.runs, 'scored run')}"
        of = counted(self.queries, "query", "queries")
        words = f"{done} of {of} of this cluster lay within their intervals"
        if self.is_borne_out:
            return words
        return f"{words}, {percent_words(BORNE_OUT_SHARE)} are asked for; {self._missing_words}"

    @property
    def missing_runs(self) -> int:
        """The fewest further runs within their intervals that bear the model out; 0 once it is."""
        # held + x >= share·(runs + x)
        by_share = ceil((BORNE_OUT_SHARE * self.runs - self.held) / (1.0 - BORNE_OUT_SHARE) - 1e-9)
        return max(BORNE_OUT_RUNS - self.runs, by_share, self.missing_queries, 0)

    @property
    def missing_queries(self) -> int:
        """Further queries that they must be of."""
        return max(BORNE_OUT_QUERIES - self.queries, 0)

    @property
    def _missing_words(self) -> str:
        of = f" of {counted(self.missing_queries, 'further query', 'further queries')}" if self.missing_queries else ""
        more = counted(self.missing_runs, "more run")
        return f"{more}{of} whose latency is predicted first and then observed, all within, would be enough"

    def to_dict(self) -> dict[str, object]:
        """As JSON, with what is asked for and what is missing."""
        return {
            "runs": self.runs,
            "held": self.held,
            "queries": self.queries,
            "coverage": self.coverage,
            "borne_out": self.is_borne_out,
            "runs_missing": self.missing_runs,
            "queries_missing": self.missing_queries,
            "runs_needed": BORNE_OUT_RUNS,
            "queries_needed": BORNE_OUT_QUERIES,
            "coverage_needed": BORNE_OUT_SHARE,
        }
