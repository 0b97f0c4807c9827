"""Tuples of real executions, and what operators do with them, in NumPy.

A tuple is a record as long as the simulated one on the wire: when it was born at the broker and when the oldest input
of it was ingested, a number that names it, a value, and the bytes of its fields. What a filter compares and a join or a
group takes for a key is derived from the number, so that selectivities are those of the query.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AggregationWork",
    "FilterWork",
    "JoinWork",
    "Records",
    "WindowContent",
    "WindowWork",
    "group_count",
    "new_records",
    "record_type",
    "window_work",
]

Records = NDArray[Any]
Numbers = NDArray[np.uint64]

_HEAD_BYTES = 32  # of born, ingested, number and value
_MIN_BYTES = _HEAD_BYTES + 2
_INTS = 1_000_000  # range of whole numbers that filters compare
_MAX_GROUPS = 2.0**52

# splitmix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def record_type(wire_bytes: float) -> np.dtype[Any]:
    """Layout of a tuple of `wire_bytes` bytes.

    Examples
    --------
    >>> record_type(76).itemsize
    76
    """
    rest = max(round(wire_bytes), _MIN_BYTES) - _HEAD_BYTES
    heads: list[Any] = [("born", "f8"), ("ingested", "f8"), ("number", "u8"), ("value", "f8")]
    return np.dtype([*heads, ("fields", "u1", (rest,))])


def new_records(
    layout: np.dtype[Any], births: NDArray[np.float64], ingested: float, first: int, *, lane: int, seed: int
) -> Records:
    """Tuples that enter: those of a source `lane` from its `first` on; another `seed` makes other ones."""
    records = np.zeros(len(births), layout)
    records["born"], records["ingested"] = births, ingested
    places = np.arange(first, first + len(births), dtype=np.uint64)
    records["number"] = _mixed(_mixed(places, lane) + np.uint64(seed), lane)
    records["value"] = _uniform(records["number"], lane + 1)
    records["fields"] = (records["number"] & np.uint64(255))[:, None]
    return records


def _mixed(numbers: Numbers, lane: int) -> Numbers:
    z = (numbers + np.uint64(lane + 1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def _uniform(numbers: Numbers, lane: int) -> NDArray[np.float64]:
    return (_mixed(numbers, lane) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class FilterWork:
    """Comparison of a value of every tuple with a literal, by the function and type of the filter.

    Values are drawn so that the stated share passes: `!=` meets as many equal ones, affixes as many other ones.
    """

    def __init__(self, function: str, value_type: str, selectivity: float, lane: int) -> None:
        self._function, self._type, self._selectivity, self._lane = function, value_type, selectivity, lane

    def passed(self, records: Records) -> Records:
        """Tuples that pass."""
        drawn = _uniform(records["number"], self._lane)
        if self._function in ("startswith", "endswith"):
            texts = np.where(drawn < self._selectivity, b"yes-sensor-yes", b"no-sensor-no")
            is_prefix = self._function == "startswith"
            return records[np.char.startswith(texts, b"yes") if is_prefix else np.char.endswith(texts, b"yes")]
        if self._function == "!=":
            return records[self._typed(np.where(drawn < self._selectivity, 1.0, 0.0)) != self._literal(0.0)]
        if self._function in ("<", "<="):
            return records[self._typed(drawn) < self._literal(self._selectivity)]
        return records[self._typed(drawn) >= self._literal(1.0 - self._selectivity)]

    def _typed(self, values: NDArray[np.float64]) -> NDArray[Any]:
        if self._type == "double":
            return values
        whole = (values * _INTS).astype(np.int64)
        return whole if self._type == "int" else np.char.zfill(whole.astype("S8"), 8)

    def _literal(self, value: float) -> Any:
        if self._type == "double":
            return value
        return math.floor(value * _INTS) if self._type == "int" else b"%08d" % math.floor(value * _INTS)


class WindowContent:
    """Tuples of one input that a window may still want, with the moments at which they came.

    Parameters
    ----------
    size
        Tuples, or seconds where `by_time`.
    """

    def __init__(self, size: float, by_time: bool) -> None:
        self._size, self._by_time = size, by_time
        self._pieces: deque[tuple[float, Records]] = deque()

    def add(self, records: Records, moment: float) -> None:
        """Keep tuples that came at `moment`."""
        self._pieces.append((moment, records))

    def at(self, moment: float) -> Records | None:
        """Content of the window that ends at `moment`; forgets what no later one has. None if it is empty."""
        if self._by_time:
            while self._pieces and self._pieces[0][0] <= moment - self._size:
                self._pieces.popleft()
            content = [records for came, records in self._pieces if came <= moment]
            return np.concatenate(content) if content else None
        if not self._pieces:
            return None
        joined = np.concatenate([records for _, records in self._pieces])[-int(self._size) :]
        self._pieces = deque([(self._pieces[-1][0], joined)])
        return joined


class WindowWork(Protocol):
    """Evaluation of a window."""

    def results(self, contents: tuple[Records, ...]) -> Records:
        """Tuples that the window's contents give, each as old as the oldest one of them."""


class AggregationWork:
    """Aggregate of each group of a window; as many groups as the selectivity says for a window of `expected` tuples."""

    def __init__(
        self, function: str, has_groups: bool, selectivity: float, expected: float, layout: np.dtype[Any], lane: int
    ) -> None:
        self._function, self._layout, self._lane = function, layout, lane
        self._groups = group_count(selectivity, expected) if has_groups else 1.0

    def results(self, contents: tuple[Records, ...]) -> Records:
        """One tuple per group."""
        records = contents[0]
        keys = (_uniform(records["number"], self._lane) * self._groups).astype(np.int64)
        groups, places = np.unique(keys, return_inverse=True)
        values = records["value"]
        if self._function in ("min", "max"):
            least = self._function == "min"
            aggregates = np.full(len(groups), np.inf if least else -np.inf)
            (np.minimum if least else np.maximum).at(aggregates, places, values)
        else:
            aggregates = np.bincount(places, values) / np.bincount(places)
        results = np.zeros(len(groups), self._layout)
        results["born"], results["ingested"] = records["born"].min(), records["ingested"].min()
        results["number"] = _mixed(groups.astype(np.uint64) + records["number"][-1], self._lane)
        results["value"] = aggregates
        return results


class JoinWork:
    """Pairs of equal keys of two windows; a pair has them with the probability that the selectivity says."""

    def __init__(self, selectivity: float, layout: np.dtype[Any], lane: int) -> None:
        self._keys = math.floor(1.0 / selectivity)
        self._share, self._layout, self._lane = selectivity * self._keys, layout, lane

    def results(self, contents: tuple[Records, ...]) -> Records:
        """One tuple per pair."""
        left, right = contents
        left_keys = (_uniform(left["number"], self._lane) * self._keys).astype(np.int64)
        # keys of the right beyond the left ones find nobody: 1/selectivity is seldom whole
        right_keys = (_uniform(right["number"], self._lane + 1) * self._keys / self._share).astype(np.int64)
        order = np.argsort(left_keys, kind="stable")
        sorted_keys = left_keys[order]
        begin, end = np.searchsorted(sorted_keys, right_keys), np.searchsorted(sorted_keys, right_keys, "right")
        partners = end - begin
        total = int(partners.sum())
        rows = np.repeat(np.arange(len(right)), partners)
        offsets = np.arange(total) - np.repeat(np.cumsum(partners) - partners, partners)
        a, b = left[order[np.repeat(begin, partners) + offsets]], right[rows]
        results = np.zeros(total, self._layout)
        results["born"] = min(left["born"].min(), right["born"].min())
        results["ingested"] = min(left["ingested"].min(), right["ingested"].min())
        results["number"] = _mixed(a["number"] ^ (b["number"] << np.uint64(1)), self._lane + 2)
        results["value"] = a["value"]
        return results


def group_count(selectivity: float, expected: float) -> float:
    """Keys of which `expected` random tuples have `selectivity * expected` different ones on average."""
    if selectivity >= 1.0 or expected <= 1.0:
        return _MAX_GROUPS
    low, high = 1.0, _MAX_GROUPS
    for _ in range(100):
        groups = math.sqrt(low * high)
        low, high = (groups, high) if _distinct(groups, expected) < selectivity * expected else (low, groups)
    return max(1.0, high)


def _distinct(groups: float, tuples: float) -> float:
    """Expected number of keys among tuples; the last key is drawn less often where the number of keys is not whole."""
    if groups <= 1.0:
        return 1.0
    whole, rest = math.floor(groups), groups - math.floor(groups)
    # log1p and expm1: the probability of a key may be 1e-15
    return -whole * math.expm1(tuples * math.log1p(-1.0 / groups)) - math.expm1(tuples * math.log1p(-rest / groups))


def window_work(operator: Mapping[str, Any], expected: float, layout: np.dtype[Any], lane: int) -> WindowWork:
    """Work of a join or an aggregation of a trace's document, its windows of `expected` tuples."""
    if operator["type"] == "join":
        return JoinWork(operator["sel"], layout, lane)
    return AggregationWork(operator["fn"], operator["gtype"] != "none", operator["sel"], expected, layout, lane)
