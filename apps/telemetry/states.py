"""How an agent is, in a word, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.telemetry.choices import AgentState
from apps.telemetry.models import Agent

__all__ = ["SILENT_S", "AgentView", "agent_state"]

SILENT_S = 15.0  # after the last written heartbeat; one is written every five seconds
_IDLE = ("failed", "cannot listen", "no file yet", "not allowed")  # what a collector says when nothing comes of it
_NEAR = 0.9  # of the budget
_SETTLING_S = 30.0  # a change that has not settled by then does not
_SKEW_S = 1.0  # event times of clocks further apart blur the windows


@dataclass(frozen=True)
class AgentView:
    """An agent's state, why, and what else is worth knowing."""

    state: AgentState
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return str(self.state.label)


def agent_state(agent: Agent, now: datetime | None = None) -> AgentView:
    """The worst that is true of an agent."""
    if not agent.enabled:
        return AgentView(AgentState.DISABLED, ("disabled by hand: what it sends is refused",))
    if agent.last_seen is None:
        return AgentView(AgentState.NEVER, ("enrolled, and not heard of since",))
    silent_s = ((now or timezone.now()) - agent.last_seen).total_seconds()
    if silent_s > SILENT_S:
        return AgentView(AgentState.SILENT, (f"its last report came {silent_s:.0f} s ago",))
    says, notes = agent.heartbeat, tuple(_notes(agent))
    for state, reasons in (
        (AgentState.SPOOL, _spool(says.get("spool", {}))),
        (AgentState.OVERFLOW, _overflow(says)),
        (AgentState.NEAR, _budget(agent, says)),
        (AgentState.ADAPTING, _adapting(says)),
    ):
        if reasons:
            return AgentView(state, tuple(reasons), notes)
    return AgentView(AgentState.STEADY, (), notes)


def _spool(spool: Mapping[str, Any]) -> list[str]:
    words = {
        "filling": "is filling",
        "full": "is full: collectors wait or shed",
        "disk-full": "has no room on its disk",
    }
    if spool.get("state", "ok") not in words:
        return []
    held, limit = spool.get("bytes", 0) / 2**20, spool.get("limit_bytes", 0) / 2**20
    return [f"its spool {words[spool['state']]}: {held:,.1f} of {limit:,.0f} MiB"]


def _overflow(says: Mapping[str, Any]) -> list[str]:
    queries = [
        _name(row)
        for row in says.get("queries", ())
        if row.get("state") in ("overflowing", "congested") and not _on_the_move(row, says)
    ]
    shed = [f"{row['source']} sheds records" for row in says.get("collectors", ()) if row.get("state") == "shedding"]
    return [
        f"{query} sends records on unprocessed: its load factors are too high for the budget" for query in queries
    ] + shed


def _name(row: Mapping[str, Any]) -> str:
    """A query's name without its cluster's, which is the agent's own."""
    return str(row["query"]).partition("/")[2]


def _on_the_move(row: Mapping[str, Any], says: Mapping[str, Any]) -> bool:
    """Whether load factors have changed a moment ago and not settled yet; after that it is more than adapting."""
    last = row["changes"][-1] if row.get("changes") else None
    return last is not None and last["epochs"] is None and says.get("time", 0.0) - last["epoch_us"] / 1e6 < _SETTLING_S


def _adapting(says: Mapping[str, Any]) -> list[str]:
    return [
        f"{_name(row)}: {row.get('reason') or 'its load factors are being found'}"
        for row in says.get("queries", ())
        if _on_the_move(row, says)
    ]


def _budget(agent: Agent, says: Mapping[str, Any]) -> list[str]:
    used = says.get("cpu_cores", 0.0)
    if used < _NEAR * agent.budget_cores:
        return []
    return [f"it uses {used:.2f} of {agent.budget_cores:g} cores"]


def _notes(agent: Agent) -> Iterator[str]:
    says = agent.heartbeat
    if agent.clock_offset_s is not None and abs(agent.clock_offset_s) > _SKEW_S:
        way = "ahead of" if agent.clock_offset_s > 0 else "behind"
        yield f"its clock is {abs(agent.clock_offset_s):.1f} s {way} the console's"
    if says.get("config_version", 0) < agent.config_version:
        yield f"it runs configuration {says.get('config_version', 0)}, the current one is {agent.config_version}"
    yield from (str(fault) for fault in says.get("faults", ()))
    for row in says.get("queries", ()):
        yield from (f"{_name(row)}: {fault}" for fault in row.get("faults", ()))
        if refused := row.get("refused"):
            yield f"{_name(row)}: refuses {refused['config'] or 'a configuration'}: {'; '.join(refused['reasons'])}"
    for row in says.get("collectors", ()):
        if row.get("state") in _IDLE:
            yield f"{row['source']}: {row['state']}"
        yield from (f"{row['source']}: {fault}" for fault in row.get("faults", ()))
