"""The archive: files by day, whole or not at all, by the number of their batch."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.history import archive
from spark_jobs.history.archive import Archive, day_files, day_folder, drop_day, kept_days, settle_days, swap_files
from spark_jobs.session import WrongOptions
from tests.spark.history.statistics_rows import DAY_US, NOON_US, result_bytes, row, statistics_bytes

TODAY = date(2026, 11, 24)


def clock() -> float:
    return NOON_US / 1e6


def content(folder: Path, kind: str = "statistics") -> list[dict[str, Any]]:
    """Rows of a kind, day by day."""
    files = [path for day in kept_days(folder, kind) for path in day_files(day_folder(folder, kind, day))]
    return [values for path in files for values in pq.ParquetFile(path).read().to_pylist()]


def test_frames_lie_by_kind_and_day(tmp_path: Path) -> None:
    kept = Archive(tmp_path, clock=clock)
    rows = [row(batch=7), row(batch=7, window_us=NOON_US - DAY_US, cpu_ns=5)]
    kept.put(7, [statistics_bytes(rows), result_bytes(missing=["a"], recovered={"a": 4, "b": 5})])
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "statistics/day=2026-11-23/batch-000000-000000000007.parquet",
        "statistics/day=2026-11-24/batch-000000-000000000007.parquet",
        "results/day=2026-11-24/batch-000000-000000000007.parquet",
    }
    assert [values["cpu_ns"] for values in content(tmp_path)] == [5, 0]
    (result,) = content(tmp_path, "results")
    assert (result["records"], result["missing"], result["recovered"], result["era"]) == (40, ["a"], 9, 0)
    assert kept.fault is None


def test_batch_that_runs_again_replaces_its_own_files(tmp_path: Path) -> None:
    Archive(tmp_path, clock=clock).put(7, [statistics_bytes([row(cpu_ns=1, window_us=NOON_US - DAY_US)])])
    again = Archive(tmp_path, clock=clock)
    again.put(7, [statistics_bytes([row(cpu_ns=2)])])
    again.put(8, [statistics_bytes([row(cpu_ns=3)])])
    assert [values["cpu_ns"] for values in content(tmp_path)] == [2, 3]


def test_numbers_that_begin_anew_overwrite_nothing(tmp_path: Path) -> None:
    Archive(tmp_path, clock=clock).put(7, [statistics_bytes([row(cpu_ns=1)])])
    fresh = Archive(tmp_path, clock=clock)
    for batch in (1, 7):
        fresh.put(batch, [statistics_bytes([row(cpu_ns=batch)])])
    assert [(values["era"], values["cpu_ns"]) for values in content(tmp_path)] == [(0, 1), (1, 1), (1, 7)]


def test_days_past_their_retention_go_and_none_begin(tmp_path: Path) -> None:
    Archive(tmp_path, clock=lambda: NOON_US / 1e6 - 2 * 86_400).put(
        1, [statistics_bytes([row(window_us=NOON_US - 2 * DAY_US)])]
    )
    kept = Archive(tmp_path, 2, clock=clock)
    times = [NOON_US - 2 * DAY_US, NOON_US - DAY_US, NOON_US, NOON_US + 2 * DAY_US, 2**53 - 1]
    kept.put(2, [statistics_bytes([row(window_us=at_us) for at_us in times])])
    assert kept_days(tmp_path, "statistics") == [date(2026, 11, 23), TODAY]
    assert kept.left_out == 3
    Archive(tmp_path / "none", 0).put(1, [statistics_bytes([row()])])
    assert not (tmp_path / "none").exists()


def test_oldest_day_makes_room_and_a_full_day_is_a_fault(tmp_path: Path) -> None:
    frames = [statistics_bytes([row(), row(window_us=NOON_US - DAY_US)])]
    Archive(tmp_path, clock=clock).put(1, frames)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    kept = Archive(tmp_path, max_bytes=size + 10, clock=clock)
    kept.put(2, [statistics_bytes([row()])])
    assert kept_days(tmp_path, "statistics") == [TODAY]
    assert kept.fault is None
    kept.put(3, [statistics_bytes([row()])])
    assert "allowed" in str(kept.fault)
    assert len(content(tmp_path)) == 2


def test_disk_that_takes_no_more_is_a_fault_and_leaves_no_part_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Archive(tmp_path, clock=clock)
    write = archive.replace_file

    def full(path: Path, data: bytes) -> None:
        if "results" in str(path):
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(archive, "replace_file", full)
    kept.put(1, [statistics_bytes([row()]), result_bytes()])
    assert "No space left" in str(kept.fault)
    assert content(tmp_path) == []
    monkeypatch.undo()
    kept.put(2, [statistics_bytes([row()]), result_bytes(), b"no frame"])
    assert "batch 2" in str(kept.fault)
    kept.put(3, [statistics_bytes([row()])])
    assert kept.fault is None
    assert len(content(tmp_path)) == 1


def test_setting_names_what_is_allowed(tmp_path: Path) -> None:
    for text in ("-1", "many", "3651"):
        with pytest.raises(WrongOptions, match=r"SLUICE_HISTORY_DAYS is .*allowed: a whole number from 0 to 3650"):
            Archive.of({"SLUICE_HISTORY_DAYS": text, "SLUICE_VAR_DIR": str(tmp_path)})
    Archive.of({"SLUICE_VAR_DIR": str(tmp_path)}).put(1, [result_bytes(int(datetime.now(UTC).timestamp() * 1e6))])
    assert len(content(tmp_path / "history", "results")) == 1


class _Cut(Exception):
    """The power ends here."""


@pytest.mark.parametrize("cut", range(8))
def test_swap_that_is_cut_off_shows_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    place = day_folder(tmp_path, "statistics", TODAY)
    (place / ".merge").mkdir(parents=True)
    for number in range(3):
        pq.write_table(pa.table({"n": [number]}), place / f"batch-{number}.parquet")
    pq.write_table(pa.table({"n": [0, 1, 2]}), place / ".merge" / "part-0.parquet")
    steps = iter(range(cut, -1, -1))

    def cut_off(step: Any) -> Any:
        def checked(path: Path, *arguments: Any, **options: Any) -> Any:
            if not next(steps, 1):
                raise _Cut
            return step(path, *arguments, **options)

        return checked

    with monkeypatch.context() as patched:
        for name in ("replace", "unlink"):
            patched.setattr(Path, name, cut_off(getattr(Path, name)))
        with suppress(_Cut):
            parts = {"days-0.parquet": place / ".merge" / "part-0.parquet"}
            swap_files(place, parts, [f"batch-{number}.parquet" for number in range(3)])
    assert [values["n"] for values in content(tmp_path)] == [0, 1, 2]
    settle_days(tmp_path)
    assert [values["n"] for values in content(tmp_path)] == [0, 1, 2]
    assert not [path for path in place.iterdir() if path.name.startswith(".") and not path.name.endswith(".new")]


def test_day_that_is_dropped_is_gone_at_once(tmp_path: Path) -> None:
    place = day_folder(tmp_path, "results", TODAY)
    place.mkdir(parents=True)
    (place / "batch-1.parquet").write_bytes(b"")
    drop_day(tmp_path, "results", TODAY)
    drop_day(tmp_path, "results", TODAY)
    assert kept_days(tmp_path, "results") == []
    assert not list((tmp_path / "results").iterdir())
