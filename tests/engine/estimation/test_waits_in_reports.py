"""Reports of queries that wait for windows, watermarks, triggers and buffers: terms, sums, what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate

TUMBLING = {"policy": "time", "type": "tumbling", "size": 10.0}
LATE = {**TUMBLING, "watermark_delay_s": 2.0, "allowed_lateness_s": 3.0}


def reported(*operators: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Report of query q, whose operators follow each other from a source of 50 events/s."""
    above, placed = "s", []
    for fields in operators:
        entry = {"from": above, "selectivity": 1.0, "cycles_per_event": 10.0, "cost_cv2": 1.0}
        placed.append({"query": "q", "node": "n", "inputs": [entry], **fields})
        above = fields["id"]
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [50] * 40}],
        "nodes": [{"id": "n", "capacity_cps": 1e6}],
        "operators": placed,
        "objectives": [{"query": "q", "statistic": "worst", "bound_s": 12.0}],
    }
    report: dict[str, Any] = estimate(Deployment.parse(document), **options).answer().to_dict()["queries"]["q"]
    return report


def terms(report: dict[str, Any]) -> dict[tuple[str, str], tuple[float, float]]:
    return {(term["operator"], term["kind"]): (term["worst_s"], term["mean_s"]) for term in report["waits"]}


def test_report_carries_window_watermark_and_lateness() -> None:
    report = reported({"id": "w", "window": LATE})
    found = terms(report)
    assert list(found) == [("w", "window"), ("w", "watermark"), ("w", "lateness")]
    assert found["w", "window"] == pytest.approx((10.0, 5.0), abs=0.05)
    assert found["w", "watermark"] == pytest.approx((2.0, 2.0), abs=0.15)
    assert found["w", "lateness"] == pytest.approx((3.0, 3.0), abs=0.05)
    assert report["estimate_s"] == pytest.approx(15.0, abs=0.2)
    assert report["mean_s"] == pytest.approx(10.0, abs=0.1)
    assert report["state"] == "breached"


def test_report_carries_trigger_and_batch() -> None:
    trigger = {"interval_s": 5.0, "overhead_s": 0.5}
    found = terms(reported({"id": "t", "trigger": trigger}))
    assert list(found) == [("t", "trigger"), ("t", "batch")]
    assert found["t", "trigger"] == pytest.approx((5.0, 2.5), abs=0.05)
    assert found["t", "batch"] == pytest.approx((0.5, 0.5), abs=0.01)


def test_report_carries_buffers_of_exchanges() -> None:
    found = terms(reported({"id": "a", "buffer_timeout_s": 0.1}, {"id": "b"}))
    assert found == {("a", "buffer"): pytest.approx((0.1, 0.05), abs=0.002)}


def test_waits_are_in_every_number_but_the_mean_path() -> None:
    held, free = reported({"id": "w", "window": LATE}), reported({"id": "w"})
    assert held["flow_s"] == free["flow_s"]
    for name, more_s in (("estimate_s", 15.0), ("worst_s", 15.0), ("under_s", 15.0), ("mean_s", 10.0)):
        assert held[name] - free[name] == pytest.approx(more_s, abs=0.2), name
    assert held["realised"]["q0.99"]["estimate_s"] == pytest.approx(14.9, abs=0.1)
    assert min(held["series"]["flow"]) == pytest.approx(15.0, abs=0.2)


def test_interval_of_a_mean_knows_where_events_fall_in_their_windows() -> None:
    figures = reported({"id": "w", "window": TUMBLING})["realised"]["mean"]
    error_s = 10.0 / 12.0**0.5 / 2000.0**0.5  # of 2,000 events spread over windows of 10 s
    assert figures["high_s"] - figures["estimate_s"] == pytest.approx(1.645 * error_s, rel=0.1)


def test_latency_from_the_windows_end_leaves_out_its_fill() -> None:
    report = reported({"id": "w", "window": {**LATE, "measured_from": "window_end"}})
    assert report["estimate_s"] == pytest.approx(5.0, abs=0.2)
    assert ("w", "window") not in terms(report)


def test_mean_path_alone_waits_as_well() -> None:
    report = reported({"id": "w", "window": TUMBLING}, intervals=False)
    assert report["basis"] == "mean_path"
    assert report["worst_s"] == pytest.approx(10.0, abs=0.05)


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        ({"id": "w", "kind": "window"}, "Windows of w are not described: their wait is not counted."),
        ({"id": "w", "window": TUMBLING}, "Windows of w: what closing one costs is counted as its events come."),
        (
            {"id": "w", "window": {**TUMBLING, "policy": "count", "size": 100}},
            "Windows of w count all events: by key, rare keys wait longer.",
        ),
        (
            {"id": "t", "trigger": {"interval_s": 5.0}},
            "Batches of t: what they take beyond their work (planning, commits) is not stated.",
        ),
    ],
)
def test_report_says_what_is_not_modelled(operator: dict[str, Any], sentence: str) -> None:
    assert sentence in reported(operator)["not_modelled"]


def test_report_of_a_query_without_holds_leaves_nothing_out() -> None:
    report = reported({"id": "a"})
    assert report["waits"] == [] and report["not_modelled"] == []
