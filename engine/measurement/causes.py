"""Causes of late results: the stage of the measured chain that explains them, else the estimate's busiest server.

References: the chain and its thresholds are in docs/models/measurement.md, "Causes".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from engine.records import Omitted, Record
from engine.solvers import solving

__all__ = [
    "AGENT_SHEDS",
    "AGENT_SILENT",
    "AGENT_STARVED",
    "ENGINE_AWAY",
    "FRAMES_WAITING",
    "LIVE_ENDED",
    "MAIN_WAIT",
    "MIN_LOAD",
    "MIN_SHARE",
    "NODE_BUSY",
    "SOURCE_SILENT",
    "STREAM_AWAY",
    "STREAM_BEHIND",
    "UNEXPLAINED",
    "WATERMARK_HELD",
    "AgentReport",
    "BusyServer",
    "LatenessCause",
    "StreamReport",
    "busy_server_cause",
    "lateness_causes",
    "unobserved_cause",
]

STREAM_AWAY, STREAM_BEHIND, AGENT_SILENT, FRAMES_WAITING, AGENT_STARVED, SOURCE_SILENT, WATERMARK_HELD = (
    "stream_away",
    "stream_behind",
    "agent_silent",
    "frames_waiting",
    "agent_starved",
    "source_silent",
    "watermark_held",
)
#: Of an estimate alone: a server, a wait beside the queues; and of a measurement that nothing reported explains.
NODE_BUSY, MAIN_WAIT, UNEXPLAINED = "node_busy", "main_wait", "unexplained"
#: Of an incident alone: it makes nothing late, but nothing is measured there either.
ENGINE_AWAY = "engine_away"
#: Beside some of the others, why a query cannot be observed: its records are shed, or its live part ended by a fault.
AGENT_SHEDS, LIVE_ENDED = "agent_sheds", "live_ended"

MIN_SHARE = 0.25  #: of the latency that a delay in seconds has to make up before it explains it
MIN_LOAD = 0.7  #: of capacity at the peak: a server below it makes nothing late
_MAX_TRIGGERS = 2.0  # a stream processor that keeps up is at most so many behind
_STARVED = 0.9  # of an agent's CPU budget
_IDLE_STREAM = frozenset({"away", "failed", "starting", "stopping", "warming"})
_BY_SECONDS = frozenset({STREAM_BEHIND, AGENT_SILENT, FRAMES_WAITING})


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Report of the stream processor: its state, the age of its oldest waiting frame, frames, trigger, batch."""

    state: str
    behind_s: float | None = None
    frames: int = 0
    trigger_s: float | None = None
    batch_s: float | None = None


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Report of an agent or relay that takes part in a query.

    `silent_s` is the age of its last report where that is too old, `delay_s` how long its frames took to be
    acknowledged lately, `spool` the state of its spool, `idle` its collectors that collect nothing: (source, state),
    `shedding` the sources whose records it sheds. One that has not reported yet is not `heard`.
    """

    name: str
    is_relay: bool = False
    silent_s: float | None = None
    delay_s: float | None = None
    frames: int = 0
    spool: str = "ok"
    used_cores: float = 0.0
    budget_cores: float = 0.0
    overflowing: bool = False
    idle: tuple[tuple[str, str], ...] = ()
    shedding: tuple[str, ...] = ()
    heard: bool = True


@dataclass(frozen=True, slots=True)
class BusyServer:
    """The busiest server of an estimate: its load at the peak as a share of capacity, and its excess in seconds."""

    name: str
    load_peak: float
    excess_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LatenessCause(Record):
    """A cause: its kind, whom it is about, the seconds it explains where they are known, and a figure or a state.

    `amount` is frames that wait, cores used or load; `limit` the cores of a budget; `state` a report's own word.
    """

    TITLE: ClassVar[str] = "a cause of lateness"

    kind: str
    subject: Annotated[str, Field(exclude_if=lambda name: not name)] = ""
    seconds: Omitted[float] = None
    amount: Omitted[float] = None
    limit: Omitted[float] = None
    state: Annotated[str, Field(exclude_if=lambda word: not word)] = ""


def lateness_causes(
    latency_s: float,
    stream: StreamReport,
    agents: Sequence[AgentReport],
    *,
    watermark_behind_s: float | None = None,
    waiting_for: Sequence[str] = (),
    server: BusyServer | None = None,
) -> list[LatenessCause]:
    """Causes of a measured latency, the one to name first; `unexplained` alone where nothing reported explains it.

    A stream processor that does not run comes first, then delays by how many seconds of the latency they make up, then
    what slows without a figure, from the agents' budget to the sources, then agents that hold the watermark back. The
    estimate's busiest server is named only where none of these is.

    Examples
    --------
    >>> ready = StreamReport("ready", behind_s=71.0, frames=4812, trigger_s=2.0)
    >>> [cause.kind for cause in lateness_causes(78.7, ready, [AgentReport("agent-1")])]
    ['stream_behind']
    >>> calm = StreamReport("ready", behind_s=1.0, trigger_s=2.0)
    >>> lateness_causes(78.7, calm, [], server=BusyServer("stream", 0.03))[0].kind
    'unexplained'
    """
    solving()
    found = [*_of_stream(stream), *_of_agents(agents), *_of_watermark(watermark_behind_s, waiting_for)]
    kept = [cause for cause in found if cause.seconds is None or cause.seconds >= MIN_SHARE * latency_s]
    if kept:
        return sorted(kept, key=_place)
    return [(server and busy_server_cause(server)) or LatenessCause(UNEXPLAINED)]


def unobserved_cause(stream: StreamReport, agents: Sequence[AgentReport]) -> LatenessCause | None:
    """Why nothing can be observed of a live query at present; None where its whole chain is at work.

    A stream processor that is not ready, be it that nobody can ask it, then agents that do not report, then those that
    shed records, of which no result tells.

    Examples
    --------
    >>> unobserved_cause(StreamReport("failed"), []).kind
    'stream_away'
    >>> unobserved_cause(StreamReport("ready"), [AgentReport("agent-1", shedding=("orders",))])
    LatenessCause(kind='agent_sheds', subject='agent-1', seconds=None, amount=None, limit=None, state='orders')
    """
    if stream.state != "ready":
        return LatenessCause(STREAM_AWAY, state=stream.state)
    for agent in agents:
        if agent.silent_s is not None or not agent.heard:
            return LatenessCause(AGENT_SILENT, agent.name)
    for agent in agents:
        if agent.shedding:
            return LatenessCause(AGENT_SHEDS, agent.name, state=", ".join(agent.shedding))
    return None


def busy_server_cause(server: BusyServer) -> LatenessCause | None:
    """The server as a cause; None where its load makes nothing late."""
    if server.load_peak < MIN_LOAD and server.excess_s <= 0.0:
        return None
    return LatenessCause(NODE_BUSY, server.name, amount=server.load_peak)


def _place(cause: LatenessCause) -> tuple[int, float]:
    if cause.kind == STREAM_AWAY:
        return 0, 0.0
    if cause.kind == WATERMARK_HELD:
        return 3, 0.0
    return (1, -cause.seconds) if cause.kind in _BY_SECONDS and cause.seconds is not None else (2, 0.0)


def _of_stream(stream: StreamReport) -> Iterator[LatenessCause]:
    if stream.state in _IDLE_STREAM:
        yield LatenessCause(STREAM_AWAY, state=stream.state)
    elif stream.behind_s is not None and stream.behind_s > _MAX_TRIGGERS * (stream.trigger_s or 0.0):
        yield LatenessCause(STREAM_BEHIND, seconds=stream.behind_s, amount=float(stream.frames))


def _of_agents(agents: Sequence[AgentReport]) -> Iterator[LatenessCause]:
    for agent in agents:
        if agent.silent_s is not None:
            yield LatenessCause(AGENT_SILENT, agent.name, seconds=agent.silent_s)
            continue  # what it reported before is no longer so
        word = "relay" if agent.is_relay else "agent"
        if agent.spool != "ok":
            yield LatenessCause(FRAMES_WAITING, agent.name, amount=float(agent.frames), state=word)
        elif agent.delay_s is not None and agent.delay_s > 0.0:
            yield LatenessCause(
                FRAMES_WAITING, agent.name, seconds=agent.delay_s, amount=float(agent.frames), state=word
            )
    for agent in (agent for agent in agents if agent.silent_s is None):
        if agent.overflowing or (agent.budget_cores > 0.0 and agent.used_cores >= _STARVED * agent.budget_cores):
            yield LatenessCause(AGENT_STARVED, agent.name, amount=agent.used_cores, limit=agent.budget_cores)
    for agent in (agent for agent in agents if agent.silent_s is None):
        for source, state in agent.idle:
            yield LatenessCause(SOURCE_SILENT, source, state=f"{state} at {agent.name}")


def _of_watermark(behind_s: float | None, waiting_for: Sequence[str]) -> Iterator[LatenessCause]:
    if behind_s is not None and waiting_for:
        yield LatenessCause(WATERMARK_HELD, ", ".join(waiting_for), seconds=behind_s)
