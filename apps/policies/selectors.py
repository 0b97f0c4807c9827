"""Reading policies: the one in force, its versions, and differences between two."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.policies.models import PolicyVersion
from apps.queries.models import Query
from engine.admission.answer import AdmissionPolicy
from engine.policies.policy import ClusterPolicy

__all__ = [
    "admission_rules",
    "policy_numbered",
    "policy_of",
    "policy_version_numbered",
    "policy_versions",
    "rules_of",
    "team_of",
]


def policy_of(cluster: Cluster) -> ClusterPolicy:
    """The policy in force; that of a cluster that never had one says what it does by default."""
    return policy_numbered(cluster, cluster.policy_version)


def policy_numbered(cluster: Cluster, number: int) -> ClusterPolicy:
    """A version of a cluster's policy; 0 is that of one that never had any."""
    return policy_version_numbered(cluster, number).policy if number else ClusterPolicy()


def policy_versions(cluster: Cluster) -> QuerySet[PolicyVersion]:
    """Versions of a cluster's policy, the newest first."""
    return cluster.policy_versions.select_related("created_by")


def policy_version_numbered(cluster: Cluster, number: int) -> PolicyVersion:
    """A version of a cluster's policy; Missing names those that there are."""
    version = policy_versions(cluster).filter(number=number).first()
    if version is None:
        newest = cluster.policy_versions.values_list("number", flat=True).first()
        known = f"1 to {newest}" if newest else "none yet"
        message = f"{number} is no version of the policy; there are: {known}"
        raise Missing(f"{cluster.slug} has no version {number} of its policy.", [("number", message)])
    return version


def team_of(query: Query) -> str:
    """Name of the team that owns a query; empty: none does."""
    return query.team.name if query.team is not None else ""


def admission_rules(cluster: Cluster, query: Query, closed_nodes: tuple[str, ...] = ()) -> AdmissionPolicy:
    """Rules that the engine decides by about a query; `closed_nodes` take nothing new."""
    return rules_of(policy_of(cluster), query, closed_nodes)


def rules_of(policy: ClusterPolicy, query: Query, closed_nodes: tuple[str, ...] = ()) -> AdmissionPolicy:
    """Rules of a policy about a query, as the engine takes them."""
    rules = policy.rules_for(team_of(query))
    return AdmissionPolicy(
        evidence=rules.evidence, margin=rules.margin, thin_below=rules.thin_below, closed_nodes=closed_nodes
    )
