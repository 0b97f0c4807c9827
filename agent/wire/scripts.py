"""The broker's Lua scripts: each is done as a whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

__all__ = ["ACCEPT", "COMMIT", "FORGET", "LAST_IDS", "TRIM", "Script", "run"]


@dataclass(frozen=True)
class Script:
    """A script and the name a server knows it by."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def run(client: redis.Redis, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
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
