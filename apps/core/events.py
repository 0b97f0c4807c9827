"""Tell open pages that something changed, after the change is committed."""

from __future__ import annotations

import asyncio
import logging
import time

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

__all__ = ["GROUP", "announce"]

GROUP = "changes"
_TIMEOUT_S = 1.0
_PAUSE_S = 5.0

_log = logging.getLogger(__name__)
_silent_until = 0.0


def announce(topic: str) -> None:
    """Send `{"changed": topic}` to every open page once the present transaction is committed.

    Several announcements of one topic in one transaction are sent once. It never fails: a page that misses a message
    re-fetches when it reconnects. When Redis is gone, the next ones are skipped for a few seconds, so that a request
    that changes much does not wait for it again and again.
    """
    pending = transaction.get_connection().run_on_commit
    if not any(getattr(entry[1], "topic", None) == topic for entry in pending):
        transaction.on_commit(_Announcement(topic), robust=True)


class _Announcement:
    def __init__(self, topic: str) -> None:
        self.topic = topic

    def __call__(self) -> None:
        global _silent_until
        if time.monotonic() < _silent_until:
            return
        try:
            async_to_sync(_send)(self.topic)
        except Exception as error:
            _silent_until = time.monotonic() + _PAUSE_S
            _log.warning("changes are not announced for %g s: %s", _PAUSE_S, error or type(error).__name__)


async def _send(topic: str) -> None:
    message = {"type": "changed", "topic": topic}
    await asyncio.wait_for(get_channel_layer().group_send(GROUP, message), _TIMEOUT_S)
