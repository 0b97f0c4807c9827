"""Clients that take the same change back at the same moment: one does it, the others are told."""

from __future__ import annotations

import pytest

from apps.estimates.refresh import refresh_paused
from apps.fleet.services import node_drain
from apps.ledger.models import ObjectChange
from apps.ledger.undo import change_undo
from tests.apps.concurrency import run_concurrently
from tests.apps.small_cluster import small_cluster

CLIENTS = 4


@pytest.mark.postgres
def test_one_of_parallel_undos_wins_on_postgresql(postgres_db: str) -> None:
    check_parallel_undos()


@pytest.mark.django_db(transaction=True)
def test_one_of_parallel_undos_wins_on_sqlite() -> None:
    check_parallel_undos()


def check_parallel_undos() -> None:
    with refresh_paused():
        cluster = small_cluster()
        node_drain(node=cluster.nodes.get(name="a"))
        change = ObjectChange.objects.latest("pk")
        outcomes = run_concurrently([lambda: change_undo(pk=change.pk)] * CLIENTS)
    assert outcomes == {"done": 1, "already_undone": CLIENTS - 1}
    assert cluster.nodes.get(name="a").state == "active"
    assert ObjectChange.objects.filter(undoes=change).count() == 1
