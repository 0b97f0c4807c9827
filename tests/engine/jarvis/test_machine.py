"""States of an epoch and phases of the runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.jarvis.controlling import Phase, QueryState
from engine.jarvis.machine import DETECT_EPOCHS, Machine, query_state
from engine.jarvis.settings import Settings
from tests.engine.jarvis.adapting_stories import epoch, worked

SETTINGS = Settings(drained_thres=0.05, idle_thres=0.10)
HALF = worked(500, load_factor=0.5, records_in=1_000, drained=500, cpu_s=0.95)


def left(overflow: int):
    return replace(HALF, processed=500 - overflow, overflow=overflow)


def test_planned_drain_is_no_congestion():
    assert query_state(epoch(HALF), SETTINGS) is QueryState.STABLE


@pytest.mark.parametrize(("overflow", "state"), [(50, QueryState.STABLE), (51, QueryState.CONGESTED)])
def test_congested_above_the_threshold_of_overflow(overflow, state):
    assert query_state(epoch(left(overflow)), SETTINGS) is state


def test_one_congested_operator_is_enough():
    assert query_state(epoch(HALF, left(60)), SETTINGS) is QueryState.CONGESTED


@pytest.mark.parametrize(("cpu_s", "state"), [(0.90, QueryState.STABLE), (0.89, QueryState.IDLE)])
def test_idle_above_the_threshold_of_unused_budget(cpu_s, state):
    assert query_state(epoch(replace(HALF, cpu_s=cpu_s)), SETTINGS) is state


def test_what_runs_everything_here_is_not_idle():
    assert query_state(epoch(worked(1_000), worked(1_000)), SETTINGS) is QueryState.STABLE


def test_what_has_no_records_or_no_budget_is_not_idle():
    assert query_state(epoch(replace(HALF, records_in=0, processed=0, cpu_s=0)), SETTINGS) is QueryState.STABLE
    assert query_state(epoch(HALF, budget_s=0.0), SETTINGS) is QueryState.STABLE


def test_every_phase_is_reached_and_three_unstable_epochs_come_before_profiling():
    machine, idle, stable = Machine(), QueryState.IDLE, QueryState.STABLE
    assert machine.phase is Phase.STARTUP
    assert [machine.after(idle) for _ in range(DETECT_EPOCHS)] == [Phase.PROBE] * DETECT_EPOCHS
    assert [machine.after(one) for one in (idle, stable, idle, idle)] == [
        Phase.PROFILE,
        Phase.ADAPT,
        Phase.ADAPT,
        Phase.ADAPT,
    ]
    assert machine.after(stable) is Phase.PROBE


def test_unstable_epochs_must_come_in_a_row():
    machine = Machine()
    states = [QueryState.CONGESTED, QueryState.CONGESTED, QueryState.STABLE] * 5
    assert {machine.after(one) for one in states} == {Phase.PROBE}
