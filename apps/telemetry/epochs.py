"""Epochs of each query at each agent, the last quarter of an hour of them, kept in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import redis

from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.streams import stream_client
from engine.rollouts.measures import EPOCH_US, EpochRow, Sweep, WatermarkForecast

__all__ = [
    "MAX_ROWS",
    "RecordedEpochs",
    "by_console_clock",
    "epochs_add",
    "epochs_of",
    "epochs_since",
    "recorded_epochs",
    "window_times_us",
]

MAX_ROWS = 900  # of a query at an agent: a quarter of an hour of epochs of a second
_KEPT_S = 3600  # after the last row
_MIN_EPOCH_US = 1_000_000  # agents are told so (configs.EPOCH_S)

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


_NAMES = tuple(field.name for field in fields(EpochRow))
_values = attrgetter(*_NAMES)


def epochs_add(agent: str, rows: Mapping[str, Sequence[EpochRow]]) -> None:
    """Store rows by query, oldest first. Rows already stored, or older than these, are ignored.

    Raises
    ------
    redis.RedisError
        Redis is away or takes nothing.
    """
    given_rows = {query: own for query, own in rows.items() if own}
    if not given_rows:
        return
    arguments: list[Any] = [_KEPT_S, MAX_ROWS]
    for query, own in given_rows.items():
        arguments += [query, len(own)]
        for row in own:
            arguments += [row.epoch_us, json.dumps(_values(row), separators=(",", ":"))]
    client = stream_client()
    client.register_script(_ADD)([_newest(agent), *(_rows(agent, query) for query in given_rows)], arguments)


def epochs_of(agents: Iterable[Any], since_us: int | None = None) -> dict[str, dict[str, list[EpochRow]]]:
    """Rows by agent's id and query, oldest first, of epochs that began at `since_us` or later by the agents' clocks.

    Agents without rows are left out; all are while Redis does not answer.
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
            requested = [
                (agent, query.decode(), _count(int(last), since[agent]))
                for agent in ids
                for query, last in newest[agent].items()
            ]
            for agent, query, count in requested:
                asked.lrange(_rows(agent, query), -count, -1)
            texts_found = asked.execute() if requested else []
    except redis.RedisError:
        return {}
    rows: dict[str, dict[str, list[EpochRow]]] = {}
    for (agent, query, _), texts in zip(requested, texts_found, strict=True):
        since_us = since[agent]
        own = [row for row in map(_row, texts) if since_us is None or row.epoch_us >= since_us]
        if own:
            rows.setdefault(agent, {})[query] = own
    return rows


def _count(newest_us: int, since_us: int | None) -> int:
    """Upper bound of rows since then; at least one."""
    if since_us is None:
        return MAX_ROWS
    return min(max(math.ceil((newest_us - since_us) / _MIN_EPOCH_US) + 1, 1), MAX_ROWS)


def _row(text: bytes) -> EpochRow:
    report = dict(zip(_NAMES, json.loads(text), strict=True))
    report["load_factors"] = tuple(report["load_factors"])
    if report.get("expected"):
        report["expected"] = WatermarkForecast(*report["expected"])
    for name, kind in (("sweeps", Sweep._make), ("spans", tuple)):
        if name in report:
            report[name] = tuple(map(kind, report[name]))
    return EpochRow(**report)


def _newest(agent: str) -> str:
    return f"sluice:epochs:{agent}"


def _rows(agent: str, query: str) -> str:
    return f"sluice:epochs:{agent}:{query}"


#: Epochs in order of time, by agent's id and query's key.
RecordedEpochs = Mapping[str, Mapping[str, list[EpochRow]]]


def recorded_epochs(agents: Iterable[Agent], now: datetime, last_s: float) -> RecordedEpochs:
    """Epochs of these agents in the last seconds, with their own timestamps; empty without Redis."""
    since_us = round((now - timedelta(seconds=last_s)).timestamp() * 1e6)
    return epochs_since({str(agent.pk): since_us + _skew_us(agent) for agent in agents})


def by_console_clock(rows: Sequence[EpochRow], agent: Agent, window_us: int) -> list[EpochRow]:
    """Rows corrected for clock skew by whole windows, so that the phase of the agent's windows stays."""
    shift_us = round(_skew_us(agent) / window_us) * window_us
    return [replace(row, epoch_us=row.epoch_us - shift_us) for row in rows] if shift_us else list(rows)


def _skew_us(agent: Agent) -> int:
    return round(1e6 * (agent.clock_offset_s or 0.0))


def window_times_us(live: LiveQuery) -> tuple[int, int]:
    """Period and size of a live query's windows; an epoch without windows.

    Partial rows leave once in a period, and cover a size.
    """
    for operator in live.pipeline["operators"]:
        expression = operator["expression"]
        if expression.get("op") == "window":
            size = round(1e6 * expression["size_s"])
            slide = round(1e6 * (expression.get("slide_s") or expression["size_s"]))
            return max(EPOCH_US, slide), max(EPOCH_US, size)
    return EPOCH_US, EPOCH_US
