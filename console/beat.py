"""The scheduler of `celery beat`: of several that run, one sends."""

from __future__ import annotations

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from apps.core.leases import Lease

__all__ = ["SoleScheduler"]

# long enough for a busy machine: the holder looks every two seconds, the shortest schedule
_LASTS_S = 15.0
_LOOK_S = 1.0


class SoleScheduler(DatabaseScheduler):
    """Schedules of the database, sent while this process holds the lease `beat`; another one stands by.

    The lease is looked at before each task that is sent, in `tick`: a process that was frozen sends one at most.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lease = Lease("beat", lasts_s=_LASTS_S)
        self._sends = False
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, or stand by; seconds until the next look."""
        had, self._sends = self._sends, self._lease.hold()
        if not self._sends:
            return _LOOK_S
        if not had:
            self._initial_read = True  # the one before has sent since these times were read
        return float(super().tick(*args, **kwargs))

    def close(self) -> None:
        """Write the times down, then hand over: the next one reads them."""
        super().close()
        self._lease.release()
        self._sends = False
