"""The benchmark of predictions that hold: its queues are exact, and its figures tell the two estimates apart."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.honesty import _served, judge_class, main


def test_queue_is_served_first_come_first_served() -> None:
    left = _served(np.array([0.0, 1.0, 1.5, 9.0]), np.array([2.0, 1.0, 1.0, 0.5]))
    assert left.tolist() == [2.0, 3.0, 4.0, 9.5]


def test_randomness_explains_waits_below_saturation() -> None:
    row = judge_class("M/M/1", "0.25 s", sampled=False, count=16, seed=2)
    with_noise, alone = np.median(np.abs(row.errors), axis=2)
    assert with_noise[2] < 0.2 < 1.0 < alone[2]
    assert np.nanmean(row.held[0]) > 0.8 and np.isnan(row.held[1]).all()


def test_missed_targets_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--systems", "16"]) == 1
    told = capsys.readouterr().out
    assert "on-off, 5 min, exact: worst: error" in told and "wrong 'under'" in told
