"""Losses of nodes: which objectives break when a node is lost and what was on it goes elsewhere.

Loads of the servers that take it over tell by Mace who is near a bound; the losses nearest to one are realised. Of a
candidate, only losses that it concerns are looked at; of the others those of the cluster are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from engine.admission.evaluation import Evaluation, Evaluator, QueryOutcome
from engine.admission.scenario import AdmissionScenario
from engine.arrays import FloatArray, IntArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.document.elements import Operator
from engine.document.memory import state_need_bytes
from engine.errors import InfeasibleError
from engine.estimation.base import EstimateBase
from engine.estimation.mace import drain_times, mace
from engine.placement.greedy import Placement
from engine.placement.problem import excess_of
from engine.placement.refuges import Refuge, Refuges

__all__ = [
    "ClusterLoss",
    "ClusterLosses",
    "JudgedLoss",
    "LossJudge",
    "cluster_losses",
    "lose_nodes",
    "scenario_losses",
]

_NEAR = 0.8  # of a bound: from there on a loss is looked at closely
_CONFIRMED = 2  # losses that are realised, those nearest to an objective
_FULL = 0.98  # load above which a queue is not said to grow further
_KEPT = ("holds", "at_risk", "unknown")  # states of an objective that a loss can break


@dataclass(frozen=True)
class ClusterLoss:
    """The loss of a node.

    Attributes
    ----------
    node : str
    breaks : tuple of str
        Queries whose objective is kept, as far as is known, and broken by the loss; where nothing takes over what was
        on the node, those that have an operator there.
    is_refused : bool
        Whether an operator has no other place.
    servers : frozenset of str
        Servers and links that have another load then.
    near : float
        Largest share of a bound that a query takes which keeps it now, where that is 0.8 or more by Mace; else 0.
    """

    node: str
    breaks: tuple[str, ...]
    is_refused: bool = False
    servers: frozenset[str] = frozenset()
    near: float = 0.0

    @property
    def is_harmful(self) -> bool:
        """Whether it breaks an objective, or leaves an operator without a place."""
        return self.is_refused or bool(self.breaks)


@dataclass(frozen=True)
class ClusterLosses:
    """Losses of all nodes of what runs that operators are on, in the order of the fleet."""

    losses: Mapping[str, ClusterLoss]

    def untouched(self, deployment: Deployment, concerned: Collection[str]) -> dict[str, ClusterLoss]:
        """The losses that are as they were once a query has joined.

        Parameters
        ----------
        deployment : Deployment
            With the query that joined; nothing else is elsewhere than before, and no node is new.
        concerned : collection of str
            Queries that it concerns, itself among them: all others have the estimate that they had.

        Notes
        -----
        A loss is looked at anew where the node, or a server that would take over what is on it, is one of a query that
        is concerned. Elsewhere every operator of the node goes where it went: only servers of the query that joined
        have become worse, and none of them was chosen.
        """
        layout, graph = deployment.layout, deployment.graph
        chosen = {deployment.query_index[query] for query in concerned}
        start, members = deployment.closures
        replicas = {r for i in chosen for r in members[start[i] : start[i + 1]].tolist()}
        own = np.isin(graph.query[layout.rep_operator], [*chosen])
        replicas |= {*np.flatnonzero(own).tolist()}
        servers, nodes = set[str](), set[str]()
        for r in replicas:
            core = deployment.servers[layout.rep_server[r]]
            nodes.add(deployment.nodes[core.node or 0].id)
            servers.add(core.name)
            links = layout.hop_server[layout.hop_start[r] : layout.hop_start[r + 1]]
            servers.update(deployment.servers[i].name for i in links[links >= 0].tolist())
        if _has_state(deployment.operators[i] for query in concerned for i in deployment.operators_of(query)):
            # Memory is a node's: what has state of its own may find none where it went, on another core of it.
            nodes |= {part.node for op in deployment.operators if _has_state([op]) for part in op.replicas}
        return {
            name: loss for name, loss in self.losses.items() if name not in nodes and loss.servers.isdisjoint(servers)
        }


def _has_state(operators: Iterable[Operator]) -> bool:
    return any((state_need_bytes(operator) or 0.0) > 0.0 for operator in operators)


class LossJudge:
    """Judges losses of nodes of one deployment by Mace.

    Parameters
    ----------
    deployment : Deployment
        Everything placed, with nothing waiting: a node is lost some day.
    outcomes : mapping
        Of all queries, as they are now.
    mace_every : int
    closed : collection of str
        Nodes that take nothing new.
    """

    def __init__(
        self, deployment: Deployment, outcomes: Mapping[str, QueryOutcome], mace_every: int, closed: Collection[str]
    ) -> None:
        self.deployment, self._every = deployment, mace_every
        self._refuges = Refuges(deployment, closed, mace_every)
        self._loads = self._refuges.core_loads
        is_sum = deployment.combine.kind == "sum"
        self._now = self._loads.server_load if is_sum else _combined(deployment, mace_every)
        self._worst_s, self._queue = self._figures(np.arange(len(deployment.servers)), self._now)
        self._kept = {query: found for query, found in outcomes.items() if found.bound_s and found.state in _KEPT}
        self._path_now_s: dict[str, float] = {}
        self._weights: dict[str, FloatArray] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that operators are on, in the order of the fleet."""
        return tuple(node.id for node in self.deployment.nodes if self._refuges.operators_on(node.id))

    def lose(self, node: str) -> JudgedLoss:
        """The loss of a node: where things go, and whom it breaks."""
        on = self._refuges.operators_on(node)
        try:
            refuge = self._refuges.of(node)
        except InfeasibleError:
            there = dict.fromkeys(query for i in on for query in self._queries_of[i] if query in self._kept)
            return JudgedLoss(ClusterLoss(node, tuple(there), is_refused=True), None, {})
        shares, breaks = {}, []
        loads = refuge.loads if self._now is self._loads.server_load else self._combined_after(refuge)
        for query, path_s, share in self._near(refuge.placement, loads, on):
            shares[query] = share
            if path_s > (self._kept[query].bound_s or np.inf):
                breaks.append(query)
        names = frozenset(self.deployment.servers[server].name for server in {*refuge.loads, *loads})
        loss = ClusterLoss(node, tuple(breaks), servers=names, near=max(shares.values(), default=0.0))
        return JudgedLoss(loss, refuge, shares)

    def _combined_after(self, refuge: Refuge) -> dict[int, FloatArray]:
        """Other loads after a loss where they do not simply add up."""
        combined = _combined(refuge.after, self._every)
        index = {server.name: i for i, server in enumerate(self.deployment.servers)}
        rows = {index[server.name]: combined[i] for i, server in enumerate(refuge.after.servers)}
        return {i: row for i, row in rows.items() if not np.array_equal(row, self._now[i])}

    def _near(
        self, placement: Placement, loads: Mapping[int, FloatArray], on: Sequence[int]
    ) -> Iterator[tuple[str, float, float]]:
        """Queries near their bounds after a loss, each with its path by Mace and the share of its bound."""
        servers = np.array([*loads], dtype=np.int64)
        rows = np.array([*loads.values()]).reshape(len(servers), self._now.shape[1])
        worst_s, queue = (
            dict(zip(servers.tolist(), row.tolist(), strict=True)) for row in self._figures(servers, rows)
        )
        affected = {query for server in loads for query in self._queries_on.get(server, ())}
        affected |= {query for i in on for query in self._queries_of[i]}
        for query in self._kept:  # in their order
            if query not in affected:
                continue
            found, after = self._kept[query], self._servers(query, placement)
            was = max((float(self._queue[s]) for s in self._servers(query, {})), default=0.0)
            grown = max((queue.get(s, float(self._queue[s])) for s in after), default=0.0)
            # What randomness adds grows as queues do with the load of their servers.
            growth = grown / was if was > 0.0 else 1.0
            most_s = max((worst_s.get(s, float(self._worst_s[s])) for s in after), default=0.0)
            bound_s = found.bound_s or np.inf
            if most_s + found.wait_s + (found.upper_s - found.wait_s) * growth < _NEAR * bound_s:
                continue  # whatever of its upper end is Mace's now
            added_s = self._added_s(query) * growth
            path_s = self._path_s(query, after, loads) + found.wait_s
            if path_s + added_s >= _NEAR * bound_s:
                yield query, path_s, (path_s + added_s) / bound_s

    def _added_s(self, query: str) -> float:
        """Distance of a query's upper end from Mace now."""
        if query not in self._path_now_s:
            self._path_now_s[query] = self._path_s(query, self._servers(query, {}), {})
        return max(0.0, self._kept[query].upper_s - self._kept[query].wait_s - self._path_now_s[query])

    def _path_s(self, query: str, servers: Sequence[int], loads: Mapping[int, FloatArray]) -> float:
        """The statistic of a query's objective, of the largest Mace over its servers."""
        rows = np.array([loads.get(server, self._now[server]) for server in servers])
        series = self._mace_s(np.array(servers, dtype=np.int64), rows).max(axis=0)
        if query not in self._weights:
            graph, output = self.deployment.graph, self._loads.output
            sinks = graph.query_sink & (graph.query == self.deployment.query_index[query])
            self._weights[query] = output[np.flatnonzero(sinks)].sum(axis=0)
        return statistic_or_worst(series, self._weights[query], self._kept[query].statistic)

    def _figures(self, servers: IntArray, loads: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Largest Mace of some servers, and the lengths of their queues, as those of single events grow with load."""
        worst_s = self._mace_s(servers, loads).max(axis=1, initial=0.0)
        load = np.minimum(loads.mean(axis=1) / self._loads.budget[servers].mean(axis=1), _FULL)
        return worst_s, load / (1.0 - load)

    def _mace_s(self, servers: IntArray, loads: FloatArray) -> FloatArray:
        """Mace of some servers over time, (n, d)."""
        budget, width_s = self._loads.budget[servers], self._loads.width_s
        excess = excess_of(loads, budget)
        if budget.shape[1] == 1:
            return np.asarray(excess / budget * width_s)
        return drain_times(excess.T, np.ascontiguousarray(budget.T) / width_s, width_s).T

    @cached_property
    def _operators_of(self) -> dict[str, list[int]]:
        """Operators at and above the sinks of every query."""
        deployment, (start, members) = self.deployment, self.deployment.closures
        owner = deployment.layout.rep_operator
        return {
            query: np.unique(owner[members[start[i] : start[i + 1]]]).tolist()
            for i, query in enumerate(deployment.queries)
        }

    @cached_property
    def _queries_of(self) -> list[list[str]]:
        """Queries at or above whose sinks each operator is."""
        queries: list[list[str]] = [[] for _ in self.deployment.operators]
        for query, operators in self._operators_of.items():
            for i in operators:
                queries[i].append(query)
        return queries

    @cached_property
    def _queries_on(self) -> dict[int, set[str]]:
        """Queries on every server and link."""
        queries: dict[int, set[str]] = {}
        for query in self._operators_of:
            for server in self._servers(query, {}):
                queries.setdefault(server, set()).add(query)
        return queries

    def _servers(self, query: str, placement: Placement) -> list[int]:
        """Servers of a query and the links into them, with some operators elsewhere."""
        operators, index = self.deployment.operators, self.deployment.operator_index
        core_of, link_server = self._loads.core_of, self._loads.link_server
        servers = dict[int, None]()
        for i in self._operators_of[query]:
            here = placement.get(operators[i].id, operators[i].replicas)
            servers.update((core_of[replica.node, replica.core], None) for replica in here)
            for entry in operators[i].inputs if link_server else ():
                if entry.source in index:
                    above = operators[index[entry.source]]
                    pairs = product(placement.get(above.id, above.replicas), here)
                    over = (link_server.get((origin.node, replica.node)) for origin, replica in pairs)
                    servers.update((server, None) for server in over if server is not None)
        return [*servers]


@dataclass(frozen=True, eq=False)
class JudgedLoss:
    """A loss by Mace, where things go, and the shares of their bounds that queries take which come near to them."""

    loss: ClusterLoss
    refuge: Refuge | None
    shares: Mapping[str, float]

    def confirmed(self, base: EstimateBase) -> ClusterLoss:
        """The loss by realised figures of the queries near their bounds; `base` is of anything that runs there."""
        assert self.refuge is not None
        found = base.changed(self.refuge.after)
        near = {query: report for query, report in found.queries.items() if query in self.shares}
        reports = replace(found, queries=near).realised().queries
        return replace(self.loss, breaks=tuple(q for q, report in reports.items() if report.state == "breached"))


def _combined(deployment: Deployment, mace_every: int) -> FloatArray:
    """Loads of all servers, (n, d), as they combine."""
    return np.ascontiguousarray(mace(deployment.coarsened(mace_every)).load)


_clusters: dict[tuple[object, ...], ClusterLosses] = {}  # the last one of the process: it is asked again


def cluster_losses(evaluator: Evaluator, tell: Callable[[float, str], None]) -> ClusterLosses:
    """Losses of all nodes of what runs, which a process keeps of the last cluster."""
    question, every = evaluator.question, evaluator.question.mace_every
    closed = frozenset(question.policy.closed_nodes)
    key = question.running.digest, every, closed, evaluator.widening
    if key not in _clusters:
        bare = evaluator.without_backlogs
        judge = LossJudge(bare.question.running, bare.before.outcomes, every, closed)
        found = ClusterLosses(lose_nodes(judge, bare.base, {}, tell))
        _clusters.clear()
        _clusters[key] = found
    return _clusters[key]


def scenario_losses(
    evaluator: Evaluator, scenario: AdmissionScenario, after: Evaluation, tell: Callable[[float, str], None]
) -> dict[str, ClusterLoss]:
    """Losses of all nodes once a scenario is there; `after` is its evaluation."""
    question, bare = evaluator.question, evaluator.without_backlogs
    deployment, known = scenario.deployment, dict[str, ClusterLoss]()
    if bare is not evaluator:
        deployment = deployment.without_backlogs()
        after = bare.full(replace(scenario, deployment=deployment))
    if scenario.touched == {question.candidate.query} and len(deployment.nodes) == len(question.running.nodes):
        cluster = cluster_losses(evaluator, lambda share, step: tell(0.5 * share, step))
        known = cluster.untouched(deployment, after.concerned)
    judge = LossJudge(deployment, after.outcomes, question.mace_every, question.policy.closed_nodes)
    return lose_nodes(judge, bare.base, known, lambda share, step: tell(0.5 + 0.5 * share, step))


def lose_nodes(
    judge: LossJudge,
    base: EstimateBase,
    known: Mapping[str, ClusterLoss],
    tell: Callable[[float, str], None],
    *,
    confirmed: int = _CONFIRMED,
) -> dict[str, ClusterLoss]:
    """Losses of all nodes that operators are on, in the order of the fleet: the `known` as they are, the others judged.

    Of these, the `confirmed` nearest to an objective are realised. `tell` is told the share done and the step.
    """
    anew = [node for node in judge.nodes if node not in known]
    found: dict[str, JudgedLoss] = {}
    for i, node in enumerate(anew):
        tell(0.7 * i / len(anew), f"Losing {node}, {i + 1} of {len(anew)}")
        found[node] = judge.lose(node)
    near = sorted((judged for judged in found.values() if judged.shares), key=lambda judged: -judged.loss.near)
    losses = {node: judged.loss for node, judged in found.items()}
    for judged in near[:confirmed]:
        tell(0.8, f"Losing {judged.loss.node}, with random costs")
        losses[judged.loss.node] = judged.confirmed(base)
    return {node: losses[node] if node in losses else known[node] for node in judge.nodes}
