"""Precedence: who comes later takes neither the room nor the quota that somebody before it waits for.

On `n1` (100 cycles/s) `p` spends 5 cycles on each event. `w` waits for its start with 2 cycles, which brings both to
1.85 s; `c` with 2 cycles fits beside `p`, and beside both it adds another 0.8 s to the burst.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy
from engine.admission.decision import decide
from engine.policies.candidate_policy import PolicyStanding, WaitingRequest
from engine.policies.policy import ClusterPolicy
from engine.policies.quotas import TeamDemand
from tests.engine.admission.stories import candidate, codes, operator, running

QUIET = AdmissionPolicy(choices=False, robustness=False)
AT = datetime(2026, 3, 1, tzinfo=UTC)


def waiting(cost: float = 2.0, node: str = "n1", bound_s: float = 2.2, **more: Any) -> WaitingRequest:
    objective = {"statistic": "worst", "bound_s": bound_s}
    document = {"query": "w", "operators": [operator("w/op", cost, node=node)], "objective": objective}
    return WaitingRequest("w v1", "w", "", TeamDemand(), frozenset({node}), document, **more)


def judged(*ahead: WaitingRequest, may_wait_s: float = 9.0, node: str | None = "n1", **more: Any) -> AdmissionDecision:
    standing = PolicyStanding(ClusterPolicy(), 0, "", AT, ahead=ahead)
    document = candidate(node=node, may_wait_s=may_wait_s, **more)
    return decide(running(), document, policy=QUIET, standing=standing)


def test_what_would_take_the_room_of_an_earlier_request_waits_behind_it() -> None:
    decision = judged(waiting())
    assert (decision.verdict, codes(decision, "bad")) == ("queue", ["queue_precedence"])
    assert decision.headline.startswith("Requests that come first in the queue would lose the room they wait for: w v1")
    assert judged(waiting(), may_wait_s=0.0).verdict == "reject"
    assert judged().verdict == "admit"
    assert decision.policy_facts is not None and decision.policy_facts.ahead == ("w v1",)


def test_what_leaves_the_room_goes_ahead() -> None:
    assert judged(waiting(), cost=0.2).verdict == "admit"
    assert judged(waiting(), node=None).verdict == "admit", "it finds a place beside them"
    assert judged(waiting(node="n2")).verdict == "admit"


def test_room_counts_from_the_start_that_was_given() -> None:
    """From the third subinterval on the burst is over: `w` makes nobody late."""
    later = waiting(changes=({"kind": "start_at", "p": 4},))
    assert judged(later).verdict == "admit"


def test_request_without_room_yet_is_not_set_back() -> None:
    """With 4 cycles `w` would miss its objective as it is; it does so by more with `c`."""
    assert codes(judged(waiting(4.0)), "bad") == ["queue_precedence"]


def test_requests_that_lose_together_what_neither_loses_alone_are_heard() -> None:
    first, second = waiting(0.6), waiting(0.6)
    other = WaitingRequest(
        "x v1",
        "x",
        "",
        TeamDemand(),
        second.nodes,
        {**(second.candidate or {}), "query": "x", "operators": [operator("x/op", 0.6, node="n1")]},
    )
    assert judged(first, cost=1.3).verdict == "admit"
    assert codes(judged(first, other, cost=1.3), "bad") == ["queue_precedence"]


@pytest.mark.parametrize(("node", "verdict"), [("n1", "queue"), ("n2", "admit")])
def test_behind_what_cannot_be_weighed_is_who_shares_its_nodes(node: str, verdict: str) -> None:
    unknown = WaitingRequest("w v1", "w", "", TeamDemand(), frozenset({node}))
    assert judged(unknown, cost=0.1).verdict == verdict
