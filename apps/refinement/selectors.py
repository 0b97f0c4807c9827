"""Reading configurations and rollouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.refinement.models import RefinedConfig, Rollout, RolloutPolicy
from apps.refinement.showing import AgentConfigState, ConfigView, RolloutView, SavedBytes

__all__ = [
    "config_detail",
    "config_numbered",
    "config_of_agents",
    "configs_listed",
    "rollout_now",
    "rollout_policy",
    "rollout_view",
    "rollouts_listed",
    "saved_bytes",
]


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
    """Rollouts of a cluster, newest first."""
    return Rollout.objects.filter(config__cluster=cluster).select_related("config__cluster", "back", "by")


def rollout_policy(cluster: Cluster) -> RolloutPolicy:
    """How rollouts of a cluster go; the defaults, unsaved, where nobody has set it."""
    return RolloutPolicy.objects.filter(cluster=cluster).first() or RolloutPolicy(cluster=cluster)


def config_detail(config: RefinedConfig) -> ConfigView:
    """A configuration beside what was in force before it."""
    raise NotImplementedError


def rollout_now(cluster: Cluster) -> RolloutView | None:
    """The rollout that is under way, else the newest one that ended within the hour."""
    raise NotImplementedError


def rollout_view(rollout: Rollout) -> RolloutView:
    """Any rollout as the panel shows it."""
    raise NotImplementedError


def config_of_agents(cluster: Cluster) -> dict[str, AgentConfigState]:
    """Which configuration each agent of a cluster has, by the agent's id."""
    raise NotImplementedError


def saved_bytes(cluster: Cluster, agents: Iterable[Any] | None = None, last_s: float = 300.0) -> dict[str, SavedBytes]:
    """By agent's id: what it sent of the records of the last epochs, beside All-SP, All-Src, Filter-Src, Best-OP."""
    raise NotImplementedError
