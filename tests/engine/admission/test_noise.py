"""Admission where mean costs keep an objective and random ones may not: for a person, or told where assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.admission.decision import AdmissionDecision, decide
from engine.admission.policy import AdmissionPolicy
from engine.document.deployment import Deployment
from tests.engine.admission.stories import codes

COUNTS = np.random.default_rng(5).poisson(10.0, 480).astype(float).tolist()  # 40 events/s for 2 min


def decided(bound_s: float, policy: AdmissionPolicy | None = None, **entry: Any) -> AdmissionDecision:
    """A query alone on a node, at 80 % load of mean costs."""
    running = Deployment.parse({"subinterval_s": 0.25, "subintervals": 480, "nodes": [{"id": "n", "capacity_cps": 50}]})
    read = {"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0, **entry}
    candidate = {
        "query": "c",
        "sources": [{"id": "s", "arrivals": COUNTS}],
        "operators": [{"id": "c/op", "node": "n", "inputs": [read], "evidence": {"kind": "measured", "events": 5000}}],
        "objective": {"statistic": "worst", "bound_s": bound_s},
    }
    return decide(running, candidate, policy=policy or AdmissionPolicy(choices=False))


def test_objective_that_random_costs_may_break_is_for_a_person() -> None:
    decision = decided(0.6, cost_cv2=1.0)
    assert decision.verdict == "review" and codes(decision, "watch") == ["noise_at_risk"]
    assert not codes(decision, "ok"), "nothing says that every objective holds"
    reason = next(reason for reason in decision.reasons if reason.code == "noise_at_risk")
    assert reason.value is not None and reason.value > 0.6 and "in the median" in reason.message


def test_objective_that_random_costs_keep_is_admitted() -> None:
    decision = decided(6.0, cost_cv2=1.0)
    assert decision.verdict == "admit" and "noise_at_risk" not in codes(decision, "info")


@pytest.mark.parametrize(("review_assumed", "verdict"), [(False, "admit"), (True, "review")])
def test_policy_for_assumed_statistics_decides_where_the_variation_is_assumed(
    review_assumed: bool, verdict: str
) -> None:
    decision = decided(0.6, AdmissionPolicy(choices=False, review_assumed=review_assumed))
    assert decision.verdict == verdict
    reason = next(reason for reason in decision.reasons if reason.code == "noise_at_risk")
    assert reason.message.endswith("how costs vary is assumed")


def test_risk_that_was_there_before_is_told_and_does_not_count() -> None:
    running = Deployment.parse(
        {
            "subinterval_s": 0.25,
            "sources": [{"id": "s", "arrivals": COUNTS}],
            "nodes": [{"id": "n", "capacity_cps": 50}, {"id": "free", "capacity_cps": 50}],
            "operators": [
                {
                    "id": "old/op",
                    "query": "old",
                    "node": "n",
                    "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0, "cost_cv2": 1.0}],
                }
            ],
            "objectives": [{"query": "old", "statistic": "worst", "bound_s": 0.6}],
        }
    )
    apart = {
        "query": "c",
        "operators": [
            {
                "id": "c/op",
                "node": "free",
                "inputs": [{"from": "old/op", "selectivity": 1.0, "cycles_per_event": 0.01, "cost_cv2": 0.0}],
            }
        ],
    }
    decision = decide(running, apart, policy=replace(AdmissionPolicy(), choices=False))
    assert decision.verdict == "admit" and "noise_at_risk" in codes(decision, "info")
