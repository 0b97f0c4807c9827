"""Effects of a decision are stored as its page shows them."""

from __future__ import annotations

import pytest

from apps.admission.effects import MAX_STILL, decision_stored
from engine.admission.answer import AdmissionDecision, AdmissionPolicy, QueryEffect
from engine.admission.decision import decide
from engine.document.deployment import Deployment
from lab.benchmarks.scale.clusters import candidate_document, cluster_document


@pytest.fixture(scope="module")
def decision() -> AdmissionDecision:
    running = Deployment.parse(cluster_document("uniform", 130, slices=80))
    return decide(
        running, candidate_document(1, 130), policy=AdmissionPolicy(robustness=False, choices=False), mace_every=4
    )


def changed(effects: tuple[QueryEffect, ...]) -> list[QueryEffect]:
    return [row for row in effects if row.is_candidate or row.change_s or row.shares or row.after_state == "breached"]


def test_effects_that_change_are_stored_and_the_rest_is_counted(decision: AdmissionDecision) -> None:
    stored = decision_stored(decision)
    assert changed(stored.effects) == changed(decision.effects)
    assert stored.unchanged == len(decision.effects) - len(stored.effects) > 0
    still = len(stored.effects) - len(changed(stored.effects))
    assert still <= MAX_STILL + sum(row.before_state not in ("none", "holds") for row in stored.effects)


def test_stored_decision_is_read_back(decision: AdmissionDecision) -> None:
    stored = decision_stored(decision)
    again = AdmissionDecision.parse(stored.to_dict())
    assert (again.unchanged, len(again.effects), again.headline) == (
        stored.unchanged,
        len(stored.effects),
        decision.headline,
    )


def test_decision_about_a_small_cluster_is_stored_whole(decision: AdmissionDecision) -> None:
    running = Deployment.parse(cluster_document("uniform", 5, slices=80))
    small = decide(
        running, candidate_document(1, 5), policy=AdmissionPolicy(robustness=False, choices=False), mace_every=4
    )
    stored = decision_stored(small)
    assert stored.to_dict() == small.to_dict() and "unchanged" not in stored.to_dict()
