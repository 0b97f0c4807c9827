"""A cluster with estimates, and browsers of people with every role."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.recordings import recorded


@pytest.fixture
def browser_of(user_of: Callable[..., User]) -> Callable[..., Client]:
    """`browser_of("viewer")`: somebody with that role, signed in."""

    def make(role: str = "operator") -> Client:
        client = Client()
        client.force_login(user_of(role))
        return client

    return make


@pytest.fixture
def browser(browser_of: Callable[..., Client]) -> Client:
    return browser_of()


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Two nodes; `calm` holds its objective, `late` misses it; estimated."""
    return recorded(_estimated_cluster)


def _estimated_cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "calm", 0.5, "a", bound_s=20.0)
    small_cluster.start_query(cluster, "late", 1.2, "b", bound_s=2.0)
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    return cluster
