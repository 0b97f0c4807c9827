"""Queries as their agent's scheduler sees them."""

from __future__ import annotations

import time

import pytest

from apps.rollouts.scheduled_queries import memory_of, scheduled_queries
from apps.telemetry.live_services import assignment_set
from apps.telemetry.models import Agent, AgentKind
from apps.telemetry.selectors import agents_scheduling
from tests.apps.rollouts.schedule_epochs import S, agent_with_two, epochs

pytestmark = pytest.mark.django_db


def test_figures_of_each_query() -> None:
    agent, (slow, quick) = agent_with_two()
    now_s = time.time()
    epochs(agent, slow, now_s=now_s)
    rows = epochs(agent, quick, now_s=now_s)
    key, since = str(agent.pk), {str(agent.pk): round((time.time() - 300) * 1e6)}
    second, first = scheduled_queries([agent], since)[key]
    assert (first.name, first.period_s, second.name, second.period_s) == ("s2s", 10.0, "quick", 2.0)
    assert (first.queued, first.queued_bytes, first.slack_s, first.backlog_s) == (7, 602, 0.8, pytest.approx(3.3))
    assert len(first.sweeps) == 6
    assert len(second.sweeps) == 30
    assert first.latency_mean_s == first.latency_p99_s == 1.5
    assert (first.hit_rate, first.is_off, first.late) == (1.0, False, "")
    assert first.deadline_us == first.sweeps[-1].deadline_us + 10 * S
    assert first.ran_s(0) == pytest.approx(60 * 0.02)
    memory = memory_of([first, second])
    assert [moment for moment, _ in memory] == [row.epoch_us for row in rows]
    assert {held for _, held in memory} == {1204}


def test_query_without_reports_has_no_figures() -> None:
    agent, _ = agent_with_two()
    line = scheduled_queries([agent], {str(agent.pk): 0})[str(agent.pk)][0]
    assert (line.queued, line.slack_s, line.deadline_us, line.hit_rate, line.latency_p99_s) == (None,) * 5


def test_agents_sharing_a_core_are_listed() -> None:
    agent, lives = agent_with_two()
    assert [agent.name for agent in agents_scheduling(agent.cluster)] == ["a1"]
    for live in lives:
        assignment_set(live=live, agent=agent, enabled=False)
    assert not agents_scheduling(agent.cluster)
    assignment_set(live=lives[0], agent=agent, enabled=True)
    Agent.objects.update(kind=AgentKind.PRODUCER)
    assert not agents_scheduling(agent.cluster)
