"""Whether the collected static files are those of the sources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["StaticStamp"]


class StaticStamp:
    """Compares names, sizes and times of the sources with those collected last: faster than collecting again."""

    def __init__(self, root: Path, collected: Path) -> None:
        self._root = root
        self._path = collected / ".collected"
        self._wanted = self._digest()

    @property
    def current(self) -> bool:
        return self._path.is_file() and self._path.read_text() == self._wanted

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self._wanted)

    def _digest(self) -> str:
        digest = hashlib.sha256((self._root / "requirements.txt").read_bytes())  # packages bring static files too
        for path in self._sources():
            facts = path.stat()
            digest.update(f"{path.relative_to(self._root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def _sources(self) -> Iterator[Path]:
        folders = [self._root / "static", *sorted((self._root / "apps").glob("*/static"))]
        for folder in folders:
            yield from (path for path in sorted(folder.rglob("*")) if path.is_file())
