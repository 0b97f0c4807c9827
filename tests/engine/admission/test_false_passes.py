"""False passes of admission: nothing comes out, nothing catches up, a later start that only moves the trouble."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import AdmissionDecision, command, decide
from engine.command_options import AdmitOptions
from engine.document.deployment import Deployment

BURST = [20.0] * 100 + [300.0] * 20 + [20.0] * 180


def running(arrivals: list[float], **more: Any) -> dict[str, Any]:
    return {
        "subinterval_s": 1,
        "sources": [{"id": "s", "arrivals": arrivals}],
        "nodes": [{"id": "n1", "capacity_cps": 100}],
        "operators": [],
        **more,
    }


def alarms(selectivity: float, sampled: float | None = 800, bound_s: float = 5) -> dict[str, Any]:
    evidence = {"evidence": {"kind": "measured", "events": sampled}} if sampled else {}
    entry = {"from": "s", "selectivity": selectivity, "cycles_per_event": 1, "cost_cv2": 1.0}
    notify = {"from": "detect", "selectivity": 1, "cycles_per_event": 1, "cost_cv2": 1.0}
    return {
        "query": "alarms",
        "objective": {"statistic": "worst", "bound_s": bound_s},
        "operators": [
            {"id": "detect", "node": "n1", "kind": "filter", **evidence, "inputs": [entry]},
            {"id": "notify", "node": "n1", "kind": "sink", **evidence, "inputs": [notify]},
        ],
    }


def load(cycles: float, bound_s: float, source: str = "s", **more: Any) -> dict[str, Any]:
    entry = {"from": source, "selectivity": 1, "cycles_per_event": cycles, "cost_cv2": 0.1}
    operators = [{"id": "o", "node": "n1", "inputs": [entry]}]
    return {"query": "x", "objective": {"statistic": "worst", "bound_s": bound_s}, "operators": operators, **more}


def decision(document: dict[str, Any], candidate: dict[str, Any], **options: Any) -> AdmissionDecision:
    return decide(Deployment.parse(document), candidate, **options)


def codes(result: AdmissionDecision) -> set[str]:
    return {reason.code for reason in result.reasons}


@pytest.mark.parametrize("selectivity", [0.0, 1e-4])
def test_alarm_that_seldom_or_never_came_is_rejected_for_the_burst_it_waits_in(selectivity: float) -> None:
    result = decision(running(BURST), alarms(selectivity))
    assert result.verdict == "reject"
    own = result.effects[-1]
    assert own.after_s == pytest.approx(40.0, abs=1.0)
    assert own.standing.kind == "known"
    assert ("rate_bounded" in codes(result)) == (selectivity == 0.0)
    assert result.robustness is None


def test_latency_that_nobody_knows_is_for_a_person() -> None:
    result = decision(running([20.0] * 100), alarms(0.0, sampled=None))
    assert result.verdict == "review"
    assert "latency_unknown" in codes(result)
    assert "all_hold" not in codes(result)
    assert result.effects[-1].after_state == "unknown"


def test_neighbour_that_puts_nothing_out_is_made_late_all_the_same() -> None:
    document = running([20.0] * 300, objectives=[{"query": "quiet", "statistic": "mean", "bound_s": 1}])
    entry = {"from": "s", "selectivity": 0, "cycles_per_event": 1}
    document["operators"] = [{"id": "q", "query": "quiet", "node": "n1", "inputs": [entry]}]
    document["sources"].append({"id": "t", "arrivals": BURST})
    result = decision(document, load(1, bound_s=600, source="t"))
    assert result.verdict == "reject"
    assert "neighbour_breached" in codes(result)
    before, _ = result.effects
    assert (before.before_state, before.after_state) == ("unknown", "breached")


@pytest.mark.parametrize(("horizon", "bound_s"), [(600, 400), (600, 1000), (120, 400), (1200, 30)])
def test_constant_overload_is_never_queued(horizon: int, bound_s: float) -> None:
    result = decision(running([300.0] * horizon), load(1, bound_s, may_wait_s=horizon))
    assert result.verdict == "reject"
    assert "start_at" not in {alternative.kind for alternative in result.alternatives}
    assert "never catches up" in result.headline


def test_start_before_a_burst_at_the_end_does_not_pass() -> None:
    """From 20 s before the end on nothing is late yet; its backlog still grows."""
    policy = AdmissionPolicy(start_horizon_share=0.01)
    document = running([20.0] * 100 + [300.0] * 100)
    for start_p in (150, 190, 199):
        change = {"kind": "start_at", "p": start_p, "seconds": start_p - 1}
        result = decision(document, load(1, bound_s=5000), changes=[change], policy=policy)
        assert result.verdict == "reject", start_p


def test_later_start_after_the_trouble_of_others_is_queued() -> None:
    document = running([80.0] * 100 + [20.0] * 200)
    document["operators"] = [
        {"id": "q", "query": "now", "node": "n1", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1}]}
    ]
    document["sources"].append({"id": "t", "arrivals": [40.0] * 300})
    result = decision(document, load(1, bound_s=5, source="t", may_wait_s=200))
    assert result.verdict == "queue"
    assert result.start_s == pytest.approx(100.0, abs=30.0)


def test_mean_of_a_neighbour_is_that_of_the_time_with_the_candidate() -> None:
    """Late by 1.7 s on average while both run, by 0.5 s over the whole horizon."""
    document = running([50.0] * 300, objectives=[{"query": "now", "statistic": "mean", "bound_s": 1}])
    document["operators"] = [
        {"id": "q", "query": "now", "node": "n1", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1}]}
    ]
    burst = [0.0] * 220 + [150.0] * 10 + [0.0] * 70
    document["sources"].append({"id": "t", "arrivals": burst})
    change = {"kind": "start_at", "p": 211, "seconds": 210}
    late = decision(document, load(1, bound_s=600, source="t"), changes=[change])
    at_once = decision(document, load(1, bound_s=600, source="t"))
    assert late.effects[0].after_s > 2.0 * at_once.effects[0].after_s
    assert late.verdict == "reject"


@pytest.mark.parametrize("statistic", ["worst", "mean", "q0.99"])
def test_neighbour_that_never_catches_up_with_the_candidate_is_told(statistic: str) -> None:
    document = running([60.0] * 30, objectives=[{"query": "now", "statistic": statistic, "bound_s": 100}])
    document["operators"] = [
        {"id": "q", "query": "now", "node": "n1", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 1}]}
    ]
    result = decision(document, load(1, bound_s=100), policy=AdmissionPolicy(max_mean_load=5.0))
    assert result.verdict == "reject"
    assert {"neighbour_breached", "never_catches_up"} <= codes(result)


def test_command_tells_the_standing() -> None:
    result = command(running([300.0] * 100) | {"candidate": load(1, bound_s=900)}, AdmitOptions()).to_dict()
    assert result["effects"][-1]["standing"]["kind"] == "never_catches_up"
