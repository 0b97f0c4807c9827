"""The driver as a process: killed in every way while frames come, and results exact afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from pyarrow.dataset import dataset

from agent.wire import broker
from engine.dataflow.pipeline import Pipeline
from engine.microbatch.progress import read_progress
from launcher.children import end_family, spawn
from launcher.places import ROOT
from spark_jobs.checkpoint import Checkpoint
from spark_jobs.driver import _causes, _in_short
from spark_jobs.session import Options, WrongOptions
from tests.servers import PATIENCE_S, RedisServer, wait_until
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.consoles import SmallConsole, small_console
from tests.spark.live.world import World

QUERY = "here/pairs"


class Driver:
    """`python -m spark_jobs` on a console and a Redis."""

    def __init__(self, console: SmallConsole, redis_url: str, folder: Path, **more: str) -> None:
        self._env = os.environ | {
            "SLUICE_URL": console.url,
            "SLUICE_STREAM_TOKEN": "a-token",
            "REDIS_URL": redis_url,
            "SLUICE_VAR_DIR": str(folder),
            "SLUICE_STREAM_TRIGGER_S": "0.5",
            **more,
        }
        self._log, self._url = folder / "driver.log", redis_url
        folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = spawn([sys.executable, "-m", "spark_jobs"], tied=True, output=log, env=self._env, cwd=ROOT)

    def says(self) -> dict[str, Any]:
        with redis.Redis.from_url(self._url) as client:
            return broker.stream_state(client) or {}

    def wait_ready(self) -> None:
        pid = self.process.pid
        wait_until(lambda: self.ended() or self.says().get("pid") == pid, what="a word of the driver")
        wait_until(lambda: self.ended() or self.says().get("state") == "ready", what="ready")
        assert not self.ended(), self._log.read_text()[-3000:]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def jvm(self) -> psutil.Process:
        return next(child for child in psutil.Process(self.process.pid).children(True) if child.name() == "java")

    def kill(self, what: str) -> None:
        """End it as a crash would; all of it is gone afterwards."""
        family = psutil.Process(self.process.pid).children(True)
        if what == "group":
            os.killpg(os.getpgid(self.process.pid), signal.SIGKILL)
        else:
            victim = self.process.pid if what == "driver" else self.jvm().pid
            os.kill(victim, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        psutil.wait_procs(family, timeout=PATIENCE_S)
        end_family(self.process)


@contextmanager
def sending(world: World, agents: list[SmallAgent]) -> Iterator[None]:
    """Frames come all the while, an epoch of every agent in each turn."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.3):
            frames = [agent.step(count=10) for agent in agents]
            for part in frames:
                while True:
                    try:
                        world.send(part)
                        break
                    except redis.RedisError:
                        ended.wait(0.3)  # as an agent does: the same frames again

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.night
def test_results_are_exact_after_every_kind_of_kill(
    java: None, redis_server: RedisServer, pairs: Pipeline, tmp_path: Path
) -> None:
    agents = [SmallAgent(f"a{i}", QUERY, pairs) for i in range(3)]
    with small_console() as console:
        console.add(QUERY, pairs, [agent.name for agent in agents], idle_after_s=3600)
        world = World(redis_server.url, console, tmp_path)
        driver = Driver(console, redis_server.url, tmp_path)
        driver.start()
        with sending(world, agents):
            for what in ("driver", "jvm", "group"):
                driver.wait_ready()
                before = len(console.results)
                wait_until(lambda before=before: len(console.results) > before + 1, what="results")
                driver.kill(what)
                driver.start()
            driver.wait_ready()
            redis_server.kill()
            redis_server.start()
            console.wanted_trigger_s = 1.0
            wait_until(lambda: _intervals(console) == {500, 1000}, what="batches at another trigger")
        world.send(*(agent.run(1) for agent in agents))
        until = START_US + min(agent.epoch for agent in agents) * SECOND
        wanted = expected(pairs, agents, until)
        wait_until(lambda: len(console.rows(QUERY)) >= len(wanted), what="the last results")
        assert console.rows(QUERY) == wanted != []
        wait_until(lambda: all(_committed(redis_server.url, agent) == agent.seq for agent in agents), what="committed")
        said = driver.says()
        assert said["queries"][QUERY]["late"] == 0
        assert (said["state"], said["trigger_s"], said["faults"]) == ("ready", 1.0, [])
        kept = dataset(tmp_path / "history" / "results", partitioning="hive").to_table(
            columns=["window_us", "revision"]
        )
        posted = {(frame.extra["window_us"], frame.extra["revision"]) for frame in console.results}
        assert {(row["window_us"], row["revision"]) for row in kept.to_pylist()} == posted
        numbers = [(progress["runId"], progress["batchId"]) for progress in console.progress]
        assert len(numbers) == len(set(numbers))
        batches = read_progress(console.progress).batches
        assert max(batch.rows for batch in batches) >= 30  # records: three agents send ten each in 0.3 s
        driver.process.send_signal(signal.SIGTERM)
        assert driver.process.wait(PATIENCE_S) == 0
        end_family(driver.process)


def _intervals(console: SmallConsole) -> set[int]:
    """Triggers of the batches that the console heard of, in milliseconds."""
    return {progress["trigger"]["intervalMs"] for progress in console.progress}


def _committed(url: str, agent: SmallAgent) -> int:
    with redis.Redis.from_url(url) as client:
        return broker.generation_progress(client, agent.name, agent.life).committed_seq


def test_driver_without_a_console_reports_it_and_stops_on_request(redis_server: RedisServer, tmp_path: Path) -> None:
    driver = Driver(SmallConsole(url="http://127.0.0.1:9"), redis_server.url, tmp_path)
    driver.start()
    wait_until(lambda: driver.says().get("faults"), what="a word")
    said = driver.says()
    assert said["state"] == "starting"
    assert said["faults"][0].startswith("waiting for the console: the console does not answer at http://127.0.0.1:9")
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(PATIENCE_S) == 0
    end_family(driver.process)


def test_second_driver_stands_by_until_the_first_is_gone(redis_server: RedisServer, tmp_path: Path) -> None:
    first, second = (Driver(SmallConsole(url="http://127.0.0.1:9"), redis_server.url, tmp_path) for _ in range(2))
    first.start()
    wait_until(lambda: first.says().get("faults"), what="a word")
    second.start()
    wait_until(lambda: "standing by" in (tmp_path / "driver.log").read_text(), what="the second driver")
    end_family(first.process, ())
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()  # what the first one said
    wait_until(second.says, what="a word of the second driver")
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(PATIENCE_S) == 0
    end_family(second.process)


def test_an_environment_that_says_too_little_is_refused_with_every_fault() -> None:
    with pytest.raises(WrongOptions) as refused:
        Options.of({"SLUICE_URL": "http://here", "SLUICE_STREAM_TRIGGER_S": "soon", "SLUICE_STREAM_SHARDS": "-1"})
    assert str(refused.value).splitlines() == [
        "SLUICE_STREAM_TOKEN is not set, and must be a token with scope ingest",
        "REDIS_URL is not set, and must be the broker's address, such as redis://127.0.0.1:6379/0",
        "SLUICE_STREAM_TRIGGER_S is 'soon'; allowed: a number from 0.1 to 600",
        "SLUICE_STREAM_SHARDS is '-1'; allowed: a number from 1 to 1000",
    ]


_STREAM = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error
Traceback (most recent call last):
  File "/py4j/clientserver.py", line 641, in _call_proxy
py4j.protocol.Py4JJavaError: An error occurred while calling o1.awaitResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.hadoop.fs.ChecksumFileSystem.open(ChecksumFileSystem.java:1)
"""
_UNLOADED = "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred\n"


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (_STREAM, False),
        (_STREAM + _UNLOADED + "Caused by: org.apache.hadoop.fs.ChecksumException: Checksum error: 3.changelog", True),
        (_STREAM + _UNLOADED + "Caused by: java.io.IOException: Stream is corrupted", True),
        (_STREAM + _UNLOADED + "Caused by: java.io.IOException: No space left on device", False),
        (_STREAM + _UNLOADED + "Caused by: java.net.ConnectException: Connection refused", False),
    ],
)
def test_state_is_given_up_for_what_will_not_pass(text: str, broken: bool) -> None:
    """Spark names the cause far behind the first line, and classes of stack traces tell nothing."""
    causes = _causes(text)
    assert Checkpoint.is_broken_by(causes) is broken
    assert _in_short(causes).endswith(causes.splitlines()[-1])
