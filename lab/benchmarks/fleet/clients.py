"""Agents as asyncio clients: each says in its time what was recorded, over a few connections that all share."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.benchmarks.fleet.recorded_agents import AgentRecording

__all__ = ["Attained", "FleetAgent", "say"]

_CONNECTIONS = 32


@dataclass(frozen=True)
class FleetAgent:
    """An identity, and whose recording it says."""

    id: str
    secret: str
    recording: AgentRecording


@dataclass
class Attained:
    """Posts or heartbeats that were said and taken in a stretch of time."""

    asked: int = 0
    done: int = 0
    frames: int = 0
    wall_s: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        return self.done / self.wall_s


def say(
    what: str, port: int, agents: Sequence[FleetAgent], turns: int, every_s: float, budget_s: float, first: int = 0
) -> Attained:
    """Let every agent post its frames or heartbeats, `turns` times, one each `every_s` spread over that time.

    What is late follows as fast as it is answered; after `budget_s` no more is begun.
    """
    return asyncio.run(_say(what, port, agents, turns, every_s, budget_s, first))


async def _say(
    what: str, port: int, agents: Sequence[FleetAgent], turns: int, every_s: float, budget_s: float, first: int
) -> Attained:
    attained, began_s = Attained(asked=turns * len(agents)), time.monotonic()
    made: Callable[[FleetAgent, int], tuple[str, bytes, int]] = _post if what == "frames" else _heartbeat

    async def connection(number: int) -> None:
        own = range(number, len(agents), _CONNECTIONS)
        if not own:
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for turn, index in ((turn, index) for turn in range(turns) for index in own):
                due_s = began_s + (turn + index / len(agents)) * every_s
                if max(due_s, time.monotonic()) - began_s > budget_s:
                    return
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                head, body, frames = made(agents[index], first + turn)
                writer.write(head.encode() + body)
                status = await _status(reader)
                attained.statuses[status] = attained.statuses.get(status, 0) + 1
                if status == 200:
                    attained.done += 1
                    attained.frames += frames
        finally:
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(connection(number) for number in range(_CONNECTIONS)))
    attained.wall_s = time.monotonic() - began_s
    return attained


def _post(agent: FleetAgent, epoch: int) -> tuple[str, bytes, int]:
    body = agent.recording.post(agent.id, epoch)
    kind = "application/vnd.sluice.frames"
    return _head("/api/v1/telemetry/batches", agent, kind, body), body, len(agent.recording.epochs[epoch])


def _heartbeat(agent: FleetAgent, number: int) -> tuple[str, bytes, int]:
    body = json.dumps(agent.recording.heartbeat(number, time.time())).encode()
    return _head(f"/api/v1/agents/{agent.id}/heartbeat", agent, "application/json", body), body, 0


def _head(path: str, agent: FleetAgent, kind: str, body: bytes) -> str:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {agent.secret}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""])


async def _status(reader: asyncio.StreamReader) -> int:
    """Status of an answer whose body is read and left."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    lengths = [int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length")]
    if lengths:
        await reader.readexactly(lengths[0])
    elif "chunked" in head.lower():
        while size := int((await reader.readline()).strip(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return int(lines[0].split()[1])
