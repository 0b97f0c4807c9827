"""Figures of how agents share their cores, as REST shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import fmean
from typing import Any

from apps.fleet.models import Cluster
from apps.refinement.schedule_states import schedules_of
from apps.refinement.showing import AgentSchedule
from apps.scheduling.lines import QueryLine, tail
from apps.scheduling.selectors import lines_of, memory_of, parts_running
from apps.telemetry.configs import EPOCH_S
from apps.telemetry.models import Agent

__all__ = ["MOST_AGENTS", "MOST_EPOCHS", "agent_facts", "cluster_facts", "lines_since"]

MOST_AGENTS = 100  #: of one answer, the first by name
MOST_EPOCHS = 100_000  #: of all queries together, that are read for one answer
_REPORTED = ("mode", "reason", "memory_bytes", "memory_bound", "cycle_ms", "starved")


def lines_since(states: Sequence[AgentSchedule], now: datetime, last_s: float) -> dict[str, list[QueryLine]]:
    """By agent's id the queries that run there, with what they recorded in the last seconds by the agent's clock."""
    since = {
        str(state.agent.pk): round(
            (now - timedelta(seconds=last_s - (state.agent.clock_offset_s or 0.0))).timestamp() * 1e6
        )
        for state in states
    }
    settings = {str(state.agent.pk): state.settings for state in states}
    return lines_of([state.agent for state in states], since, settings)


def cluster_facts(cluster: Cluster, now: datetime, last_s: float, agent: str = "") -> dict[str, Any]:
    """Of each agent, or of the one that is named, how its queries shared its core in the last seconds."""
    states = [state for state in schedules_of(cluster).values() if agent in ("", state.agent.name)]
    shown = states[: _fitting(cluster, states, last_s)]
    lines = lines_since(shown, now, last_s)
    return {
        "cluster": cluster.slug,
        "last_s": last_s,
        "agents": [_agent(state, lines[str(state.agent.pk)]) for state in shown],
        "left_out": len(states) - len(shown),
    }


def _fitting(cluster: Cluster, states: Sequence[AgentSchedule], last_s: float) -> int:
    """How many agents one answer may be of; at least one."""
    queries = Counter(parts_running(cluster).values_list("agent", flat=True))
    epochs = accumulate(queries[state.agent.pk] * last_s / EPOCH_S for state in states[:MOST_AGENTS])
    return max(1, sum(total <= MOST_EPOCHS for total in epochs))


def agent_facts(agent: Agent, now: datetime, last_s: float) -> dict[str, Any] | None:
    """Of one agent, epoch by epoch: which query ran when, slack, windows and memory; None where it runs none."""
    state = schedules_of(agent.cluster).get(str(agent.pk))
    if state is None:
        return None
    lines = lines_since([state], now, last_s)[str(agent.pk)]
    return {
        **_agent(state, lines),
        "last_s": last_s,
        "memory": memory_of(lines),
        "timeline": [
            {
                "query": line.name,
                "epochs": [
                    [row.epoch_us, [list(span) for span in row.spans], row.slack_s, row.queued] for row in line.rows
                ],
                "sweeps": [list(one) for one in line.sweeps],
            }
            for line in lines
        ],
    }


def _agent(state: AgentSchedule, lines: Sequence[QueryLine]) -> dict[str, Any]:
    report: Mapping[str, Any] = state.report
    return {
        "agent": state.agent.name,
        "agent_id": str(state.agent.pk),
        "policy": state.policy or None,
        **{name: report.get(name) for name in _REPORTED},
        "config": state.config or None,
        "wanted": state.wanted or None,
        "behind": state.behind,
        "canary": state.canary,
        "refused": list(state.refused),
        "settings": dict(state.settings.to_dict()),
        **_windows(lines),
        "queries": [_query(line) for line in lines],
    }


def _windows(lines: Sequence[QueryLine]) -> dict[str, Any]:
    """How late windows were, and how many of their watermarks came when they were expected."""
    latencies = [one.latency_s for line in lines for one in line.sweeps]
    judged = [one for line in lines for one in line.judged]
    return {
        "windows": len(latencies),
        "latency_mean_s": fmean(latencies) if latencies else None,
        "latency_p99_s": tail(latencies),
        "expected_windows": len(judged),
        "hit_rate": sum(bool(one.is_hit) for one in judged) / len(judged) if judged else None,
    }


def _query(line: QueryLine) -> dict[str, Any]:
    return {
        "query": line.name,
        "period_s": line.period_s,
        "backlog_s": line.backlog_s,
        "queued": line.queued,
        "queued_bytes": line.queued_bytes,
        "slack_s": line.slack_s,
        "deadline_us": line.deadline_us,
        "expected": line.expected._asdict() if line.expected else None,
        "overflow": sum(row.overflow for row in line.rows),
        "late": line.late,
        **_windows([line]),
    }
