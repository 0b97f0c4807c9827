"""An engine on loopback, which connections may ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apps.connections import work
from tests.apps.connections.engine_server import EngineServer, serve_engine


@pytest.fixture
def engine(settings: Any) -> Iterator[EngineServer]:
    settings.CONNECT_HOSTS = ["127.0.0.0/8", "::1"]
    with serve_engine() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits between polls: a heartbeat would wait for the transaction of the test until it gives up."""
    monkeypatch.setattr(work, "PAUSE_S", 0.0)
    monkeypatch.setattr(work, "LOOK_S", 0.0)
