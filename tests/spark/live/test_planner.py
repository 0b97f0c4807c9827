"""The plan of record by version: on disk, in Redis, and written again where Redis has lost it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from engine.dataflow.pipeline import Pipeline
from spark_jobs.console import ConsoleClient
from spark_jobs.input.entries import RedisAway
from spark_jobs.planner import Planner
from spark_jobs.plans import PLAN_NUMBER, PlanReader
from tests.servers import RedisServer
from tests.spark.live.consoles import SmallConsole, small_console

QUERY = "here/pairs"


@pytest.fixture
def console() -> Iterator[SmallConsole]:
    with small_console() as listening:
        yield listening


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as connected:
        yield connected


def planner_of(console: SmallConsole, client: redis.Redis, folder: Path) -> Planner:
    return Planner(folder, ConsoleClient(console.url, "a-token"), client)


def keys(client: redis.Redis, kind: str) -> int:
    return len(client.keys(f"sluice:stream:{kind}:*"))  # type: ignore[arg-type]


def test_old_versions_and_their_queries_leave_redis(
    console: SmallConsole, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    planner = planner_of(console, client, tmp_path)
    for retain_s in range(30):
        console.queries.clear()
        console.add(QUERY, pairs, ["a0"], retain_s=5 + retain_s)
        assert planner.refresh()
    assert (keys(client, "plan"), keys(client, "queries")) == (20, 20)
    for _ in range(25):
        planner.begin()
    assert (keys(client, "plan"), keys(client, "queries")) == (20, 1)


def test_a_batch_whose_plan_is_long_gone_goes_by_the_newest(
    console: SmallConsole, redis_server: RedisServer, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner = planner_of(console, client, tmp_path)
    planner.refresh()
    for _ in range(25):
        planner.begin()
    reader = PlanReader(redis_server.url, patience_s=0.2)
    assert reader.version(1).live.keys() == reader.version(26).live.keys() == {(QUERY, pairs.digest)}
    with pytest.raises(RedisAway):
        reader.version(27)  # nobody has written it yet


def test_a_driver_that_lost_everything_begins_above_the_plan_of_its_last_batch(
    console: SmallConsole, redis_server: RedisServer, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner = planner_of(console, client, tmp_path)
    planner.refresh()
    planner.begin(40)
    reader = PlanReader(redis_server.url, patience_s=0.2)
    assert reader.version(40).live.keys() == reader.version(41).live.keys() == {(QUERY, pairs.digest)}


def test_what_redis_lost_is_written_again_and_numbers_never_go_back(
    console: SmallConsole, redis_server: RedisServer, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner = planner_of(console, client, tmp_path / "one")
    planner.refresh()
    planner.begin()
    number = int(client.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
    client.flushall()
    planner.publish()
    reader = PlanReader(redis_server.url, patience_s=0.2)
    for version in (number - 1, number):  # a batch that runs again names the one before
        assert reader.version(version).live.keys() == {(QUERY, pairs.digest)}
    assert client.hkeys("sluice:stream:pipelines") == [pairs.digest.encode()]
    other = planner_of(console, client, tmp_path / "two")  # its folder is lost
    other.refresh()
    other.begin()
    assert int(client.get(PLAN_NUMBER) or 0) > number  # type: ignore[arg-type]


def test_answers_are_of_the_time_at_which_the_console_was_asked(
    console: SmallConsole, redis_server: RedisServer, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    planner = planner_of(console, client, tmp_path)
    planner.refresh()
    console.pipelines[pairs.digest] = {"pipeline": dict(pairs.document)}
    planner.answer({(QUERY, pairs.digest), (QUERY, "abc")})
    version = PlanReader(redis_server.url).version(int(client.get(PLAN_NUMBER) or 0))  # type: ignore[arg-type]
    assert version.idle.keys() == {(QUERY, pairs.digest)} and version.unknown == {"abc"}
    console.add(QUERY, pairs, ["a0"])
    planner.refresh()
    version = PlanReader(redis_server.url).version(int(client.get(PLAN_NUMBER) or 0))  # type: ignore[arg-type]
    assert (version.idle, version.unknown) == ({}, frozenset())
    console.status = 503
    before = client.get(PLAN_NUMBER)
    planner.answer({(QUERY, "def")})
    assert client.get(PLAN_NUMBER) == before, "while the console is away frames of unknown plans wait"


@pytest.mark.parametrize("kind", ["plan:*", "queries:*", "pipelines"])
def test_keys_that_redis_lost_one_by_one_are_written_again(
    console: SmallConsole, redis_server: RedisServer, client: redis.Redis, pairs: Pipeline, tmp_path: Path, kind: str
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner = planner_of(console, client, tmp_path)
    planner.refresh()
    names = client.keys(f"sluice:stream:{kind}")
    client.delete(*names)  # type: ignore[misc]
    planner.publish()
    assert client.exists(*names) == len(names) > 0  # type: ignore[arg-type,misc]
    number = int(client.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
    assert PlanReader(redis_server.url, patience_s=0.2).version(number).live.keys() == {(QUERY, pairs.digest)}


def test_pipelines_of_the_folder_are_in_redis_though_the_plan_changes_at_the_start(
    console: SmallConsole, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner_of(console, client, tmp_path).refresh()
    client.flushall()
    console.queries[0]["agents"] = ["a0", "a1"]
    planner = planner_of(console, client, tmp_path)
    planner.refresh()
    planner.begin()
    assert client.hkeys("sluice:stream:pipelines") == [pairs.digest.encode()]


def test_damaged_plan_is_asked_for_again(
    console: SmallConsole, client: redis.Redis, pairs: Pipeline, tmp_path: Path
) -> None:
    console.add(QUERY, pairs, ["a0"])
    planner_of(console, client, tmp_path).refresh()
    before = int(client.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
    path = tmp_path / "plan.json"
    path.write_bytes(path.read_bytes()[:-20])
    planner = planner_of(console, client, tmp_path)
    assert not planner.known and "plan.json is damaged" in (planner.fault or "")
    assert planner.refresh() and planner.known
    assert int(client.get(PLAN_NUMBER) or 0) > before  # type: ignore[arg-type]
