"""Facts of a decision's policy step, kept so that another policy can be tried on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from engine.policies.policy import ClusterPolicy
from engine.policies.quotas import QuotaStanding, TeamDemand, quota_standings
from engine.records import Moment, Omitted, Record, Words

__all__ = ["PolicyFacts"]


@dataclass(frozen=True)
class PolicyFacts(Record):
    """Facts that the policy's step of a decision was made of, so that another policy can be tried on it."""

    TITLE: ClassVar[str] = "facts of a policy"

    version: Annotated[int, Words("Version of the policy; 0: none was ever set.")]
    team: Annotated[str, Words("The query's team; empty: none.")]
    at: Annotated[Moment, Words("When it was decided.")]
    is_version: Annotated[bool, Words("Whether another version of the query ran.")] = False
    wanted: Annotated[Mapping[str, float], Words("What it asks for by resource; pools in cores.")] = field(
        default_factory=dict
    )
    unknown: Annotated[tuple[str, ...], Words("Resources of which it asks for more than is known.")] = ()
    usage: Annotated[
        Mapping[str, Mapping[str, float]] | None, Words("What ran by team and resource; null: it was not counted.")
    ] = None
    uncertain: Annotated[Mapping[str, tuple[str, ...]], Words("Resources of which a team used more than is known.")] = (
        field(default_factory=dict)
    )
    beside: Annotated[
        Omitted[Mapping[str, Mapping[str, float]]],
        Words("What the other members of its group ask for by team and resource; it counts as used."),
    ] = None
    pools: Annotated[Mapping[str, float], Words("Cores of each pool.")] = field(default_factory=dict)
    overdue: Annotated[tuple[str, ...], Words("Requests ahead of it that had waited too long.")] = ()
    ahead: Annotated[tuple[str, ...], Words("All requests that came before it in the order of the queue.")] = ()

    def quota_standings(self, policy: ClusterPolicy) -> tuple[QuotaStanding, ...] | None:
        """Quotas of the team under a policy; None where what ran was not counted."""
        if self.usage is None:
            return None
        usage = {
            team: TeamDemand(amounts, frozenset(self.uncertain.get(team, ()))) for team, amounts in self.usage.items()
        }
        for team, amounts in (self.beside or {}).items():
            more = TeamDemand(amounts, frozenset(self.uncertain.get(team, ())))
            usage[team] = usage.get(team, TeamDemand()).plus(more)
        return quota_standings(policy, usage, self.team, TeamDemand(self.wanted, frozenset(self.unknown)), self.pools)
