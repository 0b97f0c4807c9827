"""Groups: candidates that are admitted all or none, by one estimate with all of them in.

On `n1` (100 cycles/s) `p` spends 5 cycles on each event, and one candidate with 2 cycles fits beside it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.admission.answer import PARTS, AdmissionPolicy
from engine.admission.decision import decide, open_decision
from engine.admission.group import GroupMember, OpenGroup, decide_group
from engine.errors import DocumentError
from engine.estimation.base import EstimateBase
from engine.policies.candidate_policy import PolicyStanding
from engine.policies.policy import ClusterPolicy
from tests.engine.admission.stories import candidate, codes, effect, operator, running

QUIET = AdmissionPolicy(choices=False, robustness=False)
AT = datetime(2026, 3, 1, tzinfo=UTC)


def member(query: str, cost: float = 2.0, node: str | None = "n1", **more: Any) -> GroupMember:
    place: dict[str, Any] = {"node": node} if node else {}
    document = candidate(node=node) | {"query": query, "operators": [operator(f"{query}/op", cost, **place)]}
    return GroupMember(document, policy=QUIET, **more)


def decided(*members: GroupMember, nodes: tuple[str, ...] = ("n1", "n2"), **more: Any) -> OpenGroup:
    return decide_group(members, EstimateBase.of(running(nodes=nodes), 1), **more)


def test_members_that_fit_together_are_admitted() -> None:
    group = decided(member("c"), member("d", node="n2"))
    assert (group.answer.verdict, [one.verdict for one in group.opened]) == ("admit", ["admit", "admit"])
    assert group.answer.fitting == ("c", "d")
    assert [own.alone for own in group.answer.members] == ["", ""]


def test_members_that_fit_alone_and_not_together_are_refused() -> None:
    group = decided(member("c"), member("d"))
    assert group.answer.verdict == "reject"
    assert [(own.beside, own.alone) for own in group.answer.members] == [("admit", "admit"), ("reject", "admit")]
    assert (group.answer.fitting, group.answer.because_of) == (("c",), "d")
    assert "neighbour_breached" in codes(group.opened[0].decision, "bad"), "c too is judged with d in"


def test_members_are_judged_with_all_of_them_in() -> None:
    """As the last of them would be beside all the others, and everybody beside what runs without any of them."""
    first = running()
    for name, cost in (("c", 0.5), ("d", 0.7)):
        last = open_decision(first, member(name, cost).document, policy=QUIET)
        assert last.search.base is not None
        first = last.search.base.deployment
    one, other = (opened.decision for opened in decided(member("c", 0.5), member("d", 0.7)).opened)
    assert effect(other, "d").after_s == pytest.approx(effect(last.decision, "d").after_s)
    assert effect(one, "c").after_s == pytest.approx(effect(last.decision, "c").after_s)
    assert effect(one, "p") == effect(other, "p")
    assert effect(one, "p").before_s == pytest.approx(
        effect(decide(running(), candidate(), policy=QUIET), "p").before_s
    )


def test_a_member_without_a_place_refuses_the_group() -> None:
    nowhere = replace(QUIET, closed_nodes=("n1", "n2"), choices=True, robustness=True)
    group = decided(member("c"), replace(member("d", node=None), policy=nowhere))
    assert (group.answer.verdict, group.opened[1].decision.placement) == ("reject", {})
    assert {one.why_without(part) for one in group.opened for part in PARTS} == {"in_group"}


def test_a_place_that_could_not_be_had_is_told_of_the_member() -> None:
    """`n1` takes nothing new: each goes where there is room, as alone, and the verdict says so."""
    closed = replace(QUIET, closed_nodes=("n1",))
    alone = decide(running(), member("c", 0.5).document, policy=closed)
    group = decided(replace(member("c", 0.5), policy=closed), replace(member("d", 0.5, node="n2"), policy=closed))
    assert (alone.verdict, group.answer.verdict) == ("admit_with_changes", "admit_with_changes")
    assert [one.verdict for one in group.opened] == ["admit_with_changes", "admit"]
    told = [codes(one.decision, "watch").count("placement_altered") for one in group.opened]
    assert told == [codes(alone, "watch").count("placement_altered"), 0] == [1, 0]


def test_group_waits_for_one_start_of_all() -> None:
    group = decided(member("c"), member("d"), may_wait_s=9.0)
    assert group.answer.verdict == "queue"
    starts = {one.decision.start_p for one in group.opened}
    assert len(starts) == 1 and None not in starts


def test_quotas_count_the_members_together() -> None:
    policy = ClusterPolicy.parse({"teams": [{"team": "sales", "quotas": {"queries": {"nominal": 1}}}]})
    own = {"c": "sales", "d": "sales"}

    def standing() -> PolicyStanding:
        return PolicyStanding(policy, 1, "sales", AT, teams=own, node_pools={"n1": "x", "n2": "x"}, counts=True)

    alone = decided(member("c", standing=standing()), member("d", 0.1, node="n2"))
    assert alone.answer.verdict == "admit", "d is of no team"
    group = decided(member("c", standing=standing()), member("d", 0.1, node="n2", standing=standing()))
    assert group.answer.verdict == "reject"
    assert [codes(one.decision, "bad") for one in group.opened] == [["quota_exceeded"], ["quota_exceeded"]]
    both = member("c", standing=standing()), member("d", 0.1, node="n2", standing=standing())
    assert decided(*both, may_wait_s=9.0).answer.verdict == "queue"


def test_faults_name_the_member() -> None:
    bad = GroupMember({"query": "d", "operators": [operator("d/op", 1.0) | {"inputs": [{"from": "nowhere"}]}]})
    with pytest.raises(DocumentError) as raised:
        decided(member("c"), bad)
    assert all(fault.path.startswith("members[1].") for fault in raised.value.faults)
