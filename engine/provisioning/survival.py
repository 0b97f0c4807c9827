"""Survival: what the loss of every node, or domain of nodes, would do, once its operators are placed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from engine.arrays import IntArray
from engine.document.deployment import Deployment, Node
from engine.document.topology import servers_above
from engine.errors import DocumentError, Fault, InfeasibleError
from engine.estimation.estimate import Progress
from engine.estimation.mace import Mace
from engine.estimation.reports import QueryReport
from engine.provisioning.answers.objectives import ObjectiveFigures, RealisedObjective
from engine.provisioning.answers.scenarios import LossAnswer, SurvivalAnswer
from engine.provisioning.confirmation import objective_of_report
from engine.provisioning.scenario import place_unplaced, read_scenarios
from engine.provisioning.what_if import ScenarioOutcome, by_mace, moves_between, what_if
from engine.solvers import solving
from engine.words import counted, listed

__all__ = ["Survival", "failure_domains", "lose_each"]

_NEAR = 0.8  # of a bound: from there on a loss is walked
_FULL = 0.98  # load above which a queue is not said to grow further
_RUN = 10  # a walk, in units of a loss by Mace, for the progress told
_NAMED = 6  # names in a list, the last of a longer one being the number of those left out


@dataclass(frozen=True, eq=False)
class Survival:
    """Outcomes of losing each node, in the order of the fleet, and of losing none.

    Nodes of a failure domain are lost together: `domains` has them by the name of their loss, as ``rack=r7``.
    """

    now: ScenarioOutcome
    losses: dict[str, ScenarioOutcome]
    domains: Mapping[str, tuple[str, ...]]

    def breaks(self, node: str) -> tuple[str, ...]:
        """Queries whose objective is kept now, as far as is known, and broken by the loss of `node`; all of them if
        nothing can run."""
        kept = {query for query, state in _states(self.now).items() if state in ("holds", "at_risk", "unknown")}
        if self.losses[node].queries is None:
            return tuple(query for query in self.now.queries or {} if query in kept)
        return tuple(q for q, state in _states(self.losses[node]).items() if q in kept and state == "breached")

    def risks(self, node: str) -> tuple[str, ...]:
        """Queries whose objective holds now and is at risk with `node` lost: only its median is within the bound.

        One that holds by stimulus time alone, now and then, is not put at risk by the loss.
        """
        now, lost = self.now.queries or {}, self.losses[node].queries or {}
        held = {query for query, report in now.items() if report.state == "holds"}
        lacking = {query for query, report in now.items() if report.lacks_policy}
        return tuple(
            query
            for query, report in lost.items()
            if report.state == "at_risk" and (query in held or (query in lacking and not report.lacks_policy))
        )

    @property
    def survives(self) -> bool:
        """Whether every objective is kept, as far as known, and no loss of one node breaks one, puts one at risk, or
        leaves an operator without a place. What nobody knows as it is survives nothing.
        """
        return not self.unknown and not any(self._is_harmful(node) for node in self.losses)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Queries with an objective of whose latency nothing is known as it is."""
        return tuple(query for query, state in _states(self.now).items() if state == "unknown")

    @cached_property
    def figures(self) -> ObjectiveFigures:
        """Realised figures of every objective with the loss that is worst for it, and without one."""
        worst: dict[str, RealisedObjective] = {}
        for node, outcome in [(None, self.now), *self.losses.items()]:
            for query, report in (outcome.queries or {}).items():
                entry = objective_of_report(query, report, node)
                if entry is not None and (query not in worst or entry.over > worst[query].over):
                    worst[query] = entry
        assert self.now.deployment is not None
        return ObjectiveFigures.of(self.now.deployment, worst.values())

    @property
    def by_mace(self) -> tuple[str, ...]:
        """Nodes whose loss is an estimate by Mace alone, which knows nothing of random costs and arrivals."""
        return tuple(node for node, outcome in self.losses.items() if outcome.queries and outcome.flow_s is None)

    @property
    def answer(self) -> SurvivalAnswer:
        """The outcomes as they are shown and kept."""
        return SurvivalAnswer(
            survives=self.survives,
            now=self.now.answer,
            losses=tuple(
                LossAnswer(
                    node=node,
                    lost=self.domains.get(node, ()),
                    breaks=self.breaks(node),
                    risks=self.risks(node),
                    **vars(outcome.answer),
                )
                for node, outcome in self.losses.items()
            ),
            by_mace=len(self.by_mace),
            message=self.message,
            figures=self.figures,
        )

    def _is_harmful(self, node: str) -> bool:
        return self.losses[node].refusal is not None or bool(self.breaks(node) or self.risks(node))

    @property
    def message(self) -> str:
        return "; ".join(self._clauses())

    def _clauses(self) -> Iterator[str]:
        if not self.losses:
            yield "there is no node to lose"
            return
        if self.unknown:
            yield f"nothing is known of {listed(self.unknown)}"
        bad = [node for node, outcome in self.losses.items() if outcome.refusal is not None or self.breaks(node)]
        risky = [node for node in self.losses if self.risks(node)]
        if bad:
            broken = list(dict.fromkeys(query for node in bad for query in self.breaks(node)))
            yield f"the loss of {listed(bad, _NAMED)} breaks {listed(broken, _NAMED) if broken else 'what runs'}"
        if risky:
            queries = list(dict.fromkeys(query for node in risky for query in self.risks(node)))
            nearest = next((entry for entry in self.figures.at_risk if entry.query in queries), None)
            words = f": {nearest.query} takes {nearest.words}" if nearest else ""
            yield f"the loss of {listed(risky, _NAMED)} puts {listed(queries, _NAMED)} at risk{words}"
        if not bad and not risky:
            unit = "failure domain" if self.domains else "node"
            yield f"the loss of any one {unit} breaks no objective that is kept now"
        lacking = next((entry for entry in self.figures.at_risk if entry.is_lacking and not entry.lost), None)
        if lacking is not None and lacking.gap is not None:
            yield f"of {lacking.query} {lacking.gap.words(lacking.policy_high_s)}"
        if self.by_mace:
            yield f"{len(self.by_mace)} of {counted(len(self.losses), 'loss', 'losses')} by Mace alone"


def _states(outcome: ScenarioOutcome) -> dict[str, str]:
    """State of every query."""
    return {query: report.state for query, report in (outcome.queries or {}).items()}


def lose_each(
    deployment: Deployment,
    *,
    nodes: Sequence[str] | None = None,
    domain: str | None = None,
    place: str = "fill",
    seed: int = 0,
    mace_every: int = 1,
    flow: bool = True,
    rounds: int = 2,
    closed: Sequence[str] = (),
    flows: int = 32,
    progress: Progress | None = None,
) -> Survival:
    """Lose every node in turn (or those named) and estimate every query, with random costs and arrivals.

    A node is lost some day: what waits now is left out.

    Parameters
    ----------
    nodes : sequence of str, optional
        Nodes to lose; all unless given.
    domain : str, optional
        Label of nodes: those with the same value fail together. A node without it fails alone, as all do without one.
    place : str
        ``fill`` places only what was on the lost node; ``search`` may move everything.
    flow : bool
        False estimates by Mace alone.
    flows : int
        Losses that are walked at most. Of more nodes, Mace chooses: the losses after which an objective that is kept
        now would be broken, or nearly (from 0.8 of its bound), the worst first; what randomness adds to it now is taken
        to grow as queues do with the load of their servers. All others are estimates by Mace.

    Raises
    ------
    DocumentError
        If a node does not exist.
    """
    solving()
    deployment = deployment.without_backlogs()
    domains = failure_domains(deployment.nodes, domain) if domain else {}
    names = [node.id for node in deployment.nodes] if nodes is None else list(nodes)
    unknown = [
        Fault(f"nodes[{i}]", f"item {i} is {name!r}, which is no node")
        for i, name in enumerate(names)
        if name not in deployment.node_index
    ]
    if unknown:
        raise DocumentError(unknown, "question")
    if domains:
        names = [name for name, members in domains.items() if set(members) & {*names}]
    members_of = {name: domains.get(name, (name,)) for name in names}
    tell = progress or (lambda share, step: None)
    compare = partial(what_if, deployment, seed=seed, mace_every=mace_every, flow=flow, rounds=rounds, closed=closed)
    now = compare([{"name": "now"}])[0]
    losses: dict[str, ScenarioOutcome] = {}
    chosen = names
    if len(names) > flows or not flow:
        plain = compare([{"name": "now"}], flow=False)[0] if flow else now
        quick = _Quick(deployment, plain, place, seed, mace_every, rounds, closed, now)
        shares: dict[str, float] = {}
        for i, name in enumerate(names):
            tell(i / (len(names) + _RUN * flow * flows), f"Losing {name}, {i + 1} of {len(names)}")
            outcome = quick.lose(name, members_of[name])
            shares[name] = quick.share(outcome)
            losses[name] = outcome.brief()
        near = sorted((name for name in names if shares[name] >= _NEAR), key=lambda name: -shares[name])
        chosen = near[:flows] if flow else []
    begun = len(losses) / (len(names) + _RUN * flows) if losses else 0.0
    for k, name in enumerate(chosen):
        tell(begun + (1.0 - begun) * k / len(chosen), f"Losing {name}, walk {k + 1} of {len(chosen)}")
        losses[name] = compare([_loss_of(name, members_of[name], place)])[0].brief()
    tell(1.0, "Done")
    return Survival(now, losses, domains)


def failure_domains(nodes: Sequence[Node], label: str) -> dict[str, tuple[str, ...]]:
    """Nodes that fail together, in the order of the fleet: those with the same value of a label, named ``rack=r7``.

    A node without the label is a domain of its own, by its own name.
    """
    domains: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        name = f"{label}={node.labels[label]}" if label in node.labels else node.id
        domains[name] = (*domains.get(name, ()), node.id)
    return domains


def _loss_of(name: str, members: Sequence[str], place: str) -> dict[str, object]:
    return {"name": name, "changes": [{"lose_node": member} for member in members], "place": place}


@dataclass(frozen=True)
class _Quick:
    """Losses by Mace. Reports of queries that share no node with what moved are those of now."""

    deployment: Deployment
    now: ScenarioOutcome
    place: str
    seed: int
    mace_every: int
    rounds: int
    closed: Sequence[str]
    walked: ScenarioOutcome

    def lose(self, name: str, members: Sequence[str]) -> ScenarioOutcome:
        scenario = read_scenarios([_loss_of(name, members, self.place)], self.deployment)[0]
        try:
            whole = place_unplaced(
                scenario.applied.deployment,
                self.place,
                mace_every=self.mace_every,
                seed=self.seed,
                rounds=self.rounds,
                closed=[node for node in self.closed if node not in members],
            )
        except InfeasibleError as error:
            return ScenarioOutcome(scenario, None, error)
        moves = moves_between(self.deployment, whole)
        touched = {*members} | {place.node for move in moves for place in (*move.before, *move.after)}
        return by_mace(scenario, whole, moves, self.mace_every, self._unaffected(touched))

    def share(self, outcome: ScenarioOutcome) -> float:
        """Largest share of its bound that a query takes which keeps it now, as far as Mace and its load can tell."""
        if outcome.mace is None:
            return 0.0
        queues, shares = _queues(outcome.mace), [0.0]
        for query, report in (outcome.queries or {}).items():
            if not report.bound_s or self._states_now[query] == "breached":
                continue
            added_s, queue = self._added[query]
            growth = queues[query] / queue if queue > 0.0 else 1.0
            shares.append((report.estimate_s + added_s * growth) / report.bound_s)
        return max(shares)

    @cached_property
    def _states_now(self) -> dict[str, str]:
        return _states(self.walked)

    @cached_property
    def _added(self) -> dict[str, tuple[float, float]]:
        """Distance of every query's upper end from Mace now, and the length of its longest queue."""
        assert self.now.mace is not None
        queues, added = _queues(self.now.mace), {}
        for query, report in (self.now.queries or {}).items():
            entry = objective_of_report(query, (self.walked.queries or {})[query])
            high_s = report.estimate_s if entry is None else entry.high_s
            added[query] = (max(0.0, high_s - report.estimate_s), queues[query])
        return added

    def _unaffected(self, touched: set[str]) -> dict[str, QueryReport]:
        """Reports of the queries that wait for no server on the touched nodes."""
        index = self.deployment.node_index
        hit = np.isin(self._nodes, [index[name] for name in touched])
        start = self._closures[0]
        reports = self.now.queries or {}
        return {
            query: reports[query]
            for i, query in enumerate(self.deployment.queries)
            if query in reports and not hit[start[i] : start[i + 1]].any()
        }

    @cached_property
    def _closures(self) -> tuple[IntArray, IntArray]:
        return self.deployment.closures

    @cached_property
    def _nodes(self) -> IntArray:
        """Node of every replica that a query waits for, query by query."""
        of_server = np.array([-1 if server.node is None else server.node for server in self.deployment.servers])
        return np.asarray(of_server[self.deployment.layout.rep_server[self._closures[1]]])


def _queues(result: Mace) -> dict[str, float]:
    """Length of the longest queue among the servers of each query, as queues of single events grow with the load."""
    deployment = result.deployment
    load = np.minimum(result.load_share.mean(axis=1), _FULL)
    length = load / (1.0 - load)
    start, members = deployment.closures
    return {
        query: float(length[servers_above(deployment.layout, members[start[i] : start[i + 1]])].max(initial=0.0))
        for i, query in enumerate(deployment.queries)
    }
