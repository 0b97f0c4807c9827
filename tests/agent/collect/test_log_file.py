"""Lines of followed log files: their text, their times, the watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.collect.log_files import NOW_US, append, follow, quick_scans, read

__all__ = ["quick_scans"]

pytestmark = pytest.mark.usefixtures("quick_scans")


def test_lines_are_read_as_they_come_and_the_last_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    assert read(source) == []
    assert source.report()["state"] == "no file yet"
    append(path, "one\ntwo\nthr")
    assert read(source) == ["one", "two"]
    append(path, "ee\r\n\n")
    assert read(source) == ["three", ""]
    assert source.report()["records"] == 4


def test_reading_from_the_end_skips_old_lines_and_keeps_new_ones(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old\nhalf")
    source = follow(tmp_path / "*.log", begin="end")
    assert read(source) == []
    append(tmp_path / "a.log", " a line\n")
    append(tmp_path / "b.log", "new file\n")
    assert sorted(read(source)) == ["half a line", "new file"]


def test_poll_returns_no_more_than_the_maximum(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "".join(f"{i}\n" for i in range(1000)))
    source = follow(tmp_path / "a.log")
    assert read(source, most=300) == [str(i) for i in range(300)]
    assert read(source, most=10_000) == [str(i) for i in range(300, 1000)]
    assert source.report()["unread_bytes"] == 0


def test_long_lines_are_cut_and_wrong_bytes_replaced_both_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 500 + b"\n" + b"caf\xe9\nfine\n" + b"y" * 500)
    source = follow(path, max_line_bytes=100)
    assert read(source) == ["x" * 100, "caf�", "fine", "y" * 100]
    append(path, "y" * 5000 + "\nnext\n")
    assert read(source) == ["next"]
    assert source.report()["counted"] == ["2 lines cut", "1 lines with wrong bytes"]
    latin = tmp_path / "latin.log"
    latin.write_bytes(b"caf\xe9\n")
    assert read(follow(latin, encoding="latin-1")) == ["café"]


def test_event_times_from_lines_and_the_watermark(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path, time_pattern=r"time=(\S+)")
    assert read(source) == []
    assert source.watermark_us() == NOW_US - 1_000_000, "an empty log holds nobody back"
    append(path, "time=2023-11-14T22:13:19+00:00 a\nno time here\n")  # one second before NOW_US
    (batch,) = source.poll(NOW_US, 100)
    assert batch.column("ts").cast("int64").to_pylist() == [NOW_US - 1_000_000] * 2
    assert source.report()["counted"] == ["1 lines without a time"]
    source.poll(NOW_US + 60_000_000, 100)
    assert source.watermark_us() == NOW_US + 58_000_000, "the clock less the delay of lines and their lateness"


def test_line_time_far_in_the_future_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "time=2023-11-14T22:13:19+00:00 a\ntime=2093-11-14T22:13:19+00:00 b\n")
    source = follow(path, time_pattern=r"time=(\S+)")
    (batch,) = source.poll(NOW_US, 100)
    assert batch.column("ts").cast("int64").to_pylist() == [NOW_US - 1_000_000] * 2
    assert source.report()["counted"] == ["1 lines without a time"]
    source.poll(NOW_US + 1_000_000, 100)
    assert source.watermark_us() < NOW_US + 1_000_000


def test_the_watermark_of_an_old_log_is_that_of_its_lines(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "17/May/2015:10:05:03 +0000 a\n17/May/2015:10:05:43 +0000 b\n")
    source = follow(tmp_path / "a.log", time_pattern=r"^(\S+ \S+)", time_format="%d/%b/%Y:%H:%M:%S %z")
    source.poll(NOW_US, 100)
    source.poll(NOW_US + 10**9, 100)
    assert source.watermark_us() == 1_431_857_143_000_000 - 1_000_000
