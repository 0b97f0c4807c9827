"""A material measurement triggers an estimate at once, another one once a minute."""

from __future__ import annotations

import pytest

from engine.measurement.changes import MIN_PACE_S, LastEstimate, MeasuredChange, Pace, certain_move, combine_changes
from engine.measurement.statistics import SampleRatio

EASY = LastEstimate(processing_s=0.1, estimate_s=3.4, high_s=5.0, bound_s=10.0)


def test_small_change_waits_until_the_estimate_is_a_minute_old() -> None:
    small = MeasuredChange(moved=0.19)
    assert not Pace(0.0, [EASY]).is_due(small) and not Pace(MIN_PACE_S - 0.1, [EASY]).is_due(small)
    assert Pace(MIN_PACE_S, [EASY]).is_due(small)


def test_material_change_is_due_at_once() -> None:
    young = Pace(1.0, [EASY])
    assert young.is_due(MeasuredChange(first=True)) and young.is_due(MeasuredChange(moved=0.2))
    assert Pace(None).is_due(MeasuredChange())  # there is no estimate yet


@pytest.mark.parametrize(
    ("high_s", "estimate_s", "due"),
    [(None, 9.0, True), (None, 8.0, False), (9.5, 6.0, True), (11.0, 9.0, True), (11.0, 6.0, True), (12.0, 6.0, False)],
)
def test_change_that_may_turn_an_objectives_state_is_due_at_once(
    high_s: float | None, estimate_s: float, due: bool
) -> None:
    """Flow of 5 s moves by up to 1 s when a statistic moves by a tenth."""
    assert Pace(1.0, [EASY, LastEstimate(5.0, estimate_s, high_s, 10.0)]).is_due(MeasuredChange(moved=0.1)) is due


def test_no_change_is_never_due() -> None:
    assert not Pace(1.0, [LastEstimate(5.0, 10.0, None, 10.0)]).is_due(MeasuredChange())


def test_change_within_its_own_interval_counts_as_zero() -> None:
    assert certain_move(SampleRatio(1.3, 0.2, 100), 1.0) == 0.0
    assert certain_move(SampleRatio(1.3, 0.0, 100), 1.0) == pytest.approx(0.3)
    assert certain_move(SampleRatio(0.0, 0.0, 9), 0.0) == 0.0 and certain_move(SampleRatio(0.5, 0.0, 9), 0.0) == 1.0


def test_combined_changes_are_as_large_as_the_largest() -> None:
    assert combine_changes(
        [MeasuredChange(moved=0.1), MeasuredChange(first=True), MeasuredChange(moved=0.3)]
    ) == MeasuredChange(True, 0.3)
    assert combine_changes([]) == MeasuredChange()
