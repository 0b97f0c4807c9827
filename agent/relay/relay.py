"""The relay role: accepts frames of the agents below, merges their partials, sends the rest on.

A post is answered when everything in it is in the relay's own spool: records and counters as frames to be sent,
partials and marks as notes. Once in an epoch the windows closed by the lowest watermark of the children are merged and
sent. Each of the two is one record of the spool, so a restart neither repeats nor loses any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig, RelayConfig
from agent.relay.server import UNKNOWN, AcceptedPost, RelayServer, Reply, read_post
from agent.relay.state import ChildMark, Children, Key, MergeSchedule, MergeSession, RelayState, row_count, split_closed
from agent.runtime import Spool, WalRecord
from agent.runtime.downstream import FORWARDED, cost_notes
from agent.runtime.interface import Clock, SystemClock
from agent.runtime.reports import Framer
from agent.wire import Frame, FrameKind
from engine.dataflow.arrow.kernels import aggregate_kernel

__all__ = ["Relay"]

log = logging.getLogger(__name__)

RELAY_WRITER = "relay"
MERGE_TABLES = 16
MAX_LEFT_OUT = 100  # named in a mark, whose header has bounds
MAX_HELD_BYTES = 64 * 2**20  # of partials; what is above goes on unfinished and is merged further up
BUSY_S = 2.0


class Relay:
    """One relay under a configuration that may change; `run` belongs to one thread."""

    kind = "relay"

    def __init__(self, config: AgentConfig, spool: Spool, clock: Clock | None = None) -> None:
        self._spool, self._clock = spool, clock or SystemClock()
        self._lock = threading.RLock()
        self._state = RelayState.recovered(spool.recovered(RELAY_WRITER))
        assert config.relay is not None
        self._children = Children(config.relay)
        self._server: RelayServer | None = None
        self._fault = ""
        self._turns = MergeSchedule(config.schedule)
        self._set(config)
        for key in self._state.held:
            self._waits(key)

    def apply(self, config: AgentConfig) -> None:
        with self._lock:
            self._set(config)

    def _set(self, config: AgentConfig) -> None:
        assert config.relay is not None
        self._config = config
        self._relay: RelayConfig = config.relay
        self._children.adopt(self._relay)
        self._turns.adopt(config.schedule, self._relay.by_agent)

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
        return self._children.named(secret_hash) is not None

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    # Taking

    def take(self, secret_hash: str, data: bytes) -> Reply:
        """The answer to a post of frames."""
        with self._lock:
            child = self._children.named(secret_hash)
            if child is None:
                return UNKNOWN
            self._children.touch(child)
            post = read_post(child, data, self._relay.pipelines, self._state)
            if isinstance(post, Reply):
                return post
            if self._spool.state == "full":
                return self._busy(429, child, post.life, "The relay has no room until its own frames are taken.")
            if post.frames and not self._keep(child, post):
                return self._busy(503, child, post.life, f"The relay's disk takes nothing: {self._spool.fault}.")
            extra = {FORWARDED: notes} if (notes := cost_notes(self._costs(child))) else {}
            return self._accepted(200, child, post.life, duplicates=post.duplicates, **extra)

    def _accepted(self, status: int, child: str, life: str, **more: Any) -> Reply:
        """Accepted position of this child. Accepted frames are on disk here: the child may forget them."""
        seq = self._state.accepted_seq(child, life)
        return Reply(status, {"accepted_seq": seq, "committed_seq": seq, **more})

    def _busy(self, status: int, child: str, life: str, message: str) -> Reply:
        reply = self._accepted(status, child, life, code="full", detail=message)
        return replace(reply, retry_after_s=BUSY_S)

    def _keep(self, child: str, post: AcceptedPost) -> bool:
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
        if not self._append({"taken": taken}, [table for _, table in merging], bodies, passing):
            return False
        for key in dict.fromkeys((frame.query, frame.plan) for frame, _ in merging):
            self._waits(key)
        for frame, _ in post.frames:
            if frame.kind == FrameKind.MARK:
                self._take_mark((frame.query, frame.plan), child, frame.extra)
        return True

    def _take_mark(self, key: Key, child: str, extra: Mapping[str, Any]) -> None:
        """Take in a child's mark: the delays of its watermarks, and the position of the query."""
        session = self._waits(key)
        self._turns.take_delays(session, child, extra)
        mark = self._children.least(key, self._state).mark
        if mark.watermarks:
            session.passed(min(mark.watermarks.values()), self._clock.wall_us())

    def _waits(self, key: Key) -> MergeSession:
        """Something came for the query."""
        session = self._turns.session(key, self._relay.pipelines.get(key[1]))
        session.came(row_count(self._state.held.get(key, ())), self._clock.wall_us())
        return session

    def _costs(self, child: str) -> Iterator[tuple[str, str, str, float]]:
        """Costs of merging here, of the queries that the child has a part in."""
        for key, session in self._turns.sessions.items():
            pipeline = self._relay.pipelines.get(key[1])
            if session.cost.known and pipeline is not None and child in self._children.of(key, self._state):
                assert pipeline.aggregate is not None
                yield *key, pipeline.operators[pipeline.aggregate].id, session.cost.record_ns / 1e9

    def _append(
        self, notes: dict[str, Any], tables: Sequence[pa.Table], blobs: tuple[bytes, ...], frames: Sequence[Frame]
    ) -> bool:
        state = self._state.changed_by(notes, tables)
        if not self._spool.append(WalRecord(RELAY_WRITER, notes, blobs, tuple(frames), state.stored)):
            return False
        self._state = state
        return True

    def _size_us(self, plan: str) -> int | None:
        window = self._relay.pipelines[plan].window
        return window.size_us if window is not None else None

    # Sending on

    def send_on(self) -> None:
        """Merge and send the windows that all children have passed: query by query, while the epoch's CPU time
        lasts.
        """
        with self._lock:
            framer = Framer(self._config.agent, self._latest_us(), self._config.batch_records)
            waiting = {key for key in {*self._state.marks, *self._state.held} if self._has_changes(key)}
            sent: dict[Key, dict[str, Any]] = {}
            before_ns, turns = self._clock.thread_cpu_ns(), 0
            most_ns = min(self._config.budget_cores, 1.0) * self._config.epoch_s * 1e9
            while waiting and (not turns or self._clock.thread_cpu_ns() - before_ns < most_ns):
                key = self._turns.pick(waiting, self._clock.wall_us())
                waiting.remove(key)
                turns += 1
                if (notes := self._send_query(key, framer)) is not None:
                    sent[key] = notes
                else:
                    self._had_its_turn(key)
            self._turns.epoch_over(len(waiting))
            if sent and not self._append({"sent": [*sent.values()]}, (), (), framer.frames):
                log.warning("the relay's disk takes nothing: %s", self._spool.fault)
                return
            for key in sent:
                self._had_its_turn(key)

    def _has_changes(self, key: Key) -> bool:
        """Whether there is anything to merge or to report; everything from before a restart counts as new."""
        session = self._turns.sessions.get(key) or self._waits(key)
        marks = self._children.least(key, self._state)
        return session.since_us is not None or marks.final or marks.mark != self._state.sent.get(key)

    def _had_its_turn(self, key: Key) -> None:
        if not any(key in table for table in (self._state.marks, self._state.held, self._state.sent)):
            del self._turns.sessions[key]  # it has ended
            return
        watermark_us = min(self._state.sent.get(key, ChildMark({}, 0)).watermarks.values(), default=0)
        self._turns.sessions[key].sent(watermark_us, row_count(self._state.held.get(key, ())), self._clock.wall_us())

    def _latest_us(self) -> int:
        closing = (mark.closing_epoch_us for marks in self._state.marks.values() for mark in marks.values())
        return max((*closing, *(mark.closing_epoch_us for mark in self._state.sent.values())), default=0)

    def _send_query(self, key: Key, framer: Framer) -> dict[str, Any] | None:
        """Frames of one query; the note for a restart, or None where there is nothing new."""
        mark, final, left_out = self._children.least(key, self._state)
        before = self._state.sent.get(key)
        tables = self._state.held.get(key, [])
        if len(tables) > MERGE_TABLES:  # many small ones become one; the same rows, so nothing is written down
            tables[:] = [self._merged(key, tables)]
        too_much = sum(table.nbytes for table in tables) > MAX_HELD_BYTES
        size_us, entry = self._state.shapes.get(key, (None, 0))
        going, _ = split_closed(tables, size_us, None if final or too_much else mark)
        if mark == before and going is None and not final:
            return None
        query, plan = key
        if going is not None:
            framer.tables(FrameKind.PARTIALS, query, plan, entry, [self._merged(key, [going])])
        document = {"watermarks": dict(mark.watermarks), "closing_epoch_us": mark.closing_epoch_us, "final": final}
        extra = {**document, "left_out": sorted(left_out)[:MAX_LEFT_OUT]} if left_out else document
        if mark.watermarks:
            framer.frames.append(
                Frame(FrameKind.MARK, self._config.agent, "", 1, query, plan, epoch=framer.epoch, extra=extra)
            )
        return {"query": query, "plan": plan, "all": too_much or final, **document}

    def _merged(self, key: Key, tables: list[pa.Table]) -> pa.Table:
        pipeline = self._relay.pipelines.get(key[1])
        if pipeline is None:
            return pa.concat_tables(tables)
        before_ns = self._clock.thread_cpu_ns()
        merged = aggregate_kernel(pipeline).merge(tables)
        self._turns.sessions[key].cost.observe(row_count(tables), self._clock.thread_cpu_ns() - before_ns)
        return merged

    # Reporting

    def report(self) -> dict[str, Any]:
        """The heartbeat's part of the relay."""
        with self._lock:
            queries = [self._query_report(key) for key in self._state.marks]
            faults = [self._fault] if self._fault else []
            if ignored := self._turns.ignored:
                faults.append(f"{ignored} delays that agents told could not be used")
            merging = self._turns.report(self._clock.wall_us())
            document = {"children": self._children.reports(self._state), "merging": merging}
            return {"queries": queries, "collectors": [], "faults": faults, "relay": document}

    def unreported(self) -> dict[str, list[dict[str, Any]]]:
        """No epochs of its own."""
        return {}

    def mark_reported(self, queries: Mapping[str, int]) -> None:
        """A relay reports no epochs: nothing to acknowledge."""

    def _query_report(self, key: Key) -> dict[str, Any]:
        sent, left_out = self._state.sent.get(key, ChildMark({}, 0)), sorted(self._children.silent(key, self._state))
        return {
            "query": key[0],
            "plan": key[1],
            "state": "steady",
            "watermark_us": min(sent.watermarks.values(), default=0),
            "load_factors": [],
            "faults": [f"{child} is silent: windows close without it" for child in left_out],
        }
