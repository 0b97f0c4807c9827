"""What is to be posted is posted in its order, whatever happens to one file of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.wire import Frame, FrameKind, encode_frame
from spark_jobs.console import Console
from spark_jobs.outbox import Outbox
from spark_jobs.quarantine import Quarantine
from tests.servers import wait_until
from tests.spark.live.world import SmallConsole, small_console


def result(seq: int) -> bytes:
    return encode_frame(Frame(FrameKind.RESULT, "stream", "stream", seq, query="here/pairs", body=b"rows"))


@contextmanager
def outbox(folder: Path, prepare: Callable[[Outbox], None]) -> Iterator[tuple[Outbox, SmallConsole]]:
    """An outbox with the files that `prepare` puts, posting to a console."""
    with small_console() as console:
        made = Outbox(folder / "outbox", Console(console.url, "a-token"), Quarantine(folder / "quarantine"))
        prepare(made)
        try:
            yield made, console
        finally:
            made.stop()


def three(made: Outbox) -> None:
    for step in (1, 2, 3):
        made.put(step, [result(step)])


def test_a_damaged_file_holds_nothing_back(tmp_path: Path) -> None:
    with outbox(tmp_path, three) as (made, console):
        damaged = tmp_path / "outbox" / f"{2:012d}.slf"
        damaged.write_bytes(damaged.read_bytes()[:-2])
        made.start(3)
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 3]
        assert "damaged on disk" in next((tmp_path / "quarantine").glob("*.json")).read_text()


def test_a_disk_that_takes_nothing_is_seen_and_posting_goes_on_when_it_does(tmp_path: Path) -> None:
    with outbox(tmp_path, three) as (made, console):
        console.status = 400  # refused for good: to be put aside, for which there is no place
        (tmp_path / "quarantine").rmdir()
        made.start(3)
        wait_until(lambda: made.fault is not None, what="a fault")
        assert "results cannot be posted" in str(made.fault)
        console.status = 200
        (tmp_path / "quarantine").mkdir()
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 2, 3]
        wait_until(lambda: made.fault is None, what="no fault")
