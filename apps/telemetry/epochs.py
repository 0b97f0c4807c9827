"""The last epochs of each query at each agent, kept in Redis: what load factors it ran with and what came of it.

They are too many for the database and of use for minutes: for charts, and to judge a change by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, NamedTuple

import redis

from apps.telemetry.streams import stream_client

__all__ = ["MOST_ROWS", "EpochRow", "Forecast", "Sweep", "epochs_add", "epochs_of", "epochs_since"]

MOST_ROWS = 900  # of a query at an agent: a quarter of an hour of epochs of a second
_KEPT_S = 3600  # after the last row
_LEAST_EPOCH_US = 1_000_000  # agents are told so (configs.EPOCH_S)

# KEYS: the newest epoch by query, then the rows of each query. ARGV: how long and how many are kept; for each query
# its name, how many rows, and of each its epoch and its text. What is not newer than the newest was there before.
_ADD = """
local at = 3
for k = 2, #KEYS do
  local query, count, last, added = ARGV[at], tonumber(ARGV[at + 1]), 0, false
  local newest = redis.call('LINDEX', KEYS[k], -1)
  if newest then last = cjson.decode(newest)[1] end
  for i = at + 2, at + 2 * count, 2 do
    local epoch = tonumber(ARGV[i])
    if epoch > last then
      redis.call('RPUSH', KEYS[k], ARGV[i + 1])
      last, added = epoch, true
    end
  end
  if added then
    redis.call('LTRIM', KEYS[k], -ARGV[2], -1)
    redis.call('EXPIRE', KEYS[k], ARGV[1])
    redis.call('HSET', KEYS[1], query, string.format('%.0f', last))
    redis.call('EXPIRE', KEYS[1], ARGV[1])
  end
  at = at + 2 + 2 * count
end
"""


class Forecast(NamedTuple):
    """When the next sweeping watermark is expected, with its interval; microseconds since 1970."""

    mean_us: int
    least_us: int
    most_us: int


class Sweep(NamedTuple):
    """One window whose watermark has passed all operators at the agent; microseconds since 1970."""

    deadline_us: int  #: its end
    least_us: int | None  #: in which interval its watermark had been expected; None where nothing was known
    most_us: int | None
    arrived_us: int  #: when the watermark had passed the deadline
    swept_us: int  #: when it had passed the operators
    emitted_us: int  #: when the window was handed to the spool

    @property
    def latency_s(self) -> float:
        """From deadline to emission."""
        return (self.emitted_us - self.deadline_us) / 1e6

    @property
    def delay_s(self) -> float:
        """From deadline to arrival of the watermark; 0 where the clocks say less."""
        return max(0.0, (self.arrived_us - self.deadline_us) / 1e6)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The interval as delays after the deadline."""
        if self.least_us is None or self.most_us is None:
            return None
        return (self.least_us - self.deadline_us) / 1e6, (self.most_us - self.deadline_us) / 1e6

    @property
    def is_hit(self) -> bool | None:
        """Whether the watermark came in its interval; None where none had been known."""
        if self.least_us is None or self.most_us is None:
            return None
        return self.least_us <= self.arrived_us <= self.most_us


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of one query at one agent. What older agents do not tell has its default."""

    epoch_us: int  #: when it began, microseconds since 1970
    load_factors: tuple[float, ...]
    records_in: int
    bytes_in: int
    bytes_sent: int  #: drained, overflowing, and put out by the last operator
    overflow: int  #: records let in and sent on unprocessed
    used_s: float  #: CPU seconds of its operators
    budget_s: float  #: that they could have had
    idle_s: float
    delay_s: float | None  #: from the newest acknowledged epoch's end to the console's acknowledgement of its frames
    version: int | None  #: of the refined document in force
    queued: int = 0  #: records that waited when it ended, and their bytes
    queued_bytes: int = 0
    slack_s: float | None = None  #: until the next window would be late; None where nothing is known
    expected: Forecast | None = None  #: of the next sweeping watermark
    sweeps: tuple[Sweep, ...] = ()  #: windows that were swept in it
    spans: tuple[tuple[float, float], ...] = ()  #: when it ran: milliseconds since the epoch began, and how many
    schedule_version: int | None = None  #: of the refined schedule of the agent in force


_NAMES = tuple(one.name for one in fields(EpochRow))


def epochs_add(agent: str, rows: Mapping[str, Sequence[EpochRow]]) -> None:
    """Keep rows by query, oldest first. Rows that are kept already, or older than these, are left out.

    Raises
    ------
    redis.RedisError
        Redis is away or takes nothing.
    """
    given = {query: own for query, own in rows.items() if own}
    if not given:
        return
    arguments: list[Any] = [_KEPT_S, MOST_ROWS]
    for query, own in given.items():
        arguments += [query, len(own)]
        for row in own:
            arguments += [row.epoch_us, json.dumps(astuple(row), separators=(",", ":"))]
    client = stream_client()
    client.register_script(_ADD)([_newest(agent), *(_rows(agent, query) for query in given)], arguments)


def epochs_of(agents: Iterable[Any], since_us: int | None = None) -> dict[str, dict[str, list[EpochRow]]]:
    """Rows by agent's id and query, oldest first, of epochs that began at `since_us` or later by the agents' clocks.

    Agents of which nothing is known are left out; all are while Redis does not answer.
    """
    return epochs_since(dict.fromkeys(map(str, agents), since_us))


def epochs_since(since: Mapping[str, int | None]) -> dict[str, dict[str, list[EpochRow]]]:
    """The same from a moment of its own for each agent, by the agent's id."""
    ids = list(since)
    try:
        with stream_client().pipeline(transaction=False) as asked:
            for agent in ids:
                asked.hgetall(_newest(agent))
            newest = dict(zip(ids, asked.execute(), strict=True))
            wanted = [
                (agent, query.decode(), _count(int(last), since[agent]))
                for agent in ids
                for query, last in newest[agent].items()
            ]
            for agent, query, count in wanted:
                asked.lrange(_rows(agent, query), -count, -1)
            found = asked.execute() if wanted else []
    except redis.RedisError:
        return {}
    rows: dict[str, dict[str, list[EpochRow]]] = {}
    for (agent, query, _), texts in zip(wanted, found, strict=True):
        since_us = since[agent]
        own = [row for row in map(_row, texts) if since_us is None or row.epoch_us >= since_us]
        if own:
            rows.setdefault(agent, {})[query] = own
    return rows


def _count(newest_us: int, since_us: int | None) -> int:
    """How many rows there can be since; at least one is asked for."""
    if since_us is None:
        return MOST_ROWS
    return min(max(math.ceil((newest_us - since_us) / _LEAST_EPOCH_US) + 1, 1), MOST_ROWS)


def _row(text: bytes) -> EpochRow:
    said = dict(zip(_NAMES, json.loads(text), strict=False))  # rows of older consoles end sooner
    said["load_factors"] = tuple(said["load_factors"])
    if said.get("expected"):
        said["expected"] = Forecast(*said["expected"])
    for name, kind in (("sweeps", Sweep._make), ("spans", tuple)):
        if name in said:
            said[name] = tuple(map(kind, said[name]))
    return EpochRow(**said)


def _newest(agent: str) -> str:
    return f"sluice:epochs:{agent}"


def _rows(agent: str, query: str) -> str:
    return f"sluice:epochs:{agent}:{query}"
