"""The ledger goes out to a syslog server, each change once as long as the server is there."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from apps.fleet.services import node_drain
from apps.ledger.chain import ledger_seal
from apps.ledger.destinations import ledger_forward
from apps.ledger.models import ObjectChange
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db
_HEAD = re.compile(r"<10[89]>1 \d{4}-\d\d-\d\dT[\d:.]+Z \S+ sluice \d+ ledger - ")


class Syslog:
    """A server that keeps the text of each message, read by the length before it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.texts: list[dict[str, Any]] = []

    def take(self) -> threading.Thread:
        """Read one connection to its end, in a thread."""
        thread = threading.Thread(target=self._read)
        thread.start()
        return thread

    def _read(self) -> None:
        connection, _ = self.server.accept()
        with connection, connection.makefile("rb") as stream:
            while digits := b"".join(iter(lambda: stream.read(1).strip(), b"")):
                message = stream.read(int(digits)).decode()
                head = _HEAD.match(message)
                assert head, message
                self.texts.append(json.loads(message[head.end() :]))


@pytest.fixture
def syslog(settings: Any) -> Iterator[Syslog]:
    kept = Syslog()
    settings.LEDGER_SYSLOG = f"tcp://127.0.0.1:{kept.server.getsockname()[1]}"
    yield kept
    kept.server.close()


def test_changes_reach_the_server_in_their_order_and_once(syslog: Syslog) -> None:
    cluster = small_cluster.small_cluster()
    count = ledger_seal()
    reading = syslog.take()
    assert ledger_forward() == count
    reading.join()
    assert [text["number"] for text in syslog.texts] == [*range(1, count + 1)]
    assert [text["hash"] for text in syslog.texts[:-1]] == [text["prev_hash"] for text in syslog.texts[1:]]
    node_drain(node=cluster.nodes.get(name="a"))
    ledger_seal()
    reading = syslog.take()
    assert ledger_forward() == 1
    reading.join()
    assert syslog.texts[-1]["after"] == {"state": "draining"} and len(syslog.texts) == ObjectChange.objects.count()


def test_changes_wait_for_a_server_that_is_away(syslog: Syslog, settings: Any) -> None:
    small_cluster.small_cluster()
    count = ledger_seal()
    away = socket.create_server(("127.0.0.1", 0))
    there, settings.LEDGER_SYSLOG = settings.LEDGER_SYSLOG, f"tcp://127.0.0.1:{away.getsockname()[1]}"
    away.close()
    assert ledger_forward() == 0
    settings.LEDGER_SYSLOG = there
    reading = syslog.take()
    assert ledger_forward() == count
    reading.join()
    assert len(syslog.texts) == count
