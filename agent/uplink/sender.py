"""Frames of the spool on their way: posted until acknowledged, or moved to files by an agent without a console."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.runtime import Spool
from agent.runtime.downstream import FORWARDED, Costs, read_costs
from agent.uplink.console import Client, ConsoleAnswer, ConsoleUnreachable
from engine.backoff import Backoff
from engine.files import replace_file

__all__ = ["CONSOLE", "LocalFrames", "SpoolSender"]


log = logging.getLogger(__name__)

MAX_POST_BYTES = 8 * 2**20
MIN_POST_BYTES = 2**16
FIRST_PAUSE_S, MAX_PAUSE_S = 0.25, 15.0
REFUSED_PAUSE_S = 30.0  # a secret that is wrong now, frames that are wrong: people have to do something
MAX_RETRY_AFTER_S = 300.0
MAX_POST_S = 20.0
IDLE_S = 0.2
ROUTE = "route.json"
CONSOLE = "console"  # route of an agent without a relay, at any address of the console
_EVERY_S = 0.2
_MAX_FILE_BYTES = 8 * 2**20


class SpoolSender:
    """Thread that posts the spool's frames in order, a post at a time.

    `state` says how it goes: sending, held back (429, 503), away, refused (401, 403), rejected (the frames are wrong),
    moving (from one receiver to another), failed. `fault` has the words.

    A spool's numbers belong to one receiver. When the agent is sent to another (below a relay, or back), the old one
    is asked how far it has come, and what it has taken is waited for until it is committed; the rest begins a new life.

    A relay's answers tell what the agent's rows cost further up: `costs` is called with it, in the sender's thread.
    """

    def __init__(
        self,
        spool: Spool,
        client_of: Callable[[str], Client],
        state_dir: Path,
        *,
        route: str,
        costs: Callable[[Costs], None] = lambda _: None,
    ) -> None:
        self._spool, self._costs = spool, costs
        self._client_of = client_of
        self._route_file = state_dir / ROUTE
        self._route = route
        before = self._last_route() or route
        self._moving, self._learned = before != route, False
        self._client = client_of(before)
        self._stopping = threading.Event()
        self._post_bytes = MAX_POST_BYTES
        self._pause_s = 0.0
        # agents that were cut off together do not all come back at once
        self._backoff = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S, spread=0.2)
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._posts = 0  # odd while one is under way
        self.state = "sending"
        self.fault = ""
        self.sent_seq = spool.acked_seq
        self.ignored = 0  #: costs from a relay that could not be used

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Send remaining frames for a moment, then end. Without a moment, a post under way is waited for: another
        sender follows, and must not be overtaken.
        """
        until = time.monotonic() + within_s
        while time.monotonic() < until and self._spool.unsent_frames and self.state == "sending":
            time.sleep(0.02)
        self._stopping.set()
        self._thread.join(max(until - time.monotonic(), 0.5) if within_s else MAX_POST_S)
        if not self._thread.is_alive():
            self._client.close()

    def post_marker(self) -> int | None:
        """Marker of this moment for `reconcile`; None while a post is under way."""
        return None if self._posts % 2 else self._posts

    def reconcile(self, accepted_seq: int | None, committed_seq: int, since: int | None) -> None:
        """Take in the frame positions of a heartbeat's answer. `since` is `post_marker` from before the request: where
        frames were posted meanwhile, the answer may be older than the answers to those posts.
        """
        if (self._last_route() if self._moving else self._route) == CONSOLE:
            self._spool.committed(committed_seq)
        direct = self._route == CONSOLE and not self._moving
        if accepted_seq is None or not direct or since is None or since != self._posts:
            return
        if accepted_seq < self._spool.acked_seq:
            log.warning("the console has lost frames after %d: sending them again", accepted_seq)
            self._spool.rewind(accepted_seq)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            self._pause_s = IDLE_S
            if self._moving and self._learned and not self._moved():
                continue
            try:
                self._send()
            except Exception as error:  # a fault of ours must be seen, and must not end the sending for good
                log.exception("sending failed")
                self._back_off("failed", f"{type(error).__name__}: {error}", MAX_PAUSE_S)

    def _send(self) -> None:
        frames = list(self._spool.unsent(self._post_bytes))
        if not frames:
            return
        self._posts += 1
        try:
            self._post(frames[-1][0], b"".join(data for _, data in frames))
        finally:
            self._posts += 1

    def _post(self, last: int, data: bytes) -> None:
        try:
            answer = self._client.frames(data)
        except ConsoleUnreachable as away:
            self._back_off("away", str(away), max_s=MAX_PAUSE_S)
            return
        self.sent_seq = max(self.sent_seq, last)
        document = answer.document
        handlers: dict[int, Callable[[ConsoleAnswer, Mapping[str, Any]], None]] = {
            200: self._taken,
            409: self._gap,
            413: self._too_large,
            429: self._held_back,
            503: self._held_back,
        }
        handlers.get(answer.status, self._refused)(answer, document)

    def _taken(self, answer: ConsoleAnswer, document: Mapping[str, Any]) -> None:
        if not isinstance(document.get("accepted_seq"), int):
            self._back_off("away", f"{self._client.url} is no console: its answer has no accepted_seq", MAX_PAUSE_S)
            return
        if self.state != "sending":
            log.info("frames are accepted again")
        if not self._last_route():
            self._keep_route()
        self._learned = True
        self.state, self.fault, self._pause_s = "sending", "", 0.0
        self._acknowledge(document)
        if FORWARDED in document and self._route != CONSOLE and not self._moving:
            costs, ignored = read_costs(document)
            self.ignored += ignored
            self._costs(costs)

    def _acknowledge(self, document: Mapping[str, Any]) -> None:
        if isinstance(accepted := document.get("accepted_seq"), int):
            self._spool.acknowledged(accepted)
        if isinstance(committed := document.get("committed_seq"), int):
            self._spool.committed(committed)

    def _gap(self, answer: ConsoleAnswer, document: Mapping[str, Any]) -> None:
        expected = document.get("expected_seq")
        if not isinstance(expected, int) or expected < 1:
            self._refused(answer, document)
            return
        log.warning("frames from %d on are asked for", expected)
        self._spool.rewind(expected - 1)
        self._pause_s = FIRST_PAUSE_S if self._spool.acked_seq == expected - 1 else MAX_PAUSE_S / 10

    def _too_large(self, answer: ConsoleAnswer, document: Mapping[str, Any]) -> None:
        if self._post_bytes <= MIN_POST_BYTES:
            self._refused(answer, document)
            return
        self._post_bytes //= 2
        self._pause_s = 0.0

    def _held_back(self, answer: ConsoleAnswer, document: Mapping[str, Any]) -> None:
        self._acknowledge(document)
        wait_s = answer.retry_after_s
        self._back_off("held back", answer.message, MAX_PAUSE_S, at_least_s=min(wait_s or 0.0, MAX_RETRY_AFTER_S))

    def _refused(self, answer: ConsoleAnswer, document: Mapping[str, Any]) -> None:
        """Nothing is left out: numbers have no gaps. It stays visible until somebody has put it right."""
        if answer.status >= 500:
            self._back_off("away", answer.message, MAX_PAUSE_S)
        else:
            state = "refused" if answer.status in (401, 403) else "rejected"
            self._back_off(state, answer.message, REFUSED_PAUSE_S)

    def _back_off(self, state: str, fault: str, max_s: float, at_least_s: float = 0.0) -> None:
        if state != self.state or fault != self.fault:
            log.warning("frames are %s: %s", {"away": "kept, there is no receiver"}.get(state, state), fault)
        if state != self.state:
            self._backoff.reset()
        self.state, self.fault = state, fault
        self._pause_s = self._backoff.next_s(at_least_s=at_least_s, max_s=max_s)

    def _last_route(self) -> str:
        try:
            return str(json.loads(self._route_file.read_text())["to"])
        except (OSError, ValueError, KeyError):
            return ""

    def _keep_route(self) -> None:
        replace_file(self._route_file, json.dumps({"to": self._route}).encode())

    def _moved(self) -> bool:
        """Whether all that the former receiver took is committed, so that the rest can go to the new one."""
        if self._spool.committed_seq < self._spool.acked_seq:
            self.state, self.fault = "moving", f"waiting until the frames sent to {self._last_route()} are committed"
            return False
        self._spool.renew()
        self._keep_route()
        self._client.close()
        self._client = self._client_of(self._route)
        self._moving = False
        self.state, self.fault = "sending", ""
        log.info("frames go to %s now", self._route)
        return True


class LocalFrames:
    """Thread that moves frames from the spool to files ``LIFE-FIRST.slf``; frames in a file count as committed.

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
        while frames := list(self._spool.unsent(_MAX_FILE_BYTES)):
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
        replace_file(self._folder / f"{self._spool.life}-{first:012d}.slf", data)
