"""Reasons that the policy of a cluster alone gives: freezes, quotas of the team, and who has waited too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.admission.answer import Reason, ReasonSubject, named_reason
from engine.policies.candidate_policy import POLICY_CODES, PolicyStanding
from engine.policies.demand import query_demand
from engine.policies.quotas import CORES, POOL, QUERIES, RATE, QuotaStanding, TeamDemand

if TYPE_CHECKING:
    from engine.admission.scenario import AdmissionScenario, CandidateQuestion

__all__ = ["beside_by_team", "policy_reasons", "quota_reasons", "standing_reasons", "waits_by_policy", "wanted_by_team"]


def policy_reasons(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Reasons of the policy about a scenario; none where the cluster has no more than rules of evidence."""
    standing = question.standing
    if standing is None:
        return
    name = question.candidate.query
    yield from standing_reasons(standing, name, (scenario.start_p - 1) * question.running.subinterval_s)
    yield from _class_reasons(standing, name, question.candidate.priority)
    if standing.policy.has_quotas:
        facts = standing.facts(question.running, scenario.deployment, name, beside_by_team(question, scenario))
        yield from quota_reasons(facts.quota_standings(standing.policy) or (), name)


def wanted_by_team(question: CandidateQuestion, scenario: AdmissionScenario) -> dict[str, TeamDemand]:
    """Demand of the candidate and of the other members of its group, by their teams."""
    standing = question.standing
    assert standing is not None
    wanted = beside_by_team(question, scenario)
    own = query_demand(scenario.deployment, question.candidate.query, standing.node_pools)
    return {**wanted, standing.team: wanted.get(standing.team, TeamDemand()).plus(own)}


def beside_by_team(question: CandidateQuestion, scenario: AdmissionScenario) -> dict[str, TeamDemand]:
    """Demand of the other members of the candidate's group, by their teams: quotas count it as if they ran."""
    standing, beside = question.standing, dict[str, TeamDemand]()
    assert standing is not None
    for companion in question.companions:
        demand = query_demand(scenario.deployment, companion.candidate.query, standing.node_pools)
        beside[companion.team] = beside.get(companion.team, TeamDemand()).plus(demand)
    return beside


def standing_reasons(standing: PolicyStanding, query: str, later_s: float = 0.0) -> Iterator[Reason]:
    """Reasons that the passing of time brings and takes away: freezes, and requests that have waited too long."""
    for freeze in standing.freezes(later_s):
        until = (freeze.thaws_at.isoformat(" ", "minutes"),) if freeze.thaws_at is not None else ()
        left_s = None if freeze.thaws_at is None else (freeze.thaws_at - standing.at).total_seconds()
        subject = ReasonSubject("freeze", freeze.name)
        kind = "change_frozen" if until else "frozen_without_end"
        yield named_reason("change_frozen", "bad", subject, (query, *until), None, left_s, kind=kind)
    if standing.overdue:
        subject = ReasonSubject("query", query)
        yield named_reason("queue_overdue", "bad", subject, standing.overdue, unit="", of=len(standing.overdue))


def _class_reasons(standing: PolicyStanding, query: str, priority: int) -> Iterator[Reason]:
    """A reason where a query has a higher class than its team may use."""
    policy, own = standing.policy, standing.policy.team(standing.team)
    highest = next((entry for entry in policy.classes if own is not None and entry.name == own.highest_class), None)
    its = policy.class_of(priority)
    if highest is not None and its is not None and its.priority > highest.priority:
        names, numbers = (standing.team, its.name, highest.name), (float(highest.priority), float(priority), "")
        yield named_reason("class_not_allowed", "bad", ReasonSubject("query", query), names, *numbers)


def quota_reasons(standings: Sequence[QuotaStanding], query: str) -> Iterator[Reason]:
    """A reason for each quota that would be exceeded, is borrowed for, or cannot be counted."""
    for quota in standings:
        exceeded, borrowed, unit = _WORDS[POOL if quota.resource.startswith(POOL) else quota.resource]
        subject = ReasonSubject("quota", f"{quota.team}:{quota.resource}")
        names = (quota.team, query, quota.resource.removeprefix(POOL))
        numbers = quota.available, quota.wanted, unit
        if quota.is_exceeded:
            yield named_reason("quota_exceeded", "bad", subject, names, *numbers, kind=exceeded, was=quota.used)
        elif not quota.is_known:
            yield named_reason(
                "quota_unknown", "watch", subject, names, *numbers, kind="quota_unknown", was=quota.used, review=True
            )
        elif quota.borrows > 0.0:
            numbers = quota.nominal, quota.borrows, unit
            yield named_reason("quota_borrowed", "info", subject, names, *numbers, kind=borrowed)


#: Kinds of the sentences of a resource, where its quota is exceeded and where it is borrowed for, and its unit.
_WORDS = {
    CORES: ("quota_cores", "borrowed_cores", "cores"),
    POOL: ("quota_pool", "borrowed_pool", "cores"),
    QUERIES: ("quota_queries", "borrowed_queries", "queries"),
    RATE: ("quota_rate_eps", "borrowed_rate_eps", "events/s"),
}


def waits_by_policy(reasons: Sequence[Reason]) -> bool:
    """Whether the policy alone speaks against a candidate, which passes by waiting, and nothing is for a person."""
    bad = [reason for reason in reasons if reason.severity == "bad"]
    is_by_policy = all(reason.code in POLICY_CODES for reason in bad)
    return bool(bad) and is_by_policy and not any(reason.review for reason in reasons)
