"""Chunks of a run: what was counted is told apart by chunk, and scored second by second."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.testbed.chunks import ChunkScore, chunk_scores
from lab.testbed.testbed import missing_needs

needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")


def _score(measured_s: list[float]) -> ChunkScore:
    series = np.array([1.0, 2.0, 4.0])
    return ChunkScore(
        number=2,
        mace_worst_s=3.0,
        estimate={"worst": 4.0},
        interval={"worst": (3.5, 4.5)},
        measured={"worst": float(np.nanmax(measured_s))},
        mace_s=series - 1.0,
        upper_s=series + 1.0,
        flow_s=series,
        measured_s=np.array(measured_s),
    )


def test_seconds_without_results_count_nowhere() -> None:
    score = _score([1.25, math.nan, 4.4])
    assert score.within == 1.0 and score.held == 1
    assert score.relative_errors == pytest.approx([0.2, 1 / 11])
    assert score.correlation == pytest.approx(1.0)


def test_a_second_outside_its_bounds_is_seen_and_shares_of_short_latencies_are_not_told() -> None:
    score = _score([0.5, 3.5, 5.5])
    assert score.within == pytest.approx(1 / 3)
    assert score.held == 0
    assert score.relative_errors == pytest.approx([1 - 2.0 / 3.5, 1 - 4.0 / 5.5])


@needs_testbed
@pytest.mark.process
def test_chunks_of_a_run_are_predicted_from_its_first() -> None:
    scores = list(chunk_scores(1, seconds=6.0, seed=3))
    assert [score.number for score in scores] == [1, 2, 3]
    for score in scores:
        assert score.flow_s.shape == score.measured_s.shape == score.mace_s.shape == (6,)
        assert 0.0 < score.measured["mean"] <= score.measured["q0.99"] <= score.measured["worst"]
        assert np.nanmax(score.measured_s) == score.measured["worst"]
        assert all(low <= score.estimate[name] <= high for name, (low, high) in score.interval.items())
