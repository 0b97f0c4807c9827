"""Heartbeats: the report of an agent every two seconds. Little of it is written to the database."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from agent.wire import broker
from apps.core.clock import shared_now
from apps.core.errors import Missing
from apps.core.events import announce
from apps.telemetry.agents.directory import plans_of
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.ingest.epochs import epochs_add
from apps.telemetry.ingest.streams import stream_client
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_state
from engine.rollouts.epochs import EpochRow

__all__ = ["HEARTBEAT_S", "agent_heartbeat"]


HEARTBEAT_S = 2.0
WRITE_S = 5.0  # a row is written no more often, unless the agent's state has changed
ANNOUNCE_S = 2.0
_GENERATIONS = 4  # of one agent are remembered
_SAMPLES = 8


@dataclass
class _AgentMemory:
    """State of an agent that this process keeps between heartbeats."""

    written: float = 0.0
    state: str = ""
    version: int = 0
    refined: Mapping[str, tuple[Any, Any]] | None = None
    offsets: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


_log = logging.getLogger(__name__)
_heard: dict[str, _AgentMemory] = {}
_announced: dict[str, float] = {}
_lock = threading.Lock()


def agent_heartbeat(*, agent_id: str, says: Mapping[str, Any]) -> dict[str, Any]:
    """Take a heartbeat; the answer holds the time, the version of the configuration, and the progress of the frames.

    `accepted_seq` is null while Redis does not answer: nobody knows then. `committed_seq` is what the database knows to
    be behind the stream processor's checkpoint, so that an agent drops nothing that a lost Redis would ask for again.
    """
    present = shared_now()
    now = present.timestamp()
    rows = {row["query"]: row["epochs"] for row in says.get("queries", ()) if row.get("epochs")}
    says = {**says, "queries": [_without_epochs(row) for row in says.get("queries", ())]}
    agent = Agent.objects.select_related("cluster").filter(pk=agent_id).first()
    if agent is None:
        raise Missing("The agent was deleted. Enrol it again with a token.")
    memory = _heard.setdefault(agent_id, _AgentMemory())
    accepted, committed = _progress(agent, says)
    if accepted is not None:  # else Redis is away
        _store_epochs(agent_id, rows)
    agent.heartbeat, agent.life, agent.last_seen = dict(says), says["life"], present
    agent.clock_offset_s = _offset(memory, says["time"] - now)
    agent.version = says["version"]
    lives = {**agent.committed, agent.life: committed}
    state = agent_state(agent).state
    refined = _refined(says)
    acknowledged = refined != memory.refined
    version = says.get("config_version", 0)
    changed = acknowledged or (state, version) != (memory.state, memory.version)
    if changed or time.monotonic() - memory.written >= WRITE_S:
        memory.written = time.monotonic()
        memory.state, memory.version, memory.refined = state, version, refined
        agent.committed = {life: lives[life] for life in list(lives)[-_GENERATIONS:]}
        agent.save(update_fields=["heartbeat", "life", "last_seen", "clock_offset_s", "version", "committed"])
        if acknowledged:
            config_acknowledged.send_robust(Agent, agent=agent)
        _announce(agent.cluster.slug, changed)
    return {
        "time": now,
        "config_version": agent.config_version,
        "accepted_seq": accepted,
        "committed_seq": agent.committed.get(agent.life, 0),
    }


def _without_epochs(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "epochs"}


def _store_epochs(agent: str, rows: Mapping[str, Sequence[EpochRow]]) -> None:
    """Store epochs of queries with an assignment of the agent, present or past."""
    if not rows:
        return
    mine = plans_of(agent)
    try:
        epochs_add(agent, {query: own for query, own in rows.items() if query in mine})
    except redis.RedisError as error:
        _log.warning("epochs of agent %s are not stored: %s", agent, error)


def _refined(says: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Acknowledgements by query, and of the schedule under an empty name: versions in force and last refused."""
    rows = {row["query"]: row for row in says["queries"]} | {"": says.get("schedule") or {}}
    return {name: (row.get("refined"), row.get("refused")) for name, row in rows.items()}


def _progress(agent: Agent, says: Mapping[str, Any]) -> tuple[int | None, int]:
    """Accepted and committed sequence numbers. Frames the agent was told are committed it has dropped already."""
    floor = max(agent.committed.get(says["life"], 0), says.get("committed_seq", 0))
    try:
        progress = broker.generation_progress(stream_client(), str(agent.pk), says["life"], floor)
    except redis.RedisError:
        return None, floor
    return progress.accepted_seq, progress.committed_seq


def _offset(memory: _AgentMemory, sample: float) -> float:
    """Clock skew: the agent's clock minus ours. Each sample is too low by its request's duration: the highest is best.

    A clock set forward shows at once, one set back when the samples before it are forgotten.
    """
    memory.offsets.append(sample)
    return max(memory.offsets)


def _announce(cluster: str, changed: bool) -> None:
    """Tell open pages of a changed state at once, of new numbers every few seconds."""
    with _lock:
        now = time.monotonic()
        if not changed and now - _announced.get(cluster, 0.0) < ANNOUNCE_S:
            return
        _announced[cluster] = now
    announce(f"telemetry:{cluster}")
