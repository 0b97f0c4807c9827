"""A folder of an engine is filled whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.engines.folders import FetchFailed, filled_folder, require_space


def test_folder_that_was_filled_stays_and_nothing_else(tmp_path: Path) -> None:
    with filled_folder(tmp_path / "flink") as folder:
        (folder / "lib").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["flink"]
    assert (tmp_path / "flink" / "lib").is_dir()


def _fill_by_half(target: Path) -> None:
    with filled_folder(target) as folder:
        (folder / "half").write_text("")
        raise RuntimeError


def test_failure_halfway_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _fill_by_half(tmp_path / "flink")
    assert list(tmp_path.iterdir()) == []


def test_second_of_two_that_fill_at_once_takes_the_first_ones(tmp_path: Path) -> None:
    with filled_folder(tmp_path / "flink") as late:
        (late / "late").write_text("")
        with filled_folder(tmp_path / "flink") as early:
            (early / "early").write_text("")
    assert [path.name for path in (tmp_path / "flink").iterdir()] == ["early"]


def test_full_disk_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"GB free; .* are needed.*SLUICE_ENGINES_DIR"):
        require_space(tmp_path / "engines", 1e18)
