"""The live loop on a real cluster: executors share nothing with the driver but Redis, and one is killed in mid-run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from engine.dataflow.pipeline import Pipeline
from launcher.children import end_family
from tests.servers import PATIENCE_S, RedisServer, wait_until
from tests.spark.cluster import Cluster
from tests.spark.live.agents import SECOND, START_US, SmallAgent, expected
from tests.spark.live.consoles import small_console
from tests.spark.live.test_driver import QUERY, Driver
from tests.spark.live.world import World


@pytest.mark.slow
@pytest.mark.night
def test_results_are_exact_though_an_executor_is_killed(
    cluster: Cluster, redis_server: RedisServer, pairs: Pipeline, tmp_path: Path
) -> None:
    agents = [SmallAgent(f"a{i}", QUERY, pairs) for i in range(2)]
    with small_console() as console:
        console.add(QUERY, pairs, [agent.name for agent in agents], idle_after_s=3600)
        world = World(redis_server.url, console, tmp_path)
        more = {"SLUICE_SPARK_MASTER": cluster.url}
        driver = Driver(console, redis_server.url, tmp_path / "var", **more)
        driver.start()
        driver.wait_ready()

        def send(epochs: int) -> None:
            world.send(*(agent.run(epochs, factor=0.5) for agent in agents))

        def wait_for_results() -> None:
            wanted = expected(pairs, agents, START_US + agents[0].epoch * SECOND)
            wait_until(lambda: console.rows(QUERY) == wanted, what="the results")

        send(6)
        wait_for_results()
        victim, other = cluster.executors()
        send(5)
        victim.kill()
        wait_for_results()
        wait_until(lambda: len(cluster.executors()) == 2, what="an executor in the place of the killed one")
        assert other.is_running()
        driver.process.send_signal(signal.SIGTERM)
        assert driver.process.wait(PATIENCE_S) == 0
        end_family(driver.process)
