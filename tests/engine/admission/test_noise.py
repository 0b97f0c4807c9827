"""Admission where mean costs keep an objective and random costs and arrivals may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy
from engine.admission.decision import decide
from engine.document.deployment import Deployment
from engine.policies.rules import EvidenceRules
from tests.engine.admission.stories import codes

QUIET = AdmissionPolicy(choices=False)
DOUBTING = AdmissionPolicy(choices=False, evidence=EvidenceRules(assumed="review"))
TRUSTING = AdmissionPolicy(choices=False, evidence=EvidenceRules(coarse="admit"))

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
    decision = decided(0.7, cost_cv2=1.0)
    assert decision.verdict == "review" and codes(decision, "watch") == ["at_risk"]
    assert not codes(decision, "ok"), "nothing says that every objective holds"
    (reason,) = (reason for reason in decision.reasons if reason.code == "at_risk")
    assert reason.value is not None and reason.value > 0.7 and reason.message.endswith("against 0.7\u00a0s")


def test_objective_that_random_costs_break_is_no_matter_of_mean_costs() -> None:
    decision = decided(0.5, cost_cv2=1.0)
    assert decision.verdict == "reject" and "objective_breached" in codes(decision, "bad")
    (own,) = decision.effects
    assert own.low_s < 0.5 < own.after_s < own.high_s


def test_objective_that_random_costs_keep_is_admitted() -> None:
    decision = decided(6.0, cost_cv2=1.0)
    assert decision.verdict == "admit" and codes(decision, "ok") == ["all_hold"]


def test_steady_costs_keep_what_random_ones_break() -> None:
    assert decided(0.5, cost_cv2=0.0).verdict == "admit"


@pytest.mark.parametrize(("bound_s", "verdict"), [(0.5, "reject"), (0.7, "review")])
def test_reason_says_where_the_variation_of_costs_is_assumed(bound_s: float, verdict: str) -> None:
    decision = decided(bound_s)
    assert decision.verdict == verdict
    assert decision.headline.endswith("how costs vary is assumed")


@pytest.mark.parametrize(("review_assumed", "verdict"), [(False, "admit"), (True, "review")])
def test_policy_for_assumed_statistics_decides_where_the_variation_is_assumed(
    review_assumed: bool, verdict: str
) -> None:
    decision = decided(6.0, (DOUBTING if review_assumed else QUIET))
    assert decision.verdict == verdict
    assert ("assumed_costs" in codes(decision, "watch")) is review_assumed
    given = decided(
        6.0,
        (DOUBTING if review_assumed else QUIET),
        cost_cv2=1.0,
    )
    assert given.verdict == "admit"


def at_steps(bound_s: float, policy: AdmissionPolicy | None = None) -> AdmissionDecision:
    """The same query, of whose arrivals only counts per 60 s are known."""
    steps = np.repeat(np.array(COUNTS).reshape(2, 240).sum(axis=1) / 240.0, 240).tolist()
    running = Deployment.parse({"subinterval_s": 0.25, "subintervals": 480, "nodes": [{"id": "n", "capacity_cps": 50}]})
    read = {"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0, "cost_cv2": 0.0}
    candidate = {
        "query": "c",
        "sources": [{"id": "s", "arrivals": steps, "arrivals_step_s": 60.0}],
        "operators": [{"id": "c/op", "node": "n", "inputs": [read], "evidence": {"kind": "measured", "events": 5000}}],
        "objective": {"statistic": "worst", "bound_s": bound_s},
    }
    return decide(running, candidate, policy=policy or AdmissionPolicy(choices=False), mace_every=4)


def test_objective_that_a_model_of_arrivals_may_keep_is_neither_rejected_nor_admitted() -> None:
    figures = at_steps(1000.0).effects[0]
    low_s, estimate_s, high_s = figures.low_s, figures.after_s, figures.high_s
    between = (low_s + estimate_s) / 2.0
    for policy in (
        AdmissionPolicy(choices=False),
        TRUSTING,
    ):
        decision = at_steps(between, policy)
        assert decision.verdict == "review" and "objective_breached" in codes(decision, "watch")
        assert not codes(decision, "bad") and "it may also be" in decision.headline
    assert at_steps(0.9 * low_s).verdict == "reject"
    for bound_s in ((estimate_s + high_s) / 2.0, 2.0 * high_s, 1000.0):
        assert at_steps(bound_s).verdict == "review"


def test_what_holds_by_a_model_of_arrivals_is_not_said_to_hold() -> None:
    decision = at_steps(1000.0, TRUSTING)
    assert decision.verdict == "admit" and not codes(decision, "ok")


def test_every_alternative_is_what_deciding_again_says() -> None:
    """Mean costs alone would call each of them enough long before random ones do."""
    running = Deployment.parse(
        {
            "subinterval_s": 0.25,
            "subintervals": 480,
            "sources": [{"id": "s", "arrivals": COUNTS}],
            "nodes": [{"id": name, "capacity_cps": capacity} for name, capacity in (("n", 48.0), ("m", 90.0))],
            "operators": [
                {
                    "id": "old/op",
                    "query": "old",
                    "node": "m",
                    "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1.3, "cost_cv2": 1.0}],
                }
            ],
        }
    )
    joins = {
        "query": "c",
        "operators": [
            {
                "id": "c/op",
                "node": "n",
                "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0, "cost_cv2": 1.0}],
            }
        ],
        "objective": {"statistic": "worst", "bound_s": 0.5},
    }
    decision = decide(running, joins, mace_every=4)
    assert decision.verdict == "reject"
    assert {alternative.kind for alternative in decision.alternatives} >= {"scale_rate", "add_node", "objective"}
    for alternative in decision.alternatives:
        after = decide(running, joins, changes=alternative.changes, mace_every=4)
        assert after.verdict == alternative.verdict != "reject", alternative.id
        assert after.effects == alternative.effects


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
            "objectives": [{"query": "old", "statistic": "worst", "bound_s": 0.7}],
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
    assert decision.verdict == "admit" and "neighbour_at_risk" in codes(decision, "info")
