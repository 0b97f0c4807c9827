"""Reach of a caller: which scopes they hold on everything, on a cluster, and on what a team owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.accounts.choices import ROLE_SCOPES, Role, Scope

__all__ = ["NOTHING", "Reach", "implied_scopes", "reach_of_grants"]

Scopes = frozenset[str]


@dataclass(frozen=True)
class Reach:
    """Scopes by where they were granted.

    Attributes
    ----------
    everything
        Held on the whole console.
    clusters
        Held on a cluster and all in it, by the cluster's key.
    teams
        Held on what a team owns, in whichever cluster, by the team's key.
    """

    everything: Scopes = frozenset()
    clusters: Mapping[int, Scopes] = field(default_factory=dict)
    teams: Mapping[int, Scopes] = field(default_factory=dict)

    @property
    def anywhere(self) -> Scopes:
        """Scopes held somewhere at least."""
        return self.everything.union(*self.clusters.values(), *self.teams.values())

    def on_cluster(self, cluster: int | None) -> Scopes:
        """Scopes on all of a cluster; of what is of no cluster (None), those held on everything."""
        return self.everything | self.clusters.get(cluster or 0, frozenset())

    def on_team(self, cluster: int | None, team: int | None) -> Scopes:
        """Scopes on what a team owns in a cluster."""
        return self.on_cluster(cluster) | self.teams.get(team or 0, frozenset())

    def clusters_with(self, scope: str) -> frozenset[int]:
        """Keys of the clusters on which a scope was granted."""
        return frozenset(key for key, scopes in self.clusters.items() if scope in scopes)

    def teams_with(self, scope: str) -> frozenset[int]:
        """Keys of the teams for which a scope was granted."""
        return frozenset(key for key, scopes in self.teams.items() if scope in scopes)

    def within(self, scopes: Scopes) -> Reach:
        """The same places, and of the scopes only these: what a token may do for its owner."""
        return Reach(
            self.everything & scopes,
            {key: held & scopes for key, held in self.clusters.items()},
            {key: held & scopes for key, held in self.teams.items()},
        )


NOTHING = Reach()


def implied_scopes(scopes: Iterable[str]) -> Scopes:
    """Scopes with those that they include."""
    given = frozenset(scopes)
    if Scope.ADMIN in given:
        return frozenset(Scope.values)
    return given | {Scope.AUTHOR} if Scope.OPERATE in given else given


def reach_of_grants(grants: Iterable[tuple[str, int | None, int | None]]) -> Reach:
    """The reach of grants, each (role, cluster or None, team or None): what several of them give is added up."""
    everything: Scopes = frozenset()
    clusters: dict[int, Scopes] = {}
    teams: dict[int, Scopes] = {}
    for role, cluster, team in grants:
        scopes = ROLE_SCOPES[Role(role)]
        if cluster is not None:
            clusters[cluster] = clusters.get(cluster, frozenset()) | scopes
        elif team is not None:
            teams[team] = teams.get(team, frozenset()) | scopes
        else:
            everything |= scopes
    return Reach(everything, clusters, teams)
