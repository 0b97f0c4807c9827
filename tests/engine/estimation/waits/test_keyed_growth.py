"""Results of windows by key at more load than their statistics were measured at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import DocumentError
from engine.estimation.waits.holds import KeyedGrowth
from tests.engine.estimation.waits.systems import TUMBLING, deployment, operator, waits_of

KEYS, MEASURED = 1000.0, 1500.0  # of a window of 10 s at 150 events/s
SHARE = KEYS * -np.expm1(-MEASURED / KEYS) / MEASURED


def window_at(factor: float, share: float = SHARE, *, measured: bool = True) -> Any:
    """A window whose results take 300 us each, at so many times its measured load."""
    fields: dict[str, Any] = TUMBLING | {"work_at": "close"} | ({"measured_events": MEASURED} if measured else {})
    cost = 300.0 * share  # cycles of an event, of 1e6/s
    return waits_of(
        deployment([operator("w", "s", selectivity=share, cost=cost, window=fields)], s=[150 * factor] * 120)
    )


@pytest.mark.parametrize("factor", [2.0, 5.0, 8.0])
def test_interval_holds_constant_keys_and_growth_in_proportion(factor: float) -> None:
    now_s, waits = window_at(1.0).longest_s - 10.0, window_at(factor)
    margin = waits.margin("worst")
    middle_s = waits.longest_s + margin.shift_s
    assert waits.longest_s - 10.0 == pytest.approx(factor * now_s, rel=0.02)  # no event waits longer
    assert middle_s - margin.below_s - 10.0 == pytest.approx(now_s, rel=0.35, abs=0.02)
    assert middle_s + margin.above_s - 10.0 == pytest.approx(factor * now_s, rel=0.1)
    assert now_s < middle_s - 10.0 < factor * now_s


def test_load_that_was_measured_is_as_before() -> None:
    assert window_at(1.0).longest_s == window_at(1.0, measured=False).longest_s


def test_share_of_keys_that_come_alike_is_between_the_ends() -> None:
    growth, draws = KeyedGrowth.of(10.0, MEASURED, SHARE), np.array([0.0, 0.5, 1.0])
    assert growth.keys == pytest.approx(KEYS)
    results = growth.shares(np.full(3, 8 * MEASURED), draws) * SHARE * 8 * MEASURED
    assert results == pytest.approx([SHARE * MEASURED, KEYS, SHARE * 8 * MEASURED], rel=1e-4)
    assert growth.shares(np.full(3, MEASURED / 2), draws) == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("share", [1.0, 2.5])
def test_as_many_results_as_events_are_bounded_by_no_key(share: float) -> None:
    shares = KeyedGrowth.of(10.0, MEASURED, share).shares(np.full(2, 9 * MEASURED), np.array([0.0, 1.0]))
    assert shares == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("window", [{"policy": "count"}, {"type": "session"}])
def test_other_windows_have_no_measured_load(window: dict[str, Any]) -> None:
    operators = [operator("w", "s", window=TUMBLING | {"measured_events": MEASURED} | window)]
    with pytest.raises(DocumentError, match="measured_events is 1500"):
        deployment(operators, s=[1.0])
