"""A cluster with queries whose states tests set, and the servers of mail and webhooks."""

from __future__ import annotations

import pytest

from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.receivers import closed_port, hook, mailbox

__all__ = ["closed_port", "hook", "mailbox"]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Three running queries with objectives, of which nothing is known yet."""
    cluster = small_cluster.small_cluster()
    for name in ("one", "two", "three"):
        small_cluster.start_query(cluster, name, 0.1, "a", bound_s=15.0)
    return cluster
