"""Estimates: reports per query, intervals, bottleneck, states, alarm, quarter subintervals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.arrays import event_quantile, nearest_rank, statistic_of, statistic_or_worst
from engine.document.deployment import Deployment
from engine.estimation.answer import EstimateAnswer, OperatorShare, UncoveredInput
from engine.estimation.estimate import estimate
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
    assert result.operators == (OperatorShare("f", 0.75), OperatorShare("h", 0.25))
    assert report.flow_s == pytest.approx(1.0)
    assert report.headroom_s == pytest.approx(10.0 - report.estimate_s)
    assert report.worst_p == 2
    assert report.uncovered == (UncoveredInput("g", "f", "assumed"),)
    assert sum(hop.wait_s for hop in report.hops) == pytest.approx(report.flow_s)


def test_state_of_a_query_follows_from_median_and_upper_end() -> None:
    figures = estimate(Deployment.parse(document(spread=0.05))).queries["q"]
    assert figures.low_s is not None and figures.high_s is not None
    between = (figures.estimate_s + figures.high_s) / 2.0

    def state(bound_s: float) -> str:
        return estimate(Deployment.parse(document(bound_s, spread=0.05))).queries["q"].state

    bounds = [1.01 * figures.high_s, between, 0.99 * figures.estimate_s, 0.99 * figures.low_s]
    assert [state(bound_s) for bound_s in bounds] == ["holds", "at_risk", "breached", "breached"]
    assert estimate(Deployment.parse(document())).queries["r"].state == "none"


@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.5", "q0.99", "q0.75"])
def test_numbers_of_a_query_are_those_of_the_realised_statistics(statistic: str) -> None:
    report = estimate(Deployment.parse(document(statistic=statistic))).queries["q"].answer().to_dict()
    own = report["realised"][statistic]
    assert (report["estimate_s"], report["low_s"], report["high_s"]) == (own["estimate_s"], own["low_s"], own["high_s"])
    medians = {name: figures["estimate_s"] for name, figures in report["realised"].items()}
    assert (report["worst_s"], report["mean_s"]) == (medians["worst"], medians["mean"])
    assert report["quantiles"] == {level: medians[f"q{level}"] for level in ("0.5", "0.9", "0.99")}
    assert report["basis"] == "realised" and report["level"] == 0.9
    assert 0.0 < medians["q0.5"] <= medians["q0.9"] <= medians["q0.99"]


def test_samples_that_differ_widen_the_interval() -> None:
    narrow, wide = (estimate(Deployment.parse(document(spread=spread))).queries["q"] for spread in (0.0, 0.5))
    assert narrow.low_s is not None and narrow.high_s is not None and wide.low_s is not None and wide.high_s is not None
    assert wide.high_s / wide.low_s > 1.2 * narrow.high_s / narrow.low_s


def test_mean_path_alone_has_no_interval_and_says_what_it_is() -> None:
    deployment = Deployment.parse(document())
    path = estimate(deployment, intervals=False)
    report = path.queries["q"]
    assert path.answer().to_dict()["basis"] == report.basis == "mean_path"
    assert (report.low_s, report.high_s, report.under_s, report.noise) == (None, None, None, None)
    assert report.estimate_s == report.worst_s == report.flow_s == pytest.approx(1.0)
    assert report.mean_s is None, "of a mean of 0.3 s nothing is known in slices of 1 s"
    assert path.realised().answer().to_dict() == estimate(deployment).answer().to_dict()


def test_mean_of_a_query_without_events_is_unknown() -> None:
    silent = document() | {"sources": [{"id": "s", "arrivals": [0] * 8}, {"id": "t", "arrivals": [0] * 8}]}
    report = estimate(Deployment.parse(silent)).queries["q"]
    assert report.standing.kind == "unknown"
    assert "No event comes to its end: s" in report.standing.sentence
    assert replace(report, bound_s=1e6).state == "unknown"
    assert replace(report, bound_s=1e-9).state == "breached"
    assert replace(report, bound_s=1e6).headroom_s is None


def test_a_wait_is_part_of_every_statistic_of_a_report() -> None:
    waits = {"worst": 4.0, "mean": 2.0, "q0.5": 1.0, "q0.9": 3.0, "q0.99": 3.5}
    plain = estimate(Deployment.parse(document(bound_s=4.5, statistic="q0.9"))).queries["q"]
    late = plain.delayed(waits.__getitem__, margin_s=0.25)
    assert (plain.state, late.state) == ("holds", "breached") or plain.estimate_s + 3.0 <= 4.5
    assert late.estimate_s == pytest.approx(plain.estimate_s + 3.0)
    assert late.high_s == pytest.approx((plain.high_s or 0.0) + 3.25)
    assert late.low_s == pytest.approx((plain.low_s or 0.0) + 2.75)
    assert late.worst_s == pytest.approx(plain.worst_s + 4.0)
    assert late.mean_s == pytest.approx((plain.mean_s or 0.0) + 2.0)
    assert late.quantiles["0.5"] == pytest.approx((plain.quantiles["0.5"] or 0.0) + 1.0)
    assert late.under_s == pytest.approx((plain.under_s or 0.0) + 4.25)
    assert late.flow_s == plain.flow_s
    assert late.series["flow"] == pytest.approx(plain.series["flow"] + 3.0)
    path = estimate(Deployment.parse(document()), intervals=False).queries["q"].delayed(waits.__getitem__)
    assert (path.estimate_s, path.mean_s, path.high_s) == (pytest.approx(5.0), None, None)


def test_estimate_at_quarter_subintervals() -> None:
    result = estimate(Deployment.parse(document()), mace_every=4)
    assert result.coarse.subintervals == 2
    assert result.mace.load[0].tolist() == [300, 0]
    assert result.resolution_s == 1.0
    assert len(result.answer().to_dict()["flow"]) == 2
    assert len(result.queries["q"].answer().to_dict()["series"]["flow"]) == 2


def test_queries_are_reported_by_input_and_the_plain_series_stays_plain() -> None:
    held_up = deployment(
        sources=[{"id": "u", "arrivals": [300, 0, 0, 0]}, {"id": "s", "arrivals": [0, 100, 0, 0]}],
        operators=[
            operator("h", "A", entry("u"), query="r"),
            operator("f", "A", entry("s"), query="q"),
            operator("g", "B", entry("s", 1.0, 0.1), entry("f", 1.0, 2.0), query="q"),
        ],
    )
    result = estimate(Deployment.parse(held_up)).answer().to_dict()
    assert result["flow"] == pytest.approx([2, 2, 0, 0])
    assert result["flow_by_input"] == pytest.approx([2, 3, 0, 0])
    assert (result["flow_wc"], result["flow_by_input_wc"]) == (pytest.approx(2), pytest.approx(3))
    report = result["queries"]["q"]
    assert report["flow_s"] == pytest.approx(3) == max(report["series"]["flow"])
    assert sum(hop["wait_s"] for hop in report["hops"]) == pytest.approx(3)


def test_nothing_is_under_less_than_counts_and_interval_allow() -> None:
    quiet = document() | {"sources": [{"id": name, "arrivals": [10] * 8} for name in "st"]}
    report = estimate(Deployment.parse(quiet)).queries["q"]
    assert report.estimate_s < report.under_s == report.resolution_s == 1.0
    late = estimate(Deployment.parse(document())).queries["q"]
    assert late.under_s == late.high_s is not None


def test_nothing_is_claimed_below_the_step_of_counts() -> None:
    sources = [{"id": "s", "arrivals": [10] * 8, "arrivals_step_s": 4.0}, {"id": "t", "arrivals": [10] * 8}]
    coarse = Deployment.parse(document() | {"sources": sources})
    report = estimate(coarse).queries["q"]
    assert report.resolution_s == 4.0 and report.under_s is not None and report.under_s >= 4.0
    silent = [{**sources[0], "arrivals": [0] * 8}, sources[1]]
    assert estimate(Deployment.parse(document() | {"sources": silent})).queries["q"].resolution_s == 1.0


def test_alarm_is_raised_only_where_theorem_2_fails() -> None:
    alarm = estimate(Deployment.parse(chain(2, 2))).alarm
    assert alarm.untrusted
    assert alarm.flow_over_mace == pytest.approx(1.0, rel=1e-3)
    assert "2 sources on 2 nodes" in str(alarm.message)
    assert not estimate(Deployment.parse(deployment())).alarm.untrusted


def test_quantiles_by_rank_and_by_events() -> None:
    values = np.arange(20.0)
    assert nearest_rank(values, 0.95) == 18
    weights = np.where(values == 3, 97.0, 1.0)
    assert event_quantile(values, weights, 0.5) == 3
    assert event_quantile(values, np.zeros(20), 0.5) is None
    for statistic in ("worst", "mean", "q0.9"):
        assert statistic_of(values, np.zeros(20), statistic) is None
        assert statistic_or_worst(values, np.zeros(20), statistic) == 19.0


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
    result = estimate(Deployment.parse(empty)).answer().to_dict()
    assert result["bottleneck"] is None
    assert result["flow_wc"] == 0.0


@pytest.mark.parametrize("scheduling", [None, "fcfs", "klink"])
def test_answer_reads_back_as_it_was_written(scheduling: str | None) -> None:
    sources = [{"id": "s", "arrivals": [2] * 8, "backlog": {"behind_s": 3.0}}, {"id": "t", "arrivals": [1] * 8}]
    answer = estimate(Deployment.parse(document() | {"sources": sources, "scheduling": scheduling})).answer()
    for written in (answer.to_dict(), answer.facts.to_dict()):
        assert EstimateAnswer.parse(json.loads(json.dumps(written))).to_dict() == written
    assert not {"mace", "servers", "queries", "operators"} & answer.facts.to_dict().keys()
