"""An engine on loopback, which connections may ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.connections.engine_server import EngineServer, serve_engine


@pytest.fixture
def engine(settings: Any) -> Iterator[EngineServer]:
    settings.CONNECT_HOSTS = ["127.0.0.0/8", "::1"]
    with serve_engine() as server:
        yield server
