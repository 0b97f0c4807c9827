"""Parts of a cluster as pages compare with them: of a small one as they are, of a large one as a worker read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import ClusterParts
from apps.queries.snapshots.cluster import cluster_parts, parts_digest

__all__ = ["LARGE", "PartsRead", "is_large", "parts_keep", "parts_shown"]

LARGE = 300  #: running queries and nodes; to read the rows of more takes a good part of a second


class PartsRead(NamedTuple):
    """Parts of a cluster, and what identifies them all."""

    digest: str
    parts: Mapping[str, str]


def is_large(cluster: Cluster) -> bool:
    """Whether pages compare with what a worker read instead of reading the rows."""
    return cluster.queries.filter(state=QueryState.RUNNING).count() + cluster.nodes.count() > LARGE


def parts_shown(cluster: Cluster) -> PartsRead:
    """Parts for a page to compare with: of a large cluster those kept last, which are some seconds old.

    Whatever acts on the comparison reads `cluster_parts`.
    """
    kept = ClusterParts.objects.filter(cluster=cluster).first() if is_large(cluster) else None
    if kept is not None:
        return PartsRead(kept.digest, kept.parts)
    parts = cluster_parts(cluster)
    return PartsRead(parts_digest(parts), parts)


def parts_keep(cluster: Cluster, digest: str, parts: Mapping[str, str]) -> None:
    """Keep the parts that were just read of a large cluster, where they differ from those kept."""
    known = ClusterParts.objects.filter(cluster=cluster).values_list("digest", flat=True).first()
    if known != digest and is_large(cluster):
        values = {"digest": digest, "parts": dict(parts), "read_at": timezone.now()}
        ClusterParts.objects.update_or_create(cluster=cluster, defaults=values)
