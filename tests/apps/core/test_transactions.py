"""Work that others would wait for is told while a transaction is open, and at no other time."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from django.db import transaction

from apps.core.transactions import WorkInTransaction
from engine.solvers import solving


def search() -> None:
    solving()


def connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())


@pytest.mark.django_db
@pytest.mark.parametrize(("work", "words"), [(search, "the solver search"), (connect, "a connection to")])
def test_work_in_a_transaction_is_refused(work: Callable[[], None], words: str) -> None:
    work()  # the transaction of the test is nobody's to wait for
    with transaction.atomic(), pytest.raises(WorkInTransaction, match=words):
        work()
    work()
