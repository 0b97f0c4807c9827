"""Errors of predictions: q-errors, balanced accuracy of votes, coverage and sharpness of intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray

__all__ = ["balanced_accuracy", "coverage", "q_errors", "q_quantiles", "sharpness"]


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


def coverage(true: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> float:
    """Share of true values within their intervals, bounds included.

    Examples
    --------
    >>> coverage([1, 2, 3, 4], [0, 0, 0, 0], [3, 3, 3, 3])
    0.75
    """
    values = np.asarray(true, dtype=np.float64)
    return float(((np.asarray(low) <= values) & (values <= np.asarray(high))).mean())


def sharpness(low: npt.ArrayLike, high: npt.ArrayLike) -> float:
    """Median ratio of an interval's bounds: how far apart they are.

    Examples
    --------
    >>> sharpness([1, 1, 1], [2, 3, 4])
    3.0
    """
    return float(np.median(np.asarray(high, dtype=np.float64) / np.asarray(low, dtype=np.float64)))
