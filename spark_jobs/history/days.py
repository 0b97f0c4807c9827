"""Folders of the history: one for each kind and UTC day, whose files change all at once.

    history/statistics/day=2026-11-24/batch-000000-000000000012.parquet

A swap replaces files by others that hold the same rows. Its intent, written first, says which file stands for which:
whoever reads the folder then takes each row once, in the midst of a swap or after one that was cut off.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from engine.files import replace_file

__all__ = [
    "KINDS",
    "MERGE_FOLDER",
    "day_files",
    "day_folder",
    "drop_day",
    "file_bytes",
    "kept_days",
    "oldest_kept",
    "settle_days",
    "swap_files",
    "utc_day",
]

KINDS = ("statistics", "results", "runs")  #: runs are scored runs, which the console exports
MERGE_FOLDER = ".merge"  #: in a day's folder: files that are to take the place of others
_INTENT = ".swap.json"
_DROPPED = ".dropped-"
_PREFIX = "day="


def utc_day(at_us: float) -> date:
    """The UTC day of a moment, microseconds since 1970."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).date()


def day_folder(folder: Path, kind: str, day: date) -> Path:
    """Folder of a kind's files of one day; it need not be there."""
    return folder / kind / f"{_PREFIX}{day.isoformat()}"


def kept_days(folder: Path, kind: str) -> list[date]:
    """Days of which the history has a folder, oldest first."""
    return sorted(date.fromisoformat(path.name.removeprefix(_PREFIX)) for path in _day_folders(folder, kind))


def day_files(folder: Path) -> list[Path]:
    """Files that hold a day's rows, each row in one of them."""
    intent = _intent(folder)
    files = {path.name: path for path in folder.glob("*.parquet")}
    for name in intent.get("replaced", ()):
        files.pop(name, None)
    for name in intent.get("parts", ()):
        files.setdefault(name, folder / MERGE_FOLDER / name)
    return [files[name] for name in sorted(files)]


def swap_files(folder: Path, parts: Mapping[str, Path], replaced: Iterable[str]) -> None:
    """Put files of the merge folder, by their new names, in the place of others of the day's folder.

    Raises
    ------
    OSError
        The disk is full, say. The day holds what it held, and `settle_days` clears away the rest.
    """
    for name, path in parts.items():
        path.replace(folder / MERGE_FOLDER / name)
    intent = {"parts": sorted(parts), "replaced": sorted(replaced)}
    replace_file(folder / _INTENT, json.dumps(intent).encode())
    _complete_swap(folder, intent)


def settle_days(folder: Path) -> None:
    """Complete swaps and removals that were cut off, and clear away merges that came to no swap."""
    for kind in KINDS:
        for left in (folder / kind).glob(f"{_DROPPED}*"):
            shutil.rmtree(left, ignore_errors=True)
        for day in _day_folders(folder, kind):
            if intent := _intent(day):
                _complete_swap(day, intent)
            else:
                shutil.rmtree(day / MERGE_FOLDER, ignore_errors=True)


def drop_day(folder: Path, kind: str, day: date) -> None:
    """Remove a day, if it is there; nobody who lists the history sees half of it."""
    dropped = folder / kind / f"{_DROPPED}{day.isoformat()}"
    shutil.rmtree(dropped, ignore_errors=True)
    with suppress(FileNotFoundError):
        day_folder(folder, kind, day).rename(dropped)
    shutil.rmtree(dropped, ignore_errors=True)


def file_bytes(path: Path) -> int:
    """Size of a file; 0 where it has just been replaced or dropped."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def oldest_kept(today: date, retention_days: int) -> date:
    """The oldest day that is kept on `today`, which counts as the first."""
    return today - timedelta(days=retention_days - 1)


def _day_folders(folder: Path, kind: str) -> list[Path]:
    return [path for path in (folder / kind).glob(f"{_PREFIX}*") if path.is_dir()]


def _intent(folder: Path) -> dict[str, Any]:
    """The swap under way; empty where there is none."""
    try:
        intent: dict[str, Any] = json.loads((folder / _INTENT).read_bytes())
    except FileNotFoundError:
        return {}
    return intent


def _complete_swap(folder: Path, intent: Mapping[str, Any]) -> None:
    for name in intent["parts"]:
        part = folder / MERGE_FOLDER / name
        if part.exists():
            part.replace(folder / name)
    for name in intent["replaced"]:
        (folder / name).unlink(missing_ok=True)
    (folder / _INTENT).unlink(missing_ok=True)
    shutil.rmtree(folder / MERGE_FOLDER, ignore_errors=True)
