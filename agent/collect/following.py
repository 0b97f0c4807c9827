"""One log file read to its end and on, safely across rotation by renaming and by copying and cutting."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Followed", "Lines"]

# the beginning of a file, and what stands before the place it was read to, tell it from another under its name or inode
_HEAD_BYTES = 256
_TAIL_BYTES = 256
_READ_BYTES = 2**18


@dataclass(frozen=True)
class Lines:
    """Lines as they were read, without their ends."""

    lines: list[bytes]
    cut: int = 0


class Followed:
    """An open log file and how far it has been read.

    `offset` is the end of the last line that was given out. A line without its end is held back until the end comes,
    unless it is longer than `max_line_bytes`: then its beginning is given out and the rest skipped.
    """

    def __init__(self, path: Path, descriptor: int, max_line_bytes: int) -> None:
        self.path = path
        self.offset = 0
        self.last_us: int | None = None  #: event time of the last line that had one
        self._fd = descriptor
        self._most = max_line_bytes
        self._marks: list[tuple[int, int, str]] = []  # (at, bytes, digest) of what was given out before
        self._skipping = False  # within the rest of a line that was cut
        status = os.fstat(descriptor)
        self.inode = f"{status.st_dev}:{status.st_ino}"

    def close(self) -> None:
        os.close(self._fd)

    def position(self) -> dict[str, Any]:
        """From where to go on after a restart."""
        says = {"inode": self.inode, "path": str(self.path), "offset": self.offset, "last_us": self.last_us}
        return says | {"marks": self._marks, "skipping": self._skipping}

    def resume(self, position: Mapping[str, Any]) -> bool:
        """Go on from a position; False, and from the start, if this file is not the one that it was taken of."""
        marks = [(at, length, digest) for at, length, digest in position["marks"]]
        if self.size() < position["offset"] or not self._shows(marks):
            return False
        self._marks = marks
        self.offset, self._skipping, self.last_us = position["offset"], position["skipping"], position["last_us"]
        return True

    def skip_to_end(self) -> None:
        """Leave out what is there, up to the last end of a line."""
        at = self.size()
        while at > 0:
            begin = max(at - _READ_BYTES, 0)
            data = os.pread(self._fd, at - begin, begin)
            if (end := data.rfind(b"\n")) >= 0:
                at = begin + end + 1
                break
            at = begin
        self.offset = at
        self._mark()

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def changed_ns(self) -> int:
        """When it was last written to."""
        return os.fstat(self._fd).st_mtime_ns

    def unread(self) -> int:
        return max(self.size() - self.offset, 0)

    def replaced(self) -> bool:
        """Whether the file was cut, or other text stands where this one was read."""
        return self.size() < self.offset or not self._shows(self._marks)

    def copied_to(self, other: Followed) -> bool:
        """Whether another file holds what was read of this one, and no more than this one does."""
        return bool(self._marks) and other._shows(self._marks) and other.size() <= self.size()

    def begin_again(self) -> None:
        """The file was cut: what it holds now is new."""
        self.offset, self._marks, self._skipping = 0, [], False

    def read(self, most: int, *, final: bool = False) -> Lines:
        """The next lines, at most so many. `final`: nothing more will be written, so the last line needs no end.

        Gives nothing when the file was cut while it was read: `replaced` then says so.
        """
        lines: list[bytes] = []
        cut = 0
        while len(lines) < most:
            data = os.pread(self._fd, max(_READ_BYTES, self._most + 1), self.offset)
            if not data or self.replaced():
                break
            used, lost = self._split(data, lines, most, final=final)
            cut += lost
            self.offset += used
            self._mark()
            if not used:
                break
        return Lines(lines, cut)

    def _split(self, data: bytes, lines: list[bytes], most: int, *, final: bool) -> tuple[int, int]:
        """Append the complete lines of `data`; returns the bytes used and the lines cut."""
        at, cut = 0, 0
        while at < len(data) and len(lines) < most:
            end = data.find(b"\n", at)
            if end < 0:
                break
            if self._skipping:
                self._skipping = False
            else:
                line = data[at:end]
                if len(line) > self._most:
                    line, cut = line[: self._most], cut + 1
                lines.append(line.removesuffix(b"\r"))
            at = end + 1
        if len(lines) >= most or at == len(data):
            return at, cut
        return self._rest(data, at, cut, lines, final=final)

    def _rest(self, data: bytes, at: int, cut: int, lines: list[bytes], *, final: bool) -> tuple[int, int]:
        """What to do with the beginning of a line whose end has not come."""
        rest = data[at:]
        if self._skipping:
            return len(data), cut
        if len(rest) > self._most:
            lines.append(rest[: self._most])
            self._skipping = True
            return len(data), cut + 1
        if final and at + self.offset + len(rest) >= self.size():
            lines.append(rest.removesuffix(b"\r"))
            return len(data), cut
        return at, cut

    def _mark(self) -> None:
        """Remember how what was given out begins and ends."""
        if not self.offset:
            return
        head = (0, min(self.offset, _HEAD_BYTES))
        tail = (max(self.offset - _TAIL_BYTES, 0), min(self.offset, _TAIL_BYTES))
        self._marks = [(at, length, self._digest(at, length)) for at, length in (head, tail)]

    def _shows(self, marks: list[tuple[int, int, str]]) -> bool:
        return all(self._digest(at, length) == digest for at, length, digest in marks)

    def _digest(self, at: int, length: int) -> str:
        return hashlib.sha256(os.pread(self._fd, length, at)).hexdigest()[:16]
