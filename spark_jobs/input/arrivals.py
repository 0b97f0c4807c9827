"""Frames of a batch in the order of their senders: each once, none before its predecessor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from agent.wire import Frame, FrameKind, WireError, encode_frame
from spark_jobs.input.entries import UNREADABLE, WAITING_SCHEMA

__all__ = ["Arrival", "arrivals_of", "frame_bytes", "order_frames", "table_of_waiting"]


_PATIENCE_STEPS = 30
_MAX_WAITING_BYTES = 64 * 2**20
_NOTHING = pa.py_buffer(b"")


@dataclass(frozen=True)
class Arrival:
    """A frame as it came out of the broker."""

    id: str  #: partition/id of its entry
    agent: str
    life: str
    seq: int
    kind: str
    query: str
    plan: str
    entry: int
    epoch: int
    extra: str
    body: bytes | pa.Buffer
    size: int
    since: int = 0  #: the step at which it began to wait
    due: bool = False  #: its number has come, and it waits for its plan

    @property
    def sender(self) -> tuple[str, str]:
        """Agent and generation that number it."""
        return self.agent, self.life

    @property
    def flow(self) -> tuple[str, str]:
        return self.query, self.plan

    @property
    def reporter(self) -> str:
        """The agent of which it tells, whose frame a relay may have passed on."""
        return str(self.says.get("origin") or self.agent)

    @property
    def arrived_ms(self) -> int:
        """Arrival in Redis."""
        return self.place[0]

    @property
    def place(self) -> tuple[int, int]:
        """Its place in its partition."""
        moment, _, count = self.id.partition("/")[2].partition("-")
        return int(moment), int(count or 0)

    @cached_property
    def says(self) -> Mapping[str, Any]:
        return json.loads(self.extra) if self.extra else {}


@dataclass
class Ordered:
    """Frames of a batch that are due now, and those that wait."""

    due: list[Arrival] = field(default_factory=list)
    early: list[Arrival] = field(default_factory=list)  #: their predecessors are not here yet
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    duplicates: int = 0
    lost: list[str] = field(default_factory=list)  #: gaps that are not waited for any longer, in words


def arrivals_of(batch: pa.RecordBatch) -> list[Arrival]:
    """The frames of a batch of `ENTRY_SCHEMA`; their bodies stay in its memory."""
    bodies = [body.as_buffer() or _NOTHING for body in batch.column("body")]
    rows = batch.drop_columns(["body"]).to_pylist()
    return [
        Arrival(id=f"{row.pop('partition')}/{row.pop('id')}", **row, body=body, size=body.size)
        for row, body in zip(rows, bodies, strict=True)
    ]


def table_of_waiting(waiting: Iterable[Arrival]) -> pa.Table:
    """Waiting frames as a table of `WAITING_SCHEMA`."""
    rows = [
        {name: getattr(arrival, name) for name in WAITING_SCHEMA.names} | {"body": bytes(arrival.body)}
        for arrival in waiting
    ]
    return pa.Table.from_pylist(rows, schema=WAITING_SCHEMA)


def order_frames(arrivals: Iterable[Arrival], positions: Mapping[tuple[str, str], int], step: int) -> Ordered:
    """Frames that follow on what was processed before, in the order of their numbers.

    A number seen before is a duplicate. What stands behind a gap waits for `_PATIENCE_STEPS` steps: the broker closes
    every gap it can, because agents keep what is not committed, so what is not there by then is lost and said to be.
    """
    by_sender: dict[tuple[str, str], dict[int, Arrival]] = defaultdict(dict)
    ordered = Ordered(positions=dict(positions))
    for arrival in arrivals:
        by_seq = by_sender[arrival.sender]
        if arrival.seq <= positions.get(arrival.sender, 0) or arrival.seq in by_seq:
            ordered.duplicates += 1
        else:
            by_seq[arrival.seq] = arrival
    for sender, by_seq in by_sender.items():
        _advance(ordered, sender, by_seq, step)
    return ordered


def _advance(ordered: Ordered, sender: tuple[str, str], by_seq: dict[int, Arrival], step: int) -> None:
    position = ordered.positions.get(sender, 0)
    while by_seq:
        while (arrival := by_seq.pop(position + 1, None)) is not None:
            ordered.due.append(arrival)
            position += 1
        if not by_seq or not _lost(by_seq, step):
            break
        first = min(by_seq)
        ordered.lost.append(f"frames {position + 1} to {first - 1} of agent {sender[0]} never came")
        position = first - 1
    if position:
        ordered.positions[sender] = position
    ordered.early += [arrival if arrival.since else replace(arrival, since=step) for arrival in by_seq.values()]


def _lost(by_seq: Mapping[int, Arrival], step: int) -> bool:
    """Whether frames behind a gap have waited long enough, or are too many to wait on."""
    waited = max((step - arrival.since for arrival in by_seq.values() if arrival.since), default=0)
    return waited >= _PATIENCE_STEPS or sum(arrival.size for arrival in by_seq.values()) > _MAX_WAITING_BYTES


def frame_bytes(arrival: Arrival) -> bytes:
    """Bytes to keep of a quarantined frame: the frame, or the entry that was none."""
    body = bytes(arrival.body)
    if arrival.kind == UNREADABLE:
        return body
    named = {name: getattr(arrival, name) for name in ("agent", "life", "seq", "query", "plan", "entry", "epoch")}
    try:
        return encode_frame(Frame(FrameKind(arrival.kind), **named, extra=arrival.says, body=body))
    except WireError:
        return body
