"""Estimates: reports per query, intervals, bottleneck, states, alarm, quarter subintervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.arrays import event_quantile, nearest_rank, statistic_of
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.intervals import standard_error
from tests.engine.samples import chain, deployment, entry, operator


def document(bound_s: float = 10.0, statistic: str = "worst", spread: float = 0.0) -> dict[str, Any]:
    """Query q (f on A, g on B; f with eight batches) and a neighbour on A that is served first within a slice."""
    rng = np.random.default_rng(7)
    batches = [
        {"events": 100.0, "outputs": 50.0, "cycles": 100.0 * (1 + spread * rng.standard_normal())} for _ in range(8)
    ]
    return deployment(
        sources=[
            {"id": "s", "arrivals": [50, 150, 50, 0, 0, 0, 0, 0]},
            {"id": "t", "arrivals": [0, 50, 0, 0, 0, 0, 0, 0]},
        ],
        operators=[
            operator("h", "A", entry("t"), query="r"),
            operator("f", "A", entry("s", 0.5, 1.0, batches=batches), query="q"),
            operator("g", "B", entry("f", 1.0, 0.1), query="q", evidence={"kind": "assumed"}),
        ],
        objectives=[{"query": "q", "statistic": statistic, "bound_s": bound_s}],
    )


def test_report_names_the_bottleneck_and_its_operators() -> None:
    report = estimate(Deployment.parse(document())).queries["q"]
    assert report.bottleneck is not None
    result = report.bottleneck
    assert (result.server, result.node, result.from_p, result.to_p, result.at_p) == ("A", "A", 2, 2, 2)
    assert result.excess_s == pytest.approx(1.0)
    assert result.load_peak == pytest.approx(2.0)
    assert result.operators == ({"operator": "f", "share": 0.75}, {"operator": "h", "share": 0.25})
    assert report.estimate_s == pytest.approx(1.0)
    assert report.headroom_s == pytest.approx(9.0)
    assert report.worst_p == 2
    assert report.uncovered == ({"operator": "g", "input": "f", "evidence": "assumed"},)
    assert sum(hop.wait_s for hop in report.hops) == pytest.approx(report.worst_s)


def test_state_of_a_query_follows_from_its_objective() -> None:
    def state(bound_s: float) -> str:
        return estimate(Deployment.parse(document(bound_s, spread=0.05))).queries["q"].state

    assert [state(9.0), state(1.01), state(0.5)] == ["holds", "at_risk", "breached"]
    assert estimate(Deployment.parse(document())).queries["r"].state == "none"


def test_interval_is_three_standard_errors_plus_a_slice() -> None:
    reports = estimate(Deployment.parse(document())).queries
    # Batches that all agree leave the width of a slice.
    assert reports["q"].low_s == pytest.approx(0.0)
    assert reports["q"].high_s == pytest.approx(2.0)
    assert (reports["r"].low_s, reports["r"].high_s) == (None, None)
    wide = estimate(Deployment.parse(document(spread=0.2))).queries["q"]
    assert wide.high_s is not None
    assert wide.high_s > 2.05
    assert estimate(Deployment.parse(document()), intervals=False).queries["q"].high_s is None


def test_errors_of_a_large_deployment_come_from_coarser_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment.parse(document(spread=0.2) | {"subinterval_s": 0.25})
    fine = estimate(deployment, mace_every=4).queries["q"]
    monkeypatch.setattr("engine.estimation.estimate._LARGE", 0)
    steps: list[str] = []
    coarse = estimate(deployment, mace_every=4, progress=lambda share, step: steps.append(step)).queries["q"]
    assert any(step.startswith("Interval") for step in steps)
    assert coarse.estimate_s == fine.estimate_s
    assert fine.high_s is not None and coarse.high_s is not None
    assert coarse.high_s - coarse.estimate_s == pytest.approx(fine.high_s - fine.estimate_s, abs=0.05)
    assert coarse.series["high"] is not None and fine.series["high"] is not None
    assert coarse.series["high"].shape == fine.series["high"].shape
    assert estimate(deployment, mace_every=4, flow_slices=2).queries["q"].high_s is not None


def test_jackknife_error_of_a_mean_is_the_usual_standard_error() -> None:
    sample = np.array([1.0, 2.0, 4.0, 7.0])
    left_out = (sample.sum() - sample) / 3
    assert standard_error(left_out) == pytest.approx(sample.std(ddof=1) / 2)


def test_estimate_at_quarter_subintervals() -> None:
    result = estimate(Deployment.parse(document()), mace_every=4)
    assert result.coarse.subintervals == 2
    assert result.mace.load[0].tolist() == [300, 0]
    assert result.resolution_s == 1.0
    assert len(result.to_dict()["flow"]) == 2
    assert len(result.queries["q"].to_dict()["series"]["estimate"]) == 2


def test_queries_are_reported_by_input_and_the_plain_series_stays_plain() -> None:
    held_up = deployment(
        sources=[{"id": "u", "arrivals": [300, 0, 0, 0]}, {"id": "s", "arrivals": [0, 100, 0, 0]}],
        operators=[
            operator("h", "A", entry("u"), query="r"),
            operator("f", "A", entry("s"), query="q"),
            operator("g", "B", entry("s", 1.0, 0.1), entry("f", 1.0, 2.0), query="q"),
        ],
    )
    result = estimate(Deployment.parse(held_up)).to_dict()
    assert result["flow"] == pytest.approx([2, 2, 0, 0])
    assert result["flow_by_input"] == pytest.approx([2, 3, 0, 0])
    assert (result["flow_wc"], result["flow_by_input_wc"]) == (pytest.approx(2), pytest.approx(3))
    report = result["queries"]["q"]
    assert report["estimate_s"] == report["worst_s"] == pytest.approx(3)
    assert sum(hop["wait_s"] for hop in report["hops"]) == pytest.approx(3)


def test_estimate_below_the_resolution_is_flagged() -> None:
    quiet = document() | {"sources": [{"id": name, "arrivals": [10] * 8} for name in "st"]}
    report = estimate(Deployment.parse(quiet)).queries["q"]
    assert report.under_resolution
    assert report.resolution_s == 1.0


def test_nothing_is_claimed_below_the_step_of_counts() -> None:
    sources = [{"id": "s", "arrivals": [10] * 8, "arrivals_step_s": 4.0}, {"id": "t", "arrivals": [10] * 8}]
    coarse = Deployment.parse(document() | {"sources": sources})
    assert estimate(coarse).queries["q"].resolution_s == 4.0
    silent = [{**sources[0], "arrivals": [0] * 8}, sources[1]]
    assert estimate(Deployment.parse(document() | {"sources": silent})).queries["q"].resolution_s == 1.0


def test_alarm_is_raised_only_where_theorem_2_fails() -> None:
    alarm = estimate(Deployment.parse(chain(2, 2))).alarm
    assert alarm.untrusted
    assert alarm.flow_over_mace == pytest.approx(1.0, rel=1e-3)
    assert "2 sources on 2 nodes" in alarm.message
    assert not estimate(Deployment.parse(deployment())).alarm.untrusted


def test_quantiles_by_rank_and_by_events() -> None:
    values = np.arange(20.0)
    assert nearest_rank(values, 0.95) == 18
    weights = np.where(values == 3, 97.0, 1.0)
    assert event_quantile(values, weights, 0.5) == 3
    assert event_quantile(values, np.zeros(20), 0.5) is None
    assert statistic_of(values, np.zeros(20), "mean") == 0.0


def test_progress_rises_and_an_exception_from_it_ends_the_estimate() -> None:
    shares: list[float] = []
    estimate(Deployment.parse(document()), progress=lambda share, step: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0

    def stop(share: float, step: str) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        estimate(Deployment.parse(document()), progress=stop)


def test_empty_deployment_has_no_bottleneck_and_no_latency() -> None:
    empty = {"subinterval_s": 1.0, "subintervals": 2}
    result = estimate(Deployment.parse(empty)).to_dict()
    assert result["bottleneck"] is None
    assert result["flow_wc"] == 0.0
