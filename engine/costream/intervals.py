"""Intervals of predicted costs by conformal calibration: quantiles of errors, by what kind of run it is.

Kinds are told apart by shape (joins), by the weakest class of host that a placement uses, by what the fluid says is
short, and by whether the residual counts there. What errors of a kind are is known of runs that nothing was trained on.

Source: Vovk: Conditional validity of inductive conformal predictors (2012), section 3 (Mondrian).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.costream.residual import COSTS
from engine.costream.summary import SUMMARY_COLUMNS, FluidFacts
from engine.query_graph.processors import STREAM_PROCESSORS, StreamProcessor

__all__ = [
    "KINDS",
    "LEVEL",
    "SHORTAGES",
    "calibrated_bounds",
    "conformal_ends",
    "end_scale",
    "kinds_of",
    "shortage_of",
    "units_of",
]

#: Share of true values that an interval is meant to hold.
LEVEL = 0.9

_VARYING = ("ln results", "filters", "joins", "aggregations")
_PASS = 0.1  # standard deviation in ln of what passes an operator, from one stretch of a query to another
_MIN_RUNS = 60  # of a kind, from which on its errors count by themselves
_SHORT = (0.6, 1.05)  # use from which on something may be short, and is
_MIN_END, _MIN_SCALE = 1e-3, 1e-3  # in ln; of ends
_SIZES = (2, 3, 3, 3)  # trusted or not, shortage, joins, weakest class of host

#: Number of kinds of runs; the second half are those where the residual does not count.
KINDS = int(np.prod(_SIZES))

#: Parts of a kind that are told apart, the finest first: where too few runs are known, the next one counts.
_COARSER = ((0, 1, 2, 3), (0, 1, 2), (0, 1, 3), (0, 1), (1,), ())


#: Whether nothing is short, something may be, or is.
SHORTAGES = len(_SHORT) + 1


def shortage_of(use: FloatArray) -> IntArray:
    """By the largest use that the fluid tells: 0 nothing is short, 1 something may be, 2 something is."""
    return np.digitize(use, _SHORT)


def units_of(facts: FluidFacts, processors: Mapping[str, StreamProcessor] = STREAM_PROCESSORS) -> FloatArray:
    """Unit of errors, (k, 3): what of T a run itself leaves to chance, in ln; 1 for latencies.

    Notes
    -----
    T varies by its count and by what passes each operator: sqrt(1/results + `_PASS`²·operators that select). On a
    stream processor that executions are known of, units are times its own, by whether something may be short, and those
    of latencies `_PASS` + ln(1 + jitter/latency): a pause of milliseconds is nothing to seconds, all to microseconds.
    `processors` are other records for who fits one.
    """
    ln_results, *selecting = (facts.summary[:, SUMMARY_COLUMNS.index(name)] for name in _VARYING)
    units = np.ones((len(facts), len(COSTS)))
    units[:, 0] = np.sqrt(np.exp(-np.maximum(ln_results, 0.0)) + _PASS**2 * np.maximum(np.sum(selecting, axis=0), 1.0))
    for name in np.unique(facts.processor):
        processor, rows = processors[str(name)], facts.processor == name
        if processor.executions:
            units[rows, 1:] = _PASS + np.log1p(processor.jitter_s / np.exp(facts.costs[rows, 1:]))
            units[rows] *= np.array(processor.units)[(shortage_of(facts.use[rows]) > 0).astype(np.int64)]
    return units


def kinds_of(facts: FluidFacts, is_trusted: npt.NDArray[np.bool_]) -> IntArray:
    """Kind of each of k placements, 0 to `KINDS` - 1; `is_trusted` where the residual counts for more than half."""
    parts = (np.where(is_trusted, 0, 1), shortage_of(facts.use), np.minimum(facts.joins, 2), facts.weakest)
    kinds: IntArray = np.ravel_multi_index(parts, _SIZES)
    return kinds


def conformal_ends(errors: FloatArray, spread: FloatArray) -> tuple[float, float]:
    """Ends of errors beyond the spread that hold `LEVEL` of further ones, as much beyond one as beyond the other.

    Parameters
    ----------
    errors, spread
        ln of the true over the predicted cost, and how far the members lie apart, (n,) each, in `units_of`.

    Notes
    -----
    An interval reaches from the lower end less the spread to the upper end and the spread; of n runs the
    ceil((n + 1)·(1 + LEVEL)/2)-th smallest counts, at most the largest. No end is nearer to 0 than `_MIN_END`.

    Examples
    --------
    >>> conformal_ends(np.arange(-19.0, 20.0), np.zeros(39))
    (-18.0, 18.0)
    """
    n = len(errors)
    rank = min(n, int(np.ceil((n + 1) * (1.0 + LEVEL) / 2.0)))
    low, high = np.sort(errors + spread)[n - rank], np.sort(errors - spread)[rank - 1]
    return min(float(low), -_MIN_END), max(float(high), _MIN_END)


def end_scale(bounds: FloatArray, errors: FloatArray, spread: FloatArray) -> float:
    """Factor of the ends that makes intervals hold `LEVEL` of further errors, (n,); `bounds` are those of each, (n, 2).

    Notes
    -----
    A run's score is its error beyond the spread over the end on its side; of n runs the ceil((n + 1)·LEVEL)-th smallest
    counts.
    """
    ends = np.where(errors < 0.0, -bounds[:, 0], bounds[:, 1])
    scores = np.sort((np.abs(errors) - spread) / ends)
    rank = min(len(scores), int(np.ceil((len(scores) + 1) * LEVEL)))
    return max(float(scores[rank - 1]), _MIN_SCALE)


def calibrated_bounds(kinds: IntArray, errors: FloatArray, spread: FloatArray) -> FloatArray:
    """Ends of errors by kind, (`KINDS`, 2): of the kind itself, or of the least coarse one with `_MIN_RUNS` runs.

    Parameters
    ----------
    kinds
        Of runs that were not trained on, (n,).
    errors, spread
        As `conformal_ends` takes them.
    """
    parts = np.array(np.unravel_index(kinds, _SIZES))
    bounds = np.zeros((KINDS, 2))
    for kind, own in enumerate(product(*map(range, _SIZES))):
        for kept in _COARSER:
            same = np.all([parts[part] == own[part] for part in kept], axis=0) if kept else np.ones(len(kinds), bool)
            if same.sum() >= _MIN_RUNS or not kept:
                bounds[kind] = conformal_ends(errors[same], spread[same])
                break
    return bounds
