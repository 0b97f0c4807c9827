"""Feeds of Spark queries, and the log of which batch took which file; without a Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lab.benchmarks import planner_spark, spark_job
from lab.benchmarks.spark_queries import FileFeed, file_batches


def test_files_come_with_the_rows_of_the_rate_and_are_whole_once_there(tmp_path: Path) -> None:
    with FileFeed(tmp_path / "feed", rate=200_000.0) as feed:
        while len(feed.rows) < 2:
            time.sleep(0.01)
        feed.rate = 50.0
        while feed.rows[-1] != 5:
            time.sleep(0.01)
    lines = [path.read_text().splitlines() for path in sorted((tmp_path / "feed").iterdir())]
    assert [len(rows) for rows in lines] == feed.rows
    assert feed.rows[:2] == [20_000, 20_000]
    assert all(len(row.split(",")) == 2 for rows in lines for row in rows)
    assert feed.arrived_s == sorted(feed.arrived_s)


def test_batches_of_files_are_read_from_plain_and_compact_logs(tmp_path: Path) -> None:
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)
    entries = [{"path": f"file:///feed/{number:06}.csv", "timestamp": 1, "batchId": number // 2} for number in range(5)]
    (log / "1.compact").write_text("\n".join(["v1", *map(json.dumps, entries[:4])]))
    (log / "2").write_text("\n".join(["v1", json.dumps(entries[4])]))
    (log / ".2.crc").write_bytes(b"\x00")
    assert dict(file_batches(tmp_path)) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}


def test_wrong_options_are_told_all_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_job.main(["--queries", "pivot", "--triggers", "0", "--rates", "1"]) == 2
    told = capsys.readouterr().err
    assert "--queries has 'pivot'; allowed: enrich, count, windows" in told
    assert "--triggers has 0; allowed: 0.1 to 60" in told and "--rates has 1; allowed: 10 to 1,000,000" in told
    assert planner_spark.main(["--constraint", "0", "--step", "1"]) == 2
    told = capsys.readouterr().err
    assert "--constraint is 0; allowed: 0.1 to 60" in told and "--step is 1; allowed: 5 to 600" in told
