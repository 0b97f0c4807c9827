"""Decisions about requests: applied and queued on an unmoved cluster only, one at a time per cluster; withdrawn,
declined, sent for review.

A request of a group is decided on with all of its group, in one transaction and one entry of the ledger: functions take
any of the members, or, where they say `members`, all of them in their order, which of a request alone is itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint
from apps.admission.choices import OPEN, AdmissionState, PartState, Verdict
from apps.admission.members import (
    lost_members,
    lost_words,
    members_announce,
    members_locked,
    members_set,
    names_of,
)
from apps.admission.models import AdmissionRequest
from apps.admission.others import changes_told
from apps.admission.owners import require_owners
from apps.admission.parts import parts_end
from apps.admission.questions import question_changes
from apps.admission.receipts import promise_make
from apps.admission.standings import require_permitted
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Forbidden, Impossible, Malformed, Stale
from apps.core.events import announce
from apps.fleet.models import Cluster, Node
from apps.fleet.services import link_create, node_create
from apps.jobs.models import Job
from apps.jobs.services import job_cancel
from apps.ledger.entries import decision_recorded
from apps.policies.selectors import policy_of, team_of
from apps.queries.choices import QueryState
from apps.queries.models import Placement, Query
from apps.queries.services import placement_move, query_start, query_update
from engine.admission.answer import AdmissionDecision
from engine.admission.changes import Change, NewNode, ObjectiveChange, OperatorMove, rate_share_in, start_s_in
from engine.policies.policy import OverrideRules

__all__ = [
    "admission_applied",
    "admission_apply",
    "admission_approve",
    "admission_decline",
    "admission_hold",
    "admission_override",
    "admission_request_review",
    "admission_withdraw",
    "apply_decided",
    "changes_apply",
    "enqueue_decided",
    "has_later_start",
    "is_passing",
    "placement_now",
    "placement_of",
    "release_queued_query",
    "requests_close",
]


@transaction.atomic
def admission_withdraw(*, request: AdmissionRequest, user: User | None, reason: str = "") -> AdmissionRequest:
    """Take a request back. One that is being estimated is cancelled."""
    # The job before the request, as the end of a job takes them: the other way round the two would block each other.
    jobs = [member.job_id for member in request.members if member.job_id is not None]
    list(Job.objects.select_for_update().filter(pk__in=jobs))
    members = members_locked(request)
    _require_state(members[0], OPEN, "withdrawn")
    requests_close(members, AdmissionState.WITHDRAWN, user, reason)
    for job in [member.job for member in members]:
        if job is not None and not job.is_finished:
            job_cancel(job)
    return members[0]


@transaction.atomic
def admission_hold(*, request: AdmissionRequest) -> AdmissionRequest:
    """Let a request that is estimated be a preview only: who asked to have it applied was denied meanwhile."""
    members = members_locked(request)
    if members[0].state == AdmissionState.ESTIMATING:
        members_set(members, apply_when_admitted=False)
    return members[0]


@transaction.atomic
def admission_request_review(*, request: AdmissionRequest, user: User | None, reason: str = "") -> AdmissionRequest:
    """Ask a person to decide. They may take their time: the request no longer expires, but it may still go stale."""
    members = members_locked(request)
    _require_state(members[0], {AdmissionState.PREVIEW}, "sent for review")
    members_set(members, state=AdmissionState.AWAITING, decision_reason=reason[:300], valid_until=None)
    members_announce(members)
    return members[0]


@transaction.atomic
def admission_decline(*, request: AdmissionRequest, user: User, reason: str) -> AdmissionRequest:
    """A person says no, with a reason."""
    members = members_locked(request)
    if not reason.strip():
        raise Malformed("reason: say why; it is kept with the decision.", [("reason", "is missing; say why")])
    _require_state(members[0], {AdmissionState.PREVIEW, AdmissionState.AWAITING, AdmissionState.QUEUED}, "declined")
    requests_close(members, AdmissionState.DECLINED, user, reason)
    return members[0]


def requests_close(members: Sequence[AdmissionRequest], state: AdmissionState, user: User | None, reason: str) -> None:
    """End a request or a group that nothing more becomes of."""
    if state in {AdmissionState.WITHDRAWN, AdmissionState.DECLINED}:
        _record(members, state, reason)
    members_set(members, state=state, decided_by=user, decided_at=timezone.now(), decision_reason=reason[:300])
    for member in members:
        _end_parts(member)
        release_queued_query(member)
    members_announce(members)


def _record(members: Sequence[AdmissionRequest], state: AdmissionState, reason: str) -> None:
    """Put a decision into the ledger, with the least headroom of the cluster before and, where it applies, after it.

    An override of the queue's order names the requests that it overtakes; the entry of a group, which is that of its
    first member, names them all.
    """
    request = members[0]
    decision = request.decision
    before: dict[str, Any] = {"state": request.state}
    after: dict[str, Any] = {"state": state, "verdict": request.verdict, "overridden": request.overridden}
    after["policy_version"] = request.policy_version
    if state == AdmissionState.APPLIED and decision is not None:
        before["headroom_share"], after["headroom_share"] = decision.least_headrooms
        if request.overridden and decision.is_behind_others and decision.policy_facts is not None:
            after["overtakes"] = list(decision.policy_facts.ahead)
    if request.group_id is not None:
        after |= {"group": str(request.group_id), "members": [str(member.version) for member in members]}
    decision_recorded(
        kind="decision",
        key=request.pk,
        name=names_of(members),
        cluster=request.cluster,
        before=before,
        after=after,
        why=reason,
    )


def _end_parts(request: AdmissionRequest) -> None:
    """Nobody waits for the parts of a request that has gone on."""
    parts_end(request, PartState.CANCELLED, f"The request was {request.get_state_display().lower()} before.")


def release_queued_query(request: AdmissionRequest) -> None:
    """A query that waited for nothing but this request goes back to what it was."""
    query = request.query
    if query.state == QueryState.QUEUED and not query.admissions.filter(state=AdmissionState.QUEUED).exists():
        query.state = QueryState.DRAFT
        query.save(update_fields=["state", "updated_at"])
        announce(f"query:{request.cluster.slug}/{query.name}")


def _require_state(request: AdmissionRequest, allowed: Iterable[str], verb: str) -> None:
    if request.state not in allowed:
        names = ", ".join(sorted(AdmissionState(state).label.lower() for state in allowed))
        state = request.get_state_display().lower()
        raise Conflict(f"The request is {state}; only one that is {names} can be {verb}.", code="wrong_state")


def changes_apply(cluster: Cluster, candidate: Query, changes: Iterable[Change]) -> None:
    """Carry out the changes that the decision rests on. The candidate's own placement comes with its start."""
    for change in changes:
        match change:
            case NewNode():
                _add_node(cluster, change)
            case ObjectiveChange():
                objective = {"statistic": change.statistic, "bound_s": change.bound_s}
                query_update(query=_query(cluster, change.query), objective=objective)
            case OperatorMove():
                _move(cluster, candidate, change)


def placement_of(query: Query, decision: AdmissionDecision) -> dict[str, list[dict[str, str | float]]]:
    """The decided replicas of each of the query's operators, by the operator's name within the query."""
    placed = decision.placement_of(query.name)
    return {operator: [asdict(replica) for replica in replicas] for operator, replicas in placed.items()}


def placement_now(query: Query) -> dict[str, list[dict[str, str | float]]]:
    """Replicas of the operators of the version that runs, by the operator's name; empty where none does."""
    placed: dict[str, list[dict[str, str | float]]] = {}
    rows = Placement.objects.filter(operator__version=query.running_version_id).select_related("operator", "node")
    for row in rows.order_by("operator__position", "pk") if query.running_version_id else ():
        replica = {"node": row.node.name, "core": row.core, "fraction": row.fraction}
        placed.setdefault(row.operator.name, []).append(replica)
    return placed


def _add_node(cluster: Cluster, change: NewNode) -> None:
    """A node like another one, with the same links, and links between the two as slow as the worst of them."""
    like = cluster.nodes.select_related("pool").get(name=change.like)
    cores = change.cores or like.cores
    node = node_create(pool=like.pool, name=change.id, capacity_cps=change.capacity_cps, cores=cores)
    out, into = list(like.links_out.all()), list(like.links_in.all())
    for link in out:
        _link(node, link.target, link.bandwidth_bytes_s, link.delay_s)
    for link in into:
        _link(link.source, node, link.bandwidth_bytes_s, link.delay_s)
    if links := out + into:
        bandwidth = min((link.bandwidth_bytes_s for link in links if link.bandwidth_bytes_s is not None), default=None)
        delay_s = max(link.delay_s for link in links)
        _link(like, node, bandwidth, delay_s)
        _link(node, like, bandwidth, delay_s)


def _link(source: Node, target: Node, bandwidth_bytes_s: float | None, delay_s: float) -> None:
    link_create(source=source, target=target, bandwidth_bytes_s=bandwidth_bytes_s, delay_s=delay_s)


def _move(cluster: Cluster, candidate: Query, change: OperatorMove) -> None:
    """Move a neighbour's operator; the candidate's own moves are part of its decided placement."""
    query_name, _, name = change.operator.partition("/")
    if query_name != candidate.name:
        where = {"node": change.node, "core": change.core}
        placement_move(query=_query(cluster, query_name), placement={name: where})


def _query(cluster: Cluster, name: str) -> Query:
    query = cluster.queries.filter(name=name).first()
    if query is None:
        raise Conflict(f"Query {name} of the decision's changes is gone. Preview it again.")
    return query


#: Sent with `request` inside the transaction that applies it.
admission_applied = Signal()

_PASSING = frozenset({Verdict.ADMIT, Verdict.ADMIT_WITH_CHANGES})
_APPLICABLE = frozenset({AdmissionState.PREVIEW, AdmissionState.AWAITING, AdmissionState.QUEUED})


@transaction.atomic
def admission_apply(*, request: AdmissionRequest, user: User | None) -> AdmissionRequest:
    """Do what the verdict says: start the query, or put it into the queue.

    Raises
    ------
    Stale
        The cluster has moved since the preview (`data["changed"]` says what), or the preview has expired.
    Conflict
        The request is not in a state to be applied.
    Impossible
        The verdict is review or reject: a person has to approve or to override.
    Forbidden
        It touches what others own than the person's teams.
    """
    members = _lock_cluster_and_members(request)
    request = members[0]
    _require_applicable(members)
    if request.verdict == Verdict.QUEUE or (is_passing(request) and has_later_start(request)):
        _require_fresh(request)
        for member in members:
            require_owners(member, user)
        return enqueue_decided(members, user)
    if not is_passing(request):
        hint = (
            "Ask for a review or approve it."
            if request.verdict == Verdict.REVIEW
            else "Take an alternative or override."
        )
        verdict = request.get_verdict_display().lower()
        raise Impossible(f"The verdict is {verdict}. {hint}", code=f"verdict_{request.verdict}")
    _require_fresh(request)
    return apply_decided(members, user)


@transaction.atomic
def admission_approve(*, request: AdmissionRequest, user: User, reason: str = "") -> AdmissionRequest:
    """A person says yes to a verdict that asks for one (review), or that would have passed anyway."""
    members = _lock_cluster_and_members(request)
    request = members[0]
    _require_applicable(members)
    if request.verdict not in _PASSING | {Verdict.REVIEW}:
        verdict = request.get_verdict_display().lower()
        raise Impossible(f"The verdict is {verdict}; approving it needs an override with a reason.", code="override")
    _require_fresh(request)
    for member in members:
        member.decision_reason = reason[:300]
    return apply_decided(members, user)


@transaction.atomic
def admission_override(
    *, request: AdmissionRequest, user: User, reason: str, scopes: Collection[str] | None = None
) -> AdmissionRequest:
    """A person applies a request against its verdict, and says why. The cluster still must not have moved.

    Where the policy wants a second person, the first override asks for one: the request waits until another person
    overrides it as well. `scopes` are those of the caller; the person's unless given.
    """
    if not reason.strip():
        raise Malformed("reason: an override needs one.", [("reason", "is missing; say why the verdict is overridden")])
    members = _lock_cluster_and_members(request)
    request = members[0]
    _require_applicable(members)
    if is_passing(request):
        raise Conflict("The verdict is to admit: apply it, there is nothing to override.", code="nothing_to_override")
    is_second_asked = False
    for member in members:
        rules = policy_of(member.cluster).rules_for(team_of(member.query)).override
        held = user.reach.on_owned(member.cluster_id, member.query.team_id, member.query.labels)
        _require_may_override(member, rules, held if scopes is None else held & frozenset(scopes))
        is_second_asked |= rules.second_person
    _require_fresh(request)
    if is_second_asked and request.override_by_id in (None, user.pk):
        return _ask_second_person(members, user, reason)
    if is_second_asked:
        reason = f"{request.override_reason} (confirmed: {reason})"
    for member in members:
        member.overridden, member.decision_reason = True, reason[:300]
    return apply_decided(members, user)


def _require_may_override(request: AdmissionRequest, rules: OverrideRules, scopes: Collection[str]) -> None:
    """Raise unless the policy lets a caller override; of a group it names the member."""
    needed = Scope.ADMIT if "admitter" in rules.roles else Scope.ADMIN
    if needed not in scopes:
        of_member = "" if request.group_id is None else f" of {request.version}"
        message = f"By the policy, overriding{of_member} is for {' and '.join(rules.roles)} alone."
        raise Forbidden(f"{message} {role_hint(needed)}", code="override_role")


def _ask_second_person(members: Sequence[AdmissionRequest], user: User, reason: str) -> AdmissionRequest:
    """Keep who overrides and why, until another person confirms it."""
    request = members[0]
    if request.override_by_id == user.pk:
        message = "You have asked to override it; the policy wants another person to confirm."
        raise Conflict(message, code="second_person")
    _record(members, AdmissionState.AWAITING, reason)
    asked = {"override_by": user, "override_reason": reason[:300]}
    members_set(members, **asked, state=AdmissionState.AWAITING, valid_until=None)
    members_announce(members)
    return request


def is_passing(request: AdmissionRequest) -> bool:
    """Whether the verdict alone lets the query start."""
    return request.verdict in _PASSING


def has_later_start(request: AdmissionRequest) -> bool:
    """Whether the decision rests on a later start."""
    decisions = (member.decision for member in request.members)
    return any(decision is not None and start_s_in(decision.changes) > 0 for decision in decisions)


def apply_decided(members: Sequence[AdmissionRequest], user: User | None) -> AdmissionRequest:
    """Start the query as decided, or all of a group. The caller holds the cluster's lock and has compared the snapshot.

    Raises
    ------
    Conflict
        A member of the group is gone.
    Impossible
        The policy forbids it by now, and no person overrides that.
    Forbidden
        It touches what others own than the person's teams.
    """
    _require_whole(members)
    for request in members:
        require_owners(request, user)
        if not request.overridden:
            require_permitted(request)
    for request in members:
        _start(request)
    _record(members, AdmissionState.APPLIED, members[0].decision_reason)
    for request in members:
        _finish(request, user)
    members_announce(members)
    return members[0]


def _start(request: AdmissionRequest) -> None:
    """Start the query of a request with the changes that its decision rests on."""
    decision, query = request.decision, request.query
    assert decision is not None
    changes = decision.changes
    request.placed_before = placement_now(query)
    if request.objective:
        query_update(query=query, objective=request.objective)
    changes_apply(request.cluster, query, changes)
    query_start(
        version=request.version,
        placement=placement_of(query, decision),
        rate_share=rate_share_in(changes),
    )


def _finish(request: AdmissionRequest, user: User | None) -> None:
    """Keep that a request was applied, what it promised, and that the others for its query have no use."""
    decision, query = request.decision, request.query
    assert decision is not None
    request.state, request.decided_by, request.decided_at = AdmissionState.APPLIED, user, shared_now()
    request.save()
    promise_make(request, decision)
    _end_parts(request)
    _supersede_others(request)
    admission_applied.send(sender=AdmissionRequest, request=request)
    announce(f"query:{request.cluster.slug}/{query.name}")


def _lock_cluster_and_members(request: AdmissionRequest) -> list[AdmissionRequest]:
    """One decision at a time per cluster: whoever comes second sees what the first has changed."""
    Cluster.objects.select_for_update().get(pk=request.cluster_id)
    return members_locked(request)


def _require_applicable(members: Sequence[AdmissionRequest]) -> None:
    _require_whole(members)
    for request in members:
        if request.state not in _APPLICABLE:
            state = request.get_state_display().lower()
            raise Conflict(f"The request is {state}; only a preview can be applied.", code="wrong_state")
        query = request.query
        if query.state == QueryState.RUNNING and query.running_version_id == request.version_id:
            raise Conflict(f"{request.version} runs already; another request has started it.", code="running")
    valid_until = members[0].valid_until
    if valid_until is not None and shared_now() > valid_until:
        message = f"The preview was valid until {valid_until:%Y-%m-%d %H:%M:%S} UTC. Preview it again."
        raise Stale(message, code="expired")


def _require_whole(members: Sequence[AdmissionRequest]) -> None:
    """Refuse a group a member of which is gone: it is not applied by halves."""
    if lost := lost_members(members):
        raise Conflict(lost_words(lost), code="group_incomplete")


def _require_fresh(request: AdmissionRequest) -> None:
    changed = changes_told(request, question_changes(request))
    if changed:
        raise Stale(
            f"The cluster has moved since the preview: {', '.join(changed)}. Preview it again.",
            [("snapshot", change) for change in changed],
            data={"changed": changed},
        )


def enqueue_decided(members: Sequence[AdmissionRequest], user: User | None) -> AdmissionRequest:
    """Put the request, or a group as one entry, into the queue until its start. The caller holds the cluster's lock."""
    _require_whole(members)
    request = members[0]
    decisions = [member.decision for member in members]
    known = [decision for decision in decisions if decision is not None]
    start_s = max((decision.start_s or start_s_in(decision.changes) for decision in known), default=0.0)
    starts_at: datetime | None = (request.previewed_at or shared_now()) + timedelta(seconds=start_s)
    if known and not start_s and request.verdict == Verdict.QUEUE:
        starts_at = thaw_in(known)  # the policy alone keeps it waiting
    _record(members, AdmissionState.QUEUED, request.decision_reason)
    for member in members:
        if member.state != AdmissionState.QUEUED:
            member.queued_at = shared_now()
        member.state, member.decided_by, member.decided_at = AdmissionState.QUEUED, user, shared_now()
        member.starts_at, member.valid_until = starts_at, None
        member.save()
        query = member.query
        if query.state != QueryState.RUNNING:
            query.state = QueryState.QUEUED
            query.save(update_fields=["state", "updated_at"])
            announce(f"query:{member.cluster.slug}/{query.name}")
    members_announce(members)
    return request


def thaw_in(decisions: Sequence[AdmissionDecision]) -> datetime | None:
    """When the freezes are over that decisions wait for; None where one of them waits for something else as well."""
    thaws = list[datetime]()
    for decision in decisions:
        waits, facts = [reason for reason in decision.reasons if reason.severity == "bad"], decision.policy_facts
        if waits and (facts is None or any(row.code != "change_frozen" or row.value is None for row in waits)):
            return None
        thaws += [facts.at + timedelta(seconds=reason.value or 0.0) for reason in waits if facts is not None]
    return max(thaws, default=None)


def _supersede_others(request: AdmissionRequest) -> None:
    """End the other requests for the query that was started, each with all of its group."""
    others = request.query.admissions.filter(state__in=OPEN - {AdmissionState.ESTIMATING}).exclude(pk=request.pk)
    for other in others.select_related("group"):
        members = members_locked(other)
        members_set(members, state=AdmissionState.SUPERSEDED)
        for member in members:
            _end_parts(member)
            if member.pk != other.pk:
                release_queued_query(member)
        members_announce(members)
