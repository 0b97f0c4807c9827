"""Atomic writes: whole content, durable names, no remains of a failure."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from engine.files import replace_file


def test_content_and_mode_are_those_given(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_file_is_synced_before_its_name_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the folder's sync a power cut may bring the old file back after the call has returned."""
    path, synced = tmp_path / "state.json", []
    path.write_bytes(b"old")
    sync = os.fsync

    def record(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.read_bytes()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    replace_file(path, b"new")
    assert synced == [("file", b"old"), ("folder", b"new")]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]
