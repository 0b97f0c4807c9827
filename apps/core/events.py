"""Tell open pages that something changed, after the change is committed."""

from __future__ import annotations

import asyncio
import logging
import threading

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

__all__ = ["GROUP", "MAX_TOPICS", "announce", "announce_session_end", "person_group"]

GROUP = "changes"
MAX_TOPICS = 50  #: of one transaction that are told apart
_EVERYTHING = "*"
_TIMEOUT_S = 1.0
_PAUSE_S = 5.0

_log = logging.getLogger(__name__)
_resend_pending: threading.Timer | None = None


def announce(topic: str) -> None:
    """Send `{"changed": topic}` to every open page once the present transaction is committed.

    The topics of one transaction are one message, each of them once; `*` stands for more than `MAX_TOPICS`. It never
    fails: when Redis does not answer, nothing more is said for a few seconds, so that a request that changes much does
    not wait for it again and again, and `*` makes up for what was not said as soon as Redis is back.
    """
    pending = (entry[1] for entry in transaction.get_connection().run_on_commit)
    announcement = next((hook for hook in pending if isinstance(hook, _Announcement)), None)
    if announcement is not None:
        announcement.topics[topic] = None
    else:
        transaction.on_commit(_Announcement(topic), robust=True)


def person_group(user: object) -> str:
    """The group of the open pages of one person."""
    return f"person.{user}"


def announce_session_end(user: object) -> None:
    """Have the open pages of a person ask, after the commit, whether their sessions still are in force.

    It never fails: pages ask by themselves as well, less often.
    """
    transaction.on_commit(lambda: _tell_pages(user), robust=True)


def _tell_pages(user: object) -> None:
    try:
        async_to_sync(_send_to)(person_group(user), {"type": "session.check"})
    except Exception as error:
        _log.warning("open pages are not told of the end of a session: %s", error or type(error).__name__)


class _Announcement:
    def __init__(self, topic: str) -> None:
        self.topics = dict.fromkeys([topic])  # in order

    def __call__(self) -> None:
        if _resend_pending is not None and _resend_pending.is_alive():  # it is not in a process forked meanwhile
            return
        try:
            async_to_sync(_send)(list(self.topics) if len(self.topics) <= MAX_TOPICS else [_EVERYTHING])
        except Exception as error:
            _log.warning("changes are not announced for %g s: %s", _PAUSE_S, error or type(error).__name__)
            _schedule_resend()


def _schedule_resend() -> None:
    global _resend_pending
    _resend_pending = threading.Timer(_PAUSE_S, _resend)
    _resend_pending.daemon = True
    _resend_pending.start()


def _resend() -> None:
    global _resend_pending
    _resend_pending = None  # before it is said: what is committed from now on speaks for itself
    try:
        async_to_sync(_send)([_EVERYTHING])
    except Exception:
        _schedule_resend()


async def _send(topics: list[str]) -> None:
    await _send_to(GROUP, {"type": "changed", "topics": topics})


async def _send_to(group: str, message: dict[str, object]) -> None:
    await asyncio.wait_for(get_channel_layer().group_send(group, message), _TIMEOUT_S)
