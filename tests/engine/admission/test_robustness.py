"""Robustness of verdicts: what is said to hold does when it comes, and thin verdicts say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import decide
from engine.admission.robustness import Robustness
from tests.engine.admission.stories import ARRIVALS, MEASURED, candidate, codes, operator, running


def louder(by: float) -> list[dict[str, Any]]:
    return [{"id": "a", "arrivals": [n * by for n in ARRIVALS], "dispersion": 0.0, "dispersion_step_s": 1.0}]


LIGHT = 0.5  # cycles of a candidate that leaves room beside p


@pytest.mark.parametrize("bound_s", [1.6, 3.0, 30.0])
def test_confirmed_rises_pass_when_they_come(bound_s: float) -> None:
    decision = decide(running(bound_s), candidate(bound_s, LIGHT))
    assert decision.verdict == "admit"
    robustness = decision.robustness
    assert robustness is not None
    assert robustness.margin > 0.0
    louder_p = running(bound_s, sources=louder(1.0 + robustness.load))
    assert decide(louder_p, candidate(bound_s, LIGHT)).verdict == "admit"
    dearer = candidate(bound_s, LIGHT * (1.0 + robustness.costs))
    assert decide(running(bound_s), dearer).verdict == "admit"


def test_wider_objectives_stand_no_less() -> None:
    shares = []
    for bound_s in (1.5, 2.0, 30.0):
        robustness = decide(running(bound_s), candidate(bound_s, LIGHT)).robustness
        assert robustness is not None
        shares.append(robustness.load)
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_verdict_with_hardly_any_room_is_admitted_as_thin() -> None:
    """With the candidate n1 is at 0.96 of its capacity on the mean: 5 % more load never drain."""
    decision = decide(running(30.0), candidate(30.0))
    assert (decision.verdict, decision.thin) == ("admit", True)
    assert "; thin, for it holds only up to 3% more load" in decision.headline
    relaxed = decide(running(30.0), candidate(30.0), policy=AdmissionPolicy(thin_below=0.0))
    assert not relaxed.thin
    assert "thin" not in relaxed.headline


def test_neighbour_that_is_late_anyway_takes_nothing_from_a_verdict() -> None:
    """p is late by itself, and more load makes it later: the candidate, a hundredth of its work, is not to blame."""
    decision = decide(running(1.0), candidate(30.0, 0.01))
    assert "neighbour_already_over" in codes(decision)
    robustness = decision.robustness
    assert robustness is not None
    assert robustness.load >= 0.2
    louder_p = running(1.0, sources=louder(1.0 + robustness.load))
    assert decide(louder_p, candidate(30.0, 0.01)).verdict == "admit"


def test_doubled_load_is_told_in_plain_digits() -> None:
    sentence = Robustness(1.0, 0.075, (), 1, None).sentences[0]
    assert "load at least 100% higher" in sentence
    assert "costs of its operators up to 7.5% higher" in sentence


def test_what_does_not_pass_has_no_robustness() -> None:
    decision = decide(running(1.2), candidate(2.0))
    assert decision.verdict == "reject"
    assert decision.robustness is None
    assert decision.to_dict()["robustness"] is None


def test_node_that_may_not_be_lost_is_named_with_whom_it_breaks() -> None:
    """The burst of n1 takes 2.2 s, that of n2 0.2 or 1.6 s: within 2.5 s one node does both only with the former."""
    for cost, lost in ((LIGHT, []), (4.0, ["n1", "n2"])):
        own = [operator("c/a", LIGHT, node="n1"), operator("c/b", cost, "c/a", node="n2")]
        robustness = decide(running(2.5), candidate(2.5, operators=own)).robustness
        assert robustness is not None
        assert [node.node for node in robustness.lost_nodes] == lost
        assert all(node.breaks for node in robustness.lost_nodes)
        if not lost:
            assert "Any one of the 2 nodes in use may be lost." in robustness.sentences


def test_weakest_is_what_is_only_assumed_before_what_is_measured() -> None:
    known = operator("c/known", LIGHT, node="n1")
    for evidence, weakest in (({"kind": "assumed"}, "c/guessed"), (MEASURED, "c/known")):
        guessed = operator("c/guessed", LIGHT / 2.0, "c/known", node="n1", evidence=evidence)
        robustness = decide(running(30.0), candidate(30.0, operators=[known, guessed])).robustness
        assert robustness is not None
        assert robustness.weakest is not None
        assert (robustness.weakest.operator, robustness.weakest.evidence) == (weakest, evidence["kind"])


def test_policy_without_robustness_leaves_it_out() -> None:
    policy = replace(AdmissionPolicy(), robustness=False)
    assert decide(running(6.0), candidate(6.0, LIGHT), policy=policy).robustness is None
