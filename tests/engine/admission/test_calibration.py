"""Admission beside running queries whose past estimates were scored: widened, never eased, and for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy, Widening
from engine.admission.decision import decide
from engine.measurement.calibration import IntervalFactors
from engine.measurement.trust import FALLING, LOST, EstimateTrust, QueryCalibration
from engine.policies.rules import EvidenceRules
from tests.engine.admission.stories import candidate, codes, effect, running


def decided(
    upper: float = 1.0,
    *,
    lower: float = 1.0,
    state: str = "holding",
    bound_s: float | None = 2.2,
    policy: AdmissionPolicy | None = None,
    query: str = "p",
    nodes: str = "n1",
    changes: Sequence[Mapping[str, Any]] = (),
) -> AdmissionDecision:
    """The candidate makes the worst case of p 1.85 s against `bound_s`."""
    trust = EstimateTrust(24, 40, state)
    known = {query: QueryCalibration(IntervalFactors(lower, upper, 64, True), "query", trust)}
    return decide(
        running(bound_s),
        candidate(node=nodes),
        policy=policy or AdmissionPolicy(choices=False),
        changes=changes,
        calibrations=known,
    )


def test_widened_upper_end_that_is_over_sends_to_a_person() -> None:
    plain, widened = decided(), decided(4.0)
    assert plain.verdict == "admit" and widened.verdict == "review"
    (reason,) = (reason for reason in widened.reasons if reason.code == "neighbour_at_risk")
    assert "before 64 scored runs widened its interval 4 times on that side" in reason.message
    was, now = effect(plain, "p"), effect(widened, "p")
    assert now.high_s > 2.2 > was.high_s and now.after_s == was.after_s and now.low_s == was.low_s
    assert now.widening == Widening(4.0, 64, was.high_s) and was.widening is None


def test_what_runs_is_widened_alike_before_and_after() -> None:
    """A neighbour whose widened end is over without the candidate is no news where the candidate is far away."""
    decision = decided(100.0, nodes="n2")
    assert decision.verdict == "admit" and codes(decision, "info") == ["neighbour_at_risk", "memory_unknown"]


@pytest.mark.parametrize("upper", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("bound_s", [1.0, 1.84, 1.86, 1.9, 2.2])
def test_narrowing_never_eases_an_admission(upper: float, bound_s: float) -> None:
    plain = decide(running(bound_s), candidate(), policy=AdmissionPolicy(choices=False))
    narrowed = decided(upper, lower=0.25, bound_s=bound_s)
    assert narrowed.to_dict() == plain.to_dict()


@pytest.mark.parametrize("factor", [1.5, 5.0, 50.0])
@pytest.mark.parametrize("bound_s", [1.0, 1.84, 1.86, 1.9, 2.2])
def test_widening_admits_nothing_that_was_not(factor: float, bound_s: float) -> None:
    order = ["admit", "review", "reject"]
    plain = decide(running(bound_s), candidate(), policy=AdmissionPolicy(choices=False))
    widened = decided(factor, lower=factor, bound_s=bound_s)
    assert order.index(widened.verdict) >= order.index(plain.verdict)


def test_lost_trust_in_a_neighbour_is_for_a_person_and_says_why() -> None:
    decision = decided(state=LOST)
    assert decision.verdict == "review" and "trust_lost" in codes(decision, "watch")
    assert decision.headline == (
        "Estimates of p are not to be trusted: 24 of its last 40 intervals held (60%), where 90% is right"
    )
    reason = next(reason for reason in decision.reasons if reason.code == "trust_lost")
    assert (reason.value, reason.bound, reason.unit) == (0.6, 0.9, "share")


def test_place_away_from_lost_trust_is_an_alternative_that_needs_no_person() -> None:
    decision = decided(state=LOST, policy=AdmissionPolicy())
    assert decision.verdict == "review"
    (alternative,) = decision.alternatives
    assert (alternative.id, alternative.verdict) == ("place_apart-1", "admit_with_changes")
    assert alternative.title == "Place it on n2, away from what is for a person to judge"
    taken = decided(state=LOST, policy=AdmissionPolicy(), changes=alternative.changes)
    assert taken.verdict == "admit_with_changes" and "trust_lost" not in codes(taken)
    assert effect(taken, "c").after_s == alternative.estimate_s


def test_policy_may_leave_lost_trust_to_itself() -> None:
    decision = decided(state=LOST, policy=AdmissionPolicy(choices=False, evidence=EvidenceRules(untrusted="admit")))
    assert decision.verdict == "admit" and "trust_lost" in codes(decision, "info")


@pytest.mark.parametrize(("state", "nodes"), [(FALLING, "n1"), (LOST, "n2")])
def test_falling_trust_and_queries_out_of_reach_are_no_reason(state: str, nodes: str) -> None:
    assert decided(state=state, nodes=nodes).verdict == "admit"


def test_query_that_does_not_run_is_ignored() -> None:
    assert decided(50.0, state=LOST, query="stranger").verdict == "admit"


def test_other_factors_are_another_evaluation_of_what_runs() -> None:
    """Evaluations are remembered between decisions, with the factors they were widened by."""
    first, second = decided(4.0), decided(8.0)
    assert effect(second, "p").high_s > effect(first, "p").high_s
    assert effect(decided(4.0), "p").high_s == effect(first, "p").high_s
