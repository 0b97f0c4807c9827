"""A folder of checkpoints without a Java."""

from __future__ import annotations

import shutil
from pathlib import Path

from spark_jobs.checkpoint import HadoopFolder


class LocalFolder(HadoopFolder):
    """The interface of `HadoopFolder` on a local path."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.name, self._local = str(path), path

    def child(self, name: str) -> str:
        return str(self._local / name)

    def names(self, name: str) -> list[str]:
        path = self._local / name
        return [child.name for child in path.iterdir()] if path.is_dir() else []

    def read(self, name: str) -> str | None:
        path = self._local / name
        return path.read_text() if path.is_file() else None

    def write(self, name: str, text: str) -> None:
        self._local.mkdir(parents=True, exist_ok=True)
        (self._local / name).write_text(text)

    def delete(self, name: str) -> None:
        shutil.rmtree(self._local / name, ignore_errors=True)
