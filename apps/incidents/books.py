"""Changes in the books: of placements, nodes and queries, by which nothing moves where Sluice drives nothing."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Max, Q

from apps.connections.models import ImportedJob
from apps.estimates.models import ObjectiveStatus
from apps.fleet.models import Cluster
from apps.ledger.models import ObjectChange

__all__ = ["books_changed_at", "measured_at"]

_FLEET = ("node", "pool", "link")
_PLANNED = ("placement", "state", "running_version", "rate_share")  # of a query; its objective is no plan


def books_changed_at(cluster: Cluster) -> datetime | None:
    """When a person changed last what estimates of a cluster rest on; None where nobody did."""
    keys = Q(after__has_any_keys=_PLANNED) | Q(before__has_any_keys=_PLANNED)
    rows = ObjectChange.objects.filter(Q(kind__in=_FLEET) | Q(keys, kind="query"), cluster_key=cluster.pk)
    return rows.exclude(user="").order_by("-pk").values_list("at", flat=True).first()


def measured_at(cluster: Cluster) -> datetime | None:
    """When a latency, or statistics of an engine's job, were measured last in a cluster; None where nothing was."""
    newest = (
        ObjectiveStatus.objects.filter(query__cluster=cluster).aggregate(at=Max("measured_at"))["at"],
        ImportedJob.objects.filter(connection__cluster=cluster).aggregate(at=Max("measured_at"))["at"],
    )
    return max((at for at in newest if at is not None), default=None)
