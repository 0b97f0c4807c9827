"""Previews: whether a version of a query may run. Requested, answered, applied where that was asked for; the queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.admission.choices import OPEN, AdmissionSource, AdmissionState, PartState, Verdict
from apps.admission.completion import completion_begin
from apps.admission.decisions import (
    admission_withdraw,
    apply_decided,
    enqueue_decided,
    has_later_start,
    is_passing,
    release_queued_query,
    requests_close,
)
from apps.admission.effects import decision_stored
from apps.admission.groups import GroupQuestion, group_members_write, groups_broken
from apps.admission.members import lost_members, lost_words, members_locked, members_set, names_of
from apps.admission.models import AdmissionGroup, AdmissionRequest
from apps.admission.parts import parts_begin, parts_end, parts_of
from apps.admission.questions import (
    AdmissionQuestion,
    MemberQuestion,
    RequestQuestion,
    ask_engine,
    ask_group,
    draft_from_document,
    draft_version,
    fingerprint,
    question_changes,
    question_check,
    question_of,
)
from apps.admission.queue import ClusterQueue, cluster_queue
from apps.admission.selectors import change_to_start, is_due, is_over
from apps.core.advisory_locks import advisory_lock
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.core.limits import MAX_NOTE, MAX_REASON
from apps.estimates.bases import BaseFacts
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.predictions.choices import PredictionPurpose
from apps.predictions.services import CandidatePrediction, prediction_store
from apps.queries.choices import QueryState
from apps.queries.snapshots.cluster import cluster_parts
from apps.queries.snapshots.outlines import ClusterOutline, cluster_outline
from apps.queries.snapshots.parts import snapshot_take
from engine.admission.answer import PARTS, AdmissionDecision, PartName
from engine.admission.changes import Change
from engine.admission.group_answer import GroupAnswer
from engine.errors import EngineError
from engine.policies.candidate_policy import POLICY_CODES

if TYPE_CHECKING:
    from engine.admission.decision import OpenDecision

__all__ = ["ADMISSION", "previews_purge", "queue_review"]

MAX_TRIES = 20  # of a request that is to be applied, on a cluster that moves during each
_LOOK_AGAIN = timedelta(minutes=1)
_COMPARED = timedelta(days=1)  # that a preview says what has moved after it has expired
_LOOKED_AT = timedelta(days=7)  # older ones were emptied before
_TRIES_AT_ONCE = 4  # of these, in one job
_LOCK_WAIT_S = 30.0  # for others that decide on what is to be applied to the cluster
_LOCK_S = 60.0  # that one of them has at most
_WAITS_ON = (
    "The request waits in the queue, and its verdict is computed anew as the cluster moves. What follows the first is "
    "computed by itself, what follows a later one when somebody asks."
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OneAnswer:
    """The engine's answer to a request; `without` says of parts that do not apply why (`OpenDecision.why_without`)."""

    decision: AdmissionDecision
    prediction: CandidatePrediction | None
    without: Mapping[PartName, str]

    @classmethod
    def of(cls, opened: OpenDecision, prediction: CandidatePrediction | None) -> OneAnswer:
        """The answer of an open decision, with the prediction of the placement that was decided on."""
        decision = opened.decision
        if prediction is not None and decision.prediction is not None:
            prediction = replace(prediction, answer=decision.prediction)
        return cls(decision, prediction, {name: opened.why_without(name) for name in PARTS})


@dataclass(frozen=True)
class Answer:
    """The engine's answer to the question of a request, or to those of a group by the places of its members."""

    question: RequestQuestion
    base: BaseFacts
    members: Mapping[int, OneAnswer]
    group: GroupAnswer | None = None


#: States in which the same question, asked again, takes a request's place.
_REPLACED = frozenset({AdmissionState.FAILED, AdmissionState.PREVIEW, AdmissionState.AWAITING})


class AdmissionKind(RunKind[AdmissionRequest]):
    """Preview of a request on its cluster as it is when a worker takes it; of one in the queue, another look at it."""

    model, job, name, path = AdmissionRequest, JobKind.ADMISSION_PREVIEW, "admission", "admissions"
    topics = ("admission", "cluster")
    asked, answered = AdmissionState.ESTIMATING, AdmissionState.PREVIEW
    failed, cancelled = AdmissionState.FAILED, AdmissionState.WITHDRAWN
    related = ("cluster", "query", "version", "job", "parts_job", "requested_by", "decided_by", "override_by")
    bulk = ("snapshot_parts", "curves")

    def title(self, run: AdmissionRequest) -> str:
        return f"Preview {names_of(run.members)}"[:MAX_NOTE]

    def page(self, run: AdmissionRequest) -> str:
        one = f"groups/{run.group_id}" if run.group_id is not None else str(run.pk)
        return f"/c/{run.cluster.slug}/admission/{one}/"

    def address(self, run: AdmissionRequest) -> str:
        one = f"groups/{run.group_id}" if run.group_id is not None else str(run.pk)
        return f"/api/v1/{self.path}/{one}"

    def once(self, run: AdmissionRequest, params: Mapping[str, object]) -> str:
        return f"admission:{run.pk}"

    def request(self, *, user: User | None = None, **asked: Any) -> tuple[AdmissionRequest, Job]:
        """Request a preview, of a group by its first member.

        The cluster's outline, which checks it, is taken before its lock.
        """
        cluster = asked["parent"].cluster if "parent" in asked else asked["cluster"]
        return super().request(user=user, outline=cluster_outline(cluster), **asked)

    @transaction.atomic
    def create(
        self,
        *,
        user: User | None,
        cluster: Cluster | None = None,
        question: AdmissionQuestion | GroupQuestion | None = None,
        source: AdmissionSource = AdmissionSource.CONSOLE,
        parent: AdmissionRequest | None = None,
        alternative: str | None = None,
        outline: ClusterOutline | None = None,
    ) -> AdmissionRequest:
        """Write a request, not sent to the engine yet. Everything is checked before a worker has to look at it.

        The same question asked again while the first is still estimated gives the first request, which has its job.

        Parameters
        ----------
        cluster, question, source
            Of a new question. A document also describes the query and the sources it brings.
        parent, alternative
            Of a question asked before: as it was, or with the changes of an alternative that its decision offers.
        outline
            All that the check needs of the cluster.
        """
        if parent is not None:
            return self._follow(parent, user, alternative, outline)
        assert cluster is not None and question is not None
        outline = outline or cluster_outline(cluster)
        Cluster.objects.select_for_update().get(pk=cluster.pk)
        digest = question.digest(cluster.slug)
        same = self._still_estimating(cluster, digest)
        if same is not None:
            return same
        shared = {
            "cluster": cluster,
            "requested_by": user,
            "reason": question.reason[:300],
            "source": source,
            "apply_when_admitted": question.mode == "apply",
            "fingerprint": digest,
            "may_wait_s": question.may_wait_s,
        }
        write = partial(_write, shared, outline)
        if isinstance(question, GroupQuestion):
            return group_members_write(cluster=cluster, asked=question.members, write=write)[0]
        return write(question)

    def _follow(
        self, parent: AdmissionRequest, user: User | None, alternative: str | None, outline: ClusterOutline | None
    ) -> AdmissionRequest:
        """A request like `parent`, of a group all of it. The same question, answered before, is superseded."""
        outline = outline or cluster_outline(parent.cluster)
        members = members_locked(parent)
        parent = next(member for member in members if member.pk == parent.pk)
        lead = members[0]
        if lost := lost_members(members):
            raise Conflict(lost_words(lost), code="group_incomplete")
        if alternative is None and lead.state == AdmissionState.ESTIMATING and lead.job is not None:
            return lead
        changes = parent.changes if alternative is None else _offered_changes(parent, alternative)
        digest = fingerprint({"follows": str(lead.pk), "changes": changes})
        same = self._still_estimating(parent.cluster, digest)
        if same is not None:
            return same
        write = partial(_write_follower, changes, digest, user, outline)
        if lead.group_id is not None:
            follower = group_members_write(cluster=lead.cluster, asked=members, write=write)[0]
        else:
            follower = write(parent)
        if lead.state in _REPLACED and changes == parent.changes:
            requests_close(members, AdmissionState.SUPERSEDED, None, "")
        return follower

    def _still_estimating(self, cluster: Cluster, digest: str) -> AdmissionRequest | None:
        rows = AdmissionRequest.objects.select_related("job", "query", "version", "cluster")
        return rows.filter(cluster=cluster, fingerprint=digest, state=self.asked).order_by("place").first()

    def answer(self, run: AdmissionRequest, report: JobReporter) -> Answer:
        """Decide as far as the verdict needs: another job computes what follows it.

        What is to be applied is decided on in turn, since each that is let in moves the cluster for the others. Where
        it has moved nevertheless, as by a person, it is decided on again at once, by what moved.
        """
        if run.apply_when_admitted:
            lock = advisory_lock(f"decide:{run.cluster_id}", wait_s=_LOCK_WAIT_S, lasts_s=_LOCK_S)
            report.held.enter_context(lock)
        for _ in range(_TRIES_AT_ONCE):
            found = self._decided(run, report)
            if not run.apply_when_admitted or found.question.cluster_parts == cluster_parts(run.cluster):
                break
        return found

    def _decided(self, run: AdmissionRequest, report: JobReporter) -> Answer:
        report(0.0, "Taking a snapshot")
        begun_s = time.perf_counter()
        later = change_to_start(run) if run.state == AdmissionState.QUEUED else []
        if run.group_id is not None:
            return self._decided_together(run.members, later, report, begun_s)
        question = question_of(run)
        opened, prediction, base = ask_engine(run, question, [*run.changes, *later], report, begun_s)
        return Answer(question, base, {run.place: OneAnswer.of(opened, prediction)})

    def _decided_together(
        self, members: Sequence[AdmissionRequest], later: Sequence[Change], report: JobReporter, begun_s: float
    ) -> Answer:
        if lost := lost_members(members):
            raise Conflict(lost_words(lost), code="group_incomplete")
        snapshot = snapshot_take(members[0].cluster)
        questions = [question_of(member, snapshot) for member in members]
        found, predictions, base = ask_group(members, questions, later, report, begun_s)
        answers = map(OneAnswer.of, found.opened, predictions)
        places = [member.place for member in members]
        return Answer(questions[0], base, dict(zip(places, answers, strict=True)), found.answer)

    def keep(self, run: AdmissionRequest, answer: Answer, job: Job) -> AdmissionRequest:
        """Keep the answer; apply it at once where that was asked for."""
        Cluster.objects.select_for_update().get(pk=run.cluster_id)
        # Locked, so that an answer does not overwrite what a person has decided in the same moment.
        members = members_locked(run)
        request, now = members[0], shared_now()
        if request.state not in {AdmissionState.ESTIMATING, AdmissionState.QUEUED}:
            return request  # withdrawn meanwhile: the answer comes too late
        if lost := lost_members(members):
            requests_close(members, AdmissionState.WITHDRAWN, None, lost_words(lost))
            return request
        for member in members:
            _keep(member, answer, now, is_lead=member is request)
        if request.group is not None and answer.group is not None:
            request.group.result = answer.group.to_dict()
            request.group.save(update_fields=["result"])
        is_queued = request.state == AdmissionState.QUEUED
        if not is_queued:
            members_set(members, previewed_at=now, state=AdmissionState.PREVIEW)
        if is_queued or (request.apply_when_admitted and _may_settle(request)):
            _settle(members, is_queued, job.params.get("tries", 0))
        for member in members:
            self.announce(member)
        if is_queued:
            began = job.params.get("round", now.isoformat())
            transaction.on_commit(partial(_review_queue, request.cluster, datetime.fromisoformat(began)))
        if is_queued and request.state == AdmissionState.QUEUED:
            parts_end(request, PartState.CANCELLED, _WAITS_ON)
        completion_begin(request, answer.question)
        return request

    def facts(self, run: AdmissionRequest) -> Mapping[str, object]:
        return {"verdict": run.verdict, "state": run.state}

    def ends_with(self, job: Job, run: AdmissionRequest) -> bool:
        """A queued request survives the cancellation of one look at it: the next review asks again."""
        is_failed_look = run.state == AdmissionState.QUEUED and job.state == JobState.FAILED
        return is_failed_look or super().ends_with(job, run)

    def end(self, job: Job) -> None:
        super().end(job)
        request = self.run_of(job)
        if request is None:
            return
        members = members_locked(request)
        if request.state in (self.failed, self.cancelled):
            members_set(members, state=request.state, finished_at=request.finished_at, message=request.message)
        for member in members:
            release_queued_query(member)


ADMISSION = register(AdmissionKind())


def _write(
    shared: Mapping[str, Any], outline: ClusterOutline, question: MemberQuestion, **place: Any
) -> AdmissionRequest:
    """Write a request for a query, alone or in its place in a group; `shared` is what all of a group have in common."""
    cluster, objective = shared["cluster"], question.objective.to_dict() if question.objective else {}
    if question.document is not None:
        drafted, own_objective = draft_from_document(
            cluster=cluster, document=question.document, user=shared["requested_by"]
        )
        objective = objective or own_objective
    else:
        drafted = draft_version(cluster=cluster, name=question.query or "", number=question.version)
    request = AdmissionRequest.objects.create(
        query=drafted.query,
        version=drafted,
        objective=objective,
        placement=dict(question.placement),
        changes=[dict(change) for change in question.changes],
        target=question.target,
        **shared,
        **place,
    )
    question_check(request, outline, path="document" if question.document is not None else "query")
    return request


def _write_follower(
    changes: list[Any], digest: str, user: User | None, outline: ClusterOutline, parent: AdmissionRequest, **place: Any
) -> AdmissionRequest:
    """Write a request like another one; those of a group keep their own changes."""
    names = ("cluster", "query", "version", "reason", "source", "objective", "placement", "may_wait_s", "target")
    follower = AdmissionRequest.objects.create(
        parent=parent,
        requested_by=user,
        fingerprint=digest,
        changes=parent.changes if place else changes,
        **{name: getattr(parent, name) for name in names},
        **place,
    )
    question_check(follower, outline, path="query")
    return follower


def _keep(request: AdmissionRequest, answer: Answer, now: datetime, *, is_lead: bool) -> None:
    """Store the answer about a request. Its verdict is that of its group; what moved is compared by the first alone."""
    question, own = answer.question, answer.members[request.place]
    request.result = decision_stored(own.decision).to_dict()
    request.curves = request.result.pop("curves")
    request.verdict = own.decision.verdict if answer.group is None else answer.group.verdict
    if own.prediction is not None:
        request.prediction = prediction_store(
            version=request.version,
            prediction=own.prediction,
            purpose=PredictionPurpose.ADMISSION,
            user=request.requested_by,
        )
    request.snapshot, request.snapshot_parts = question.digest, question.parts if is_lead else {}
    request.policy_version = question.standing.version if question.standing else 0
    request.base = answer.base.to_dict()
    request.finished_at, request.valid_until = now, now + timedelta(seconds=request.cluster.preview_valid_s)
    parts_begin(request, own.without)
    request.save()


def _offered_changes(request: AdmissionRequest, alternative: str) -> list[Any]:
    """Changes of an alternative that a decision offered."""
    offered = request.decision.alternatives if request.decision else ()
    changes = {row.id: [change.to_dict() for change in row.changes] for row in offered}
    if alternative not in changes:
        searched = parts_of(request).get("alternatives")
        is_late = searched is not None and searched.is_under_way
        none = "none yet: alternatives are still searched" if is_late else "none: this decision offers no alternatives"
        allowed = ", ".join(changes) or none
        message = f"{alternative!r} is not one of: {allowed}"
        raise Malformed(f"choice: {alternative!r} is not offered.", [("choice", message)])
    return changes[alternative]


def _may_settle(request: AdmissionRequest) -> bool:
    """Whether a verdict may be acted on: Kubernetes makes no changes and has no queue."""
    return request.source != AdmissionSource.KUBERNETES or request.verdict == Verdict.ADMIT


def _settle(members: Sequence[AdmissionRequest], is_queued: bool, tries: int) -> None:
    """Move a request or a group on that was to be applied, or waits in the queue, by its answer."""
    request = members[0]
    moved = question_changes(request) if is_passing(request) or request.verdict == Verdict.QUEUE else []
    if moved:
        if not is_queued:  # one in the queue is asked about with the next review
            _ask_again(members, tries + 1, moved)
    elif is_passing(request) and (is_due(request) or not has_later_start(request)):
        _apply(members, is_queued)
    elif request.verdict == Verdict.QUEUE or (is_passing(request) and has_later_start(request)):
        enqueue_decided(members, request.decided_by or request.requested_by)
    elif request.verdict == Verdict.REVIEW:
        _set_and_release(members, state=AdmissionState.AWAITING)
    elif is_queued:
        _refused_in_queue(members)


def _set_and_release(members: Sequence[AdmissionRequest], **values: object) -> None:
    """Set columns of all members, whose queries wait no longer where that lets them."""
    members_set(members, **values)
    for member in members:
        release_queued_query(member)


def _ask_again(members: Sequence[AdmissionRequest], tries: int, moved: Sequence[str]) -> None:
    """The cluster moved while the engine was at work.

    Among many that apply at once each try lets another one through, so its turn comes; a cluster that moves for ever
    gives it none, and then the request says so.
    """
    if tries < MAX_TRIES:
        members_set(members, state=AdmissionState.ESTIMATING)
        ADMISSION.submit(members[0], members[0].requested_by, tries=tries)
        return
    message = f"Not applied: the cluster moved during each of {tries} previews, last {', '.join(moved)}. Apply it anew."
    _set_and_release(members, decision_reason=message[:MAX_REASON])


def _apply(members: Sequence[AdmissionRequest], is_queued: bool) -> None:
    """Apply; if it cannot be done, the answer is kept all the same, with why.

    One in the queue that the policy holds back since its look waits on, and is looked at again soon.
    """
    try:
        with transaction.atomic():
            apply_decided(members, members[0].decided_by or members[0].requested_by)
    except SluiceError as error:
        for member in members:
            member.refresh_from_db()
        if is_queued and error.code in POLICY_CODES:
            members_set(members, starts_at=shared_now() + _LOOK_AGAIN, valid_until=None)
            return
        message = f"Not applied: {error.message}"[:MAX_REASON]
        _set_and_release(members, state=AdmissionState.PREVIEW, decision_reason=message)


def _refused_in_queue(members: Sequence[AdmissionRequest]) -> None:
    """It waits on, with no start in sight, until its patience ends; then the answer stands."""
    if is_over(members[0]):
        values = {"state": AdmissionState.PREVIEW, "valid_until": members[0].valid_until}
    else:
        values = {"state": AdmissionState.QUEUED, "valid_until": None}
    _set_and_release(members, **values, starts_at=None)


def queue_review() -> int:
    """Review the queue of every cluster that has one; returns how many requests were sent to the engine.

    What is left of a group that lost a member is withdrawn.
    """
    for request, lost in groups_broken().items():
        admission_withdraw(request=request, user=None, reason=lost_words(lost))
    waiting = AdmissionRequest.objects.filter(state=AdmissionState.QUEUED)
    began = shared_now()
    return sum(_review_queue(cluster, began) for cluster in Cluster.objects.filter(pk__in=waiting.values("cluster")))


def _review_queue(cluster: Cluster, began: datetime) -> bool:
    """Send the first request of a queue to the engine about which it may say something else now; whether there is one.

    That is one that is due, whose cluster, statistics, policy or priority have changed, whose patience has ended, or
    that waits behind others than before. One at a time, in the order of the queue: whoever is let in moves the cluster
    for those behind, whose turn comes as soon as its look is over, each once in a round that `began` then. One that
    cannot be looked at now does not keep the others waiting.
    """
    queue = cluster_queue(cluster)
    if any(request.job is not None and not request.job.is_finished for request in queue.requests):
        return False
    for request in queue.requests:
        if request.finished_at is not None and request.finished_at >= began:
            continue
        try:
            if _is_worth_a_look(request, queue):
                ADMISSION.submit(request, request.requested_by, round=began.isoformat())
                return True
        except (SluiceError, EngineError) as error:
            _log.warning("queued request %s is not reviewed now: %s", request.pk, error)
        except Exception:
            _log.exception("queued request %s is not reviewed now", request.pk)
    return False


def _is_worth_a_look(request: AdmissionRequest, queue: ClusterQueue) -> bool:
    """Whether the engine may say something else of a queued request now; one whose query was stopped is withdrawn."""
    states = {member.query.state for member in request.members}
    if states - {QueryState.QUEUED, QueryState.RUNNING}:
        admission_withdraw(request=request, user=None, reason="Its query was stopped")
        return False
    decision = request.decision
    facts = decision.policy_facts if decision is not None else None
    is_behind_others = facts is not None and facts.overdue != queue.overdue_ahead(request)
    if decision is not None and facts is not None and decision.is_behind_others:
        is_behind_others |= facts.ahead != tuple(str(row.version) for row in queue.ahead_of(request))
    return is_due(request) or is_over(request) or is_behind_others or bool(question_changes(request))


def previews_purge() -> int:
    """Empty what previews are compared by where nothing can be done with them any more; returns the number.

    Of a cluster of 10,000 queries that is 2 MB each. Verdicts and effects stay. A group all members of which are gone
    is deleted.
    """
    AdmissionGroup.objects.filter(members=None).delete()
    now = shared_now()
    is_over = ~Q(state__in=OPEN) | Q(state=AdmissionState.PREVIEW, valid_until__lt=now - _COMPARED)
    lately = AdmissionRequest.objects.filter(is_over, updated_at__gte=now - _LOOKED_AT)
    return lately.exclude(snapshot_parts={}).update(snapshot_parts={})
