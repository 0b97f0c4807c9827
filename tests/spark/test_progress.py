"""Progress for the console: each batch once, with its records; the console's answer; a console that is away."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from spark_jobs.console import ConsoleAway, ConsoleRefused, ProgressFeed


class Progress(dict[str, Any]):
    """A progress of Spark's, as far as it is read."""

    def __init__(self, batch: int, *, rows: int = 4, run: str = "r") -> None:
        super().__init__(runId=run, batchId=batch, numInputRows=rows, inputRowsPerSecond=2.0)

    @property
    def json(self) -> str:
        return json.dumps(self)


class Console:
    def __init__(self, answer: Any = None) -> None:
        self.posts: list[dict[str, Any]] = []
        self.answer = answer or {}

    def post_progress(self, document: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.posts.append(document)
        return self.answer

    @property
    def batches(self) -> list[tuple[int, int]]:
        return [(each["batchId"], each["numInputRows"]) for post in self.posts for each in post["progress"]]


def feed_of(console: Console, *batches: int) -> ProgressFeed:
    feed = ProgressFeed(console, "local[2]", 2.0, 2)  # type: ignore[arg-type]
    for batch in batches:
        feed.batch_taken(batch, 100 * (batch + 1))
    return feed


def look(feed: ProgressFeed, *recent: Progress) -> None:
    feed.look(SimpleNamespace(lastProgress=recent[-1], recentProgress=list(recent)))  # type: ignore[arg-type]


def test_every_batch_is_posted_once_with_its_records() -> None:
    console = Console()
    feed = feed_of(console, 0, 1, 2, 3)
    look(feed, Progress(0), Progress(1))
    feed.post()
    look(feed, Progress(0), Progress(1))
    look(feed, Progress(2))
    idle = Progress(3, rows=0)
    look(feed, Progress(2), Progress(3), idle)
    look(feed, Progress(2), Progress(3), idle)
    feed.post()
    assert console.batches == [(0, 100), (1, 200), (2, 300), (3, 400)]
    assert "inputRowsPerSecond" not in console.posts[0]["progress"][0]
    assert console.posts[0]["progress"][0]["trigger"] == {"type": "ProcessingTime", "intervalMs": 2000}
    assert console.posts[0]["query"]["cores_per_executor"] == 2


def test_a_batch_whose_records_are_not_known_is_left_out() -> None:
    console = Console()
    feed = feed_of(console, 1)
    look(feed, Progress(0), Progress(1))
    feed.post()
    assert console.batches == [(1, 200)]


def test_a_new_run_begins_at_its_own_numbers() -> None:
    console = Console()
    feed = feed_of(console, 7)
    look(feed, Progress(7, run="first"))
    feed.batch_taken(3, 9)
    look(feed, Progress(3, run="second"))
    feed.post()
    assert console.batches == [(7, 800), (3, 9)]


def test_what_the_console_missed_comes_when_it_is_back() -> None:
    console = Console(ConsoleAway("away"))
    feed = feed_of(console, 0)
    look(feed, Progress(0))
    feed.post()
    assert feed.fault == ""
    console.answer = {"settings": {"trigger_s": 0.01}}
    feed.post()
    assert console.batches == [(0, 100)]
    assert feed.wanted_trigger_s == 0.1  # the shortest there is


def test_a_console_that_cannot_read_it_is_told_and_not_asked_again() -> None:
    console = Console(ConsoleRefused(404, "no such address"))
    feed = feed_of(console, 0)
    look(feed, Progress(0))
    feed.post()
    assert feed.fault == "progress: the console answered 404: no such address"
    console.answer = {}
    feed.post()
    assert console.posts == []


def test_figures_of_operators_are_those_of_the_last_batch_and_sums() -> None:
    feed = feed_of(Console(), 4, 5)
    assert feed.figures.report() == {}
    for batch, snapshot in ((4, 3), (5, 3)):
        progress = Progress(batch)
        operator = {"numRowsTotal": 10 * batch, "numRowsUpdated": 3, "memoryUsedBytes": 9, "commitTimeMs": 250}
        customs = {"rocksdbSstFileSize": 70, "SnapshotLastUploaded.partition_0_default": snapshot}
        progress["stateOperators"] = [operator | {"customMetrics": customs}, operator]
        progress["observedMetrics"] = {"flows": {"rows": 2, "bytes": 600}}
        progress["durationMs"] = {"triggerExecution": 500}
        look(feed, progress)
    report = feed.figures.report()
    flows, generations = report.pop("operators")
    assert report == {"records": 600, "batch_s": 0.5, "batches_total": 2, "records_total": 1100, "batch_s_total": 1.0}
    assert (flows["operator"], flows["rows"], flows["updated_rows_total"], flows["disk_bytes"]) == ("flows", 50, 6, 70)
    assert (flows["commit_s_total"], flows["output_bytes_total"], flows["batches_since_snapshot"]) == (0.5, 1200, 3)
    assert generations["operator"] == "generations"
    assert generations["disk_bytes"] is generations["output_rows"] is None
