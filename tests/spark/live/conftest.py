"""A stream processor with a Redis, a console and a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dataflow.pipeline import Pipeline
from tests.servers import RedisServer
from tests.spark.live.agents import PAIRS, SLIDING
from tests.spark.live.consoles import small_console
from tests.spark.live.world import World


@pytest.fixture
def world(spark: Any, redis_server: RedisServer, tmp_path: Path) -> Iterator[World]:
    with small_console() as console:
        yield World(spark, redis_server.url, console, tmp_path / "stream")


@pytest.fixture(scope="session")
def pairs() -> Pipeline:
    return Pipeline.parse(PAIRS)


@pytest.fixture(scope="session")
def sliding() -> Pipeline:
    return Pipeline.parse(SLIDING)
