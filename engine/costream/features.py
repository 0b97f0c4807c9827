"""Transferable features, one row of float64 per operator or host (table I), and their ranges in training.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_TYPES,
    FILTER_FUNCTIONS,
    GROUP_TYPES,
    LITERAL_TYPES,
    WINDOW_POLICIES,
    WINDOW_TYPES,
    CostTrace,
    HostNode,
    OperatorNode,
    QueryGraph,
)
from engine.words import number_words

__all__ = ["FEATURES", "FEATURE_WIDTHS", "MAX_WIDTH", "TrainingDomain", "host_features", "operator_features"]

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


_TINY = 1e-4  # less is practically nothing
_MARGIN = 0.01  # share of a bound by which a value may be beyond it


@dataclass(frozen=True)
class DomainFeature:
    """A feature whose range counts.

    `label`, `unit` and the `factor` to that unit serve messages; below an `upper` one nothing is outside.
    """

    label: str
    unit: str = ""
    factor: float = 1.0
    upper: bool = False

    def text(self, value: float) -> str:
        """The value in words, without its unit."""
        shown = value * self.factor
        return f"under {_TINY:g}" if 0.0 < shown < _TINY else number_words(shown)[0]


FEATURES = {
    "host.cpu_percent": DomainFeature("cpu", "%"),
    "host.ram_mb": DomainFeature("memory", "MB"),
    "host.bandwidth_mbit_s": DomainFeature("bandwidth", "Mbit/s"),
    "host.latency_s": DomainFeature("latency", "ms", 1e3),
    "placement.hosts": DomainFeature("hosts used"),
    "query.operators": DomainFeature("operators"),
    "query.joins": DomainFeature("joins"),
    "query.aggregations": DomainFeature("aggregations"),
    "query.filters_in_row": DomainFeature("filters in a row", upper=True),
    "query.sinks": DomainFeature("sinks"),
    "operator.readers": DomainFeature("readers"),
    "operator.merged": DomainFeature("streams merged"),
    "operator.in_eps": DomainFeature("input", "tuples/s", upper=True),
    "operator.state_tuples": DomainFeature("tuples in its windows", upper=True),
    "operator.values": DomainFeature("values in a tuple"),
    "source.fields": DomainFeature("fields"),
    "source.rate_eps": DomainFeature("rate", "tuples/s"),
    "source.rate_eps.1": DomainFeature("rate beside one join", "tuples/s"),
    "source.rate_eps.2": DomainFeature("rate beside two joins", "tuples/s"),
    "filter.selectivity": DomainFeature("selectivity"),
    "join.selectivity": DomainFeature("selectivity"),
    "agg.selectivity": DomainFeature("selectivity"),
    "window.tuples": DomainFeature("window", "tuples"),
    "window.s": DomainFeature("window", "s"),
    "window.slide": DomainFeature("slide as a share of the window"),
}


@dataclass(frozen=True)
class TrainingDomain:
    """Ranges of `FEATURES` that occurred in training, each (least, greatest); a feature without one never occurred."""

    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of_traces(cls, traces: Iterable[CostTrace]) -> TrainingDomain:
        """The ranges of a corpus."""
        ranges: dict[str, tuple[float, float]] = {}
        for trace in traces:
            used = {trace.hosts[j] for j in trace.placement}
            measures = [("placement.hosts", float(len(used)))]
            measures.extend(measure for host in used for measure in _host_measures(host))
            measures.extend((name, value) for _, name, value in _query_measures(trace.graph))
            for name, value in measures:
                low, high = ranges.get(name, (value, value))
                ranges[name] = min(low, value), max(high, value)
        return cls(ranges)

    def query_reasons(self, graph: QueryGraph) -> tuple[str, ...]:
        """Sentences about what of a query lies outside, as ``filter 3: selectivity 1e-12: trained on 1e-08 to 1``."""
        reasons = [
            f"{_subject(graph, i)} is {op.stands_for}: predicted as the nearest operator that was trained"
            for i, op in enumerate(graph.operators)
            if op.stands_for
        ]
        for i, name, value in _query_measures(graph):
            reason = self._reason(name, value)
            if reason:
                reasons.append(f"{_subject(graph, i)}: {reason}" if i is not None else reason)
        return tuple(reasons)

    def count_reason(self, used: int) -> str:
        """Words for a number of hosts in a placement that lies outside; empty where it does not."""
        return self._reason("placement.hosts", used)

    def host_reasons(self, index: int, host: HostNode) -> tuple[str, ...]:
        """Sentences on what of a host lies outside, as ``host edge-1: cpu 20 %: trained on 50 to 800 %``."""
        reasons = (self._reason(name, value) for name, value in _host_measures(host))
        return tuple(f"host {host.name or index}: {reason}" for reason in reasons if reason)

    def _reason(self, name: str, value: float) -> str:
        feature, bounds = FEATURES[name], self.ranges.get(name)
        unit = f" {feature.unit}" if feature.unit else ""
        if bounds is None:
            return f"{feature.label} {feature.text(value)}{unit}: never trained"
        low, high = bounds
        if (feature.upper or low * (1 - _MARGIN) <= value) and value <= high * (1 + _MARGIN):
            return ""
        trained = f"trained on {feature.text(low)} to {feature.text(high)}{unit}"
        if feature.upper or low == high:
            trained = f"trained {'up to' if feature.upper else 'on'} {feature.text(high)}{unit}"
        return f"{feature.label} {feature.text(value)}{unit}: {trained}"


def _subject(graph: QueryGraph, i: int) -> str:
    op = graph.operators[i]
    words = {"agg": "aggregation"}
    return f"{words.get(op.kind, op.kind)} {op.name or i}"


def _host_measures(host: HostNode) -> Iterator[tuple[str, float]]:
    for name in ("cpu_percent", "ram_mb", "bandwidth_mbit_s", "latency_s"):
        yield f"host.{name}", getattr(host, name)


def _query_measures(graph: QueryGraph) -> Iterator[tuple[int | None, str, float]]:
    """Index of the operator (None: of the whole query), name of the feature, value."""
    kinds = [op.kind for op in graph.operators]
    joins = kinds.count("join")
    yield None, "query.operators", len(kinds)
    yield None, "query.joins", joins
    yield None, "query.aggregations", kinds.count("agg")
    yield None, "query.filters_in_row", _filters_in_row(graph)
    yield None, "query.sinks", len(graph.sinks)
    flow = nominal_flow(graph)
    busiest = max((i for i, kind in enumerate(kinds) if kind != "source"), key=lambda i: float(flow.in_eps[i]))
    yield busiest, "operator.in_eps", float(flow.in_eps[busiest])
    for i, op in enumerate(graph.operators):
        yield i, "operator.values", op.values_out
        if op.kind == "source":
            yield i, "source.fields", op.n_int + op.n_str + op.n_dbl
        else:
            yield i, "operator.values", op.values_in
        if graph.readers[i]:
            yield i, "operator.readers", len(graph.readers[i])
        if op.kind not in ("source", "join"):
            yield i, "operator.merged", len(graph.inputs[i])
        if op.kind == "source":
            yield i, f"source.rate_eps.{min(joins, 2)}" if joins else "source.rate_eps", op.rate_eps
        if op.kind in ("filter", "join", "agg"):
            yield i, f"{op.kind}.selectivity", op.selectivity
        if op.kind in ("join", "agg"):
            yield i, "operator.state_tuples", float(flow.state_tuples[i])
            yield from ((i, name, value) for name, value in _window_measures(op))


def _window_measures(op: OperatorNode) -> Iterator[tuple[str, float]]:
    yield "window.tuples" if op.window_policy == "count" else "window.s", op.window_size
    yield "window.slide", op.window_slide / op.window_size


def _filters_in_row(graph: QueryGraph) -> int:
    rows = [0] * len(graph.operators)
    for i in graph.order:
        if graph.operators[i].kind == "filter":
            rows[i] = 1 + max(rows[a] for a in graph.inputs[i])
    return max(rows)
