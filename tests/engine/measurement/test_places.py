"""Subintervals gathered to whole slides of a window: what comes once per window then has an error of its own."""

from __future__ import annotations

import numpy as np
import pytest

from engine.measurement.places import block_s, gather_blocks
from engine.measurement.statistics import OperatorSample, estimate_statistic

WINDOW_S, WIDTH_S = 10.0, 4.0


def probes(count: int, *, delay_s: float = 3.0, per_s: float = 60.0, rows: float = 6.0, noise: float = 0.0) -> list:
    """Steady events in subintervals of 4 s; each window of 10 s puts its rows out some seconds after its end."""
    rng = np.random.default_rng(3)
    samples = []
    for k in range(count):
        begin, end = k * WIDTH_S, (k + 1) * WIDTH_S
        ends = [w * WINDOW_S + delay_s for w in range(count)]
        events = per_s * WIDTH_S * (1.0 + noise * float(rng.standard_normal()))
        put_out = rows * sum(begin <= at < end for at in ends)
        samples.append(OperatorSample(begin, events, put_out, 1000.0 * events))
    return samples


def of_blocks(samples: list, **more: object) -> list[OperatorSample]:
    return gather_blocks(samples, width_s=WIDTH_S, block=block_s(WINDOW_S, WIDTH_S), **more)


def known_to(samples: list[OperatorSample]) -> float:
    relative = estimate_statistic(samples, reference_s=0.0).selectivity.relative
    assert relative is not None
    return relative


@pytest.mark.parametrize(
    ("slide", "width", "expected"),
    [
        (10.0, 4.0, 20.0),
        (10.0, 10.0, 10.0),
        (60.0, 10.0, 60.0),
        (10.0, 60.0, 60.0),
        (10.0, 9.5, 100.0),
        (1.0, 2.5, 5.0),
    ],
)
def test_block_length_is_a_multiple_of_slide_and_subinterval(slide: float, width: float, expected: float) -> None:
    assert block_s(slide, width) == expected


def test_blocks_give_a_small_error_for_steady_windows() -> None:
    samples = probes(30, noise=0.03)
    assert known_to(samples) > 0.3  # one by one: no length of the sample helps
    assert known_to(of_blocks(samples)) < 0.05
    ratio = estimate_statistic(of_blocks(samples), reference_s=0.0).selectivity.value
    assert ratio == pytest.approx(6.0 / 600.0, rel=0.05)


def test_varying_events_keep_their_error_in_blocks() -> None:
    assert known_to(of_blocks(probes(60, noise=0.5))) > 0.05


def test_incomplete_blocks_are_left_out() -> None:
    blocks = of_blocks(probes(14)[1:])
    assert [block.at_s for block in blocks] == [20.0]
    assert blocks[0].events == pytest.approx(1200.0) and blocks[0].outputs == 12.0


def test_less_than_one_block_gives_one_sample_without_error() -> None:
    result = estimate_statistic(of_blocks(probes(4)), reference_s=0.0)
    assert result.subintervals == 1 and result.selectivity.error is None and result.events == pytest.approx(960.0)


def test_blocks_of_a_disturbed_period_are_left_out() -> None:
    assert [of_block.at_s for of_block in of_blocks(probes(25), without=[(5.0, 21.0), (60.0, 61.0)])] == [40.0, 80.0]


def test_no_samples_give_no_blocks() -> None:
    assert of_blocks([]) == []
