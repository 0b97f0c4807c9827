"""Queries that put nothing out: what one event would meet, and the upper end of a rate that a sample saw nothing of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.probes import probe_deployment
from engine.estimation.query_flow import flow_queries
from tests.engine.samples import entry, operator

BURST = [20.0] * 100 + [300.0] * 20 + [20.0] * 180


def alarms(selectivity: float, *, evidence: dict[str, Any] | None = None, batches: int = 0) -> dict[str, Any]:
    """A filter of alarms on a node that a burst overloads three times, and what tells of them."""
    entry: dict[str, Any] = {"from": "s", "selectivity": selectivity, "cycles_per_event": 1, "cost_cv2": 1.0}
    if batches:
        entry["batches"] = [{"events": 100, "outputs": 0, "cycles": 100} for _ in range(batches)]
    detect: dict[str, Any] = {"id": "detect", "query": "alarms", "node": "n1", "kind": "filter", "inputs": [entry]}
    if evidence:
        detect["evidence"] = evidence
    notify = {"id": "notify", "query": "alarms", "node": "n1", "kind": "sink"}
    notify["inputs"] = [{"from": "detect", "selectivity": 1, "cycles_per_event": 1, "cost_cv2": 1.0}]
    return {
        "subinterval_s": 1,
        "sources": [{"id": "s", "arrivals": BURST}],
        "nodes": [{"id": "n1", "capacity_cps": 100}],
        "operators": [detect, notify],
        "objectives": [{"query": "alarms", "statistic": "worst", "bound_s": 5}],
    }


MEASURED = {"kind": "measured", "events": 800}


def report_of(document: dict[str, Any], query: str = "alarms", **options: Any) -> Any:
    return estimate(Deployment.parse(document), **options).queries[query]


@pytest.mark.parametrize("document", [alarms(0.0, evidence=MEASURED, batches=8), alarms(0.0, batches=8)])
def test_filter_that_let_none_of_800_through_is_as_late_as_one_that_lets_few(document: dict[str, Any]) -> None:
    few, none = report_of(alarms(1e-4, evidence=MEASURED)), report_of(document)
    assert none.estimate_s == pytest.approx(few.estimate_s, rel=0.05)
    assert none.state == few.state == "breached"
    assert none.standing.is_known
    assert "None of 800 sampled events came through detect" in none.standing.sentence
    assert none.standing.sentence in (none.answer().not_modelled or ())


def test_rate_that_nobody_measured_is_unknown_even_where_one_event_would_be_in_time() -> None:
    document = alarms(0.0)
    assert report_of(document).state == "breached"  # any event would be late
    document["objectives"][0]["bound_s"] = 600
    report = report_of(document)
    assert (report.state, report.headroom_s) == ("unknown", None)
    assert "detect lets nothing through" in report.standing.sentence
    assert report.estimate_s == pytest.approx(report_of(alarms(1e-4)).estimate_s, rel=0.05)


@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.99"])
@pytest.mark.parametrize("intervals", [True, False])
def test_no_statistic_of_no_events_is_zero(statistic: str, intervals: bool) -> None:
    document = alarms(0.0)
    document["objectives"][0] |= {"statistic": statistic, "bound_s": 1e-6}
    report = report_of(document, intervals=intervals)
    assert report.estimate_s > 1e-6
    assert report.state == "breached"


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": [{"id": "s", "arrivals": [0] * 300}]},
        {"operators": [{"id": "o", "query": "alarms", "node": "n1", "inputs": []}]},
        {"operators": [{"id": "o", "query": "alarms", "node": "n1", "inputs": [
            {"from": "s", "model": {"output": [0, 0, 0], "cycles": [0, 1, 0]}}]}]},
    ],
)  # fmt: skip
def test_query_without_events_is_never_said_to_hold(changes: dict[str, Any]) -> None:
    report = report_of(alarms(0.5) | changes)
    assert report.state in ("unknown", "breached")
    assert report.standing.kind == "unknown"


def test_silent_query_meets_what_its_neighbour_leaves_waiting() -> None:
    document = alarms(0.5)
    document["sources"].append({"id": "t", "arrivals": [0] * 300})
    document["operators"].append(operator("quiet", "n1", entry("t", 1.0, 1.0), query="quiet"))
    document["objectives"].append({"query": "quiet", "statistic": "worst", "bound_s": 5})
    report = report_of(document, "quiet")
    assert report.state == "breached"  # 40 s of work of its neighbour's wait there
    assert report.estimate_s > 30


def test_measured_branch_without_events_counts_beside_one_with_events() -> None:
    document = alarms(0.0, evidence=MEASURED)
    document["nodes"].append({"id": "n2", "capacity_cps": 1e6})
    document["operators"].append(operator("archive", "n2", entry("s", 1.0, 1.0), query="alarms"))
    assert report_of(document).state == "breached"
    document["operators"][0].pop("evidence")  # said, not measured: believed beside what does come out
    assert report_of(document).state == "holds"


def test_sink_that_puts_nothing_out_is_where_events_end() -> None:
    document = alarms(0.5)
    document["operators"][1]["inputs"][0]["selectivity"] = 0
    with_output = report_of(alarms(0.5))
    report = report_of(document)
    assert report.standing.is_known and not report.standing.sentence
    assert report.estimate_s == pytest.approx(with_output.estimate_s)


def test_probe_leaves_a_deployment_with_events_as_it_is() -> None:
    deployment = Deployment.parse(alarms(0.5))
    assert probe_deployment(deployment).deployment is deployment


def test_probe_changes_nothing_of_the_arithmetic_of_mace_and_plain_flow() -> None:
    result = estimate(Deployment.parse(alarms(0.0))).answer().to_dict()
    assert result["event_mean"] is None
    assert not np.any(result["sink_events"])
    assert result["flow_wc"] == 0.0


def test_flow_of_a_silent_query_is_no_zero() -> None:
    flowed = flow_queries(Deployment.parse(alarms(0.0)))
    assert flowed.value_s("alarms", "mean") > 1.0
    assert flowed.standings["alarms"].kind == "unknown"


def test_plan_that_is_not_understood_in_full_makes_a_latency_unknown() -> None:
    document = alarms(0.5)
    document["objectives"][0]["bound_s"] = 1e4
    assert report_of(document).state == "holds"
    document["operators"][0]["unread"] = ["Match: its results wait for the events that complete a pattern"]
    report = report_of(document)
    assert report.state == "unknown" and "complete a pattern" in report.standing.sentence
    document["objectives"][0]["bound_s"] = 1e-6  # what is told alone is over it
    assert report_of(document).state == "breached"
