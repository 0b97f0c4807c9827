"""Random queries, hosts and placements for the cohort simulation, in the ranges of the paper's training data.

Queries are linear, joins of two streams or of three, with filters and aggregations; hosts are weak, medium or strong;
placements keep the paper's three rules. A range is a table of values.

Beyond the paper's table II, state has more weight: weak hosts have 1 to 2 GB oftener, some time windows last 32 or
64 s, a quarter of the queries has high rates and long windows, and some keys are skewed: joins find many partners then,
and aggregations few groups.

Sources: Costream (ICDE 2024), section VI, tables II, IV and VI, figures 5 and 6.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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
    QueryGraph,
    topological_levels,
)

__all__ = [
    "PAPER_RANGES",
    "QUERY_SHAPES",
    "TRAINING_SHAPES",
    "HardwareRanges",
    "QueryDraft",
    "between",
    "draw_hosts",
    "draw_placement",
    "draw_query",
    "generator_parameters",
    "keeps_rules",
    "weighted_pick",
]

T = TypeVar("T")

_RATES_EPS = {
    "linear": (100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600),
    "two-way": (50, 100, 250, 500, 750, 1000, 1250, 1500, 1750, 2000),
    "three-way": (20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000),
}
_FIELDS = tuple(range(3, 11))
_COUNT_SIZES = (5, 10, 20, 40, 80, 160, 320, 640)
_TIME_SIZES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_TIME_WEIGHTS = (3, 3, 3, 3, 3, 3, 3, 1, 1)
_LONG_SIZES_S = (8.0, 16.0, 32.0, 64.0)
_STATEFUL = 0.25  # share of queries with high rates, long time windows and mild filters
_FILTER_COUNTS = (1, 2, 3, 4)
_FILTER_WEIGHTS = (35, 34, 24, 6)
_SKEWED = 0.12  # share of joins and of grouped aggregations with few, hot keys
_HOST_COUNTS, _HOST_WEIGHTS = (1, 2, 3, 4, 5, 6, 7), (8, 17, 22, 22, 16, 10, 5)
_STRENGTHS, _STRENGTH_WEIGHTS = (0, 1, 2), (30, 32, 38)
_STAY = 0.35  # probability that an operator stays on the host of an input
_MS = 1e-3


@dataclass(frozen=True)
class HardwareRanges:
    """Values that hosts are drawn from, per bin (0 weak, 1 medium, 2 strong); the bins overlap, as in the paper.

    A value that stands twice is drawn twice as often.
    """

    cpu_percent: tuple[tuple[float, ...], ...]
    ram_mb: tuple[tuple[float, ...], ...]
    bandwidth_mbit_s: tuple[tuple[float, ...], ...]
    latency_ms: tuple[tuple[float, ...], ...]


PAPER_RANGES = HardwareRanges(
    cpu_percent=((50, 100, 200, 300, 400), (200, 300, 400, 500, 600), (400, 500, 600, 700, 800)),
    ram_mb=(
        (1000, 1000, 1000, 2000, 2000, 4000, 8000),
        (2000, 2000, 4000, 8000, 16000),
        (8000, 8000, 16000, 24000, 32000),
    ),
    bandwidth_mbit_s=((25, 50, 100, 200, 400), (100, 200, 400, 800, 1600, 3200), (800, 1600, 3200, 6400, 10000)),
    latency_ms=((20, 40, 80, 160), (5, 10, 20, 40), (1, 2, 5, 10)),
)


def generator_parameters() -> dict[str, object]:
    """Constants of the generator, for the digest of a corpus."""
    return {
        "rates_eps": _RATES_EPS,
        "fields": _FIELDS,
        "windows": (_COUNT_SIZES, _TIME_SIZES_S, _TIME_WEIGHTS, _LONG_SIZES_S, _STATEFUL),
        "filters": (_FILTER_COUNTS, _FILTER_WEIGHTS),
        "keys": _SKEWED,
        "hosts": (_HOST_COUNTS, _HOST_WEIGHTS, _STRENGTHS, _STRENGTH_WEIGHTS, _STAY),
    }


def draw_hosts(
    source: random.Random, ranges: HardwareRanges = PAPER_RANGES, count: int | None = None
) -> list[HostNode]:
    """`count` hosts (1 to 7 where left out) from weak to strong."""
    count = count or weighted_pick(source, _HOST_COUNTS, _HOST_WEIGHTS)
    bins = sorted(weighted_pick(source, _STRENGTHS, _STRENGTH_WEIGHTS) for _ in range(count))
    return [
        HostNode(
            cpu_percent=float(_pick(source, ranges.cpu_percent[strength])),
            ram_mb=float(_pick(source, ranges.ram_mb[strength])),
            bandwidth_mbit_s=float(_pick(source, ranges.bandwidth_mbit_s[strength])),
            latency_s=_pick(source, ranges.latency_ms[strength]) * _MS,
            strength=strength,
        )
        for strength in bins
    ]


def draw_placement(
    source: random.Random, graph: QueryGraph, hosts: Sequence[HostNode], pins: dict[int, int] | None = None
) -> tuple[int, ...]:
    """A placement that keeps the three rules: co-location is fine, data goes to no weaker bin and never back.

    An operator stays with an input or moves to a random host, more often the fewer hosts there are. Where forty
    attempts break a rule, all operators that are not pinned are put on a strongest host.

    Parameters
    ----------
    source
        Random numbers.
    graph, hosts
        The query and its hosts.
    pins
        Hosts of operators that are given, such as sources at sensors.
    """
    pins = pins or {}
    for _ in range(40):
        places = [-1] * len(graph.operators)
        for i in graph.order:
            places[i] = pins.get(i, -1)
            if places[i] < 0:
                places[i] = _draw_place(source, graph, hosts, places, i)
        if keeps_rules(graph, hosts, places):
            return tuple(places)
    strongest = max(range(len(hosts)), key=lambda h: (hosts[h].strength, hosts[h].cpu_percent))
    return tuple(pins.get(i, strongest) for i in range(len(graph.operators)))


def keeps_rules(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> bool:
    """Whether data goes to no weaker bin, and never back to a host it has left (no cycle among the hosts)."""
    moves = {(placement[a], placement[b]) for a, b in graph.edges if placement[a] != placement[b]}
    if any(hosts[a].strength > hosts[b].strength for a, b in moves):
        return False
    return topological_levels(len(hosts), tuple(moves)) is not None


def draw_query(source: random.Random, shape: str) -> QueryGraph:
    """A random query of a shape of `QUERY_SHAPES`.

    Raises
    ------
    ValueError
        Unknown shape.
    """
    if shape not in QUERY_SHAPES:
        raise ValueError(f"shape is {shape!r}; allowed: {', '.join(QUERY_SHAPES)}")
    draft = QueryDraft(source)
    QUERY_SHAPES[shape](draft)
    return draft.finish()


class QueryDraft:
    """A query in the making: operators in topological order, and the nominal rate and width of each one's output."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.operators: list[OperatorNode] = []
        self.edges: list[tuple[int, int]] = []
        self.rates: list[float] = []
        self.is_stateful = False

    def draw_rate(self, shape: str) -> float:
        """A source's rate; one of the upper half where the query is to hold much."""
        rates = _RATES_EPS[shape]
        return float(_pick(self.source, rates[len(rates) // 2 :] if self.is_stateful else rates))

    def draw_window(self) -> dict[str, object]:
        """A window as fields of `OperatorNode`."""
        source = self.source
        policy, kind = _pick(source, WINDOW_POLICIES), _pick(source, WINDOW_TYPES)
        if self.is_stateful and source.random() < 0.8:
            policy, size = "time", _pick(source, _LONG_SIZES_S)
        elif policy == "count":
            size = float(_pick(source, _COUNT_SIZES))
        else:
            size = weighted_pick(source, _TIME_SIZES_S, _TIME_WEIGHTS)
        slide = size
        if kind == "sliding":
            slide = size * between(source, 0.3, 0.7)
            slide = max(1.0, float(round(slide))) if policy == "count" else slide
        return {"window_policy": policy, "window_type": kind, "window_size": size, "window_slide": slide}

    def add(self, operator: OperatorNode, inputs: Sequence[int], rate_eps: float) -> int:
        """Append an operator that reads `inputs`; returns its index."""
        self.operators.append(operator)
        self.rates.append(rate_eps)
        self.edges += [(i, len(self.operators) - 1) for i in inputs]
        return len(self.operators) - 1

    def add_source(self, rate_eps: float, types: tuple[int, int, int] | None = None) -> int:
        """A source of 3 to 10 fields of random types, or of `types` (ints, strings, doubles)."""
        if types is None:
            drawn = [_pick(self.source, (0, 1, 2)) for _ in range(_pick(self.source, _FIELDS))]
            types = (drawn.count(0), drawn.count(1), drawn.count(2))
        width = float(sum(types))
        operator = OperatorNode(
            "source", width, width, rate_eps=float(rate_eps), n_int=types[0], n_str=types[1], n_dbl=types[2]
        )
        return self.add(operator, (), float(rate_eps))

    def add_filter(self, i: int, function: str = "", selectivity: float = 0.0, value_type: str = "") -> int:
        """A filter of operator `i`; what is left out is drawn."""
        function = function or _pick(self.source, FILTER_FUNCTIONS)
        drawn = "string" if function in ("startswith", "endswith") else _pick(self.source, LITERAL_TYPES)
        selectivity = selectivity or self._filter_selectivity()
        width = self.operators[i].values_out
        operator = OperatorNode(
            "filter", width, width, function=function, value_type=value_type or drawn, selectivity=selectivity
        )
        return self.add(operator, (i,), self.rates[i] * selectivity)

    def add_join(self, a: int, b: int, window: dict[str, object] | None = None, partners: float = 0.0) -> int:
        """A join of operators `a` and `b`; a tuple finds `partners` in the larger of both windows (drawn if 0)."""
        rates, source = (self.rates[a], self.rates[b]), self.source
        drawn = self.draw_window() if window is None else window
        size, slide = float(drawn["window_size"]), float(drawn["window_slide"])  # type: ignore[arg-type]
        contents = (size, size) if drawn["window_policy"] == "count" else (rates[0] * size, rates[1] * size)
        if not partners:
            is_skewed = source.random() < _SKEWED
            partners = 10.0 ** (between(source, 0.3, 1.7) if is_skewed else between(source, -2.6, 1.2))
        selectivity = min(1.0, partners / max(*contents, 1.0))
        firings = sum(rates) / (2.0 * slide) if drawn["window_policy"] == "count" else 1.0 / slide
        widths = self.operators[a].values_out, self.operators[b].values_out
        operator = OperatorNode(
            "join",
            sum(widths) / 2.0,
            sum(widths),
            value_type=_pick(source, LITERAL_TYPES),
            selectivity=selectivity,
            **drawn,  # type: ignore[arg-type]
        )
        return self.add(operator, (a, b), firings * selectivity * contents[0] * contents[1])

    def add_aggregation(
        self, i: int, window: dict[str, object] | None = None, function: str = "", groups: float | None = None
    ) -> int:
        """An aggregation of operator `i`; `groups` per window: drawn where left out, 0: none."""
        source, rate = self.source, self.rates[i]
        drawn = self.draw_window() if window is None else window
        size, slide = float(drawn["window_size"]), float(drawn["window_slide"])  # type: ignore[arg-type]
        content = size if drawn["window_policy"] == "count" else rate * size
        group_type = _pick(source, GROUP_TYPES) if groups is None else "none" if groups == 0 else "int"
        if group_type == "none":
            selectivity = 1.0
        elif groups:
            selectivity = groups / max(content, 1.0)
        elif source.random() < _SKEWED:
            selectivity = 10.0 ** between(source, -3.0, -1.0)
        elif source.random() < 0.5:
            selectivity = source.random()
        else:
            selectivity = 10.0 ** between(source, -2.0, 0.0)
        least = 1.0 / max(content, 1.0)
        selectivity = least if group_type == "none" else min(1.0, max(selectivity, least))
        firings = rate / slide if drawn["window_policy"] == "count" else min(1.0 / slide, rate)
        operator = OperatorNode(
            "agg",
            self.operators[i].values_out,
            3.0,
            function=function or _pick(source, AGGREGATE_FUNCTIONS),
            value_type=_pick(source, AGGREGATE_TYPES),
            group_type=group_type,
            selectivity=selectivity,
            **drawn,  # type: ignore[arg-type]
        )
        return self.add(operator, (i,), firings * max(1.0, selectivity * content))

    def finish(self) -> QueryGraph:
        """The query, with a sink behind the last operator."""
        last = len(self.operators) - 1
        width = self.operators[last].values_out
        self.add(OperatorNode("sink", width, width), (last,), self.rates[last])
        return QueryGraph(tuple(self.operators), tuple(self.edges))

    def _filter_selectivity(self) -> float:
        if self.is_stateful:
            return between(self.source, 0.3, 1.0)
        if self.source.random() < 0.3:
            return 10.0 ** between(self.source, -4.0, 0.0)
        return max(self.source.random(), 1e-4)


def _pick(source: random.Random, values: Sequence[T]) -> T:
    return values[int(source.random() * len(values))]


def weighted_pick(source: random.Random, values: Sequence[T], weights: Sequence[float]) -> T:
    """One of `values`, as often as its weight says."""
    point = source.random() * sum(weights)
    for value, weight in zip(values, weights, strict=True):
        point -= weight
        if point < 0.0:
            return value
    return values[-1]


def between(source: random.Random, low: float, high: float) -> float:
    return low + (high - low) * source.random()


def _draw_place(
    source: random.Random, graph: QueryGraph, hosts: Sequence[HostNode], places: Sequence[int], i: int
) -> int:
    inputs = [places[j] for j in graph.inputs[i]]
    least = max((hosts[h].strength for h in inputs), default=0)
    staying = [h for h in inputs if hosts[h].strength == least]
    if staying and source.random() < _STAY:
        return _pick(source, staying)
    allowed = [h for h in range(len(hosts)) if hosts[h].strength >= least]
    strength = _pick(source, sorted({hosts[h].strength for h in allowed}))
    return _pick(source, [h for h in allowed if hosts[h].strength == strength])


def _draw_linear(draft: QueryDraft) -> None:
    has_aggregation = draft.source.random() < 0.5
    draft.is_stateful = has_aggregation and draft.source.random() < 1.5 * _STATEFUL
    last = draft.add_source(draft.draw_rate("linear"))
    filters = 1 if not has_aggregation or draft.source.random() < 0.36 else 2
    is_first = filters == 2 or not has_aggregation or draft.source.random() < 0.5
    if is_first:
        last = draft.add_filter(last)
    if has_aggregation:
        last = draft.add_aggregation(last)
        if filters == 2 or not is_first:
            draft.add_filter(last)


def _draw_joins(draft: QueryDraft, ways: int) -> None:
    """Sources joined one after the other; filters at random places, never one right after another."""
    source, name = draft.source, "two-way" if ways == 2 else "three-way"
    has_aggregation = source.random() < 0.5
    draft.is_stateful = source.random() < _STATEFUL
    slots = [f"source {k}" for k in range(ways)] + [f"join {k}" for k in range(1, ways)]
    slots += ["aggregation"] if has_aggregation else []
    filters: set[str] = set()
    for _ in range(min(weighted_pick(source, _FILTER_COUNTS, _FILTER_WEIGHTS), len(slots))):
        filters.add(_pick(source, [slot for slot in slots if slot not in filters]))
    last = -1
    for k in range(ways):
        branch = draft.add_source(draft.draw_rate(name))
        if f"source {k}" in filters:
            branch = draft.add_filter(branch)
        if last >= 0:
            branch = draft.add_join(last, branch)
            if f"join {k}" in filters:
                branch = draft.add_filter(branch)
        last = branch
    if has_aggregation:
        last = draft.add_aggregation(last)
        if "aggregation" in filters:
            draft.add_filter(last)


#: By name; what is drawn for training has its shares in `TRAINING_SHAPES`.
QUERY_SHAPES: dict[str, Callable[[QueryDraft], None]] = {
    "linear": _draw_linear,
    "two-way": lambda draft: _draw_joins(draft, 2),
    "three-way": lambda draft: _draw_joins(draft, 3),
}

# Shares of the training data.
TRAINING_SHAPES = {"linear": 0.35, "two-way": 0.34, "three-way": 0.31}
