"""What happens to queries elsewhere reaches their live runs."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save

from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.telemetry.choices import LiveState
from apps.telemetry.live import live_refresh, live_stop
from apps.telemetry.models import LiveQuery

__all__ = ["connect"]


def connect() -> None:
    """Watch queries: one that stops ends its live run, one whose version changes goes on with the new one."""
    post_save.connect(_query_saved, sender=Query, dispatch_uid="telemetry.live")


def _query_saved(sender: type[Query], instance: Query, raw: bool = False, **_: Any) -> None:
    if raw:
        return
    lives = LiveQuery.objects.exclude(state=LiveState.STOPPED).select_related(
        "query__cluster", "query__running_version"
    )
    live = lives.filter(query=instance.pk).first()
    if live is None:
        return
    if instance.state != QueryState.RUNNING:
        live_stop(live=live, fault="The query was stopped.")
    elif live.version_id != instance.running_version_id:
        faults = live_refresh(live=live)
        if faults:
            version = instance.running_version
            live_stop(live=live, fault=f"Version {version.number} cannot be executed: {faults[0].message}.")
