"""Reach that grants give, and scopes that include others."""

from __future__ import annotations

from collections.abc import Iterable

from apps.accounts.choices import ROLE_SCOPES, Role, Scope
from apps.core.reach import Reach

__all__ = ["implied_scopes", "reach_of_grants"]


def implied_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Scopes with those that they include."""
    given = frozenset(scopes)
    if Scope.ADMIN in given:
        return frozenset(Scope.values)
    return given | {Scope.AUTHOR} if Scope.OPERATE in given else given


def reach_of_grants(grants: Iterable[tuple[str, int | None, int | None, str]]) -> Reach:
    """The reach of grants, each (role, cluster or None, team or None, selector or ""); what they give is added up."""
    everything: frozenset[str] = frozenset()
    clusters: dict[int, frozenset[str]] = {}
    teams: dict[int, frozenset[str]] = {}
    labels: dict[tuple[int, str], frozenset[str]] = {}
    for role, cluster, team, selector in grants:
        scopes = ROLE_SCOPES[Role(role)]
        if cluster is not None and selector:
            labels[cluster, selector] = labels.get((cluster, selector), frozenset()) | scopes
        elif cluster is not None:
            clusters[cluster] = clusters.get(cluster, frozenset()) | scopes
        elif team is not None:
            teams[team] = teams.get(team, frozenset()) | scopes
        else:
            everything |= scopes
    return Reach(everything, clusters, teams, labels)
