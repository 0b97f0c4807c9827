"""Frames between web and stream processor: Redis Streams, numbered, bounded and fair between agents.

Every change is one Lua script, so that a server which dies in between has done all of it or nothing: entries, what was
accepted and what is held always belong together, also when the end of its append-only file is lost.

Beside each stream of frames stands a stream of sizes with the same ids. It answers what is held, and how far a reader
may read, without touching the frames.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import redis

from agent.wire.frames import Frame

__all__ = [
    "ACCEPTED",
    "ACCEPTED_AT",
    "COMMITTED",
    "ENTRY_BYTES",
    "FORGET",
    "PARTITIONS",
    "Acceptance",
    "BrokerLimits",
    "GenerationProgress",
    "StreamEntry",
    "StreamProcessorReport",
    "StreamQueryReport",
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
    "run_script",
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
    accepted, committed, duplicates, refused = run_script(client, ACCEPT, keys, arguments)
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
    return {number: _text(entry_id) for number, entry_id in enumerate(run_script(client, LAST_IDS, keys, []))}


def trim_streams(client: redis.Redis, upto: Mapping[int, str]) -> int:
    """Drop entries up to these ids (inclusive), one id a partition; returns the number dropped."""
    dropped = 0
    for number, last_id in upto.items():
        keys = [_frames(number), _sizes(number), _HELD]
        while count := run_script(client, TRIM, keys, [last_id, _following(last_id), _TRIM_ENTRIES]):
            dropped += count
    return dropped


def publish_committed(client: redis.Redis, committed: Mapping[tuple[str, str], int]) -> None:
    """Publish the committed positions of the stream processor by agent and generation. Positions never go back."""
    pairs = [part for (agent, life), seq in committed.items() for part in (f"{agent}:{life}", seq)]
    if pairs:
        run_script(client, COMMIT, [COMMITTED], pairs)


class StreamQueryReport(TypedDict, total=False):
    """A live query at the stream processor."""

    watermark_us: int | None
    waiting_for: list[str]
    excluded: list[str]
    windows_open: int
    late: int
    early: int
    unknown: int


class StreamProcessorReport(TypedDict, total=False):
    """Report of the stream processor about itself; `progress` is Spark's of its last batch with records."""

    state: str
    since: float
    spark: str
    master: str
    trigger_s: float
    batch: int
    batch_s: float
    behind_s: float
    lag: dict[str, int]
    quarantined: int
    faults: list[str]
    progress: dict[str, Any]
    queries: dict[str, StreamQueryReport]


def stream_state(client: redis.Redis) -> StreamProcessorReport | None:
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


@dataclass(frozen=True)
class Script:
    """A script and the name a server knows it by."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def run_script(client: redis.Redis, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
    """Run a script by its digest; a server that does not know it yet, as after a restart, is sent its text."""
    try:
        return client.evalsha(script.digest, len(keys), *keys, *arguments)
    except redis.exceptions.NoScriptError:
        return client.eval(script.text, len(keys), *keys, *arguments)


#: KEYS frames, sizes, accepted, committed, held, accepted-at; ARGV agent, agent:life, life, floor, total, overhead,
#: then six for each frame. Returns accepted, committed, duplicates, refused (0 none, 1 gap, 2 full).
ACCEPT = Script("""
local function number(key, field) return tonumber(redis.call('HGET', key, field) or '0') end
local agent, who, life = ARGV[1], ARGV[2], ARGV[3]
local most, overhead = tonumber(ARGV[5]), tonumber(ARGV[6])
local committed = math.max(number(KEYS[4], who), tonumber(ARGV[4]))
local at = math.max(number(KEYS[3], who), committed)
local own, total = number(KEYS[5], agent), number(KEYS[5], '*')
local before, duplicates, refused, added, id = at, 0, 0, 0, nil
for i = 7, #ARGV, 6 do
  local seq = tonumber(ARGV[i])
  if seq <= at then
    duplicates = duplicates + 1
  elseif seq > at + 1 then
    refused = 1
    break
  else
    local size = #ARGV[i + 5] + overhead
    if own + size > most - total then
      refused = 2
      break
    end
    id = redis.call('XADD', KEYS[1], '*', 'f', ARGV[i + 5], 'a', agent, 'l', life, 's', ARGV[i],
      'k', ARGV[i + 1], 'q', ARGV[i + 2], 'p', ARGV[i + 3], 'e', ARGV[i + 4])
    redis.call('XADD', KEYS[2], id, 'a', agent, 'b', size)
    own, total, added, at = own + size, total + size, added + size, seq
  end
end
if at > before then
  redis.call('HSET', KEYS[3], who, string.format('%.0f', at))
  redis.call('HSET', KEYS[6], who, string.match(id, '%d+'))
  redis.call('HINCRBY', KEYS[5], agent, added)
  redis.call('HINCRBY', KEYS[5], '*', added)
end
return {at, committed, duplicates, refused}
""")

#: KEYS frames, sizes, held; ARGV last id to drop, the id after it, most entries. Returns how many were dropped.
TRIM = Script("""
local rows = redis.call('XRANGE', KEYS[2], '-', ARGV[1], 'COUNT', ARGV[3])
if #rows == 0 then return 0 end
local freed, total = {}, 0
for _, row in ipairs(rows) do
  local agent, size = row[2][2], tonumber(row[2][4])
  freed[agent] = (freed[agent] or 0) + size
  total = total + size
end
for agent, size in pairs(freed) do
  if redis.call('HINCRBY', KEYS[3], agent, -size) <= 0 then redis.call('HDEL', KEYS[3], agent) end
end
if redis.call('HINCRBY', KEYS[3], '*', -total) <= 0 then redis.call('HDEL', KEYS[3], '*') end
local threshold = ARGV[2]
if #rows == tonumber(ARGV[3]) then
  local moment, count = string.match(rows[#rows][1], '(%d+)-(%d+)')
  threshold = moment .. '-' .. string.format('%.0f', tonumber(count) + 1)
end
redis.call('XTRIM', KEYS[1], 'MINID', threshold)
redis.call('XTRIM', KEYS[2], 'MINID', threshold)
return #rows
""")

#: KEYS sizes of each partition. Returns the last id given in each.
LAST_IDS = Script("""
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = '0-0'
  if redis.call('EXISTS', key) == 1 then
    local info = redis.call('XINFO', 'STREAM', key)
    for at = 1, #info, 2 do
      if info[at] == 'last-generated-id' then found[i] = info[at + 1] end
    end
  end
end
return found
""")

#: KEYS committed; ARGV pairs of agent:life and number.
COMMIT = Script("""
for i = 1, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0') then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return 1
""")

#: KEYS accepted, committed, accepted-at, names; ARGV agent:life of each. Returns those dropped.
FORGET = Script("""
local gone = {}
for _, who in ipairs(ARGV) do
  redis.call('SREM', KEYS[4], who)
  local accepted = tonumber(redis.call('HGET', KEYS[1], who) or '0')
  if accepted <= tonumber(redis.call('HGET', KEYS[2], who) or '0') then
    for key = 1, 3 do redis.call('HDEL', KEYS[key], who) end
    gone[#gone + 1] = who
  end
end
return gone
""")
