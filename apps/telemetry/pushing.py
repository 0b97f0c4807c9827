"""Tell connected agents that something about them changed, after the change is committed.

Nothing depends on it: an agent that is not told learns of it from the answer to its next heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

__all__ = ["group_of", "push"]

_TIMEOUT_S = 1.0
_EACH_S = 0.001
_PAUSE_S = 5.0

_log = logging.getLogger(__name__)
_not_before = 0.0  # on the monotonic clock, after Redis did not answer


def group_of(agent: Any) -> str:
    """The group of an agent's connection."""
    return f"agent.{agent}"


def push(agents: Iterable[Any]) -> None:
    """Let the connections of these agents look again once the present transaction is committed.

    Agents of several calls in one transaction are told together, each once. It never fails: while Redis does not
    answer, nobody is told.
    """
    ids = set(agents)
    if not ids:
        return
    pending = transaction.get_connection().run_on_commit
    waiting = next((entry[1] for entry in reversed(pending) if isinstance(entry[1], _Push)), None)
    if waiting is not None:
        waiting.agents |= ids
    else:
        transaction.on_commit(_Push(ids), robust=True)


class _Push:
    def __init__(self, agents: set[Any]) -> None:
        self.agents = agents

    def __call__(self) -> None:
        global _not_before
        if time.monotonic() < _not_before:
            return
        try:
            async_to_sync(_send)(self.agents)
        except Exception as error:
            _log.warning("agents are not told of changes for %g s: %s", _PAUSE_S, error or type(error).__name__)
            _not_before = time.monotonic() + _PAUSE_S


async def _send(agents: set[Any]) -> None:
    layer = get_channel_layer()
    async with asyncio.timeout(_TIMEOUT_S + _EACH_S * len(agents)):
        for agent in agents:
            await layer.group_send(group_of(agent), {"type": "look"})
