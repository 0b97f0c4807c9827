"""Scheduling policies beside stimulus time: what an estimate of stimulus time lacks where another one is in force.

Estimates follow stimulus time. How much higher worst cases end under another policy was measured by simulation, for
first-in first-out and round robin, on one node and on several (medians; `docs/models/mace.md`). For Klink nothing was
measured: its factor is unknown. A policy chooses where operators share a server; one that has a server to itself has
one queue, which every policy serves in its order. A factor is no bound; where one by visits is proven and lower, that
counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from pydantic import SerializerFunctionWrapHandler, model_serializer

from engine.document.cycles import CPU_NS
from engine.document.elements import STIMULUS_TIME, Node, Operator
from engine.records import Fact, Record, Sentence

__all__ = [
    "FACTOR_SOURCE",
    "POLICY_FACTORS",
    "PolicyGap",
    "SchedulingBound",
    "SchedulingGap",
    "any_placement_gap",
    "high_under_policies",
    "loosest_policy",
    "other_policies",
    "policy_gap",
    "schedule_nodes",
    "scheduling_bound",
]

FACTOR_SOURCE = "simulations of 30 systems on one node and 24 on several, medians"

#: Worst case over that of stimulus time: on one node, on several.
POLICY_FACTORS: dict[str, tuple[float, float]] = {"fcfs": (1.63, 1.35), "round-robin": (1.31, 1.25)}
#: Mean over that of stimulus time, at most.
_MEAN_FACTORS: dict[str, float] = {"round-robin": 1.0}
_FIRST_COME = "fcfs"


@dataclass(frozen=True)
class PolicyGap:
    """Gap in the estimate of a query, since servers that it shares run other policies.

    Attributes
    ----------
    nodes
        Policy of each node concerned.
    factor
        By which waiting for servers may end higher; None: not measured.
    upper_s
        Proven upper bound under any policy; None: there is none.
    """

    nodes: Mapping[str, str]
    factor: float | None
    upper_s: float | None

    def high_s(self, high_s: float, wait_s: float) -> float | None:
        """Upper end under the policies in force; None where nobody knows one.

        The factor holds for queues, not for what events wait for beside servers: wait + (high - wait) factor.
        """
        ends = [] if self.factor is None else [wait_s + max(0.0, high_s - wait_s) * self.factor]
        if self.upper_s is not None:
            ends.append(max(high_s, self.upper_s))
        return min(ends, default=None)

    def lacks(self, bound_s: float, high_s: float, wait_s: float) -> bool:
        """Whether an objective would hold by stimulus time, and nobody can say so of the policies in force."""
        end_s = self.high_s(high_s, wait_s)
        return high_s <= bound_s and (end_s is None or end_s > bound_s)

    def as_stimulus_s(self, bound_s: float, wait_s: float) -> float | None:
        """Latency by stimulus time that ends at `bound_s` under the policies in force; None where nobody knows one."""
        if self.upper_s is not None and self.upper_s <= bound_s:
            return inf
        return None if self.factor is None else wait_s + (bound_s - wait_s) / self.factor

    def words(self, high_s: float | None) -> Fact:
        """Clause on the policies, the factor and what follows: ``n1 runs first-in first-out, which ...``."""
        return Fact("document.policy_gap", nodes=self.nodes, factor=self.factor, high_s=high_s)

    def answer(self, high_s: float | None) -> SchedulingGap:
        """The gap as it is written, with the upper end that follows."""
        source = FACTOR_SOURCE if self.factor is not None else None
        return SchedulingGap(self.nodes, self.factor, source, high_s, self.words(high_s))


@dataclass(frozen=True)
class SchedulingGap(Record):
    """Gap of an estimate where nodes run other policies than stimulus time, in seconds and in words."""

    nodes: Mapping[str, str]
    factor: float | None
    factor_source: str | None
    high_s: float | None
    lacking: Sentence


@dataclass(frozen=True)
class SchedulingBound(Record):
    """Nodes that run other policies than stimulus time, and the upper bound that counts there; None: none is proven.

    The last four fields are those of the gap of a query's estimate, and are written where it has one.
    """

    nodes: Mapping[str, str]
    words: Sentence
    upper_s: float | None
    factor: float | None = None
    factor_source: str | None = None
    high_s: float | None = None
    lacking: Sentence = ""

    @model_serializer(mode="wrap")
    def _without_gap(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # keeps its schema
        document = write(self)
        return document if self.lacking else {name: document[name] for name in ("nodes", "words", "upper_s")}

    def with_gap(self, gap: SchedulingGap | None) -> SchedulingBound:
        """The same with the gap of an estimate."""
        return self if gap is None else replace(self, **(vars(gap) | {"nodes": self.nodes}))


def high_under_policies(high_s: float | None, scheduling: SchedulingBound | None) -> float | None:
    """Upper end that a state goes by, given `scheduling` of a query's answer; infinite where nobody knows one.

    Examples
    --------
    >>> high_under_policies(2.0, None)
    2.0
    >>> high_under_policies(2.0, SchedulingBound({"n1": "fcfs"}, "", None, high_s=3.0, lacking="n1 runs fcfs"))
    3.0
    """
    if scheduling is None or not scheduling.lacking:
        return high_s
    return inf if scheduling.high_s is None else max(scheduling.high_s, high_s or 0.0)


def any_placement_gap(nodes: Sequence[Node], default: str | None, statistics: Collection[str]) -> PolicyGap | None:
    """Gap of figures that hold for any placement on some nodes, wherever operators share servers; None without one.

    Parameters
    ----------
    default : str or None
        Policy of nodes that name none.
    statistics : collection of str
        Of the figures. The largest factor counts, of one node and of several.
    """
    named = {node.id: node.scheduling or default or STIMULUS_TIME for node in nodes}
    gaps = [
        policy_gap({node: policy for node, policy in named.items() if policy != STIMULUS_TIME}, named, *kind, None)
        for kind in product(statistics or ["worst"], (False, True))
    ]
    return max(filter(None, gaps), key=lambda gap: inf if gap.factor is None else gap.factor, default=None)


def other_policies(nodes: Sequence[Node], operators: Sequence[Operator], default: str | None) -> dict[str, str]:
    """Policy of each node that operators are on and that is not scheduled by stimulus time, in listing order.

    On a connected engine's node every thread takes what has come first. A thread that runs one operator, or a chain in
    its order, is a server with one queue, for which no policy makes a difference; where operators share a server, the
    node counts as first-in first-out, unless the document says otherwise.
    """
    if not default and not any(node.scheduling or node.cycle_unit == CPU_NS for node in nodes):
        return {}
    held = Counter((part.node, part.core) for operator in operators for part in operator.replicas)
    used, shared = {node for node, _ in held}, {node for (node, _), count in held.items() if count > 1}

    def policy(node: Node) -> str:
        engine = _FIRST_COME if node.cycle_unit == CPU_NS and node.id in shared else None
        return node.scheduling or default or engine or STIMULUS_TIME

    named = {node.id: policy(node) for node in nodes if node.id in used}
    return {node: policy for node, policy in named.items() if policy != STIMULUS_TIME}


def schedule_nodes(nodes: Sequence[Node], policies: Mapping[str, str]) -> tuple[tuple[Node, ...], str | None]:
    """Nodes with the policies in force at them, and that of nodes which are still to come: the loosest there is.

    Where all are scheduled by stimulus time nothing is named.

    Examples
    --------
    >>> nodes, default = schedule_nodes([Node("a", 1.0), Node("b", 1.0)], {"a": "fcfs"})
    >>> [node.scheduling for node in nodes], default
    (['fcfs', 'stimulus-time'], 'fcfs')
    """
    loosest = loosest_policy(policies.values())
    if loosest == STIMULUS_TIME:
        return tuple(nodes), None
    named = tuple(
        replace(node, scheduling=policies.get(node.id, _FIRST_COME if node.cycle_unit == CPU_NS else STIMULUS_TIME))
        for node in nodes
    )
    return named, loosest


def loosest_policy(policies: Iterable[str]) -> str:
    """The policy of several that says least about the upper end; stimulus time of none.

    Examples
    --------
    >>> loosest_policy(["round-robin", "fcfs", "stimulus-time"]), loosest_policy([])
    ('fcfs', 'stimulus-time')
    """
    named = set(policies)
    nobody_measured = sorted(named - {*POLICY_FACTORS, STIMULUS_TIME})
    by_factor = [*nobody_measured, *sorted(POLICY_FACTORS, key=lambda policy: -POLICY_FACTORS[policy][0])]
    return next((policy for policy in by_factor if policy in named), STIMULUS_TIME)


def policy_gap(
    policies: Mapping[str, str], shared: Collection[str], statistic: str, is_spread: bool, upper_s: float | None
) -> PolicyGap | None:
    """The gap of a query's estimate; None where no node on which it shares a server runs another policy.

    Parameters
    ----------
    policies : mapping
        Policy of each node of the query that is not scheduled by stimulus time.
    shared : collection of str
        Those of its nodes on which operators compete for a server.
    statistic : str
        Of the estimate. Factors are of worst cases; of a mean another is known, or none.
    is_spread : bool
        Whether the query uses several nodes.
    upper_s : float or None
        Proven upper bound.

    Examples
    --------
    >>> policy_gap({"n": "fcfs"}, ["n"], "worst", False, None).factor
    1.63
    >>> policy_gap({"n": "klink"}, ["n"], "worst", False, None).factor is None
    True
    >>> policy_gap({"n": "fcfs"}, [], "worst", False, None) is None
    True
    """
    nodes = {node: policy for node, policy in policies.items() if node in shared}
    if not nodes:
        return None
    factors = [_factor(policy, statistic, is_spread) for policy in nodes.values()]
    known = [factor for factor in factors if factor is not None]
    return PolicyGap(nodes, max(known) if len(known) == len(factors) else None, upper_s)


def _factor(policy: str, statistic: str, is_spread: bool) -> float | None:
    if statistic == "mean":
        return _MEAN_FACTORS.get(policy)
    worst = POLICY_FACTORS.get(policy)
    return None if worst is None else worst[int(is_spread)]


def scheduling_bound(policies: Mapping[str, str], upper_s: float | None) -> SchedulingBound:
    """The upper bound where these nodes run other policies; None: there is none."""
    words = Fact("document.scheduling_bound", policies=policies, is_bounded=upper_s is not None)
    return SchedulingBound(dict(policies), words, upper_s)
