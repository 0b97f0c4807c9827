"""Goals of a placement: the worst latency, or the worst ratio of latency to objective, over cores, links and delays.

A query waits for the slowest server it uses and for the delays of its longest path. Servers are cores and the links
with a bandwidth. The goal is the largest such sum over the queries, each times its weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Deployment
from engine.estimation.mace import Mace, mace
from engine.estimation.overload import lasting_overloads
from engine.placement.problem import BoolArray

__all__ = ["GOALS", "Goal", "GoalValue", "goal_of", "measure"]

GOALS = ("worst", "objectives")

# A step of priority doubles the weight; beyond a thousandfold more of it says nothing.
_MAX_PRIORITY = 10


@dataclass(frozen=True, eq=False)
class Goal:
    """Weights of the parties. A party is a query; operators without one are a party together, called ``""``.

    Attributes
    ----------
    kind : str
        ``worst``: every weight is 1, the value is in seconds. ``objectives``: the weight is 1 over the bound of the
        query's objective, doubled by every step of its priority; the value is a share of the bound. A query without
        an objective counts as one with the loosest bound there is.
    weight : array, shape (parties,)
    party : array, shape (m,)
        Party of every operator.
    """

    kind: str
    parties: tuple[str, ...]
    weight: FloatArray
    party: IntArray


def goal_of(deployment: Deployment, kind: str) -> Goal:
    """The goal for a deployment; without any objective ``objectives`` weighs by priority alone."""
    parties = tuple(dict.fromkeys(operator.query or "" for operator in deployment.operators))
    index = {name: i for i, name in enumerate(parties)}
    party = np.array([index[operator.query or ""] for operator in deployment.operators], dtype=np.int64)
    weight = np.ones(len(parties))
    if kind == "objectives":
        bounds = {objective.query: objective.bound_s for objective in deployment.objectives}
        loosest = max(bounds.values(), default=1.0)
        for i, name in enumerate(parties):
            steps = max(-_MAX_PRIORITY, min(_MAX_PRIORITY, deployment.priorities.get(name, 0)))
            weight[i] = 2.0**steps / bounds.get(name, loosest)
    return Goal(kind, parties, weight, party)


@dataclass(frozen=True, eq=False)
class GoalValue:
    """Value of a placement by its goal.

    Attributes
    ----------
    mace : Mace
        At Mace's width.
    party_s : array, shape (parties,)
        Largest Mace of the servers of each party, in seconds.
    delay_s : array, shape (parties,)
        Delay of the longest path that ends in each party, in seconds.
    endless : array, shape (parties,)
        Which parties never catch up.
    """

    goal: Goal
    mace: Mace
    party_s: FloatArray
    delay_s: FloatArray
    endless: BoolArray

    @property
    def lasting(self) -> int:
        """Number of parties that count and never catch up: of them the value is only how far behind they get."""
        return int((self.endless & (self.goal.weight > 0.0)).sum())

    @property
    def rank(self) -> tuple[int, float]:
        """Order of placements: by how many parties never catch up, then by value."""
        return self.lasting, self.value

    @property
    def value(self) -> float:
        """The value to minimise: seconds, or a share of the objectives."""
        return float((self.goal.weight * (self.party_s + self.delay_s)).max(initial=0.0))

    @property
    def worst_s(self) -> float:
        """Largest Mace of a server, with the delays of the queries on it, unweighted."""
        return float((self.party_s + self.delay_s).max(initial=0.0))


def measure(coarse: Deployment, goal: Goal) -> GoalValue:
    """The goal of a placed deployment at Mace's width, exactly, whatever way its loads combine."""
    result, layout = mace(coarse), coarse.layout
    party = goal.party[layout.rep_operator]
    party_s, delay_s = np.zeros(len(goal.parties)), np.zeros(len(goal.parties))
    np.maximum.at(party_s, party, result.worst_s[layout.rep_server])
    reader = np.repeat(np.arange(len(layout.rep_server)), np.diff(layout.hop_start))
    on_link = layout.hop_server >= 0
    np.maximum.at(party_s, party[reader[on_link]], result.worst_s[layout.hop_server[on_link]])
    if layout.hop_delay_s.any():
        ranges = [np.arange(layout.rep_start[j], layout.rep_start[j + 1]) for j in coarse.graph.order]
        order = np.concatenate(ranges).astype(np.int64)
        reached = _reached(order, layout.hop_start, layout.hop_origin, layout.hop_delay_s)
        np.maximum.at(delay_s, party, reached)
    endless = np.zeros(len(goal.parties), dtype=bool)
    if overloads := lasting_overloads(result):
        is_over = np.isin(np.arange(len(coarse.servers)), list(overloads))
        np.logical_or.at(endless, party, is_over[layout.rep_server])
        np.logical_or.at(endless, party[reader[on_link]], is_over[layout.hop_server[on_link]])
    return GoalValue(goal, result, party_s, delay_s, endless)


@compiled
def _reached(order: IntArray, hop_start: IntArray, hop_origin: IntArray, hop_delay: FloatArray) -> FloatArray:
    """Delay of the longest path to every replica, in seconds."""
    reached = np.zeros(len(order))
    for r in order:
        for h in range(hop_start[r], hop_start[r + 1]):
            a = hop_origin[h]
            if a >= 0:
                reached[r] = max(reached[r], reached[a] + hop_delay[h])
    return reached
