"""The relay's HTTP server, and its checks of posted frames: both as the console's."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from agent import VERSION
from agent.relay.state import RelayState
from agent.wire import (
    COUNTERS,
    MAX_POST_BYTES,
    SWEEPS,
    Frame,
    FrameKind,
    WireError,
    decode_frames,
    mark_fault,
    table_of,
    variation_fault,
)
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import aggregate_kernel, partial_schema

__all__ = ["UNKNOWN", "AcceptedPost", "RelayServer", "Reply", "read_post"]


log = logging.getLogger(__name__)

PATH = "/api/v1/telemetry/batches"
MAX_POSTS = 4  # in memory at once: what bounds it
IDLE_S = 60.0
MAX_PASSED_BYTES = 4 * MAX_POST_BYTES
CHUNK_BYTES = 2**16
_MAX_FAULTS = 20
_PARTIAL = (FrameKind.PARTIALS, FrameKind.CHECKPOINT)
_PASSED_ON = {FrameKind.COUNTERS: (COUNTERS,), FrameKind.SWEEPS: (SWEEPS,)}  # of all queries at once
_TABLES = (FrameKind.RECORDS, *_PARTIAL, *_PASSED_ON)


@dataclass(frozen=True)
class Reply:
    """A status and a document."""

    status: int
    document: Mapping[str, Any]
    retry_after_s: float | None = None


UNKNOWN = Reply(401, {"code": "agent_unknown", "detail": "No agent below this relay has this secret."})
Admitter = Callable[[str], bool]
Taker = Callable[[str, bytes], Reply]


class RelayServer:
    """HTTP server that listens until closed. `admits` and `take` get the hash of the caller's secret, `take` the
    body as well.
    """

    def __init__(self, listen: tuple[str, int], admits: Admitter, take: Taker) -> None:
        self.listen = listen
        self._server = _Server(listen, admits, take)
        # an agent that stops is not held up by half a second
        polls = {"poll_interval": 0.1}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=polls, name="relay", daemon=True)
        self._thread.start()
        log.info("taking frames on %s:%d", *self._server.server_address[:2])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, listen: tuple[str, int], admits: Admitter, take: Taker) -> None:
        self.admits, self.take = admits, take
        self.posts = threading.BoundedSemaphore(MAX_POSTS)
        super().__init__(listen, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a caller from %s went away", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"sluice-relay/{VERSION}"
    timeout = IDLE_S
    server: _Server

    def do_POST(self) -> None:
        length = self._length()
        if self.path != PATH:
            message = f"A relay takes frames at {PATH} alone."
            self._answer(Reply(404, {"code": "missing", "detail": message}), read=False)
        elif not self.server.admits(self._secret_hash()):
            self._answer(UNKNOWN, read=False)
        elif length is None:
            self._answer(Reply(411, {"code": "malformed", "detail": "Content-Length is missing."}), read=False)
        elif length > MAX_POST_BYTES:
            message = f"The body has {length} bytes; allowed: {MAX_POST_BYTES}."
            self._answer(Reply(413, {"code": "too_large", "detail": message}), read=False)
        elif not self.server.posts.acquire(blocking=False):
            self._answer(Reply(503, {"code": "busy", "detail": "The relay is busy."}, retry_after_s=1.0), read=False)
        else:
            try:
                self._take(length)
            finally:
                self.server.posts.release()

    def _take(self, length: int) -> None:
        data = self.rfile.read(length)
        if len(data) < length:
            self.close_connection = True
            return
        self._answer(self.server.take(self._secret_hash(), data), read=True)

    def _secret_hash(self) -> str:
        scheme, _, secret = self.headers.get("Authorization", "").partition(" ")
        token = secret.strip() if scheme.lower() == "bearer" else ""
        return hashlib.sha256(token.encode()).hexdigest()

    def _length(self) -> int | None:
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isdigit() else None

    def _answer(self, reply: Reply, *, read: bool) -> None:
        """Answer. A body that was not read would be taken for the next request: then the connection ends.

        It is passed over first, within reason, because a caller that is still sending hears no answer.
        """
        refused = reply.status >= 400
        base = {"status": reply.status, "faults": []} if refused else {}
        body = json.dumps({**base, **reply.document}).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/problem+json" if refused else "application/json")
        self.send_header("Content-Length", str(len(body)))
        if reply.status == 401:
            self.send_header("WWW-Authenticate", 'Bearer realm="sluice"')
        if reply.retry_after_s is not None:
            self.send_header("Retry-After", f"{reply.retry_after_s:g}")
        if not read:
            left = min(self._length() or 0, MAX_PASSED_BYTES)
            while left > 0 and (passed := len(self.rfile.read(min(left, CHUNK_BYTES)))):
                left -= passed
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        log.debug(format, *args)


@dataclass(frozen=True)
class AcceptedPost:
    """New frames of a post, in order, with the tables of those that have one."""

    life: str
    seq: int  #: of the last frame
    duplicates: int
    frames: Sequence[tuple[Frame, pa.Table | None]]


def read_post(child: str, data: bytes, pipelines: Mapping[str, Pipeline], state: RelayState) -> AcceptedPost | Reply:
    """The new frames of a post, or why it is not taken."""
    try:
        frames = [frame for frame, _ in decode_frames(data)]
    except WireError as error:
        return Reply(400, {"code": "corrupt", "detail": f"The frames cannot be read: {error}."})
    if not frames:
        return Reply(400, {"code": "malformed", "detail": "The body holds no frame."})
    faults = _order_faults(child, frames)
    life = frames[0].life
    accepted = state.accepted_seq(child, life)
    fresh = [frame for frame in frames if frame.seq > accepted]
    read: list[tuple[Frame, pa.Table | None]] = []
    for frame in fresh if not faults else ():
        try:
            read.append((frame, _table(frame, pipelines)))
        except (WireError, ValueError) as error:
            faults.append({"path": f"frames[{frames.index(frame)}]", "message": str(error)})
    if faults:
        first = f"{faults[0]['path']}: {faults[0]['message']}."
        return Reply(422, {"code": "wrong_frames", "detail": first, "faults": faults[:_MAX_FAULTS]})
    if fresh and fresh[0].seq != accepted + 1:
        message = f"Frames are missing: the next one of this life is {accepted + 1}."
        document = {"code": "gap", "detail": message, "expected_seq": accepted + 1}
        return Reply(409, document | {"accepted_seq": accepted, "committed_seq": accepted})
    return AcceptedPost(life, frames[-1].seq, len(frames) - len(fresh), read)


def _order_faults(child: str, frames: Sequence[Frame]) -> list[dict[str, str]]:
    faults = []
    for index, frame in enumerate(frames):
        path = f"frames[{index}]"
        if frame.agent != child or frame.life != frames[0].life:
            message = f"it is of {frame.agent}:{frame.life}; allowed: {child}, one life in a post"
            faults.append({"path": f"{path}.agent", "message": message})
        elif index and frame.seq != frames[index - 1].seq + 1:
            message = f"seq is {frame.seq} after {frames[index - 1].seq}; allowed: numbers without gaps"
            faults.append({"path": f"{path}.seq", "message": message})
    return faults


def _table(frame: Frame, pipelines: Mapping[str, Pipeline]) -> pa.Table | None:
    """The frame's table, of the columns that its place in the pipeline takes.

    Raises
    ------
    WireError, ValueError
        It is no table, another one, or of a kind that agents do not send.
    """
    if frame.kind == FrameKind.MARK:
        if fault := mark_fault(frame.extra):
            raise ValueError(f"extra.{fault}")
        return None
    if frame.kind not in _TABLES:
        raise ValueError(f"kind is {frame.kind.value!r}; allowed: mark, {', '.join(_TABLES)}")
    if frame.kind == FrameKind.COUNTERS and (fault := variation_fault(frame.extra)):
        raise ValueError(f"extra.{fault}")
    table = table_of(frame.body)
    table.validate(full=True)
    schemas = _PASSED_ON.get(frame.kind) or _wanted(frame, pipelines.get(frame.plan))
    if schemas and not any(table.schema.equals(schema) for schema in schemas):
        raise ValueError(
            f"its columns are {', '.join(table.column_names)}; allowed: {', '.join(schemas[0].names)}, by type"
        )
    if frame.kind in _PARTIAL and frame.plan in pipelines:
        fault = aggregate_kernel(pipelines[frame.plan]).partial_fault(table)
        if fault:
            raise ValueError(fault)
    return table


def _wanted(frame: Frame, pipeline: Pipeline | None) -> tuple[pa.Schema, ...]:
    """The columns that the entry takes; none for a plan that this relay does not know.

    It is the console's to judge such a plan: the child may know it earlier, or have had it before. Refused here, it
    would hold back everything that the child has behind it.
    """
    if pipeline is None:
        return ()
    if frame.kind in _PARTIAL:
        if pipeline.stream_join is not None:
            raise ValueError(f"kind is {frame.kind.value!r}; allowed of a query that joins streams: records")
        if frame.entry != pipeline.aggregate:
            allowed = f"{pipeline.aggregate}, the aggregate"
            raise ValueError(f"entry is {frame.entry}; allowed for {frame.kind.value}: {allowed}")
        return (partial_schema(pipeline),)
    if frame.entry == pipeline.other_entry:
        return (pipeline.other_schema,)
    if frame.entry >= len(pipeline.operators):
        raise ValueError(f"entry is {frame.entry}; allowed: 0 to {len(pipeline.operators) - 1}")
    return (pipeline.operators[frame.entry].input_schema,)
