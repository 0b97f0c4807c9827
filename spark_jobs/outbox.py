"""Frames on their way to the console, on disk first; and the quarantine of frames that cannot be read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agent.wire import MAX_POST_BYTES, Frame, WireError, decode_frames
from engine.backoff import Backoff
from engine.files import replace_file
from spark_jobs.console import ConsoleAway, ConsoleClient, ConsoleFailed, ConsoleRefused

__all__ = ["Outbox", "Quarantine"]


_MAX_FILES, _MAX_KEPT_BYTES = 200, 64 * 2**20
_SHOWN = 5
_MAX_BYTES = 512 * 2**20
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 15.0
_PATIENCE_S = 600.0


class Quarantine:
    """Folder with the newest quarantined frames, each beside a text with the reason."""

    def __init__(self, folder: Path, most_files: int = _MAX_FILES, most_bytes: int = _MAX_KEPT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most_files, self._most_bytes = folder, most_files, most_bytes
        self._lock = threading.Lock()
        self._last: list[str] = []
        self._number = 0

    def keep(self, data: bytes, reason: str, entry: str = "") -> None:
        """Put `data` aside; an entry of the broker (``partition/id``) that is put aside again replaces itself."""
        with self._lock:
            self._number += 1
            partition, _, entry_id = entry.partition("/")
            moment, _, count = entry_id.partition("-")
            if moment:
                name = f"{int(moment) * 1000:017d}-{partition}-{count or 0}"
            else:
                name = f"{time.time_ns() // 1000:017d}-{self._number:04d}"
            replace_file(self._folder / f"{name}.slf", data[: self._most_bytes])
            replace_file(self._folder / f"{name}.json", json.dumps({"reason": reason, "bytes": len(data)}).encode())
            self._last = [*self._last, reason][-_SHOWN:]
            self._bound()

    @property
    def last_reasons(self) -> list[str]:
        """Reasons of this process's last quarantined frames."""
        return list(dict.fromkeys(self._last))

    def _bound(self) -> None:
        kept = sorted(self._folder.glob("*.slf"), reverse=True)
        total = 0
        for number, path in enumerate(kept):
            total += path.stat().st_size
            if number and (number >= self._most_files or total > self._most_bytes):
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


class Outbox:
    """One file for each step with output, posted in order by a thread of its own.

    A file belongs to the state of its step: until that state is committed nothing of it is posted, and a step that
    runs again overwrites it.

    A console that is away is waited for. A frame at which it fails, and goes on failing for `patience_s` while it says
    that it is well, goes to quarantine; so do then those of the same kind and query at which it fails, until it takes
    one.
    """

    def __init__(
        self,
        folder: Path,
        console: ConsoleClient,
        quarantine: Quarantine,
        most_bytes: int = _MAX_BYTES,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._console, self._quarantine, self._most_bytes = folder, console, quarantine, most_bytes
        self._patience_s = patience_s
        self._failing: tuple[bytes, float] | None = None  # the frame that holds the others back, and since when
        self._hopeless: set[tuple[str, str]] = set()  # kinds and queries of which one is in quarantine
        self._upto, self._ended = -1, False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self.fault: str | None = None
        self.dropped = 0
        self.quarantined = 0

    def start(self, committed_step: int) -> None:
        """Start the thread; it posts what a former process left behind."""
        self._upto = committed_step
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop after the post under way; the rest stays on disk."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def put(self, step: int, frames: list[bytes]) -> None:
        """Store the frames of a step that is not committed yet; no frames remove those of a former attempt."""
        path = self._path(step)
        if frames:
            replace_file(path, b"".join(frames))
        else:
            path.unlink(missing_ok=True)

    def release(self, step: int) -> None:
        """The step is committed: its frames may go."""
        with self._wake:
            self._upto = step
            self._wake.notify()

    @property
    def waiting(self) -> int:
        """Steps whose frames the console has not got yet."""
        return len(self._files())

    def _run(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while True:
            with self._wake:
                if self._ended:
                    return
                ready = [path for path in self._files() if int(path.stem) <= self._upto]
                if not ready:
                    self._wake.wait(60.0)
                    continue
            try:
                self._post(ready[0])
            except ConsoleAway as away:
                self.fault = str(away)
                if not isinstance(away, ConsoleFailed):
                    self._failing = None
                self._bound(ready)
            except Exception as error:  # such as a full disk: reported and tried again, since nothing else posts
                self.fault = f"results cannot be posted: {error}"
            else:
                self.fault = None
                backoff.reset()
                continue
            self._sleep(backoff.next_s())

    def _post(self, path: Path) -> None:
        data = path.read_bytes()
        try:
            parts = _parts(data, MAX_POST_BYTES)
        except WireError as error:
            self._quarantine.keep(data, f"results that were damaged on disk: {error}")
            parts = []
        left = len(data)
        try:
            for part in parts:
                for size in self._settle(part):
                    left -= size
        except Exception:
            if left < len(data):  # what is done is neither posted nor put into quarantine a second time
                replace_file(path, data[len(data) - left :])
            raise
        path.unlink(missing_ok=True)

    def _settle(self, part: bytes) -> Iterator[int]:
        """Post frames; how many bytes of them are done, one after the other."""
        try:
            self._console.post(part)
        except (ConsoleRefused, ConsoleFailed):
            yield from self._one_by_one(part)
        else:
            self._taken(part)
            yield len(part)

    def _one_by_one(self, frames: bytes) -> Iterator[int]:
        """One frame that the console does not take holds none of the others back for ever."""
        for frame, view in decode_frames(frames):
            data = bytes(view)
            try:
                self._console.post(data)
            except ConsoleRefused as refused:
                self._isolate(data, f"refused by the console: {refused}")
            except ConsoleFailed as failed:
                if not self._is_hopeless(frame, data):
                    raise
                self._isolate(data, f"the console is well and goes on failing at it: {failed}")
            else:
                self._taken(data)
            yield len(data)

    def _taken(self, frames: bytes) -> None:
        if self._hopeless:
            self._hopeless -= {_flow(frame) for frame, _ in decode_frames(frames)}

    def _is_hopeless(self, frame: Frame, data: bytes) -> bool:
        """Whether a frame at which the console has failed is tried no more."""
        now_s = time.monotonic()
        if not self._console.is_well():
            self._failing = None
            return False
        if self._failing is None or self._failing[0] != data:
            self._failing = data, now_s
        if _flow(frame) not in self._hopeless and now_s - self._failing[1] < self._patience_s:
            return False
        self._hopeless.add(_flow(frame))
        return True

    def _isolate(self, data: bytes, reason: str) -> None:
        self._quarantine.keep(data, reason)
        self.quarantined += 1

    def _bound(self, ready: list[Path]) -> None:
        """The oldest goes first when the console is away for longer than the disk may take."""
        sizes = [(path, path.stat().st_size) for path in ready]
        excess = sum(size for _, size in sizes) - self._most_bytes
        for path, size in sizes:
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess, self.dropped = excess - size, self.dropped + 1

    def _sleep(self, pause_s: float) -> None:
        until = time.monotonic() + pause_s
        with self._wake:
            while not self._ended and (left := until - time.monotonic()) > 0:
                self._wake.wait(left)

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.slf") if not path.name.startswith("."))

    def _path(self, step: int) -> Path:
        return self._folder / f"{step:012d}.slf"


def _flow(frame: Frame) -> tuple[str, str]:
    return frame.kind.value, frame.query


def _parts(data: bytes, most_bytes: int) -> list[bytes]:
    """The frames in posts of about `most_bytes`, each of at least one frame."""
    parts, current = [], bytearray()
    for _, frame in decode_frames(data):
        if current and len(current) + len(frame) > most_bytes:
            parts.append(bytes(current))
            current.clear()
        current += frame
    return [*parts, bytes(current)] if current else parts
