"""Labels of epochs: the wall clock made monotone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.runtime.interface import EpochLabels
from tests.agent.runtime.doubles import ManualClock

SECOND_NS = 1_000_000_000


def test_a_step_back_is_slewed_until_the_wall_has_caught_up():
    clock = ManualClock()
    labels = EpochLabels(clock)
    before = labels.now_us()
    clock.step_s(-60)
    seen = []
    for _ in range(1000):
        clock.pass_s(1)
        seen.append(labels.now_us())
    steps = [later - earlier for earlier, later in zip([before, *seen], seen, strict=False)]
    assert set(steps[:500]) == {900_000}
    assert seen[-1] == clock.wall_us()


def test_clock_skew_is_reported_until_the_wall_clock_has_caught_up():
    clock = ManualClock()
    labels = EpochLabels(clock)
    labels.now_us()
    assert labels.fault == ""
    clock.step_s(-60)
    labels.now_us()
    assert labels.fault == "clock stepped back: epochs are 60.0 s ahead of it, 600 s to catch up"
    clock.pass_s(450)
    labels.now_us()
    assert labels.fault == "clock stepped back: epochs are 15.0 s ahead of it, 150 s to catch up"
    clock.pass_s(150)
    labels.now_us()
    assert labels.fault == ""


def test_a_step_forward_is_one_label():
    clock = ManualClock()
    labels = EpochLabels(clock)
    before = labels.now_us()
    clock.step_s(86_400)
    clock.pass_s(1)
    assert labels.now_us() - before == 86_401_000_000
    assert labels.fault == ""


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 10)), max_size=50))
def test_labels_always_grow(steps):
    clock = ManualClock()
    labels = EpochLabels(clock)
    last = labels.now_us()
    for step_s, passed_s in steps:
        clock.step_s(step_s)
        clock.pass_s(passed_s)
        label = labels.now_us()
        assert label > last
        last = label


def test_labels_go_on_after_the_last_one_of_an_earlier_start():
    clock = ManualClock()
    assert EpochLabels(clock, last_us=clock.wall_us() + 5).now_us() == clock.wall_us() + 6
