"""Python starts with this where its folder is on the path: the clock of the process follows a file.

The file holds the seconds that are added to the machine's clock; it is read again twice a second, also in each process
that is forked. Timers and waits go by the monotonic clock, and do not jump.
"""

import os
import threading
import time
from pathlib import Path

import time_machine

_OFFSET_FILE = Path(os.environ["SOAK_CLOCK"])
_LOOK_S = 0.5


class _Clock:
    """The clock of this process; one that is forked goes on with what it has."""

    travel: time_machine.travel | None = None
    added_s = 0.0

    def follow(self) -> None:
        while True:
            wanted_s = float(_OFFSET_FILE.read_text())
            if wanted_s != self.added_s:
                self._shift(wanted_s)
            time.sleep(_LOOK_S)

    def _shift(self, wanted_s: float) -> None:
        if self.travel is not None:
            self.travel.stop()
        self.travel, self.added_s = None, wanted_s
        if wanted_s:
            self.travel = time_machine.travel(time.time() + wanted_s, tick=True)
            self.travel.start()


_clock = _Clock()


def _begin() -> None:
    threading.Thread(target=_clock.follow, name="clock", daemon=True).start()


os.register_at_fork(after_in_child=_begin)
_begin()
