"""The source on a real cluster: one master, two workers, one executor killed in mid-run."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from launcher.children import end_family, spawn
from launcher.places import ROOT
from tests.servers import PATIENCE_S, RedisServer, wait_until
from tests.spark.cluster import Cluster
from tests.spark.frames import records_frame, send

AGENTS = ("a1", "a2", "a3", "a4", "a5")
FRAMES = 60


def totals(folder: Path) -> dict[str, list[int]]:
    """Frames and records of every agent over all batches."""
    counted = [json.loads(path.read_text()) for path in (folder / "batches").glob("*.json")]
    frames: Counter[str] = Counter()
    records: Counter[str] = Counter()
    for batch in counted:
        frames.update({agent: part[0] for agent, part in batch.items()})
        records.update({agent: part[1] for agent, part in batch.items()})
    return {agent: [frames[agent], records[agent]] for agent in frames}


@pytest.mark.slow
def test_a_cluster_counts_exactly_though_an_executor_is_killed(
    cluster: Cluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    for agent in AGENTS:
        send(redis_server.url, [records_frame(agent, seq, records=seq) for seq in range(1, FRAMES // 2 + 1)])
    job = [sys.executable, "-m", "tests.spark.cluster_job", cluster.url, redis_server.url, str(tmp_path)]
    with (tmp_path / "job.log").open("wb") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        driver = spawn(job, tied=True, output=log, env=environment, cwd=tmp_path)
    try:
        wait_until(lambda: totals(tmp_path), what="a first batch")
        victims = cluster.executors()
        assert len(victims) == 2
        victims[0].kill()
        for agent in AGENTS:
            rest = range(FRAMES // 2 + 1, FRAMES + 1)
            send(redis_server.url, [records_frame(agent, seq, records=seq) for seq in rest])
        expected = {agent: [FRAMES, FRAMES * (FRAMES + 1) // 2] for agent in AGENTS}
        wait_until(lambda: totals(tmp_path) == expected, what=f"{expected} in {totals(tmp_path)}")
        wait_until(lambda: len(cluster.executors()) == 2, what="an executor in the place of the killed one")
        (tmp_path / "stop").touch()
        assert driver.wait(PATIENCE_S) == 0, (tmp_path / "job.log").read_text()[-3000:]
        assert totals(tmp_path) == expected
    finally:
        end_family(driver)
