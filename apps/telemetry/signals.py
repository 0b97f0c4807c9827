"""What happens to queries elsewhere reaches their live runs; what happens to agents, their connections."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save

from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.telemetry.choices import LiveState
from apps.telemetry.live import live_refresh, live_stop
from apps.telemetry.models import Agent, KnownPlan, LiveQuery
from apps.telemetry.pushing import push

__all__ = ["connect"]


def connect() -> None:
    """Watch queries: one that stops ends its live run, one whose version or cluster's name changes goes on with it.

    An agent that is deleted, by itself or with its cluster, is sent away.
    """
    post_delete.connect(_agent_deleted, sender=Agent, dispatch_uid="telemetry.agent")
    post_save.connect(_query_saved, sender=Query, dispatch_uid="telemetry.query")
    post_save.connect(_cluster_saved, sender=Cluster, dispatch_uid="telemetry.cluster")


def _query_saved(sender: type[Query], instance: Query, raw: bool = False, **_: Any) -> None:
    if raw:
        return
    for live in _lives().filter(query=instance.pk):
        if instance.state != QueryState.RUNNING:
            live_stop(live=live, fault="The query was stopped.")
        else:
            _keep_up(live)


def _cluster_saved(sender: type[Cluster], instance: Cluster, created: bool, raw: bool = False, **_: Any) -> None:
    if not raw and not created:
        for live in _lives().filter(query__cluster=instance.pk):
            _keep_up(live)


def _agent_deleted(sender: type[Agent], instance: Agent, **_: Any) -> None:
    push([instance.pk])


def _lives() -> QuerySet[LiveQuery]:
    rows = LiveQuery.objects.exclude(state=LiveState.STOPPED)
    return rows.select_related("query__cluster", "query__running_version")


def _keep_up(live: LiveQuery) -> None:
    """Another version is another pipeline, and frames name a query by its own name and its cluster's."""
    named = KnownPlan.objects.filter(query=live.key, digest=live.plan, live=live).exists()
    if named and live.version_id == live.query.running_version_id:
        return
    faults = live_refresh(live=live)
    if faults:
        number = live.query.running_version.number
        live_stop(live=live, fault=f"Version {number} cannot be executed: {faults[0].message}.")
