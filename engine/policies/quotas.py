"""Quotas of teams with borrowing inside a cohort, and the share of the cluster that a team has.

A team may use its nominal quota, and of its cohort what others do not use and lend. The arithmetic is Kueue's
(kubernetes-sigs/kueue, pkg/cache/scheduler/resource_node.go: `localQuota`, `available`, `addUsage`): of each member
the part that it does not lend stays with it (L), the rest belongs to the cohort, and cohorts lie in one another.

    L = max(0, nominal - lending_limit);  stored = nominal - L;  taken = max(0, used - L)
    available = max(0, L - used) + min(stored - taken + borrowing_limit, available of the cohort)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.policies.policy import ClusterPolicy, Quota

__all__ = ["CORES", "QUERIES", "RATE", "QuotaStanding", "TeamDemand", "dominant_share", "quota_standings"]

CORES, QUERIES, RATE, POOL = "cores", "queries", "rate_eps", "pool:"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class TeamDemand:
    """Use of a query, or of all queries of a team: `{cores, queries, rate_eps, pool:NAME}`, pools in cores.

    `unknown` are the resources of which there is more than is known, by an unknown cost.
    """

    amounts: Mapping[str, float] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    def plus(self, other: TeamDemand) -> TeamDemand:
        """Both together."""
        names = {**self.amounts, **other.amounts}
        amounts = {name: self.amounts.get(name, 0.0) + other.amounts.get(name, 0.0) for name in names}
        return TeamDemand(amounts, self.unknown | other.unknown)


@dataclass(frozen=True)
class QuotaStanding:
    """A resource of a team's quota: what is used and wanted, and what may still be had, of that by borrowing."""

    resource: str
    team: str
    nominal: float
    used: float
    wanted: float
    available: float
    is_known: bool  #: otherwise more is used or wanted than is known

    @property
    def is_exceeded(self) -> bool:
        return self.wanted > self.available + _ROUNDING * max(1.0, self.available)

    @property
    def borrows(self) -> float:
        """Amount that is borrowed once it has what it wants."""
        return max(0.0, self.used + self.wanted - self.nominal)


def quota_standings(
    policy: ClusterPolicy, usage: Mapping[str, TeamDemand], team: str, wanted: TeamDemand, pools: Mapping[str, float]
) -> tuple[QuotaStanding, ...]:
    """Every quota of a team, as `usage` by team stands; none where it has no quota.

    Parameters
    ----------
    usage
        What runs, by team, without the candidate.
    wanted
        What the candidate asks for.
    pools
        Cores of each pool: quotas of pools are shares of them.
    """
    own = policy.team(team)
    quotas = own.quotas.by_resource(pools) if own is not None else {}
    standings = []
    for name, quota in quotas.items():
        if wanted.amounts.get(name, 0.0) <= 0.0 and name not in wanted.unknown:
            continue  # it asks for nothing of it
        cohort = _Cohorts(policy, name, usage, pools)
        used = usage.get(team, TeamDemand())
        # what others of the cohort use beyond what is known makes what may be borrowed unknown as well
        is_known = name not in wanted.unknown and not cohort.unknown_beside(team)
        wants = wanted.amounts.get(name, 0.0)
        available = max(0.0, cohort.available(team))
        standings.append(
            QuotaStanding(name, team, quota.nominal, used.amounts.get(name, 0.0), wants, available, is_known)
        )
    return tuple(standings)


class _Cohorts:
    """The members of cohorts as they stand in one resource: a tree for each cohort that lies in no other."""

    def __init__(
        self, policy: ClusterPolicy, resource: str, usage: Mapping[str, TeamDemand], pools: Mapping[str, float]
    ) -> None:
        self._quotas: dict[str, Quota] = {}
        self._parents: dict[str, str | None] = {}
        self._unknown = set[str]()
        self._used: dict[str, float] = {}
        for entry in policy.teams:
            quota = entry.quotas.by_resource(pools).get(resource)
            if quota is None:
                continue
            key, demand = f"team:{entry.team}", usage.get(entry.team, TeamDemand())
            self._quotas[key], self._used[key] = quota, demand.amounts.get(resource, 0.0)
            self._parents[key] = f"cohort:{entry.cohort}" if entry.cohort else None
            if resource in demand.unknown:
                self._unknown.add(entry.team)
        for cohort in policy.cohorts:
            self._parents[f"cohort:{cohort.name}"] = f"cohort:{cohort.parent}" if cohort.parent else None

    def unknown_beside(self, team: str) -> bool:
        """Whether somebody in the tree of a team uses more than is known."""
        root = self._root(f"team:{team}")
        return any(self._root(f"team:{other}") == root for other in self._unknown)

    def available(self, team: str) -> float:
        return self._available(f"team:{team}")

    def _root(self, key: str) -> str:
        parent = self._parents.get(key)
        return key if parent is None else self._root(parent)

    def _children(self, key: str) -> list[str]:
        return [child for child, parent in self._parents.items() if parent == key]

    def _nominal(self, key: str) -> float:
        """Quota of a team, or what the members of a cohort put into it."""
        if key in self._quotas:
            return self._quotas[key].nominal
        return sum(self._nominal(child) - self._kept(child) for child in self._children(key))

    def _kept(self, key: str) -> float:
        """The part of a member's quota that it does not lend; a cohort lends all it has."""
        lending = self._quotas[key].lending_limit if key in self._quotas else None
        return 0.0 if lending is None else max(0.0, self._nominal(key) - lending)

    def _taken(self, key: str) -> float:
        """Use of a member beyond what it keeps."""
        if key in self._used:
            return max(0.0, self._used[key] - self._kept(key))
        return sum(self._taken(child) for child in self._children(key))

    def _available(self, key: str) -> float:
        parent = self._parents.get(key)
        if key not in self._quotas:  # a cohort, which lends all it has and borrows without a limit
            return self._nominal(key) - self._taken(key) if parent is None else self._available(parent)
        used, kept, nominal = self._used[key], self._kept(key), self._nominal(key)
        if parent is None:
            return nominal - used
        borrowing = self._quotas[key].borrowing_limit
        limit = inf if borrowing is None else nominal - kept - self._taken(key) + borrowing
        return max(0.0, kept - used) + min(limit, self._available(parent))


def dominant_share(demand: TeamDemand, capacities: Mapping[str, float]) -> tuple[float, str]:
    """The largest share that a team has of a resource of the cluster, and of which.

    Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), section 4: s = max over resources r of u_r / R_r.

    Examples
    --------
    >>> dominant_share(TeamDemand({"cores": 2.0, "pool:gpu": 3.0}), {"cores": 16.0, "pool:gpu": 4.0})
    (0.75, 'pool:gpu')
    """
    shares = [
        (demand.amounts.get(name, 0.0) / capacity, name) for name, capacity in capacities.items() if capacity > 0.0
    ]
    return max(shares, key=lambda entry: entry[0], default=(0.0, CORES))


def total_demand(demands: Sequence[TeamDemand]) -> TeamDemand:
    """Several demands together."""
    total = TeamDemand()
    for demand in demands:
        total = total.plus(demand)
    return total
