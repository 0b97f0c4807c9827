"""Two scenarios of the demo's cluster, compared with what is now."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.pages.demo.doing import Doing
from apps.planning.choices import Place
from apps.planning.services import scenario_create, what_if_create
from apps.planning.work import answer_what_if

__all__ = ["scenarios_build"]

_SCENARIOS: tuple[dict[str, Any], ...] = (
    {
        "name": "Quiet weekend, 10 nodes",
        "description": "What could be switched off from Friday evening on.",
        "changes": [{"scale_source": "*", "by": 0.8}, {"resize_pool": "compute", "nodes": 2}],
        "inputs": {"factor": 0.8, "pool": "compute", "nodes": 10},
    },
    {
        "name": "Friday peak, 14 nodes",
        "description": "The evening that is coming, with two more compute nodes.",
        "changes": [{"scale_source": "*", "by": 1.3}, {"resize_pool": "compute", "nodes": 6}],
        "inputs": {"factor": 1.3, "pool": "compute", "nodes": 14},
    },
)
_NOW = {"name": "Now", "changes": [], "place": str(Place.KEEP)}


def scenarios_build(cluster: Cluster, user: User, later: Doing) -> None:
    """Save the scenarios and compare them, unless there are some."""
    if cluster.scenarios.exists():
        return
    with transaction.atomic():
        saved = [scenario_create(cluster=cluster, user=user, place=str(Place.SEARCH), **one) for one in _SCENARIOS]
        row, _ = what_if_create(cluster=cluster, user=user, scenarios=[_NOW, *(one.pk for one in saved)])
        params = {"what_if": str(row.pk)}
        row.job = later.job(JobKind.WHAT_IF, f"Compare scenarios, {cluster.slug}", cluster, user, params)
        row.save(update_fields=["job"])
    later.finish(row.job, answer_what_if)
