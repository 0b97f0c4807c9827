"""Key groups over subtasks: as Flink assigns them, with hot keys, and with fewer subtasks than now."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parallelism.key_groups import busiest_share, default_groups, group_shares, hot_share


@given(st.integers(1, 300), st.sampled_from([1, 7, 128, 720]))
def test_shares_are_those_of_the_groups_of_each_subtask(parallelism: int, groups: int) -> None:
    held = [0] * parallelism
    for group in range(groups):
        held[group * parallelism // groups] += 1  # subtask of a group, by Flink's own rule
    assert group_shares(parallelism, groups) == pytest.approx([count / groups for count in held])
    assert max(held) == -(-groups // min(parallelism, groups)) or parallelism > groups


def test_more_subtasks_than_groups_take_no_share_off_the_busiest() -> None:
    assert busiest_share(128, 128) == busiest_share(200, 128) == 1 / 128
    assert busiest_share(96, 128) == busiest_share(127, 128) == 2 / 128


def test_hot_key_stays_whole_however_many_subtasks_there_are() -> None:
    shares = (0.55, 0.15, 0.15, 0.15)  # a key of 40 % beside even ones
    assert hot_share(shares) == pytest.approx(0.4)
    assert busiest_share(4, 128, shares) == pytest.approx(0.55)
    assert busiest_share(64, 128, shares) == pytest.approx(0.4 + 0.6 / 64)


def test_fewer_subtasks_take_over_the_ranges_of_several() -> None:
    assert busiest_share(2, 128, (0.3, 0.3, 0.2, 0.2)) == pytest.approx(0.6)
    assert busiest_share(1, 128, (0.9, 0.1)) == pytest.approx(1.0)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=9), st.integers(1, 40))
def test_busiest_share_is_at_least_an_even_one_and_at_most_all(weights: list[float], parallelism: int) -> None:
    shares = [weight / sum(weights) for weight in weights]
    assert 1 / parallelism - 1e-12 <= busiest_share(parallelism, default_groups(parallelism), shares) <= 1.0 + 1e-12
