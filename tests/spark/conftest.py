"""One Spark session for every test of a process: starting one takes several seconds and a gigabyte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.environment import VAR_DIR
from tests.java import java_variables
from tests.spark.cluster import Cluster


@pytest.fixture(scope="session")
def java() -> None:
    """A Java for Spark in this process's environment."""
    os.environ |= java_variables()


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[Any]:
    """The session of this process, `local[2]`; tests leave it running and stop the streams they start."""
    from spark_jobs.session import spark_session

    session = spark_session("tests", folder=VAR_DIR / "spark", more={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master with two workers, for tests that bring drivers of their own."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        running.start()
        yield running
    finally:
        running.stop()
