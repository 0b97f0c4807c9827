"""Joint graph of operators and hosts: a query's operators with what is known before it runs, and the hosts it may use.

Sources: Costream (ICDE 2024), section III and table I.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "AGGREGATE_TYPES",
    "FILTER_FUNCTIONS",
    "GROUP_TYPES",
    "LITERAL_TYPES",
    "NOMINAL_PROCESSOR",
    "OPERATOR_KINDS",
    "REFERENCE_CORE_CPS",
    "WINDOW_POLICIES",
    "WINDOW_TYPES",
    "CostTrace",
    "HostNode",
    "OperatorNode",
    "QueryGraph",
    "TraceLabel",
    "strength_of",
    "topological_levels",
]

# Cycles per second of the core that 100 % of a host's cpu mean.
REFERENCE_CORE_CPS = 2.4e9

OPERATOR_KINDS = ("source", "filter", "join", "agg", "sink")
FILTER_FUNCTIONS = ("<", ">", "<=", ">=", "!=", "startswith", "endswith")
LITERAL_TYPES = ("int", "string", "double")  # of filters' literals and joins' keys
AGGREGATE_FUNCTIONS = ("min", "max", "mean", "avg")
AGGREGATE_TYPES = ("int", "double")
GROUP_TYPES = ("int", "string", "double", "none")
WINDOW_POLICIES = ("count", "time")
WINDOW_TYPES = ("sliding", "tumbling")
# Name of the stream processor of the cost table, which nobody has measured (`engine.query_graph.processors`).
NOMINAL_PROCESSOR = "nominal"


@dataclass(frozen=True)
class OperatorNode:
    """An operator with its transferable features (table I).

    Attributes
    ----------
    kind
        One of `OPERATOR_KINDS`.
    values_in, values_out
        Mean number of values in a tuple that comes in and goes out.
    rate_eps, n_int, n_str, n_dbl
        Sources: tuples per second, and values per tuple by type.
    function
        Filters: one of `FILTER_FUNCTIONS`; aggregations: one of `AGGREGATE_FUNCTIONS`.
    value_type
        Type of a filter's literal, of a join's key, of what an aggregation aggregates.
    group_type
        Aggregations: type of what they group by, or ``none``.
    selectivity
        Filters, joins and aggregations (definitions 6 to 8), above 0 and at most 1.
    window_policy, window_type, window_size, window_slide
        Joins and aggregations; size and slide in tuples (``count``) or seconds (``time``).
    stands_for
        The operator's true kind in words (``a sum``) where the nearest known one stands in for it: a reason to call a
        prediction outside the domain.
    name
        Name in messages; the index where it is empty.
    """

    kind: str
    values_in: float
    values_out: float
    rate_eps: float = 0.0
    n_int: int = 0
    n_str: int = 0
    n_dbl: int = 0
    function: str = ""
    value_type: str = ""
    group_type: str = "none"
    selectivity: float = 1.0
    window_policy: str = ""
    window_type: str = ""
    window_size: float = 0.0
    window_slide: float = 0.0
    stands_for: str = ""
    name: str = ""


@dataclass(frozen=True)
class HostNode:
    """A host: what of it a query may use.

    Attributes
    ----------
    cpu_percent
        Percent of a core of `REFERENCE_CORE_CPS`; 250 are two and a half cores.
    ram_mb, bandwidth_mbit_s, latency_s
        Memory; bandwidth and one-way latency of the way out of the host.
    strength
        Bin of rule 2: 0 weak, 1 medium, 2 strong; data goes from weaker to stronger bins only.
    name
        Name in messages; the index where it is empty.
    """

    cpu_percent: float
    ram_mb: float
    bandwidth_mbit_s: float
    latency_s: float
    strength: int
    name: str = ""


@dataclass(frozen=True)
class QueryGraph:
    """A query's operators and the streams between them: acyclic; placements count operators in this order.

    Attributes
    ----------
    operators
        n operators in any order.
    edges
        Streams (from, to) as indices of operators.
    processor
        Name of the stream processor that runs it (`engine.query_graph.processors`).
    """

    operators: tuple[OperatorNode, ...]
    edges: tuple[tuple[int, int], ...]
    processor: str = NOMINAL_PROCESSOR

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """Per operator the indices of those it reads, in the order of the edges."""
        return tuple(tuple(a for a, b in self.edges if b == i) for i in range(len(self.operators)))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Per operator the indices of those that read it."""
        return tuple(tuple(b for a, b in self.edges if a == i) for i in range(len(self.operators)))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Per operator the number of streams on its longest way from a source; sources have 0."""
        levels = topological_levels(len(self.operators), self.edges)
        assert levels is not None  # a QueryGraph is acyclic
        return levels

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices in topological order; those of a level in the order they are listed in."""
        return tuple(sorted(range(len(self.operators)), key=lambda i: (self.levels[i], i)))

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """Indices of the operators nobody reads."""
        return tuple(i for i, readers in enumerate(self.readers) if not readers)


@dataclass(frozen=True)
class TraceLabel:
    """Observed or simulated costs of one run.

    `throughput_eps` and both latencies (s) are None where no tuple arrived at the sink.
    """

    throughput_eps: float | None
    processing_latency_s: float | None
    end_to_end_latency_s: float | None
    backlog_eps: float
    backpressure: bool
    success: bool


@dataclass(frozen=True)
class CostTrace:
    """A query, hosts, a placement (host of each operator) and, where it ran, its costs."""

    graph: QueryGraph
    hosts: tuple[HostNode, ...]
    placement: tuple[int, ...]
    label: TraceLabel | None


def topological_levels(n: int, edges: Sequence[tuple[int, int]]) -> tuple[int, ...] | None:
    """Longest distance of each of `n` vertices from one without inputs; None if there is a cycle."""
    waiting = [0] * n
    for _, b in edges:
        waiting[b] += 1
    levels = [0] * n
    ready = [i for i in range(n) if not waiting[i]]
    for i in ready:
        for a, b in edges:
            if a == i:
                levels[b] = max(levels[b], levels[i] + 1)
                waiting[b] -= 1
                if not waiting[b]:
                    ready.append(b)
    return tuple(levels) if len(ready) == n else None


# Least and greatest cpu (%), memory (MB), bandwidth (Mbit/s) and latency (ms) of the benchmark's weak, medium and
# strong hosts; the bins overlap.
_BINS = (
    ((50, 400), (1000, 8000), (25, 400), (20, 160)),
    ((200, 600), (4000, 16000), (100, 3200), (5, 40)),
    ((400, 800), (8000, 32000), (800, 10000), (1, 10)),
)


def strength_of(cpu_percent: float, ram_mb: float, bandwidth_mbit_s: float, latency_s: float) -> int:
    """Bin of rule 2 (0 weak, 1 medium, 2 strong) of a host: the one whose middle is nearest on a logarithmic scale.

    Examples
    --------
    >>> strength_of(100, 2000, 100, 0.08), strength_of(400, 8000, 800, 0.01), strength_of(800, 32000, 10000, 0.001)
    (0, 1, 2)
    """
    values = (cpu_percent, ram_mb, bandwidth_mbit_s, latency_s * 1e3)

    def distance(strength: int) -> float:
        pairs = zip(values, _BINS[strength], strict=True)
        return sum(math.log(value / math.sqrt(low * high)) ** 2 for value, (low, high) in pairs)

    return min(range(len(_BINS)), key=distance)
