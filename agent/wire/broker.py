"""Frames between web and stream processor: Redis Streams, numbered, bounded and fair between agents.

Every change is one Lua script, so that a server which dies in between has done all of it or nothing: entries, what was
accepted and what is held always belong together, also when the end of its append-only file is lost.

Beside each stream of frames stands a stream of sizes with the same ids. It answers what is held, and how far a reader
may read, without touching the frames.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from agent.wire import scripts
from agent.wire.frames import Frame

__all__ = [
    "ACCEPTED",
    "ACCEPTED_AT",
    "COMMITTED",
    "ENTRY_BYTES",
    "PARTITIONS",
    "Acceptance",
    "BrokerLimits",
    "GenerationProgress",
    "ReadReach",
    "StreamEntry",
    "accept_frames",
    "generation_progress",
    "held_bytes",
    "keyed_state",
    "last_ids",
    "oldest_at_s",
    "partition_of",
    "publish_committed",
    "read_entries",
    "read_reach",
    "request_keyed_state",
    "stream_state",
    "take_keyed_state_request",
    "trim_streams",
    "write_keyed_state",
    "write_state",
]

PARTITIONS = 4
ENTRY_BYTES = 300  # what a server needs for an entry beside its frame; counted, or tiny frames would be free
ACCEPTED, COMMITTED = "sluice:accepted", "sluice:committed"  # numbers by agent:life
ACCEPTED_AT = "sluice:accepted-at"  # when the last number was accepted, milliseconds, by agent:life
_HELD, _STATE = "sluice:held", "sluice:stream:state"
_KEYED_STATE, _KEYED_STATE_REQUEST = "sluice:stream:keyed-state", "sluice:stream:keyed-state:request"
_TOTAL = "*"  # the field of `sluice:held` that holds the sum
_TRIM_ENTRIES = 1000  # in one script, which keeps everybody else waiting
_BEGIN = "0-0"


@dataclass(frozen=True)
class BrokerLimits:
    """Limits of the data in Redis that waits for the stream processor.

    Of what is free an agent may hold as much again as it holds already: alone it gets half of all, with n others that
    want as much 1 / (n + 2). So there is always room for one that holds little, whatever the others do (dynamic
    thresholds of Choudhury and Hahne, 1998, with alpha = 1).
    """

    total_bytes: int = 256 * 2**20
    retry_after_s: float = 2.0


@dataclass(frozen=True)
class Acceptance:
    """Outcome of a sequence of frames: those up to `accepted_seq` are stored."""

    accepted_seq: int
    committed_seq: int
    duplicates: int
    refused: str | None = None  #: "gap" or "full"; what stood before it was accepted
    retry_after_s: float | None = None

    @property
    def expected(self) -> int:
        """The number that is accepted next."""
        return self.accepted_seq + 1


@dataclass(frozen=True)
class GenerationProgress:
    """Position of an agent's generation."""

    accepted_seq: int
    committed_seq: int


@dataclass(frozen=True)
class ReadReach:
    """Range that a reader may read at once: up to `last_id` (inclusive) are `entries` entries."""

    last_id: str
    entries: int
    held_bytes: int


@dataclass(frozen=True)
class StreamEntry:
    """A frame as it stands in a stream."""

    id: str
    agent: str
    life: str
    seq: int
    kind: str
    query: str
    plan: str
    entry: int
    data: bytes


def partition_of(agent: str) -> int:
    """Partition of an agent: holds all of its frames, in the order of their sequence numbers."""
    return zlib.crc32(agent.encode()) % PARTITIONS


def accept_frames(
    client: redis.Redis, frames: Sequence[tuple[Frame, bytes | memoryview]], limits: BrokerLimits, floor: int = 0
) -> Acceptance:
    """Append the next frames in the order of the agent's generation, as far as they fit.

    Parameters
    ----------
    frames : sequence
        Of one agent and one life, each with its own bytes.
    floor : int
        What is known to be committed from elsewhere; Redis may have lost it.

    Returns
    -------
    Accepted
        Frames accepted before count as duplicates. At a gap, or where no room is left, the rest is refused.
    """
    agent, life = frames[0][0].agent, frames[0][0].life
    arguments: list[Any] = [agent, f"{agent}:{life}", life, floor, limits.total_bytes, ENTRY_BYTES]
    for frame, data in frames:
        arguments += [frame.seq, frame.kind.value, frame.query, frame.plan, frame.entry, data]
    number = partition_of(agent)
    keys = [_frames(number), _sizes(number), ACCEPTED, COMMITTED, _HELD, ACCEPTED_AT]
    accepted, committed, duplicates, refused = scripts.run(client, scripts.ACCEPT, keys, arguments)
    why = {0: None, 1: "gap", 2: "full"}[refused]
    retry_after_s = limits.retry_after_s if why == "full" else None
    return Acceptance(accepted, committed, duplicates, why, retry_after_s)


def generation_progress(client: redis.Redis, agent: str, life: str, floor: int = 0) -> GenerationProgress:
    """Accepted and committed position of an agent's generation; `floor` as for `accept_frames`."""
    pipeline = client.pipeline(transaction=True)
    pipeline.hget(ACCEPTED, f"{agent}:{life}")
    pipeline.hget(COMMITTED, f"{agent}:{life}")
    accepted, committed = (int(value or 0) for value in pipeline.execute())
    committed = max(committed, floor)
    return GenerationProgress(max(accepted, committed), committed)


def held_bytes(client: redis.Redis) -> dict[str, int]:
    """Bytes of every agent that wait for the stream processor."""
    held = {_text(name): int(value) for name, value in client.hgetall(_HELD).items()}  # type: ignore[union-attr]
    return {name: value for name, value in held.items() if name != _TOTAL and value > 0}


def read_entries(
    client: redis.Redis, partition: int, after_id: str = _BEGIN, count: int = 500, until_id: str = "+"
) -> list[StreamEntry]:
    """Up to `count` entries of a partition after `after_id` and up to `until_id`, in order."""
    rows: Any = client.xrange(_frames(partition), min=f"({after_id}", max=until_id, count=count)
    return [_entry(_text(entry_id), fields) for entry_id, fields in rows]


def read_reach(client: redis.Redis, partition: int, after_id: str, most_entries: int, most_bytes: int) -> ReadReach:
    """Range to read after `after_id` within the bounds; one entry always fits."""
    rows: Any = client.xrange(_sizes(partition), min=f"({after_id}", count=most_entries)
    last_id, entries, total = after_id, 0, 0
    for entry_id, fields in rows:
        size = int(fields[b"b"])
        if entries and total + size > most_bytes:
            break
        last_id, entries, total = _text(entry_id), entries + 1, total + size
    return ReadReach(last_id, entries, total)


def oldest_at_s(client: redis.Redis, partition: int, after_id: str) -> float | None:
    """Arrival of the first entry after `after_id`, by the clock of Redis; None where there is none."""
    rows: Any = client.xrange(_sizes(partition), min=f"({after_id}", count=1)
    return int(_text(rows[0][0]).partition("-")[0]) / 1000 if rows else None


def last_ids(client: redis.Redis) -> dict[int, str]:
    """Last id ever assigned in each partition, also where the entry is trimmed already."""
    keys = [_sizes(number) for number in range(PARTITIONS)]
    return {number: _text(entry_id) for number, entry_id in enumerate(scripts.run(client, scripts.LAST_IDS, keys, []))}


def trim_streams(client: redis.Redis, upto: Mapping[int, str]) -> int:
    """Drop entries up to these ids (inclusive), one id a partition; returns the number dropped."""
    dropped = 0
    for number, last_id in upto.items():
        keys = [_frames(number), _sizes(number), _HELD]
        while count := scripts.run(client, scripts.TRIM, keys, [last_id, _following(last_id), _TRIM_ENTRIES]):
            dropped += count
    return dropped


def publish_committed(client: redis.Redis, committed: Mapping[tuple[str, str], int]) -> None:
    """Publish the committed positions of the stream processor by agent and generation. Positions never go back."""
    pairs = [part for (agent, life), seq in committed.items() for part in (f"{agent}:{life}", seq)]
    if pairs:
        scripts.run(client, scripts.COMMIT, [COMMITTED], pairs)


def stream_state(client: redis.Redis) -> dict[str, Any] | None:
    """Report of the stream processor about itself; None when there was none for a while."""
    text: Any = client.get(_STATE)
    return None if text is None else json.loads(text)


def write_state(client: redis.Redis, state: Mapping[str, Any], life_s: float = 10.0) -> None:
    """Write the report of the stream processor; it expires after `life_s` unless repeated."""
    client.set(_STATE, json.dumps(state, separators=(",", ":")), px=round(life_s * 1000))


def keyed_state(client: redis.Redis) -> dict[str, Any] | None:
    """The last reading of the keyed state; None where there was none within a day."""
    text: Any = client.get(_KEYED_STATE)
    return None if text is None else json.loads(text)


def write_keyed_state(client: redis.Redis, reading: Mapping[str, Any], life_s: float = 86_400.0) -> None:
    """Write a reading of the keyed state, which is shown for `life_s`."""
    client.set(_KEYED_STATE, json.dumps(reading, separators=(",", ":")), px=round(life_s * 1000))


def request_keyed_state(client: redis.Redis, life_s: float = 300.0) -> None:
    """Ask the stream processor to read its keyed state; forgotten after `life_s`. Several requests are one."""
    client.set(_KEYED_STATE_REQUEST, "1", px=round(life_s * 1000))


def take_keyed_state_request(client: redis.Redis) -> bool:
    """Whether somebody has asked for a reading; the request is taken by that."""
    return bool(client.delete(_KEYED_STATE_REQUEST))


def _frames(number: int) -> str:
    return f"sluice:frames:{number}"


def _sizes(number: int) -> str:
    return f"sluice:sizes:{number}"


def _following(entry_id: str) -> str:
    """The smallest id after `entry_id`."""
    moment, _, count = entry_id.partition("-")
    return f"{moment}-{int(count or 0) + 1}"


def _entry(entry_id: str, fields: Mapping[bytes, bytes]) -> StreamEntry:
    return StreamEntry(
        id=entry_id,
        agent=fields[b"a"].decode(),
        life=fields[b"l"].decode(),
        seq=int(fields[b"s"]),
        kind=fields[b"k"].decode(),
        query=fields[b"q"].decode(),
        plan=fields[b"p"].decode(),
        entry=int(fields[b"e"]),
        data=fields[b"f"],
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
