"""Stored answers of estimates that tests state in a few fields."""

from __future__ import annotations

from typing import Any

from apps.estimates.answers import AppliedCalibration, LiveParts, StoredEstimate
from engine.latency_state import KNOWN
from engine.measurement.trust import UNJUDGED


def stored(**fields: Any) -> StoredEstimate:
    """An estimate of a worst case of 4 s, under an objective of 5 s."""
    figures: dict[str, Any] = {
        "statistic": "worst", "bound_s": 5.0, "basis": "realised", "estimate_s": 4.0, "low_s": 3.5, "high_s": 4.5,
        "level": 0.9, "worst_s": 4.0, "mean_s": None, "quantiles": {}, "flow_s": 4.0, "under_s": 4.6,
        "resolution_s": 1.0, "mace_s": 4.0, "worst_p": 1, "bottleneck": None, "hops": (), "uncovered": (), "waits": (),
        "standing": KNOWN, "state": "holds", "headroom_s": 1.0, "headroom_share": 0.2,
    }  # fmt: skip
    return StoredEstimate(**figures | fields)


def live_parts(**fields: Any) -> LiveParts:
    """Parts of 9 s of processing, an epoch of 1 s and a trigger of 2 s."""
    parts: dict[str, Any] = {
        "processing_s": 9.0, "epoch_s": 1.0, "trigger_s": 2.0, "overhead_s": 0.0, "work_s": 0.0, "margin_s": 0.0,
        "interval_s": 2.0, "mean_work_s": 0.0, "upper_s": 5.0, "evidence": "measured",
    }  # fmt: skip
    return LiveParts(**parts | fields)


def widening(upper: float) -> AppliedCalibration:
    """Intervals whose upper sides were scaled by a factor of the query's own runs."""
    return AppliedCalibration("live", "measured", True, 1.0, upper, 60, "query", (3.5, 4.5), (3.5, 4.5), UNJUDGED)
