"""A cluster, and a server whose URL is asked for progress."""

from __future__ import annotations

import pytest

from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.receivers import closed_port, hook

__all__ = ["closed_port", "hook"]


@pytest.fixture
def cluster(db: None) -> Cluster:
    return small_cluster.small_cluster()
