"""Bias of the estimated work of operators of a kind: measured over estimated, with its uncertainty and what it proves.

References: Cochran, Sampling Techniques (1977), section 6.3 (ratio of sums and its variance); Law, Simulation Modeling
and Analysis, section 9.5.3 (means of batches, whose neighbours have little in common).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import computed_field

from engine.records import Record

__all__ = ["MIN_INSTANTS", "NO_BIAS", "WorkBias", "work_bias"]

MIN_INSTANTS = 20  #: below which the uncertainty of a bias is not known
_BATCHES = 10
_T_95 = 2.2621571627  # Student's t of 95 %, both sides, with a degree of freedom less than batches
_SMALL = 0.05  # a smaller bias is within what the same work takes from one day to the next


@dataclass(frozen=True, slots=True)
class WorkBias(Record):
    """Measured over estimated work of operators of a kind, 1 where they agree, and its 95 % interval.

    `ratio` is None where nothing was estimated, `low` and `high` below `MIN_INSTANTS` instants.
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    instants: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_proven(self) -> bool:
        """Whether the interval lies more than 5 % to one side of 1."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1.0 + _SMALL or self.high < 1.0 - _SMALL


NO_BIAS = WorkBias()


def work_bias(at_s: npt.ArrayLike, expected_cps: npt.ArrayLike, measured_cps: npt.ArrayLike) -> WorkBias:
    """Bias of some runs.

    Parameters
    ----------
    at_s, expected_cps, measured_cps : arrays of shape (n,)
        When each run was measured (equal times are one instant), and its work, in cycles/s.

    Returns
    -------
    WorkBias

    Notes
    -----
    The ratio is one of sums, so large work counts more. Instants are put into ten batches in the order of time; what
    the batches differ by gives the variance, so runs that resemble their neighbours prove no more than they are worth.

    Examples
    --------
    >>> work_bias([0.0, 30.0], [100.0, 300.0], [110.0, 330.0])
    WorkBias(ratio=1.1, low=None, high=None, runs=2, instants=2)
    """
    moments, instant = np.unique(np.asarray(at_s, np.float64), return_inverse=True)
    if not len(moments):
        return NO_BIAS
    expected, measured = (np.bincount(instant, np.asarray(cps, np.float64)) for cps in (expected_cps, measured_cps))
    runs, total = len(instant), float(expected.sum())
    if total <= 0.0:
        return WorkBias(runs=runs, instants=len(moments))
    ratio = float(measured.sum()) / total
    if len(moments) < MIN_INSTANTS:
        return WorkBias(ratio, runs=runs, instants=len(moments))
    off = np.array([part.sum() for part in np.array_split(measured - ratio * expected, _BATCHES)])
    half = _T_95 * math.sqrt(_BATCHES / (_BATCHES - 1) * float(off @ off)) / total
    return WorkBias(ratio, max(0.0, ratio - half), ratio + half, runs, len(moments))
