"""Calibration: a plausible, repeatable figure."""

from __future__ import annotations

import pytest

from engine.calibration import calibrate


def test_two_calibrations_agree_and_are_plausible() -> None:
    first, second = calibrate(0.2), calibrate(0.2)
    assert 2e8 < first.capacity_cps < 1e10
    assert second.capacity_cps == pytest.approx(first.capacity_cps, rel=0.3)
    assert first.cores >= 1
    assert "CPU time" in first.method


def test_calibration_refuses_seconds_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"seconds is 0; allowed: 0.05 to 60"):
        calibrate(0)
