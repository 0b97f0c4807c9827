"""A live query, and the servers of mail and webhooks for what its alerts tell."""

from __future__ import annotations

import pytest

from apps.telemetry.models import LiveQuery
from tests.apps import small_cluster
from tests.apps.receivers import closed_port, hook, mailbox
from tests.apps.results.rows import live_query

__all__ = ["closed_port", "hook", "mailbox"]


@pytest.fixture
def live(db: None) -> LiveQuery:
    """A running query of the pipeline of `rows`, in a cluster of its own."""
    return live_query(small_cluster.small_cluster())
