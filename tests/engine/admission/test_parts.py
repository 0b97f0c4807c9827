"""Parts of decisions: they follow a verdict, add to it, and never change it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from engine.admission.answer import PARTS, AdmissionDecision, AdmissionPolicy
from engine.admission.decision import OpenDecision, decide, open_decision
from engine.document.deployment import Deployment
from tests.engine.admission.stories import candidate, codes, running

#: What runs, the candidate, and the verdict.
STORIES: dict[str, tuple[Deployment, dict[str, Any], str]] = {
    "fits": (running(), candidate(), "admit"),
    "fits thinly": (running(30.0), candidate(30.0), "admit"),
    "breaks a neighbour where it was asked for": (running(1.6), candidate(), "reject"),
    "goes where there is room": (running(1.6), candidate(node=None, cost=3.0), "admit"),
    "waits": (running(1.6), candidate(may_wait_s=5.0), "queue"),
    "would not wait that long": (running(1.6), candidate(may_wait_s=1.0), "reject"),
    "fits nowhere": (running(nodes=("n1",)), candidate(node=None), "reject"),
}
CLOSED = {"fits nowhere": AdmissionPolicy(closed_nodes=("n1",))}


class Cut(Exception):
    pass


def opened(story: str) -> OpenDecision:
    deployment, document, _ = STORIES[story]
    return open_decision(deployment, document, policy=CLOSED.get(story))


def certain(decision: AdmissionDecision) -> dict[str, Any]:
    """The keys of a decision that no part may change."""
    kept = ("verdict", "query", "snapshot", "effects", "placement", "apart", "measure", "start_s", "nodes", "evidence")
    document = decision.to_dict()
    return {name: document[name] for name in kept}


@pytest.mark.parametrize("story", STORIES)
def test_parts_add_up_to_the_decision_at_once_and_leave_its_verdict(story: str) -> None:
    steps = opened(story)
    first = steps.decision
    assert first.verdict == STORIES[story][2]
    for part in PARTS:
        if not steps.why_without(part):
            steps.compute(part)
            assert certain(steps.decision) == certain(first)
    deployment, document, _ = STORIES[story]
    assert steps.decision.to_dict() == decide(deployment, document, policy=CLOSED.get(story)).to_dict()


def test_admitted_candidate_is_neither_thin_nor_not_while_its_room_is_unknown() -> None:
    steps = opened("fits thinly")
    assert (steps.decision.thin, steps.decision.robustness) == ("pending", None)
    assert "thin" not in steps.decision.headline
    assert AdmissionDecision.parse(steps.decision.to_dict()).thin == "pending"
    steps.compute("robustness")
    assert steps.decision.thin is True
    assert "; thin, for it holds only up to 3% more load" in steps.decision.headline


@pytest.mark.parametrize("policy", [AdmissionPolicy(thin_below=0.0), AdmissionPolicy(robustness=False)])
def test_verdict_that_nobody_would_call_thin_is_not_at_once(policy: AdmissionPolicy) -> None:
    assert open_decision(running(30.0), candidate(30.0), policy=policy).decision.thin is False


def test_part_that_does_not_apply_says_why() -> None:
    none = AdmissionPolicy(choices=False, robustness=False)
    silent = open_decision(running(1.6), candidate(), policy=none)
    assert [silent.why_without(part) for part in PARTS] == ["not_asked", "not_asked"]
    assert [opened("fits").why_without(part) for part in PARTS] == ["passes", ""]
    assert [opened("waits").why_without(part) for part in PARTS] == ["", "fails"]
    assert [opened("fits nowhere").why_without(part) for part in PARTS] == ["", "fails"]


def test_start_of_a_queued_candidate_is_certain_with_its_verdict() -> None:
    first = opened("waits").decision
    assert [(found.id, found.changes[0].kind) for found in first.alternatives] == [("start_at-1", "start_at")]
    assert first.start_s is not None
    assert "start_at-1" in first.curves.alternatives


def test_start_of_who_would_not_wait_is_searched_with_the_alternatives() -> None:
    steps = opened("breaks a neighbour where it was asked for")
    assert "cannot_wait" not in codes(steps.decision)
    assert not steps.decision.alternatives
    steps.compute("alternatives")
    assert "cannot_wait" in codes(steps.decision)
    assert {found.kind for found in steps.decision.alternatives} >= {"move", "start_at"}


def test_search_that_is_cut_keeps_what_it_had_found() -> None:
    whole = opened("breaks a neighbour where it was asked for")
    steps, found = opened("breaks a neighbour where it was asked for"), []
    whole.compute("alternatives")

    def cut(share: float, step: str) -> None:
        found[:] = [offered.id for offered in steps.decision.alternatives]
        if found:
            raise Cut

    with pytest.raises(Cut):
        steps.compute("alternatives", cut)
    kept = steps.decision
    assert [offered.id for offered in kept.alternatives] == found
    assert kept.alternatives[0].to_dict() == whole.decision.alternatives[0].to_dict()
    assert len(found) < len(whole.decision.alternatives)
    assert certain(kept) == certain(whole.decision)


def test_room_of_a_verdict_can_be_cut_before_each_of_its_estimates() -> None:
    told = count()
    opened("fits thinly").compute("robustness", lambda share, step: next(told))
    steps = next(told)
    assert steps > 5
    for last in range(steps):
        again, left = opened("fits thinly"), iter(range(last))

        def cut(share: float, step: str) -> None:
            if next(left, None) is None:  # noqa: B023 - called before the next turn
                raise Cut

        with pytest.raises(Cut):
            again.compute("robustness", cut)
        assert (again.decision.robustness, again.decision.thin) == (None, "pending")


def test_progress_of_a_part_goes_up_to_its_end() -> None:
    for story, part in (("fits thinly", "robustness"), ("waits", "alternatives")):
        shares: list[float] = []
        opened(story).compute(part, lambda share, step: shares.append(share))  # noqa: B023
        assert shares == sorted(shares)
        assert 0.0 <= shares[0] < shares[-1] <= 1.0
