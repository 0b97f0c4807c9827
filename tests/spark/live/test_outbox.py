"""The outbox posts in order, also after damage to one of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.wire import Frame, FrameKind, decode_frames, encode_frame
from spark_jobs.console import ConsoleClient
from spark_jobs.outbox import Outbox, Quarantine
from tests.servers import wait_until
from tests.spark.live.consoles import SmallConsole, small_console


def result(seq: int) -> bytes:
    return encode_frame(Frame(FrameKind.RESULT, "stream", "stream", seq, query="here/pairs", body=b"rows"))


@contextmanager
def outbox(folder: Path, prepare: Callable[[Outbox], None], **more: float) -> Iterator[tuple[Outbox, SmallConsole]]:
    """An outbox with the files that `prepare` puts, posting to a console."""
    with small_console() as console:
        made = Outbox(
            folder / "outbox", ConsoleClient(console.url, "a-token"), Quarantine(folder / "quarantine"), **more
        )
        prepare(made)
        try:
            yield made, console
        finally:
            made.stop()


def three(made: Outbox) -> None:
    for step in (1, 2, 3):
        made.put(step, [result(step)])


def test_damaged_outbox_file_holds_nothing_back(tmp_path: Path) -> None:
    with outbox(tmp_path, three) as (made, console):
        damaged = tmp_path / "outbox" / f"{2:012d}.slf"
        damaged.write_bytes(damaged.read_bytes()[:-2])
        made.start(3)
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 3]
        assert "damaged on disk" in next((tmp_path / "quarantine").glob("*.json")).read_text()


def test_full_disk_is_reported_and_posting_resumes(tmp_path: Path) -> None:
    with outbox(tmp_path, three) as (made, console):
        console.status = 400  # refused for good: to go to quarantine, for which there is no place
        (tmp_path / "quarantine").rmdir()
        made.start(3)
        wait_until(lambda: made.fault is not None, what="a fault")
        assert "results cannot be posted" in str(made.fault)
        console.status = 200
        (tmp_path / "quarantine").mkdir()
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 2, 3]
        wait_until(lambda: made.fault is None, what="no fault")


def test_frame_at_which_a_healthy_console_keeps_failing_goes_to_quarantine(tmp_path: Path) -> None:
    def together(made: Outbox) -> None:
        made.put(1, [result(1), result(2), result(3)])
        made.put(2, [result(4), result(5)])

    with outbox(tmp_path, together, patience_s=1.0) as (made, console):
        console.fails_at = {2, 4}
        made.start(2)
        wait_until(lambda: not made.waiting, what="posting")
        assert sorted({frame.seq for frame in console.results}) == [1, 3, 5]
        assert made.quarantined == 2
        reasons = [path.read_text() for path in sorted((tmp_path / "quarantine").glob("*.json"))]
        assert ["goes on failing" in reason and "500" in reason for reason in reasons] == [True, True]
        kept = [next(decode_frames(path.read_bytes()))[0].seq for path in (tmp_path / "quarantine").glob("*.slf")]
        assert sorted(kept) == [2, 4]
        # number 5 was taken: the next of its query is tried more than once again, as it stands and by itself
        posted = console.failures
        made.put(3, [result(6)])
        console.fails_at = {6}
        made.release(3)
        wait_until(lambda: console.failures > posted + 2, what="a second attempt")


def test_frames_of_a_step_are_quarantined_or_posted_once_each(tmp_path: Path) -> None:
    def together(made: Outbox) -> None:
        made.put(1, [result(seq) for seq in range(1, 6)])

    with outbox(tmp_path, together, patience_s=0.2) as (made, console):
        console.fails_at = {2, 4}
        made.start(1)
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 3, 5]
        assert made.quarantined == 2
        kept = [next(decode_frames(path.read_bytes()))[0].seq for path in (tmp_path / "quarantine").glob("*.slf")]
        assert sorted(kept) == [2, 4]


def test_frames_wait_for_a_console_that_is_not_well(tmp_path: Path) -> None:
    with outbox(tmp_path, three, patience_s=0.2) as (made, console):
        console.well, console.fails_at = False, {2}
        made.start(3)
        wait_until(lambda: console.failures >= 6, what="a few attempts")
        assert (made.waiting, made.quarantined) == (2, 0)
        console.well, console.fails_at, console.status = True, set(), 503
        wait_until(lambda: "503" in str(made.fault), what="a console that is away")
        assert made.waiting == 2
        console.status = 200
        wait_until(lambda: not made.waiting, what="posting")
        assert [frame.seq for frame in console.results] == [1, 2, 3]
