"""Parts of a cluster as pages compare with them: of a small one as they are, of a large one as a worker read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.queries.choices import QueryState
from apps.queries.models import ClusterParts
from apps.queries.snapshots.cluster import Snapshot, cluster_parts, cluster_snapshot, parts_digest

__all__ = ["LARGE", "PartsRead", "is_large", "parts_read", "parts_renew", "parts_shown", "snapshot_take"]

LARGE = 300  #: running queries and nodes; to read the rows of more takes a good part of a second


class PartsRead(NamedTuple):
    """Parts of a cluster, what identifies them all, and the moment before they were read."""

    digest: str
    parts: Mapping[str, str]
    read_at: datetime


def is_large(cluster: Cluster) -> bool:
    """Whether pages compare with what a worker read instead of reading the rows."""
    return cluster.queries.filter(state=QueryState.RUNNING).count() + cluster.nodes.count() > LARGE


def parts_shown(cluster: Cluster, taken_by: Callable[[], Job | None]) -> PartsRead:
    """Parts for a page to compare an answer with: of a large cluster those kept last, which are some seconds old.

    `taken_by` gives the job that took the answer's snapshot: parts from before it began say nothing about what has
    changed since, and then the rows are read. Whatever acts on the comparison reads `cluster_parts`.
    """
    kept = ClusterParts.objects.filter(cluster=cluster).first() if is_large(cluster) else None
    if kept is not None:
        job = taken_by()
        if job is None or job.started_at is None or kept.read_at >= job.started_at:
            return PartsRead(kept.digest, kept.parts, kept.read_at)
    return _read(cluster)


def snapshot_take(cluster: Cluster) -> Snapshot:
    """Take a snapshot in a worker; of a large cluster its parts are kept, so that pages compare with nothing older."""
    snapshot = cluster_snapshot(cluster)
    if is_large(cluster):
        _keep(cluster, snapshot)
    return snapshot


def parts_read(cluster: Cluster) -> PartsRead:
    """Parts as they are; those of a large cluster are kept."""
    read = _read(cluster)
    if is_large(cluster):
        _keep(cluster, read)
    return read


def parts_renew(cluster: Cluster) -> None:
    """Read the parts of a large cluster, and keep them."""
    if is_large(cluster):
        _keep(cluster, _read(cluster))


def _read(cluster: Cluster) -> PartsRead:
    read_at = shared_now()
    parts = cluster_parts(cluster)
    return PartsRead(parts_digest(parts), parts, read_at)


def _keep(cluster: Cluster, read: Snapshot | PartsRead) -> None:
    """Keep parts in place of those read before them; what was read later stays."""
    values = {"digest": read.digest, "parts": dict(read.parts), "read_at": read.read_at}
    rows = ClusterParts.objects.filter(cluster=cluster)
    if rows.filter(digest=read.digest, read_at__lt=read.read_at).update(read_at=read.read_at):
        return
    if not rows.filter(read_at__lt=read.read_at).update(**values):
        rows.defer("parts").get_or_create(cluster=cluster, defaults=values)
