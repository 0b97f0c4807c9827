"""A stream processor with a Redis, a console and a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dataflow.pipeline import Pipeline
from tests.servers import RedisServer
from tests.spark.live.agents import PAIRS, SLIDING
from tests.spark.live.consoles import small_console
from tests.spark.live.world import World


@pytest.fixture
def world(request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path) -> Iterator[World]:
    """Spark starts with the first `drain` that needs it."""
    with small_console() as console:
        yield World(redis_server.url, console, tmp_path / "stream", session=lambda: request.getfixturevalue("spark"))


@pytest.fixture(scope="session")
def pairs() -> Pipeline:
    return Pipeline.parse(PAIRS)


@pytest.fixture(scope="session")
def sliding() -> Pipeline:
    return Pipeline.parse(SLIDING)
