"""Pipelines with windows and micro-batches: realised latencies against events that are simulated one by one.

No recorded run of such a pipeline tells the latency of its results, so the simulator is the yardstick. It lets windows
go when the watermark passes their end, as the engines document it, and knows nothing of the estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.reports import QueryReport
from tests.engine.estimation.waits.systems import case_of, simulated

pytestmark = pytest.mark.slow  # whichever comes first simulates for all

RUNS = 12
HELD = 10  # of the runs: an interval that holds 90 % holds fewer once in nine draws
PHASES_S = [(run + 0.37) / RUNS * 10.0 for run in range(RUNS)]
CASES = ("ad_campaigns", "ad_campaigns_wave", "micro_batches", "micro_batches_busy")
STATISTICS: dict[str, Callable[[FloatArray], float]] = {
    "worst": np.max,
    "mean": np.mean,
    "q0.99": lambda values: float(np.quantile(values, 0.99, method="inverted_cdf")),
}


@cache
def report_of(name: str) -> QueryReport:
    (report,) = estimate(Deployment.parse(case_of(name))).queries.values()
    return report


@cache
def runs_of(name: str) -> list[FloatArray]:
    return list(simulated(case_of(name), PHASES_S))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("name", CASES)
def test_interval_holds_what_is_realised(name: str, statistic: str) -> None:
    report = report_of(name)
    assert report.noise is not None
    figures = report.noise.statistics[statistic]
    values = [float(STATISTICS[statistic](latencies_s)) for latencies_s in runs_of(name)]
    held = sum(figures.low_s <= value <= figures.high_s for value in values)
    assert held >= HELD, (figures, values)
    assert figures.estimate_s == pytest.approx(float(np.median(values)), rel=0.01)
    assert figures.high_s - figures.low_s < 0.05 * figures.estimate_s  # an interval that says something


@pytest.mark.parametrize("name", CASES)
def test_no_latency_is_above_what_all_are_said_to_be_under(name: str) -> None:
    report = report_of(name)
    assert report.under_s is not None
    longest_s = max(float(latencies_s.max()) for latencies_s in runs_of(name))
    assert longest_s <= report.under_s < 1.2 * longest_s


@pytest.mark.parametrize("name", ["ad_campaigns", "ad_campaigns_wave"])
def test_results_come_when_the_watermark_passes_the_windows_end(name: str) -> None:
    operators = case_of(name)["operators"]
    window = next(operator["window"] for operator in operators if "window" in operator)
    closed_s = window["size"] + window["watermark_delay_s"] + window.get("allowed_lateness_s", 0.0)
    for latencies_s in runs_of(name):
        assert closed_s <= latencies_s.max() < closed_s + 0.1
        assert closed_s - window["size"] <= latencies_s.min()


def test_event_that_just_missed_a_trigger_waits_for_the_next_batch_to_end() -> None:
    trigger = case_of("micro_batches")["operators"][0]["trigger"]
    for latencies_s in runs_of("micro_batches"):
        assert latencies_s.max() > trigger["interval_s"] + trigger["overhead_s"]
        assert latencies_s.min() > trigger["overhead_s"]
