"""The one clock of an installation: that of the database, so that ages do not depend on which host asks.

Hosts' clocks differ by seconds or minutes. What one process writes down and another compares (a worker's heartbeat, an
agent's last report, the lease of a delivery, the end of a preview) is therefore told by the database's clock. SQLite is
on the host of all its processes: there it is the host's own.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

__all__ = ["shared_now"]

_ASKED_EVERY_S = 15.0
# by this process: moment of the database, and of the monotonic clock then. A lost race asks once more, no worse.
_asked: dict[str, tuple[datetime, float]] = {}


def shared_now() -> datetime:
    """The present by the database's clock. PostgreSQL is asked every few seconds; in between a steady clock counts."""
    if connection.vendor != "postgresql":
        return timezone.now()
    key = f"{connection.settings_dict['HOST']}:{connection.settings_dict['PORT']}"
    known = _asked.get(key)
    if known is None or time.monotonic() - known[1] >= _ASKED_EVERY_S:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            known = _asked[key] = (cursor.fetchone()[0], time.monotonic())
    return known[0] + timedelta(seconds=time.monotonic() - known[1])
