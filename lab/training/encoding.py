"""Transferable features of the graph network, one row of float64 per operator or host (table I).

Categories are one-hot, sizes and rates logarithmic, so that all values lie near [-1, 1].

==========  =====  ==========================================================================================
rows of     width  columns
==========  =====  ==========================================================================================
source          5  log2(rate)/8, n_int/10, n_str/10, n_dbl/10, wout/10
filter         14  function (7), literal (3), log10(sel)/2, sel, win/10, wout/10
join           13  key (3), window (7), log10(sel)/4, win/10, wout/10
agg            20  function (4), type (2), group (4), window (7), log10(sel)/4, win/10, wout/10
sink            1  win/10
host            4  log2(cpu/100)/3, log2(ram/1000)/5, log2(bandwidth/25)/8, log2(latency in ms)/7
==========  =====  ==========================================================================================

The 7 columns of a window: policy (2), type (2), log2(size in tuples)/8 or 0, log2(size in s)/4 or 0, slide/size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.arrays import FloatArray
from engine.query_graph.graph import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_TYPES,
    FILTER_FUNCTIONS,
    GROUP_TYPES,
    LITERAL_TYPES,
    WINDOW_POLICIES,
    WINDOW_TYPES,
    HostNode,
    OperatorNode,
)

__all__ = ["FEATURE_WIDTHS", "MAX_WIDTH", "host_features", "operator_features"]

FEATURE_WIDTHS = {"source": 5, "filter": 14, "join": 13, "agg": 20, "sink": 1, "host": 4}

MAX_WIDTH = max(FEATURE_WIDTHS.values())

_WIDTH_SCALE = 10.0  # values per tuple
_MIN_SELECTIVITY = 1e-9  # in the logarithm: definition 6 allows 0
_LARGEST_EXPONENT = {"filter": 2.0, "join": 4.0, "agg": 4.0}  # of 1/selectivity, about


def operator_features(operator: OperatorNode) -> list[float]:
    """Row of an operator, `FEATURE_WIDTHS[operator.kind]` numbers.

    Examples
    --------
    >>> operator_features(OperatorNode("source", 6, 6, rate_eps=256, n_int=2, n_str=3, n_dbl=1))
    [1.0, 0.2, 0.3, 0.1, 0.6]
    """
    return _ROWS[operator.kind](operator)


def host_features(hosts: Sequence[HostNode]) -> FloatArray:
    """Rows of hosts, float64 of shape (h, 4).

    Examples
    --------
    >>> host_features([HostNode(100, 1000, 25, 0.001, 0), HostNode(800, 32000, 6400, 0.128, 2)]).tolist()
    [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]
    """
    raw = [(host.cpu_percent, host.ram_mb, host.bandwidth_mbit_s, host.latency_s) for host in hosts]
    return np.log2(np.array(raw, dtype=np.float64) / (100.0, 1000.0, 25.0, 1e-3)) / (3.0, 5.0, 8.0, 7.0)


def _one_hot(value: str, values: Sequence[str]) -> list[float]:
    return [float(value == other) for other in values]


def _widths(op: OperatorNode) -> list[float]:
    return [op.values_in / _WIDTH_SCALE, op.values_out / _WIDTH_SCALE]


def _selectivity(op: OperatorNode) -> float:
    return math.log10(max(op.selectivity, _MIN_SELECTIVITY)) / _LARGEST_EXPONENT[op.kind]


def _window(op: OperatorNode) -> list[float]:
    counted = op.window_policy == "count"
    return [
        *_one_hot(op.window_policy, WINDOW_POLICIES),
        *_one_hot(op.window_type, WINDOW_TYPES),
        math.log2(op.window_size) / 8 if counted else 0.0,
        0.0 if counted else math.log2(op.window_size) / 4,
        op.window_slide / op.window_size,
    ]


def _source(op: OperatorNode) -> list[float]:
    counts = [count / _WIDTH_SCALE for count in (op.n_int, op.n_str, op.n_dbl)]
    return [math.log2(op.rate_eps) / 8, *counts, op.values_out / _WIDTH_SCALE]


def _filter(op: OperatorNode) -> list[float]:
    categories = _one_hot(op.function, FILTER_FUNCTIONS) + _one_hot(op.value_type, LITERAL_TYPES)
    return [*categories, _selectivity(op), op.selectivity, *_widths(op)]


def _join(op: OperatorNode) -> list[float]:
    return [*_one_hot(op.value_type, LITERAL_TYPES), *_window(op), _selectivity(op), *_widths(op)]


def _aggregation(op: OperatorNode) -> list[float]:
    categories = (
        _one_hot(op.function, AGGREGATE_FUNCTIONS)
        + _one_hot(op.value_type, AGGREGATE_TYPES)
        + _one_hot(op.group_type, GROUP_TYPES)
    )
    return [*categories, *_window(op), _selectivity(op), *_widths(op)]


def _sink(op: OperatorNode) -> list[float]:
    return [op.values_in / _WIDTH_SCALE]


_ROWS = {"source": _source, "filter": _filter, "join": _join, "agg": _aggregation, "sink": _sink}
