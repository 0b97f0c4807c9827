"""The relay role: takes frames of agents below it as the console would, merges their partials, sends the rest on.

A post is answered when everything in it is in the relay's own spool: records and counters as frames to be sent,
partials and marks as notes. Once in an epoch what the least of the children's watermarks has closed is merged and sent.
Each of the two is one record of the spool, so a restart repeats neither and loses neither.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig, RelayConfig
from agent.relay_checks import Taken, read_post
from agent.relay_http import UNKNOWN, RelayServer, Reply
from agent.relay_state import Key, Mark, RelayState, split_closed
from agent.runtime import Record, Spool
from agent.runtime.framing import Framer
from agent.wire import Frame, FrameKind
from engine.dataflow import Pipeline
from engine.dataflow.arrow import aggregate_kernel

__all__ = ["Relay"]

log = logging.getLogger(__name__)

WRITER = "relay"
MERGE_TABLES = 16
MOST_LEFT_OUT = 100  # named in a mark, whose header has bounds
MOST_HELD_BYTES = 64 * 2**20  # of partials; what is above goes on unfinished and is merged further up
BUSY_S = 2.0


class Relay:
    """One relay under a configuration that may change; `run` belongs to one thread."""

    kind = "relay"

    def __init__(self, config: AgentConfig, spool: Spool) -> None:
        self._spool = spool
        self._lock = threading.RLock()
        self._state = RelayState.recovered(spool.recovered(WRITER))
        self._heard_s: dict[str, float] = {}
        self._server: RelayServer | None = None
        self._fault = ""
        self._began_s = time.monotonic()
        self._set(config)

    def apply(self, config: AgentConfig) -> None:
        with self._lock:
            self._set(config)

    def _set(self, config: AgentConfig) -> None:
        assert config.relay is not None
        self._config = config
        self._relay: RelayConfig = config.relay
        self._by_secret = {child.secret_hash: child.agent for child in self._relay.children.values()}

    # Running

    def run(self, stopping: threading.Event) -> None:
        """Take posts, and send on once in an epoch, until it is to stop."""
        try:
            while not stopping.wait(self._config.epoch_s):
                self._listen()
                self.send_on()
        finally:
            self._hang_up()
        self.send_on()

    def _listen(self) -> None:
        """Be there where the configuration says; a port that is taken is tried again."""
        if self._server is not None and self._server.listen != self._relay.listen:
            self._hang_up()
        if self._server is None:
            try:
                self._server = RelayServer(self._relay.listen, self._admits, self.take)
                self._fault = ""
            except OSError as error:
                fault = f"relay.listen is {self._relay.listen[0]}:{self._relay.listen[1]}: {error.strerror}"
                if fault != self._fault:
                    log.warning("%s; trying again", fault)
                self._fault = fault

    def _admits(self, secret_hash: str) -> bool:
        return secret_hash in self._by_secret

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    # Taking

    def take(self, secret_hash: str, data: bytes) -> Reply:
        """The answer to a post of frames."""
        with self._lock:
            child = self._by_secret.get(secret_hash)
            if child is None:
                return UNKNOWN
            self._heard_s[child] = time.monotonic()
            post = read_post(child, data, self._relay.pipelines, self._state)
            if isinstance(post, Reply):
                return post
            if self._spool.state == "full":
                return self._busy(429, child, post.life, "The relay has no room until its own frames are taken.")
            if post.frames and not self._keep(child, post):
                return self._busy(503, child, post.life, f"The relay's disk takes nothing: {self._spool.fault}.")
            return self._accepted(200, child, post.life, duplicates=post.duplicates)

    def _accepted(self, status: int, child: str, life: str, **more: Any) -> Reply:
        """How far this child has come. What is accepted is on disk here: the child may forget it."""
        seq = self._state.accepted_seq(child, life)
        return Reply(status, {"accepted_seq": seq, "committed_seq": seq, **more})

    def _busy(self, status: int, child: str, life: str, message: str) -> Reply:
        reply = self._accepted(status, child, life, code="full", message=message)
        return replace(reply, retry_after_s=BUSY_S)

    def _keep(self, child: str, post: Taken) -> bool:
        """Write down one post; all of it or nothing."""
        merging: list[tuple[Frame, pa.Table]] = []
        passing: list[Frame] = []
        marks = []
        for frame, table in post.frames:
            key = frame.query, frame.plan
            if frame.kind == FrameKind.MARK:
                extra = frame.extra
                closing_us = extra.get("closing_epoch_us", frame.epoch)
                marks.append([*key, extra["watermarks"], closing_us, bool(extra.get("final"))])
            elif frame.kind == FrameKind.PARTIALS and frame.plan in self._relay.pipelines:
                merging.append((frame, table))
            elif frame.kind != FrameKind.CHECKPOINT:  # what supersedes it is merged here, and would be missed above
                passing.append(replace(frame, agent=self._config.agent, extra={**frame.extra, "origin": child}))
        partials = [[frame.query, frame.plan, self._size_us(frame.plan), frame.entry] for frame, _ in merging]
        taken = {"child": child, "life": post.life, "seq": post.seq, "partials": partials, "marks": marks}
        bodies = tuple(frame.body for frame, _ in merging)
        return self._append({"taken": taken}, [table for _, table in merging], bodies, passing)

    def _append(
        self, notes: dict[str, Any], tables: Sequence[pa.Table], blobs: tuple[bytes, ...], frames: Sequence[Frame]
    ) -> bool:
        state = self._state.changed_by(notes, tables)
        if not self._spool.append(Record(WRITER, notes, blobs, tuple(frames), state.stored)):
            return False
        self._state = state
        return True

    def _size_us(self, plan: str) -> int | None:
        window = self._relay.pipelines[plan].window
        return window.size_us if window is not None else None

    # Sending on

    def send_on(self) -> None:
        """Merge and send what all children have passed."""
        with self._lock:
            self._merge_held()
            framer = Framer(self._config.agent, self._latest_us(), self._config.batch_records)
            sent = []
            for key in {*self._state.marks, *self._state.held}:
                notes = self._send_query(key, framer)
                if notes is not None:
                    sent.append(notes)
            if sent and not self._append({"sent": sent}, (), (), framer.frames):
                log.warning("the relay's disk takes nothing: %s", self._spool.fault)

    def _latest_us(self) -> int:
        closing = (mark.closing_epoch_us for marks in self._state.marks.values() for mark in marks.values())
        return max((*closing, *(mark.closing_epoch_us for mark in self._state.sent.values())), default=0)

    def _send_query(self, key: Key, framer: Framer) -> dict[str, Any] | None:
        """Frames of one query; the note of what they say, or None where there is nothing new."""
        left_out = self._silent(key)
        mark, final = self._least(key, left_out)
        before = self._state.sent.get(key)
        tables = self._state.held.get(key, [])
        too_much = sum(table.nbytes for table in tables) > MOST_HELD_BYTES
        size_us, entry = self._state.shapes.get(key, (None, 0))
        going, _ = split_closed(tables, size_us, None if final or too_much else mark)
        if mark == before and going is None and not final:
            return None
        query, plan = key
        if going is not None:
            merged = self._merged(self._relay.pipelines.get(plan), [going])
            framer.tables(FrameKind.PARTIALS, query, plan, entry, [merged])
        says = {"watermarks": dict(mark.watermarks), "closing_epoch_us": mark.closing_epoch_us, "final": final}
        extra = {**says, "left_out": sorted(left_out)[:MOST_LEFT_OUT]} if left_out else says
        if mark.watermarks:
            framer.frames.append(
                Frame(FrameKind.MARK, self._config.agent, "", 1, query, plan, epoch=framer.epoch, extra=extra)
            )
        return {"query": query, "plan": plan, "all": too_much or final, **says}

    def _silent(self, key: Key) -> set[str]:
        """Children of the query that have not been heard for so long that they are not waited for."""
        since_s = time.monotonic() - self._relay.idle_after_s
        return {child for child in self._children_of(key) if self._heard_s.get(child, self._began_s) < since_s}

    def _children_of(self, key: Key) -> set[str]:
        query, plan = key
        told = {child.agent for child in self._relay.children.values() if child.queries.get(query) == plan}
        return told | (self._state.marks.get(key, {}).keys() & self._relay.children.keys())

    def _least(self, key: Key, left_out: set[str]) -> tuple[Mark, bool]:
        """The least of the children's marks, never below what was sent; and whether the query has ended."""
        before = self._state.sent.get(key, Mark({}, 0))
        marks = self._state.marks.get(key, {})
        children = self._children_of(key)
        if not children:
            return before, key in self._state.marks
        waited_for = children - left_out
        if not waited_for or any(child not in marks for child in waited_for):
            return before, False
        heard = [marks[child] for child in waited_for]
        paths = dict.fromkeys(path for mark in heard for path in mark.watermarks)
        least = {path: min(mark.watermarks.get(path, 0) for mark in heard) for path in paths}
        never_back = {path: max(us, before.watermarks.get(path, 0)) for path, us in least.items()}
        return Mark(never_back, max(before.closing_epoch_us, *(mark.closing_epoch_us for mark in heard))), False

    def _merge_held(self) -> None:
        """Many small tables become one; the same rows, so nothing is written down."""
        for (_, plan), tables in self._state.held.items():
            if len(tables) > MERGE_TABLES and (pipeline := self._relay.pipelines.get(plan)):
                tables[:] = [self._merged(pipeline, tables)]

    @staticmethod
    def _merged(pipeline: Pipeline | None, tables: list[pa.Table]) -> pa.Table:
        if pipeline is None:
            return pa.concat_tables(tables)
        return aggregate_kernel(pipeline).merge(tables)

    # Reporting

    def report(self) -> dict[str, Any]:
        """The heartbeat's part of the relay."""
        with self._lock:
            children = [self._child_report(child) for child in self._relay.children]
            queries = [self._query_report(key) for key in self._state.marks]
            faults = [self._fault] if self._fault else []
            return {"queries": queries, "collectors": [], "faults": faults, "relay": {"children": children}}

    def unsaid(self) -> dict[str, list[dict[str, Any]]]:
        """No epochs of its own."""
        return {}

    def said(self, queries: Mapping[str, int]) -> None:
        """Nothing was told."""

    def _child_report(self, child: str) -> dict[str, Any]:
        heard_s = self._heard_s.get(child)
        silent_s = time.monotonic() - (heard_s if heard_s is not None else self._began_s)
        silent = silent_s > self._relay.idle_after_s
        lives = list(self._state.accepted.get(child, {}).values())
        return {
            "agent": child,
            "state": "silent" if silent else "connected" if heard_s is not None else "awaited",
            "silent_s": round(silent_s, 1),
            "accepted_seq": lives[-1] if lives else 0,
        }

    def _query_report(self, key: Key) -> dict[str, Any]:
        sent, left_out = self._state.sent.get(key, Mark({}, 0)), sorted(self._silent(key))
        return {
            "query": key[0],
            "plan": key[1],
            "state": "steady",
            "watermark_us": min(sent.watermarks.values(), default=0),
            "load_factors": [],
            "faults": [f"{child} is silent: windows close without it" for child in left_out],
        }
