"""Pauses between attempts: doubling, bounds, spread."""

from __future__ import annotations

import pytest

from engine.backoff import Backoff


def test_pauses_double_up_to_the_maximum_and_begin_again_after_a_reset() -> None:
    backoff = Backoff(0.25, 1.5)
    assert [backoff.next_s() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.25, 0.5]


def test_a_pause_that_the_other_side_asks_for_is_kept_and_does_not_grow_the_next_one() -> None:
    backoff = Backoff(1.0, 4.0)
    assert [backoff.next_s(at_least_s=30.0), backoff.next_s()] == [30.0, 2.0]


def test_another_maximum_holds_for_the_pause_it_is_given_with() -> None:
    backoff = Backoff(1.0, 2.0)
    assert [backoff.next_s(max_s=8.0) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff.next_s() == 2.0


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_pauses_are_spread_evenly_around_their_length(spread: float) -> None:
    pauses_s = [Backoff(1.0, 1.0, spread).next_s() for _ in range(500)]
    assert 1 - spread <= min(pauses_s) < 1 - spread / 2
    assert 1 + spread / 2 < max(pauses_s) <= 1 + spread
