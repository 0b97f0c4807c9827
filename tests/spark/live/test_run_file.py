"""`run.json`: which checkpoint is in use and how far steps have come, also where it or the checkpoint is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_jobs.checkpoint import Checkpoint, NewerCheckpoint
from tests.spark.live.folders import LocalFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stream"


def commit(folder: Path, run: int, batch: int) -> None:
    path = folder / "keyed" / f"checkpoint-{run}" / "commits" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1")


@pytest.mark.parametrize("text", [None, "", '{"format": 1, "ru', "{}"])
def test_lost_or_damaged_run_file_is_read_from_its_copy(folder: Path, text: str | None) -> None:
    folder.mkdir()
    root = LocalFolder(folder / "keyed")
    made = Checkpoint.open(root, folder).successor(7)
    commit(folder, made.run, 4)
    path = folder / "keyed" / "run.json"
    path.write_text(text) if text is not None else path.unlink()
    again = Checkpoint.open(root, folder)
    assert (again.run, again.last_step(), again.message) == (1, made.base + 5, "")


def test_steps_go_on_after_a_crash_and_the_loss_of_the_checkpoint(folder: Path) -> None:
    folder.mkdir()
    root = LocalFolder(folder / "keyed")
    made = Checkpoint.open(root, folder)
    for batch in range(1_500):
        made.committed(batch)
    shutil.rmtree(folder / "keyed")
    again = Checkpoint.open(root, folder)
    assert again.base > 1_500
    assert again.message.startswith("the checkpoint is lost")


def test_checkpoint_of_a_later_release_is_refused_and_left_alone(folder: Path) -> None:
    root = LocalFolder(folder / "keyed")
    text = '{"format": 99, "run": 0, "base": 0, "step": 3}'
    root.write("run.json", text)
    with pytest.raises(NewerCheckpoint) as refused:
        Checkpoint.open(root, folder)
    assert f"the state in {root.name} is of a newer release (format 99; this one reads up to 1)" in str(refused.value)
    assert root.read("run.json") == text
