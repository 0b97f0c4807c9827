"""The spool: frames on disk until the stream processor's checkpoint has passed them, and the state for a restart.

A directory of numbered segments (`write_ahead_log`). A new segment begins with a snapshot of each writer, so older
ones are needed for their frames alone, and are removed when the last of those is committed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.runtime.write_ahead_log import (
    WalEntry,
    WalRecord,
    WriterState,
    encode_record,
    read_records,
    segment_bytes,
    write_all,
)
from agent.wire import Frame, decode_frames, encode_frame
from engine.files import replace_file

__all__ = ["Spool", "WalRecord", "WriterState"]

MAX_AWAITED = 1000  # records whose writers are called on acknowledgement
FILLING_SHARE, FULL_SHARE = 1 / 2, 7 / 8
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class _Segment:
    path: Path
    size: int = 0
    entries: list[WalEntry] = field(default_factory=list)


class Spool:
    """Frames of one agent in one order, numbered from 1 in each `life`. Any thread may call.

    Recovers on construction: what follows the last whole record is cut off. `sync` asks for `fdatasync` with every
    record, so that a frame that was sent is on disk even if the power fails; without, only the process may die.
    """

    def __init__(self, directory: Path, limit_bytes: int, *, sync: bool = True) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.faults: list[str] = []  #: what recovery found wrong; the agent shows it
        self._write_fault: OSError | None = None
        self._sync = sync
        self._lock = threading.RLock()
        self._segments: list[_Segment] = []
        self._stored: dict[str, list[WriterState]] = {}
        self._life, self._base, self._life_from = "", 0, 1  # numbers below `_life_from` are of another generation
        self._acked = self._committed = 0  # as on disk: `_base` above those of the generation
        self._snapshots: dict[str, Callable[[], WriterState]] = {}
        self._awaited: deque[tuple[int, Callable[[], None]]] = deque(maxlen=MAX_AWAITED)
        self._next = 1
        self._descriptor = -1
        self._torn = False
        directory.mkdir(parents=True, exist_ok=True)
        self._recover()

    # What is there

    @property
    def life(self) -> str:
        """Name of the present sequence of numbers."""
        return self._life

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return sum(segment.size for segment in self._segments)

    @property
    def state(self) -> str:
        """State of the spool: ok, filling, full, or disk-full where the last write failed; `fault` has the words."""
        if self._write_fault is not None:
            return "disk-full"
        used = self.used_bytes
        if used >= self.limit_bytes * FULL_SHARE:
            return "full"
        return "filling" if used >= self.limit_bytes * FILLING_SHARE else "ok"

    @property
    def fault(self) -> str:
        """Why the last write failed; empty when it did not."""
        return str(self._write_fault or "")

    @property
    def last_seq(self) -> int:
        """Number of the newest frame."""
        with self._lock:
            return self._next - 1 - self._base

    @property
    def acked_seq(self) -> int:
        with self._lock:
            return self._acked - self._base

    @property
    def committed_seq(self) -> int:
        with self._lock:
            return self._committed - self._base

    @property
    def unsent_frames(self) -> int:
        with self._lock:
            return self._next - 1 - self._acked

    def recovered(self, writer: str) -> list[WriterState]:
        """Records of a writer from its last snapshot on; as one snapshot, if it has written since the restart."""
        with self._lock:
            written = self._snapshots.get(writer)
            return [written()] if written is not None else list(self._stored.get(writer, ()))

    # The writers' side

    def append(self, record: WalRecord) -> bool:
        """Write and sync one record; False (and `state`, `fault`) when the disk takes nothing, then ask again later."""
        with self._lock:
            try:
                if self._segments[-1].size >= segment_bytes(self.directory, self.used_bytes, self.limit_bytes):
                    self._begin_segment()
                self._append(record)
            except OSError as error:
                self._write_fault = error
                return False
            self._write_fault = None
            return True

    def _append(self, record: WalRecord) -> None:
        frames = [self._numbered(frame, self._next + i) for i, frame in enumerate(record.frames)]
        stored = WriterState(record.notes, record.blobs)
        data, frames_at = encode_record(record.writer, self._next, stored, frames, self._committed)
        segment = self._segments[-1]
        if self._torn:  # it could not be cut off when it came about
            os.ftruncate(self._descriptor, segment.size)
        self._torn = True
        try:
            write_all(self._descriptor, data)
            if self._sync:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, segment.size)
            self._torn = False
            raise
        self._torn = False
        segment.entries.append(WalEntry(self._next, segment.size + frames_at, tuple(map(len, frames))))
        segment.size += len(data)
        self._next += len(frames)
        self._stored.pop(record.writer, None)
        if record.acknowledged is not None:
            self._awaited.append((self._next - 1, record.acknowledged))
        self._snapshots[record.writer] = record.snapshot or (lambda: stored)

    def _numbered(self, frame: Frame, number: int) -> bytes:
        return encode_frame(replace(frame, life=self._life, seq=number - self._base))

    def _begin_segment(self) -> None:
        number = int(self._segments[-1].path.stem) + 1 if self._segments else 1
        segment = _Segment(self.directory / f"{number:012d}.wal")
        data = encode_record("", self._next, WriterState({}, snapshot=True), [], self._committed)[0]
        for writer, stored in self._all_stored():
            data += encode_record(writer, self._next, stored, [], self._committed)[0]
        try:
            replace_file(segment.path, data)
            descriptor = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:  # the segment before goes on: what is written to it must not stand before these snapshots
            segment.path.unlink(missing_ok=True)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        segment.size = len(data)
        self._segments.append(segment)
        self._release()

    def _all_stored(self) -> Iterator[tuple[str, WriterState]]:
        for writer, records in self._stored.items():  # of before the restart; it has written nothing since
            # the first stands for all before it, or those that an older segment still holds would count twice
            yield from ((writer, replace(stored, snapshot=i == 0)) for i, stored in enumerate(records))
        for writer, snapshot in self._snapshots.items():
            yield writer, replace(snapshot(), snapshot=True)

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    # The sender's side

    def unsent(self, most_bytes: int = 8 * 2**20) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of the frames after the last acknowledged one; at least one, if there is any."""
        with self._lock:
            frames: list[tuple[int, bytes]] = []
            total = 0
            for segment in self._segments:
                if not segment.entries or segment.entries[-1].last <= self._acked:
                    continue
                for number, frame in self._frames_of(segment):
                    if frames and total + len(frame) > most_bytes:
                        return iter(frames)
                    frames.append((number, frame))
                    total += len(frame)
            return iter(frames)

    def _frames_of(self, segment: _Segment) -> Iterator[tuple[int, bytes]]:
        start = bisect_left(segment.entries, self._acked + 1, key=lambda entry: entry.last)
        with segment.path.open("rb") as file:
            for entry in segment.entries[start:]:
                skipped = max(self._acked + 1 - entry.first, 0)
                file.seek(entry.frames_at + sum(entry.lengths[:skipped]))
                for number, length in enumerate(entry.lengths[skipped:], entry.first + skipped):
                    yield number - self._base, self._of_this_life(file.read(length), number)

    def _of_this_life(self, data: bytes, number: int) -> bytes:
        if number >= self._life_from:
            return data
        frame, _ = next(decode_frames(data))
        return self._numbered(frame, number)

    def acknowledged(self, seq: int) -> None:
        """The console has accepted every frame up to `seq`."""
        with self._lock:
            self._acked = max(self._acked, min(seq + self._base, self._next - 1))
            self._tell()

    def committed(self, seq: int) -> None:
        """The stream processor will never ask for a frame up to `seq` again."""
        with self._lock:
            self._committed = max(self._committed, min(seq + self._base, self._next - 1))
            self._acked = max(self._acked, self._committed)
            self._tell()
            self._release()
            self._make_room()

    def _make_room(self) -> None:
        """Nothing is written to a full spool, so a segment that alone fills it would never end."""
        if self.state == "full" and self._committed == self._next - 1:
            try:
                self._begin_segment()
            except OSError as error:
                self._write_fault = error

    def rewind(self, seq: int) -> None:
        """The console has accepted frames up to `seq` only: those after it are to be sent again.

        Where some of those are gone (the console was reset, or the disk lost a segment), the rest begins a new life.
        """
        with self._lock:
            kept_from = self._kept_from()
            if seq + self._base + 1 < kept_from:
                self.faults.append(f"frames {seq + 1} to {kept_from - 1 - self._base} of life {self._life} are gone")
                self._begin_life(base=max(kept_from - 1, self._committed))
                seq = 0
            self._acked = min(self._acked, seq + self._base)
            self._committed = min(self._committed, self._acked)

    def renew(self) -> None:
        """The frames that are not acknowledged begin a new life: from now on they are for another receiver."""
        with self._lock:
            self._begin_life(base=self._acked)
            self._committed = self._acked

    def _tell(self) -> None:
        while self._awaited and self._awaited[0][0] <= self._acked:
            self._awaited.popleft()[1]()

    def _release(self) -> None:
        while len(self._segments) > 1 and all(entry.last <= self._committed for entry in self._segments[0].entries):
            self._segments.pop(0).path.unlink(missing_ok=True)

    def _kept_from(self) -> int:
        firsts = (entry.first for segment in self._segments for entry in segment.entries if entry.lengths)
        return next(firsts, self._next)

    # Recovery

    def _recover(self) -> None:
        for unfinished in self.directory.glob("*.new"):
            unfinished.unlink()
        paths = sorted(self.directory.glob("*.wal"))
        for path in paths:
            self._recover_segment(path, newest=path == paths[-1])
        if self._segments:
            self._descriptor = os.open(self._segments[-1].path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._acked = self._committed = max(self._kept_from() - 1, self._committed)
        self._recover_life()
        if not self._segments:
            self._begin_segment()

    def _recover_segment(self, path: Path, *, newest: bool) -> None:
        segment = _Segment(path)
        for writer, stored, entry, end in read_records(path):
            earlier = [] if stored.snapshot else self._stored.get(writer, [])
            if writer:
                self._stored[writer] = [*earlier, stored]
            segment.size = end
            segment.entries.append(entry)
            self._committed = entry.committed
            self._next = max(self._next, entry.last + 1)
        size = path.stat().st_size
        if size > segment.size and not newest:
            self.faults.append(f"{path.name} is damaged at byte {segment.size} of {size}")
            for older in (*self._segments, segment):
                older.path.unlink()
            self._segments = []
        elif segment.entries:
            os.truncate(path, segment.size)
            self._segments.append(segment)
        else:
            path.unlink()

    def _recover_life(self) -> None:
        try:
            document = json.loads((self.directory / "life.json").read_text())
            self._life, self._base, self._life_from = document["life"], document["base"], document["from"]
        except (FileNotFoundError, ValueError, KeyError):
            self._begin_life(base=self._committed)

    def _begin_life(self, *, base: int) -> None:
        self._life, self._base, self._life_from = secrets.token_hex(8), base, self._next
        document = {"life": self._life, "base": base, "from": self._next}
        replace_file(self.directory / "life.json", json.dumps(document).encode())
