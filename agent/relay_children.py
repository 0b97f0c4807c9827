"""The agents below a relay: which of them a query waits for, how far all of them have come, and who is silent."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from agent.config import RelayConfig
from agent.relay_state import Key, Mark, RelayState

__all__ = ["Children", "Least"]


class Least(NamedTuple):
    """The least of the children's marks; whether the query has ended; children that are silent."""

    mark: Mark
    final: bool
    left_out: set[str]


class Children:
    """Who has been heard of when. What they said is the relay's state, which is given with each question."""

    def __init__(self, relay: RelayConfig) -> None:
        self._heard_s: dict[str, float] = {}
        self._began_s = time.monotonic()
        self.adopt(relay)

    def adopt(self, relay: RelayConfig) -> None:
        """Children of another configuration; who was heard of stays so."""
        self._relay = relay
        self._by_secret = {child.secret_hash: child.agent for child in relay.children.values()}

    def named(self, secret_hash: str) -> str | None:
        """The child with this secret."""
        return self._by_secret.get(secret_hash)

    def heard(self, child: str) -> None:
        """It has said something just now."""
        self._heard_s[child] = time.monotonic()

    def of(self, key: Key, state: RelayState) -> set[str]:
        """Children that run the query, or have said something of it."""
        query, plan = key
        told = {child.agent for child in self._relay.children.values() if child.queries.get(query) == plan}
        return told | (state.marks.get(key, {}).keys() & self._relay.children.keys())

    def silent(self, key: Key, state: RelayState) -> set[str]:
        """Children of the query that have not been heard for so long that they are not waited for."""
        since_s = time.monotonic() - self._relay.idle_after_s
        return {child for child in self.of(key, state) if self._heard_s.get(child, self._began_s) < since_s}

    def least(self, key: Key, state: RelayState) -> Least:
        """Where those children are that are waited for; never below what was sent."""
        before, marks = state.sent.get(key, Mark({}, 0)), state.marks.get(key, {})
        children, left_out = self.of(key, state), self.silent(key, state)
        if not children:
            return Least(before, key in state.marks, left_out)
        waited_for = children - left_out
        if not waited_for or any(child not in marks for child in waited_for):
            return Least(before, False, left_out)
        heard = [marks[child] for child in waited_for]
        paths = dict.fromkeys(path for mark in heard for path in mark.watermarks)
        least = {path: min(mark.watermarks.get(path, 0) for mark in heard) for path in paths}
        never_back = {path: max(us, before.watermarks.get(path, 0)) for path, us in least.items()}
        closing_us = max(before.closing_epoch_us, *(mark.closing_epoch_us for mark in heard))
        return Least(Mark(never_back, closing_us), False, left_out)

    def reports(self, state: RelayState) -> list[dict[str, Any]]:
        """What the heartbeat says of each."""
        return [self._report(child, state) for child in self._relay.children]

    def _report(self, child: str, state: RelayState) -> dict[str, Any]:
        heard_s = self._heard_s.get(child)
        silent_s = time.monotonic() - (heard_s if heard_s is not None else self._began_s)
        silent = silent_s > self._relay.idle_after_s
        lives = list(state.accepted.get(child, {}).values())
        return {
            "agent": child,
            "state": "silent" if silent else "connected" if heard_s is not None else "awaited",
            "silent_s": round(silent_s, 1),
            "accepted_seq": lives[-1] if lives else 0,
        }
