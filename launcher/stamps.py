"""Whether a step of the start has anything to do: asking here takes milliseconds, asking Django takes seconds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

__all__ = ["MigrationStamp", "StaticStamp"]


def _digest(root: Path, files: Iterable[Path]) -> str:
    """Digest of names, sizes and times of files, and of the packages: they bring migrations and static files, too."""
    digest = hashlib.sha256((root / "requirements.txt").read_bytes())
    for path in sorted(files):
        facts = path.stat()
        digest.update(f"{path.relative_to(root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class _Stamp:
    """A file that holds what the step last worked from."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wanted(self) -> str | None:
        """What the step would work from now; None when that cannot be known, so that the step always runs."""
        raise NotImplementedError

    @property
    def current(self) -> bool:
        wanted = self.wanted()
        return wanted is not None and self._path.is_file() and self._path.read_text() == wanted

    def write(self) -> None:
        """Note that the step is done. Whoever cannot be sure of it next time finds no stamp."""
        if (wanted := self.wanted()) is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(wanted)


class StaticStamp(_Stamp):
    """Static files: are those collected the ones of the sources?"""

    def __init__(self, root: Path, var_dir: Path) -> None:
        super().__init__(var_dir / "static" / ".collected")
        self._root = root

    def wanted(self) -> str:
        folders = [self._root / "static", *(self._root / "apps").glob("*/static")]
        return _digest(self._root, (path for folder in folders for path in folder.rglob("*") if path.is_file()))


class MigrationStamp(_Stamp):
    """Migrations of a SQLite database. Any other database is asked each time: it may have been replaced anywhere."""

    def __init__(self, root: Path, var_dir: Path) -> None:
        super().__init__(var_dir / "run" / "migrated")
        self._root = root
        self._database = var_dir / "sluice.sqlite3"

    def wanted(self) -> str | None:
        applied = self._applied()
        if applied is None:
            return None
        return f"{_digest(self._root, (self._root / 'apps').glob('*/migrations/*.py'))} {applied}"

    def _applied(self) -> str | None:
        """Number and last of the applied migrations, as the database has them: a restored backup is noticed."""
        if os.environ.get("DATABASE_URL") or not self._database.is_file():
            return None
        try:
            with contextlib.closing(
                sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=2)
            ) as connection:
                count, last, at = connection.execute(
                    "SELECT count(*), max(id), max(applied) FROM django_migrations"
                ).fetchone()
        except sqlite3.Error:
            return None
        return f"{count} {last} {at}"
