"""Log files followed across rotation: every line once, in order, whatever is done to the file meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent.collect import Collector, make, watching
from agent.config import SourceConfig
from agent.readable import Readable
from tests.servers import wait_until

COLUMNS = {"ts": "timestamp", "line": "string", "file": "string"}
NOW_US = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def _quick_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SCAN_S", 0.0)


def follow(path: Path | str, lateness_s: float = 1.0, **options: Any) -> Collector:
    given = {"path": str(path), "begin": "start"} | options
    return make(SourceConfig("log", "log_file", given, "ts", COLUMNS, lateness_s), Readable([Path(path).parent]))


def read(source: Collector, now_us: int = NOW_US, most: int = 10_000) -> list[str]:
    return [line for batch in source.poll(now_us, most) for line in batch.column("line").to_pylist()]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_as_they_come_and_the_last_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    assert read(source) == []
    assert source.report()["state"] == "no file yet"
    append(path, "one\ntwo\nthr")
    assert read(source) == ["one", "two"]
    append(path, "ee\r\n\n")
    assert read(source) == ["three", ""]
    assert source.report()["records"] == 4


def test_from_the_end_of_what_is_there_but_all_of_what_comes(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old\nhalf")
    source = follow(tmp_path / "*.log", begin="end")
    assert read(source) == []
    append(tmp_path / "a.log", " a line\n")
    append(tmp_path / "b.log", "new file\n")
    assert sorted(read(source)) == ["half a line", "new file"]


def test_no_more_than_asked_for(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "".join(f"{i}\n" for i in range(1000)))
    source = follow(tmp_path / "a.log")
    assert read(source, most=300) == [str(i) for i in range(300)]
    assert read(source, most=10_000) == [str(i) for i in range(300, 1000)]
    assert source.report()["unread_bytes"] == 0


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
def test_rotation_by_renaming(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "a.log"
    source = follow(tmp_path / pattern)
    with path.open("a") as writer:
        writer.write("1\n2\n")
        writer.flush()
        assert read(source) == ["1", "2"]
        path.rename(tmp_path / "a.log.1")
        writer.write("3\n")  # the writer has not opened the new file yet
        writer.flush()
        append(path, "4\n")
        assert sorted(read(source)) == ["3", "4"]
        writer.write("5\n")
        writer.flush()
        assert read(source) == ["5"]


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
def test_rotation_by_copying_and_cutting(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "a.log"
    source = follow(tmp_path / pattern)
    append(path, "1\n2\n")
    assert read(source) == ["1", "2"]
    append(path, "3\n4\n")  # stands unread when it is cut
    shutil.copy(path, tmp_path / "a.log.1")
    assert read(source) == ["3", "4"] or pattern == "a.log*"
    append(path, "")
    os.truncate(path, 0)
    append(path, "a much longer beginning than before, so that its size does not give it away\n")
    assert "a much longer beginning" in "".join(read(source))
    append(path, "6\n")
    assert read(source) == ["6"]


def test_what_stood_unread_when_the_file_was_cut_is_read_from_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\n")
    assert read(source) == ["1"]
    append(path, "2\n3\n")
    shutil.copy(path, tmp_path / "a.log.1")
    os.truncate(path, 0)
    append(path, "4\n")
    assert sorted(read(source)) == ["2", "3", "4"]
    assert read(source) == []


def test_a_file_made_anew_under_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\n")
    assert read(source) == ["1"]
    path.unlink()
    append(path, "2\n")
    assert read(source) == ["2"]


def test_a_renamed_file_is_let_go_in_the_end_and_its_last_line_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\nwithout end")
    assert read(source) == ["1"]
    path.rename(tmp_path / "gone")
    assert read(source) == []
    monkeypatch.setattr(watching, "_LINGER_S", 0.0)
    assert read(source) == ["without end"]
    read(source)
    assert source.position()["files"] == []


@pytest.mark.parametrize("how", ["nothing", "renamed", "copied", "anew"])
def test_it_goes_on_after_a_restart(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.log"
    append(path, "1\n2\n3\n")
    before = follow(path)
    assert read(before, most=2) == ["1", "2"]
    position = before.position()
    before.close()
    append(path, "4\n")
    if how == "renamed":
        path.rename(tmp_path / "a.log.1")
        append(path, "5\n")
    elif how == "copied":
        shutil.copy(path, tmp_path / "a.log.1")
        os.truncate(path, 0)
        append(path, "5\n")
    elif how == "anew":
        path.unlink()
        append(path, "9\n")
    after = follow(path)
    after.seek(position)
    wanted = {"nothing": ["3", "4"], "renamed": ["3", "4", "5"], "copied": ["3", "4", "5"], "anew": ["9"]}[how]
    assert sorted(read(after)) == wanted
    assert bool(after.report()["faults"]) == (how == "anew")


def test_a_position_of_another_path_begins_anew(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n")
    source = follow(tmp_path / "a.log")
    read(source)
    with pytest.raises(ValueError, match="begins anew"):
        follow(tmp_path / "b.log").seek(source.position())


def test_two_files_that_begin_alike_are_two_files(tmp_path: Path) -> None:
    source = follow(tmp_path / "*.log")
    append(tmp_path / "a.log", "# header\n")
    assert read(source) == ["# header"]
    append(tmp_path / "b.log", "# header\n")
    assert read(source) == [], "it may be a copy"
    append(tmp_path / "b.log", "b1\n")
    assert read(source) == ["# header", "b1"]
    append(tmp_path / "a.log", "a1\n")
    assert read(source) == ["a1"]


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


def test_a_time_of_a_line_far_ahead_is_none(tmp_path: Path) -> None:
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


def test_several_rotations_while_the_agent_did_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(tmp_path / "a.log.9", "long ago\n")
    os.utime(tmp_path / "a.log.9", (1, 1))
    append(path, "1\n2\n")
    before = follow(path)
    assert read(before, most=1) == ["1"]
    position = before.position()
    before.close()
    for i in (3, 4, 5):
        path.rename(tmp_path / f"a.log.{i}")
        append(path, f"{i}\n")
    after = follow(path)
    after.seek(position)
    assert sorted(read(after) + read(after)) == ["2", "3", "4", "5"]


def test_a_name_that_changes_hands_between_look_and_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    append(path, "first 1\n")
    source = follow(path)
    seen = read(source)
    path.rename(tmp_path / "a.log.1")
    append(path, "second 1\nsecond 2\n")
    look, rotated = watching._inode, []

    def rotates_after_the_look(asked: Path) -> str | None:
        found = look(asked)
        if asked == path and not rotated:
            rotated.append(path.rename(tmp_path / "a.log.2"))
            append(path, "third 1\n")
        return found

    monkeypatch.setattr(watching, "_inode", rotates_after_the_look)
    for _ in range(3):
        seen += read(source)
    append(path, "third 2\n")
    seen += read(source)
    assert sorted(seen) == ["first 1", "second 1", "second 2", "third 1", "third 2"]


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_rotates_while_it_is_read(tmp_path: Path, seed: int) -> None:
    """Renames and makes anew at any moment, in pieces of lines; a reader restarts now and then."""
    path, wanted, done = tmp_path / "a.log", 6000, threading.Event()

    def write() -> None:
        draw = random.Random(seed)
        file = path.open("a")
        for i in range(wanted):
            text = f"line {i} {'x' * draw.randrange(40)}\n"
            cut = draw.randrange(len(text))
            file.write(text[:cut])
            if draw.random() < 0.05:
                file.flush()
                time.sleep(0.001)
            file.write(text[cut:])
            if draw.random() < 0.005:
                file.flush()
                path.rename(tmp_path / f"a.log.{i}")
                file.close()
                file = path.open("a")
        file.close()
        done.set()

    append(path, "")
    source = follow(path)
    seen = read(source)
    writer = threading.Thread(target=write)
    writer.start()
    draw = random.Random(seed + 100)

    def step() -> bool:
        nonlocal source
        over = done.is_set()
        seen.extend(lines := read(source, most=draw.randrange(1, 500)))
        if draw.random() < 0.1:
            position = source.position()
            source.close()
            source = follow(path)
            source.seek(position)
        return over and not lines

    wait_until(step, what="the end of the log")
    writer.join()
    assert sorted(int(line.split()[1]) for line in seen) == list(range(wanted))


def test_a_file_that_goes_while_its_folder_is_looked_at_stops_nothing(tmp_path, monkeypatch):
    path, passing = tmp_path / "a.log", tmp_path / "a.log.1"
    append(path, "one\n")
    source = follow(path)
    assert read(source) == ["one"]
    listed = os.scandir

    def listed_before_it_went(folder: Path) -> list[os.DirEntry[str]]:
        entries = [*listed(folder)]
        assert all(entry.is_file() for entry in entries)
        passing.unlink(missing_ok=True)
        return entries

    monkeypatch.setattr(watching.os, "scandir", listed_before_it_went)
    append(passing, "never read\n")
    path.unlink()
    append(path, "two\n")
    assert read(source) == ["two"]
