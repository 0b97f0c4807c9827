"""Log files followed across rotation: every line once, in order, whatever is done to the file meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from agent.collect import rotation
from tests.agent.collect.log_files import append, follow, quick_scans, read
from tests.servers import wait_until

__all__ = ["quick_scans"]

pytestmark = pytest.mark.usefixtures("quick_scans")


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
def test_rotation_by_rename_loses_no_line(tmp_path: Path, pattern: str) -> None:
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
def test_rotation_by_copy_and_truncate_loses_no_line(tmp_path: Path, pattern: str) -> None:
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


def test_unread_lines_of_a_truncated_file_are_read_from_its_copy(tmp_path: Path) -> None:
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


def test_recreated_file_of_the_same_name_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\n")
    assert read(source) == ["1"]
    path.unlink()
    append(path, "2\n")
    assert read(source) == ["2"]


def test_renamed_file_is_closed_after_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\nwithout end")
    assert read(source) == ["1"]
    path.rename(tmp_path / "gone")
    assert read(source) == []
    monkeypatch.setattr(rotation, "_LINGER_S", 0.0)
    assert read(source) == ["without end"]
    read(source)
    assert source.position()["files"] == []


@pytest.mark.parametrize("how", ["nothing", "renamed", "copied", "anew"])
def test_relay_continues_after_a_restart(tmp_path: Path, how: str) -> None:
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


def test_position_of_another_path_restarts_the_replay(tmp_path: Path) -> None:
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


def test_rotations_while_the_agent_was_stopped_lose_no_line(tmp_path: Path) -> None:
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


def test_file_swapped_between_check_and_open_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    append(path, "first 1\n")
    source = follow(path)
    seen = read(source)
    path.rename(tmp_path / "a.log.1")
    append(path, "second 1\nsecond 2\n")
    look, rotated = rotation._inode, []

    def rotates_after_the_look(asked: Path) -> str | None:
        found = look(asked)
        if asked == path and not rotated:
            rotated.append(path.rename(tmp_path / "a.log.2"))
            append(path, "third 1\n")
        return found

    monkeypatch.setattr(rotation, "_inode", rotates_after_the_look)
    for _ in range(3):
        seen += read(source)
    append(path, "third 2\n")
    seen += read(source)
    assert sorted(seen) == ["first 1", "second 1", "second 2", "third 1", "third 2"]


@pytest.mark.parametrize("renames", [1, 2])
def test_file_renamed_while_a_restart_looks_for_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    path = tmp_path / "a.log"
    source = follow(path)
    append(path, "1\n2\n")
    assert read(source, most=1) == ["1"]
    position = source.position()
    source.close()
    look, names = rotation._inode, [path, *(tmp_path / f"a.log.{i}" for i in range(1, renames + 1))]

    def renamed_before_the_look(asked: Path) -> str | None:
        if asked == names[0] and len(names) > 1:
            names.pop(0).rename(names[0])
        return look(asked)

    monkeypatch.setattr(rotation, "_inode", renamed_before_the_look)
    after = follow(path)
    after.seek(position)
    assert read(after) == ["2"]
    assert not after.report()["faults"]


@pytest.mark.parametrize("seed", range(3))
def test_rotation_during_a_read_loses_no_line(tmp_path: Path, seed: int) -> None:
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


def test_file_that_vanishes_during_a_scan_stops_nothing(tmp_path, monkeypatch):
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

    monkeypatch.setattr(rotation.os, "scandir", listed_before_it_went)
    append(passing, "never read\n")
    path.unlink()
    append(path, "two\n")
    assert read(source) == ["two"]
