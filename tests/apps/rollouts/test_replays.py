"""Replay of another policy over an agent's recorded epochs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from apps.core.errors import Impossible, Malformed
from apps.rollouts.replays import recording_of, replay_latest, replay_of, replay_request
from apps.rollouts.scheduled_queries import scheduled_queries
from apps.telemetry.models import Agent
from engine.klink.settings import POLICIES
from tests.apps.rollouts.schedule_epochs import S, agent_with_two, epochs
from tests.apps.small_cluster import run_jobs

pytestmark = pytest.mark.django_db


def refused(agent: Agent) -> dict[str, str]:
    with pytest.raises(Impossible) as told:
        replay_request(agent=agent)
    assert told.value.code == "too_little_recorded"
    return {fault.path: fault.message for fault in told.value.faults}


def test_same_arrivals_are_replayed_under_each_policy() -> None:
    (agent, lives), now_s = agent_with_two(), time.time()
    for live in lives:
        epochs(agent, live, now_s=now_s)
    job = replay_request(agent=agent)
    assert replay_of(job) is None
    (job,) = run_jobs()
    assert job.state == "succeeded", job.error
    found = replay_of(replay_latest(agent))
    assert (found.agent, found.epochs, found.windows, found.notes) == ("a1", 60, 36, ())
    assert set(found.policies) == set(POLICIES)
    for figures in found.policies.values():
        assert figures.records == 12_000
        assert set(figures.queries) == {"s2s", "quick"}
        assert figures.queries["quick"].windows >= 25
        assert 1.2 <= figures.mean_s < 5.0  # not before the watermark


def test_replay_document_holds_the_recorded_arrivals() -> None:
    (agent, (slow, quick)), now_s = agent_with_two(), time.time()
    epochs(agent, slow, now_s=now_s)
    rows = epochs(agent, quick, now_s=now_s, overflow=50, used_s=0.03)
    lines = scheduled_queries([agent], {str(agent.pk): 0})[str(agent.pk)]
    found = recording_of("a1", lines)
    one, two = (next(row for row in found.queries if row.id == name) for name in ("s2s", "quick"))
    assert (one.cost_ms, two.cost_ms) == (pytest.approx(0.2), pytest.approx(0.6))  # of those worked on
    assert (one.arrivals, one.period_ms, one.record_bytes) == ((100,) * 60, 10_000.0, 86.0)
    assert set(two.delays_ms) == {1200.0}
    first_us = found.since_us + 1e3 * two.first_ms
    assert (first_us % 2_000_000, first_us - found.since_us < 2_000_000) == (0, True)
    assert found.cores == pytest.approx(0.15 - 0.02 + 0.05)  # what one could have had, and what the other used
    gaps = [replace(line, rows=line.rows[::2]) if line.name == "quick" else line for line in lines]
    assert any(note.startswith("quick: 50 % of the epochs are missing") for note in recording_of("a1", gaps).notes)
    assert rows[0].epoch_us == found.since_us


def test_too_short_recording_is_refused_with_reasons() -> None:
    agent, (slow, quick) = agent_with_two()
    assert refused(agent) == {"s2s": "no epoch is recorded", "quick": "no epoch is recorded"}
    now_s = time.time()
    epochs(agent, slow, seconds=12, now_s=now_s)
    found = refused(agent)
    assert found["epochs"] == "12 epochs are recorded; at least 30 are needed"
    epochs(agent, quick, records_in=0, sweeps=(), now_s=now_s)
    assert refused(agent)["quick"] == "no record came"


def test_epochs_of_an_adjusted_clock_are_refused() -> None:
    agent, (slow, quick) = agent_with_two()
    now_s = time.time()
    epochs(agent, slow, now_s=now_s)
    epochs(agent, quick, now_s=now_s)
    lines = scheduled_queries([agent], {str(agent.pk): 0})[str(agent.pk)]
    year_us = 365 * 86_400 * S
    ahead = [replace(row, epoch_us=row.epoch_us + year_us) for row in lines[0].rows[-10:]]
    with pytest.raises(Impossible) as told:
        recording_of("a1", [replace(lines[0], rows=[*lines[0].rows, *ahead]), lines[1]])
    (fault,) = told.value.faults
    assert (fault.path, fault.message) == (
        "epochs", "they span 31,536,060 epochs; at most 960 are possible, so its clock was adjusted meanwhile"
    )  # fmt: skip


def test_far_windows_are_ignored_and_generations_may_begin_between_epochs() -> None:
    agent, (slow, quick) = agent_with_two()
    now_s = time.time()
    epochs(agent, slow, now_s=now_s)
    epochs(agent, quick, now_s=now_s)
    lines = scheduled_queries([agent], {str(agent.pk): 0})[str(agent.pk)]
    line = next(line for line in lines if line.name == "quick")
    rows, (sweep,) = list(line.rows), next(row.sweeps for row in line.rows if row.sweeps)
    rows[-1] = replace(rows[-1], sweeps=(sweep._replace(deadline_us=sweep.deadline_us + 10 * 365 * 86_400 * S),))
    rows[-2] = replace(rows[-2], epoch_us=rows[-3].epoch_us + S // 2)
    found = recording_of("a1", [replace(line, rows=rows), *(line for line in lines if line.name != "quick")])
    query = next(query for query in found.queries if query.id == "quick")
    assert len(query.delays_ms) <= 30
    assert sum(query.arrivals) == 6_000


def test_query_without_windows_is_replayed_without_latencies() -> None:
    agent, (slow, _) = agent_with_two()
    now_s = time.time()
    epochs(agent, slow, sweeps=(), now_s=now_s)
    assert refused(agent)["windows"] == "0 windows were swept in 60 epochs; at least 3 are needed"


def test_replay_request_is_checked() -> None:
    agent, _ = agent_with_two()
    with pytest.raises(Malformed) as told:
        replay_request(agent=agent, policies=("lifo",), schedule={"cycle_ms": 1}, last_s=5)
    assert {fault.path for fault in told.value.faults} == {"policies[0]", "schedule.cycle_ms", "last_s"}
