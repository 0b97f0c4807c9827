"""Log files followed safely across rotation: renamed, copied and truncated, deleted, created again."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.settings import OutsideFolders, ReadableFolders

__all__ = ["FollowedFile", "LogFileSet"]


# the beginning of a file, and what stands before the place it was read to, tell it from another under its name or inode
_HEAD_BYTES = 256
_TAIL_BYTES = 256
_READ_BYTES = 2**18
_SCAN_S = 1.0
_LINGER_S = 60.0  # a writer may go on writing to a renamed file until it opens the new one
_MAX_FILES = 256
_LOOKS = 3  # for a file of a former run, which a rotation may rename while it is looked for
_PACKED = (".gz", ".xz", ".bz2", ".zst")


@dataclass(frozen=True)
class LineBatch:
    """Lines as they were read, without their ends."""

    lines: list[bytes]
    cut: int = 0


class FollowedFile:
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
        document = {"inode": self.inode, "path": str(self.path), "offset": self.offset, "last_us": self.last_us}
        return document | {"marks": self._marks, "skipping": self._skipping}

    def resume(self, position: Mapping[str, Any]) -> bool:
        """Go on from a position; False, and from the start, if this file is not the one that it was taken of."""
        marks = [(at, length, digest) for at, length, digest in position["marks"]]
        if self.size() < position["offset"] or not self._shows(marks):
            return False
        self._marks = marks
        self.offset, self._skipping, self.last_us = position["offset"], position["skipping"], position["last_us"]
        return True

    def skip_to_end(self) -> None:
        """Skip the present content, up to the last end of a line."""
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
        """Time of the last write."""
        return os.fstat(self._fd).st_mtime_ns

    def unread(self) -> int:
        return max(self.size() - self.offset, 0)

    def replaced(self) -> bool:
        """Whether the file was truncated, or other text stands where this one was read."""
        return self.size() < self.offset or not self._shows(self._marks)

    def copied_to(self, other: FollowedFile) -> bool:
        """Whether another file holds the part read of this one, and no more than this one does."""
        return bool(self._marks) and other._shows(self._marks) and other.size() <= self.size()

    def begin_again(self) -> None:
        """Start again after a truncation: the present content is new."""
        self.offset, self._marks, self._skipping = 0, [], False

    def read(self, most: int, *, final: bool = False) -> LineBatch:
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
        return LineBatch(lines, cut)

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
        """Handle the beginning of a line whose end has not come."""
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
        """Remember the first and last bytes of the delivered part."""
        if not self.offset:
            return
        head = (0, min(self.offset, _HEAD_BYTES))
        tail = (max(self.offset - _TAIL_BYTES, 0), min(self.offset, _TAIL_BYTES))
        self._marks = [(at, length, self._digest(at, length)) for at, length in (head, tail)]

    def _shows(self, marks: list[tuple[int, int, str]]) -> bool:
        return all(self._digest(at, length) == digest for at, length, digest in marks)

    def _digest(self, at: int, length: int) -> str:
        return hashlib.sha256(os.pread(self._fd, length, at)).hexdigest()[:16]


class LogFileSet:
    """The files of a pattern that are being read, those that rotation moved away included.

    A file is known by its inode and its beginning, so that it is neither read twice after it was renamed nor missed
    after another took its inode. What stood unread in a file when it was copied and cut is read from the copy.
    """

    def __init__(
        self, pattern: str, max_line_bytes: int, note: Callable[[str, str | None], None], readable: ReadableFolders
    ) -> None:
        self._pattern = pattern
        self._most_bytes = max_line_bytes
        self._note = note
        self._readable = readable
        self.outside = False  #: whether the pattern stands for files that may not be read
        self._files: dict[str, FollowedFile] = {}
        self._gone_s: dict[str, float] = {}
        self._scanned_s = -_SCAN_S

    @property
    def files(self) -> Sequence[FollowedFile]:
        return list(self._files.values())

    def retired(self, file: FollowedFile) -> bool:
        """Whether nothing more will be written to the file."""
        gone_s = self._gone_s.get(file.inode)
        return gone_s is not None and time.monotonic() - gone_s >= _LINGER_S

    def position(self) -> list[dict[str, Any]]:
        return [file.position() for file in self._files.values()]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def resume(self, positions: Sequence[dict[str, Any]]) -> None:
        """Find the files of a position again, by inode where they were renamed and by text where they were copied."""
        for position in positions:
            file = self._resumed(Path(position["path"]), position)
            if not file:
                self._note(f"lost {position['path']}", f"{position['path']}: rotated away while the agent did not run")
        self._scanned_s = -_SCAN_S

    def _resumed(self, path: Path, position: dict[str, Any]) -> bool:
        for candidate in _whereabouts(path):
            same_inode = _inode(candidate) == position["inode"]
            if not same_inode and not position["marks"]:
                continue
            file = self._open(candidate)
            if file is None:
                continue
            if file.resume(position):
                file.path = path  # where it stood under the pattern: its rotations are named after that
                self._files[file.inode] = file
                return True
            file.close()
        return False

    def scan(self, *, first: bool, from_end: bool) -> None:
        """Look for new, renamed and cut files, once in a second. `from_end` is for those there at the `first` scan."""
        now = time.monotonic()
        if now - self._scanned_s < _SCAN_S:
            return
        self._scanned_s = now
        for file in self.files:
            if file.replaced():
                self._cut(file)
        seen = self._look(first and from_end)
        for inode, file in list(self._files.items()):
            if inode in seen:
                self._gone_s.pop(inode, None)
                continue
            if inode not in self._gone_s:
                self._gone_s[inode] = now
                self._look_between(file)
            if self.retired(file) and not file.unread():
                self._files.pop(inode).close()
                del self._gone_s[inode]

    def _look(self, from_end: bool) -> set[str]:
        """Open new files of the pattern; returns the inodes that exist there."""
        seen: set[str] = set()
        for path in self._allowed():
            inode = _inode(path)
            if inode is None:
                continue
            seen.add(inode)
            if inode in self._files:
                self._files[inode].path = path
                continue
            if len(self._files) >= _MAX_FILES:
                self._note("files", f"path matches more than {_MAX_FILES} files; the others are not read")
                break
            file = self._open(path)
            if file is None:
                continue
            if any(other.copied_to(file) for other in self._files.values()):
                file.close()  # what a rotation copied: read when the original is cut, from where it was read to
                continue
            seen.add(file.inode)
            if file.inode in self._files:  # another took the name since it was looked at
                file.close()
                continue
            if from_end:
                file.skip_to_end()
            self._files[file.inode] = file
        return seen

    def _allowed(self) -> list[Path]:
        """Files of the pattern that may be read. The fault about the others names none of them."""
        names = glob.glob(self._pattern) if glob.has_magic(self._pattern) else [self._pattern]  # noqa: PTH207 - anywhere
        allowed, fault = [], None
        for name in sorted(names):
            try:
                self._readable.check(name)
                allowed.append(Path(name))
            except OutsideFolders as error:
                fault = str(error) if name == self._pattern else self._readable.words(f"a file of {self._pattern}")
        self._note("outside", fault)
        self.outside = fault is not None
        return allowed

    def _look_between(self, gone: FollowedFile) -> None:
        """Find files that were both created and renamed between two scans: written to after the one that is gone."""
        for path in _rotations(gone.path):
            inode, changed_ns = _inode(path), _changed_ns(path)
            if inode is None or inode in self._files or changed_ns is None or changed_ns < gone.changed_ns():
                continue
            if (file := self._open(path)) is not None:
                file.path = gone.path
                self._files[file.inode] = file

    def _cut(self, file: FollowedFile) -> None:
        """Handle a truncation: the unread rest may be in a copy beside the file."""
        before = file.position()
        for path in _siblings(file.path):
            if _inode(path) in self._files:
                continue
            copy = self._open(path)
            if copy is not None and copy.resume(before):
                self._files[copy.inode] = copy
                break
            if copy is not None:
                copy.close()
        file.begin_again()

    def _open(self, path: Path) -> FollowedFile | None:
        try:
            file = FollowedFile(path, self._readable.open(path), self._most_bytes)
        except (FileNotFoundError, OutsideFolders):  # files outside are reported by the scan of the pattern
            return None
        except OSError as error:
            self._note(str(path), f"{path}: {error.strerror}")
            return None
        self._note(str(path), None)
        return file


def _inode(path: Path) -> str | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):  # a folder that the pattern stands for, too, or a pipe
        return None
    return f"{status.st_dev}:{status.st_ino}"


def _whereabouts(path: Path) -> Iterator[Path]:
    """Where a file that once stood here may be. The folder is listed after the look at the path, each time anew."""
    for _ in range(_LOOKS):
        yield path
        yield from _siblings(path)


def _rotations(path: Path) -> list[Path]:
    """Files beside this one with its name and a number, as rotations name them; packed ones are left out."""
    named = re.compile(re.escape(path.stem) + r"([.-][\w.-]*)?\d" + r"[\w.-]*")
    return [sibling for sibling in _siblings(path) if named.fullmatch(sibling.name) and sibling.suffix not in _PACKED]


def _siblings(path: Path) -> list[Path]:
    """Files beside this one whose names begin as its does: where a rotation would put them; newest first."""
    try:
        entries = [entry for entry in os.scandir(path.parent) if entry.name.startswith(path.stem) and entry.is_file()]
    except OSError:
        return []
    dated = [(changed_ns, entry) for entry in entries if (changed_ns := _changed_ns(entry)) is not None]
    dated.sort(key=lambda pair: pair[0], reverse=True)
    return [Path(entry.path) for _, entry in dated if entry.name != path.name]


def _changed_ns(path: os.PathLike[str]) -> int | None:
    """Time of the file's last change; None where it has been renamed or deleted since the folder was listed."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - of entries of a folder, too
    except OSError:
        return None
