"""Configurations, rollouts and policies of a cluster as rows."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.refinement.models import RefinedConfig, Rollout, RolloutPolicy

__all__ = ["config_numbered", "configs_listed", "rollout_numbered", "rollout_policy", "rollouts_listed"]


def configs_listed(cluster: Cluster) -> QuerySet[RefinedConfig]:
    """Configurations of a cluster, newest first, with author, parent and rollout."""
    return RefinedConfig.objects.filter(cluster=cluster).select_related("author", "parent", "cluster", "rollout")


def config_numbered(cluster: Cluster, number: int) -> RefinedConfig:
    """A cluster's configuration by its number."""
    found = configs_listed(cluster).filter(number=number).first()
    if found is None:
        message = f"no configuration c-{number}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("number", message)])
    return found


def rollouts_listed(cluster: Cluster) -> QuerySet[Rollout]:
    """Rollouts of a cluster, newest first, with their configurations."""
    rows = Rollout.objects.filter(config__cluster=cluster)
    return rows.select_related("config__cluster", "config__parent", "back", "by")


def rollout_numbered(cluster: Cluster, number: int) -> Rollout:
    """The rollout of a cluster's configuration, by the configuration's number."""
    found = rollouts_listed(cluster).filter(config__number=number).first()
    if found is None:
        message = f"no rollout of c-{number}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("number", message)])
    return found


def rollout_policy(cluster: Cluster) -> RolloutPolicy:
    """How rollouts of a cluster go; the defaults, not stored, where nobody has set it."""
    return RolloutPolicy.objects.filter(cluster=cluster).first() or RolloutPolicy(cluster=cluster)
