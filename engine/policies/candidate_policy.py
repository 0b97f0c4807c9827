"""Standing of a candidate by its cluster's policy: team, quotas, freezes, and who has waited longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from engine.document.deployment import Deployment
from engine.policies.calendar import active_freezes, thaw_of
from engine.policies.demand import demands_by_team, query_demand
from engine.policies.facts import PolicyFacts
from engine.policies.policy import ClusterPolicy
from engine.policies.quotas import TeamDemand

__all__ = ["POLICY_CODES", "FreezeStanding", "PolicyStanding", "WaitingRequest"]

#: Codes of reasons that a policy alone gives; each passes by waiting.
POLICY_CODES = ("change_frozen", "quota_exceeded", "queue_overdue", "queue_precedence")


@dataclass(frozen=True)
class FreezeStanding:
    """A freeze that holds, when it is over, and the first moment in which none holds; None: none in sight."""

    name: str
    ends: datetime
    thaws_at: datetime | None


@dataclass(frozen=True, eq=False)
class WaitingRequest:
    """A request of the queue, with what it waits for.

    `candidate` is its document with the places of its decision, and `changes` those that it starts with; None where
    its room is not weighed, and then whoever shares its `nodes` is behind it.
    """

    name: str
    query: str
    team: str
    demand: TeamDemand
    nodes: frozenset[str] = frozenset()
    candidate: Mapping[str, Any] | None = None
    changes: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True)
class PolicyStanding:
    """The policy that a candidate is decided under, and the names that quotas count by.

    `teams` is the team of each running query, `node_pools` the pool of each node, `pools` the cores of each pool;
    `overdue` are requests that have waited too long for anything to overtake them, `ahead` all that come before it in
    the order of the queue.
    """

    policy: ClusterPolicy
    version: int
    team: str
    at: datetime
    is_version: bool = False
    teams: Mapping[str, str] = field(default_factory=dict)
    node_pools: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()
    ahead: tuple[WaitingRequest, ...] = ()
    counts: bool = False  #: whether to count what runs by team: for quotas, or for a place in the queue
    _usage: dict[str, Mapping[str, TeamDemand]] = field(default_factory=dict, repr=False, compare=False)

    def freezes(self, later_s: float = 0.0) -> list[FreezeStanding]:
        """Freezes that hold when it would start."""
        at = self.at + timedelta(seconds=later_s)
        active = active_freezes(self.policy.freezes, at, self.team, is_version=self.is_version)
        thaw = thaw_of(self.policy.freezes, at, self.team, is_version=self.is_version) if active else None
        return [FreezeStanding(freeze.name, end, thaw) for freeze, end in active]

    def usage(self, running: Deployment) -> Mapping[str, TeamDemand]:
        """Use by team, of those that quotas are about; counted once of each deployment."""
        if running.digest not in self._usage:
            named = {entry.team for entry in self.policy.teams} | {self.team}
            self._usage[running.digest] = demands_by_team(running, self.teams, named, self.node_pools)
        return self._usage[running.digest]

    def facts(
        self,
        running: Deployment,
        deployment: Deployment | None,
        query: str,
        beside: Mapping[str, TeamDemand] = MappingProxyType({}),
    ) -> PolicyFacts:
        """Facts that this step was made of; `deployment` holds the candidate in its place, where it has one.

        `beside` is what the other members of its group ask for, by team.
        """
        known = PolicyFacts(
            self.version,
            self.team,
            self.at,
            self.is_version,
            pools=self.pools,
            overdue=self.overdue,
            ahead=tuple(entry.name for entry in self.ahead),
        )
        if deployment is None:
            return known
        wanted = query_demand(deployment, query, self.node_pools)
        known = replace(known, wanted=wanted.amounts, unknown=tuple(sorted(wanted.unknown)))
        if not self.counts:
            return known
        usage = self.usage(running)
        unknown = {
            team: usage.get(team, TeamDemand()).unknown | beside.get(team, TeamDemand()).unknown
            for team in (*usage, *beside)
        }
        return replace(
            known,
            usage={team: demand.amounts for team, demand in usage.items()},
            beside={team: demand.amounts for team, demand in beside.items()} or None,
            uncertain={team: tuple(sorted(names)) for team, names in unknown.items() if names},
        )
