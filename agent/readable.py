"""The folders that the host's owner lets collectors read from: the file of the agent says, and no console."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DEFAULT_FOLDERS", "Outside", "Readable"]

DEFAULT_FOLDERS = (Path("/var/log"),)


class Outside(Exception):
    """A file that collectors may not read, in words."""


class Readable:
    """Which files may be opened: those in `folders`, wherever links lead, and never those in `never`.

    `never` is the agent's own: its secret would make whoever edits sources the agent.
    """

    def __init__(self, folders: Sequence[Path] = DEFAULT_FOLDERS, never: Sequence[Path] = ()) -> None:
        self._folders = folders
        self._never = never

    def check(self, path: str | Path, real: str | None = None) -> None:
        """Whether the file, there or not, may be read.

        Raises
        ------
        Outside
            It may not.
        """
        real = real or os.path.realpath(path)
        if any(_is_in(real, one) for one in self._never):
            raise Outside(f"{path} is the agent's own, which no collector may read")
        if not any(_is_in(real, one) for one in self._folders):
            raise Outside(self.words(str(path)))

    def words(self, what: str) -> str:
        """That something is outside, and how the owner of the host changes that."""
        allowed = ", ".join(map(str, self._folders)) or "nothing"
        return f"{what} is outside of what agent.toml allows: read_from is {allowed}"

    def open(self, path: str | Path) -> int:
        """Descriptor of a file opened to be read.

        Raises
        ------
        Outside
            It may not be read.
        OSError
            It cannot be opened.
        """
        real = os.path.realpath(path)
        self.check(path, real)
        return os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)  # what became a link since is not followed


def _is_in(real: str, folder: Path) -> bool:
    return Path(real).is_relative_to(os.path.realpath(folder))
