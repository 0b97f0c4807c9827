"""Reaper: ends the processes that a killed runner leaves behind. Run as a script by `launcher.children`; needs the
standard library only.

It reads "+PID" and "-PID" lines (leaders of process groups, in the order of their start). When its input ends, the
runner is gone: whatever groups are still noted are asked to stop in reverse order, then killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_PATIENCE_S = 5.0


def _send(leader: int, number: int) -> bool:
    """Signal the group; False when there is none any more."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_groups(leaders: list[int]) -> None:
    """Stop the groups, last started first: SIGTERM, a little patience, SIGKILL."""
    for leader in reversed(leaders):
        _send(leader, signal.SIGTERM)
        until = time.monotonic() + _PATIENCE_S
        while _send(leader, 0) and time.monotonic() < until:
            time.sleep(0.05)
        _send(leader, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leaders: list[int] = []
    for line in sys.stdin:
        if line.startswith("+"):
            leaders.append(int(line[1:]))
        else:
            with contextlib.suppress(ValueError):
                leaders.remove(int(line[1:]))
    end_groups(leaders)


if __name__ == "__main__":
    main()
