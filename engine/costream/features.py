"""Features of queries and hosts by which a training domain is told, and their ranges in training, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.costream.summary import filters_in_row
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import CostTrace, HostNode, OperatorNode, QueryGraph
from engine.words import number_words

__all__ = ["FEATURES", "TrainingDomain"]

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
    yield None, "query.filters_in_row", filters_in_row(graph)
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
