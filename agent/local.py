"""Frames of an agent without a console: files in a folder, or standard output."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

from agent.files import write_whole
from agent.runtime import Spool

__all__ = ["LocalFrames"]

log = logging.getLogger(__name__)

_EVERY_S = 0.2
_MOST_BYTES = 8 * 2**20


class LocalFrames:
    """A thread that moves frames from the spool to files ``LIFE-FIRST.slf``; what is in one counts as committed.

    A crash in between leaves the same frames in two files: readers go by the frames' numbers.
    """

    def __init__(self, spool: Spool, folder: Path | None) -> None:
        self._spool = spool
        self._folder = folder
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)
        self.state, self.fault = "sending", ""
        self.sent_seq = spool.acked_seq

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float) -> None:
        self._stopping.set()
        self._thread.join(within_s)
        self._move()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self._move()

    def _move(self) -> None:
        while frames := list(self._spool.unsent(_MOST_BYTES)):
            try:
                self._write(frames[0][0], b"".join(data for _, data in frames))
            except OSError as error:
                if self.state == "sending":
                    log.warning("frames cannot be written: %s", error)
                self.state, self.fault = "away", f"frames cannot be written: {error.strerror}"
                return
            self.state, self.fault, self.sent_seq = "sending", "", frames[-1][0]
            self._spool.acknowledged(self.sent_seq)
            self._spool.committed(self.sent_seq)

    def _write(self, first: int, data: bytes) -> None:
        if self._folder is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._folder / f"{self._spool.life}-{first:012d}.slf", data)
