"""Bytes of checkpoints: copies of open windows that an agent sends once they are small beside what it sent since."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["checkpoint_bytes"]

_WINDOWS = 200  # gone through, where they differ: a window sends too little for a copy of its own
_COPIES = 20  # of a window that are gone through; the rest are as the last one


def checkpoint_bytes(
    open_bytes: Callable[[int], float], *, window_epochs: float, drained_bytes: float, window_bytes: float, share: float
) -> float:
    """Bytes of checkpoints an epoch, on average.

    At an epoch's end an agent sends a copy of all that is open if it is at most `share` of what it has sent of records
    and rows since the last copy. Windows end all at once, so the first copy of a window is that of its first epoch.

    Parameters
    ----------
    open_bytes
        Bytes of a copy, by the epochs that the window has lasted; concave.
    window_epochs
        Epochs of a window, at least 1; a part of one counts as a whole.
    drained_bytes, window_bytes
        Of the records that an epoch drains, and of the rows of a window that ends.

    Examples
    --------
    One copy of 20 bytes in the first epoch of a window; then 300 bytes never allow for the next.

    >>> checkpoint_bytes(lambda e: 20.0 * e, window_epochs=4, drained_bytes=100, window_bytes=80, share=0.1)
    5.0
    """
    last = int(-(-window_epochs // 1)) - 1  # the epoch after which the window is open for the last time
    if last < 1 or share <= 0:
        return 0.0
    unsent, total = 0.0, 0.0
    for _ in range(_WINDOWS):
        before = unsent
        copies, unsent = _window_copies(open_bytes, last, unsent, drained_bytes, share)
        unsent += drained_bytes + window_bytes
        if copies > 0 and math.isclose(unsent, before):  # every window is as this one from now on
            return copies / (last + 1)
        total += copies
    return total / (_WINDOWS * (last + 1))


def _window_copies(
    open_bytes: Callable[[int], float], last: int, unsent: float, drained_bytes: float, share: float
) -> tuple[float, float]:
    """Bytes of the copies of one window, and what was sent since the last one; `unsent` before it began."""
    copies, before = 0.0, 0
    for _ in range(_COPIES):
        epoch = _next_copy(open_bytes, before, last, unsent, drained_bytes, share)
        if epoch is None:
            return copies, unsent + (last - before) * drained_bytes
        copies, before, unsent = copies + open_bytes(epoch), epoch, 0.0
    if before < last and drained_bytes > 0:
        size = open_bytes(last)
        copies += size * (last - before) / max(1, math.ceil(size / (share * drained_bytes)))
    return copies, 0.0


def _next_copy(
    open_bytes: Callable[[int], float], before: int, last: int, unsent: float, drained_bytes: float, share: float
) -> int | None:
    """First epoch after `before` with a copy; what may be sent less what is open is convex, so that it is halved in."""

    def fits(epoch: int) -> bool:
        return open_bytes(epoch) <= share * (unsent + (epoch - before) * drained_bytes)

    if before >= last:
        return None
    if fits(before + 1):
        return before + 1
    if not fits(last):
        return None
    low, high = before + 1, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
