"""States of an epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.jarvis.adaptation.control import EpochState, epoch_state
from engine.jarvis.settings import AdaptationSettings
from tests.engine.jarvis.epochs import epoch, worked

SETTINGS = AdaptationSettings(drained_thres=0.05, idle_thres=0.10)
HALF = worked(500, load_factor=0.5, records_in=1_000, drained=500, cpu_s=0.95)


def left(overflow: int):
    return replace(HALF, processed=500 - overflow, overflow=overflow)


def test_planned_drain_is_not_congestion():
    assert epoch_state(epoch(HALF), SETTINGS) is EpochState.STABLE


@pytest.mark.parametrize(("overflow", "state"), [(50, EpochState.STABLE), (51, EpochState.CONGESTED)])
def test_epoch_is_congested_above_the_overflow_threshold(overflow, state):
    assert epoch_state(epoch(left(overflow)), SETTINGS) is state


def test_one_congested_operator_makes_the_epoch_congested():
    assert epoch_state(epoch(HALF, left(60)), SETTINGS) is EpochState.CONGESTED


@pytest.mark.parametrize(("cpu_s", "state"), [(0.90, EpochState.STABLE), (0.89, EpochState.IDLE)])
def test_epoch_is_idle_above_the_unused_budget_threshold(cpu_s, state):
    assert epoch_state(epoch(replace(HALF, cpu_s=cpu_s)), SETTINGS) is state


def test_epoch_with_everything_at_the_source_is_not_idle():
    assert epoch_state(epoch(worked(1_000), worked(1_000)), SETTINGS) is EpochState.STABLE


def test_epoch_without_records_or_budget_is_not_idle():
    assert epoch_state(epoch(replace(HALF, records_in=0, processed=0, cpu_s=0)), SETTINGS) is EpochState.STABLE
    assert epoch_state(epoch(HALF, budget_s=0.0), SETTINGS) is EpochState.STABLE
