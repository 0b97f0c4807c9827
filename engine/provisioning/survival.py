"""Survival: what the loss of every single node would do, once its operators are placed on what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import IntArray
from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault, InfeasibleError
from engine.estimation.estimate import Progress
from engine.estimation.reports import QueryReport
from engine.provisioning.scenario import place_unplaced, read_scenarios
from engine.provisioning.what_if import ScenarioOutcome, by_mace, moves_between, what_if
from engine.words import listed

__all__ = ["Survival", "lose_each"]

_NEAR = 0.8  # of a bound: from there on Flow is asked too
_RUN = 5  # a run of Flow, in units of a loss by Mace, for the progress told
_NAMED = 6  # names in a list, the last of a longer one being the number of those left out


@dataclass(frozen=True, eq=False)
class Survival:
    """Outcomes of losing each node, in the order of the fleet, and of losing none."""

    now: ScenarioOutcome
    losses: dict[str, ScenarioOutcome]

    def breaks(self, node: str) -> tuple[str, ...]:
        """Queries whose objective is kept now and broken by the loss of `node`; all of them if nothing can run."""
        kept = {query for query, report in (self.now.queries or {}).items() if report.state in ("holds", "at_risk")}
        after = self.losses[node].queries
        if after is None:
            return tuple(query for query in self.now.queries or {} if query in kept)
        return tuple(query for query, report in after.items() if query in kept and report.state == "breached")

    @property
    def survives(self) -> bool:
        """Whether the loss of any one node breaks no objective and leaves every operator a place."""
        return all(outcome.refusal is None and not self.breaks(node) for node, outcome in self.losses.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "survives": self.survives,
            "now": self.now.to_dict(),
            "losses": [
                {"node": node, "breaks": list(self.breaks(node))} | outcome.to_dict()
                for node, outcome in self.losses.items()
            ],
            "message": self.message,
        }

    @property
    def message(self) -> str:
        if not self.losses:
            return "there is no node to lose"
        bad = [node for node, outcome in self.losses.items() if outcome.refusal is not None or self.breaks(node)]
        if not bad:
            return "the loss of any one node breaks no objective that is kept now"
        broken = list(dict.fromkeys(query for node in bad for query in self.breaks(node)))
        if not broken:
            return f"the loss of {listed(bad, _NAMED)} breaks what runs"
        return f"the loss of {listed(bad, _NAMED)} breaks {listed(broken, _NAMED)}"


def lose_each(
    deployment: Deployment,
    *,
    nodes: Sequence[str] | None = None,
    place: str = "fill",
    seed: int = 0,
    mace_every: int = 1,
    flow: bool = True,
    rounds: int = 2,
    closed: Sequence[str] = (),
    flows: int = 32,
    progress: Progress | None = None,
) -> Survival:
    """Lose every node in turn (or those named) and estimate every query.

    Parameters
    ----------
    nodes : sequence of str, optional
        Nodes to lose; all unless given.
    place : str
        ``fill`` places only what was on the lost node; ``search`` may move everything.
    flow : bool
        False estimates by Mace alone.
    flows : int
        Losses that Flow estimates at most. Of more nodes, Mace chooses: the losses after which an objective that is
        kept now is broken, or nearly (from 0.8 of its bound), the worst first. All others are estimates by Mace.

    Raises
    ------
    DocumentError
        If a node does not exist.
    """
    names = [node.id for node in deployment.nodes] if nodes is None else list(nodes)
    unknown = [
        Fault(f"nodes[{i}]", f"item {i} is {name!r}, which is no node")
        for i, name in enumerate(names)
        if name not in deployment.node_index
    ]
    if unknown:
        raise DocumentError(unknown, "question")
    tell = progress or (lambda share, step: None)
    common: dict[str, Any] = {"seed": seed, "mace_every": mace_every, "flow": flow, "rounds": rounds, "closed": closed}
    now = what_if(deployment, [{"name": "now"}], **common)[0]
    losses: dict[str, ScenarioOutcome] = {}
    chosen = names
    if len(names) > flows or not flow:
        plain = what_if(deployment, [{"name": "now"}], **(common | {"flow": False}))[0] if flow else now
        quick = _Quick(deployment, plain, place, seed, mace_every, rounds, closed)
        for i, name in enumerate(names):
            tell(i / (len(names) + _RUN * flow * flows), f"Losing {name}, {i + 1} of {len(names)}")
            losses[name] = quick.lose(name).brief()
        chosen = quick.tight(losses)[:flows] if flow else []
    begun = len(losses) / (len(names) + _RUN * flows) if losses else 0.0
    for k, name in enumerate(chosen):
        tell(begun + (1.0 - begun) * k / len(chosen), f"Flow: losing {name}, {k + 1} of {len(chosen)}")
        losses[name] = what_if(deployment, [_loss_of(name, place)], **common)[0].brief()
    tell(1.0, "Done")
    return Survival(now, losses)


def _loss_of(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "changes": [{"lose_node": name}], "place": place}


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

    def lose(self, name: str) -> ScenarioOutcome:
        scenario = read_scenarios([_loss_of(name, self.place)], self.deployment)[0]
        try:
            whole = place_unplaced(
                scenario.applied.deployment,
                self.place,
                mace_every=self.mace_every,
                seed=self.seed,
                rounds=self.rounds,
                closed=[node for node in self.closed if node != name],
            )
        except InfeasibleError as error:
            return ScenarioOutcome(scenario, None, error)
        moves = moves_between(self.deployment, whole)
        touched = {name} | {place["node"] for move in moves for place in (*move["from"], *move["to"])}
        return by_mace(scenario, whole, moves, self.mace_every, self._unaffected(touched))

    def tight(self, losses: Mapping[str, ScenarioOutcome]) -> list[str]:
        """Losses after which an objective kept now is broken or nearly, the worst first."""
        share = {name: self._share(outcome) for name, outcome in losses.items()}
        return sorted((name for name in share if share[name] >= _NEAR), key=lambda name: -share[name])

    def _share(self, outcome: ScenarioOutcome) -> float:
        """Largest share of its bound that a query takes which keeps it now."""
        now = self.now.queries or {}
        shares = [
            report.estimate_s / report.bound_s
            for query, report in (outcome.queries or {}).items()
            if report.bound_s and now[query].state != "breached"
        ]
        return max(shares, default=0.0)

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
