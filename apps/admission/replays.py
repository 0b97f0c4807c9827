"""Replays of decisions: each asked again, with what is taken of today: load, costs, model, policy and cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.admission.candidates import candidate_costing, candidate_of
from apps.admission.models import AdmissionRequest
from apps.admission.policy_previews import ReplayedDecision
from apps.admission.questions import RequestQuestion, ask_engine, question_of
from apps.core.errors import Conflict
from apps.core.events import announce
from apps.core.reach import caller_now, is_seen_in_part
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.policies.selectors import policy_numbered, rules_of
from apps.queries.snapshots.cluster import Snapshot
from apps.queries.snapshots.parts import snapshot_take
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.admission.answer import AdmissionDecision, AdmissionPolicy
from engine.admission.policy_replay import LACKS
from engine.admission.replay import EVERYTHING, ReplayChange, Taken, decision_changes, shares_of
from engine.records import Moment, Words
from engine.words.replays import replay_words

__all__ = [
    "DecisionReplay",
    "check_alone",
    "decisions_to_replay",
    "replay_decision",
    "replay_latest",
    "replay_of",
    "replay_request",
    "replayed",
]

_COPIED = ("cluster", "query", "version", "objective", "placement", "changes", "may_wait_s", "target")
_RELATED = ("cluster", "query__team", "version__query__cluster", "job")


@dataclass(frozen=True)
class DecisionReplay(ReplayedDecision):
    """A decision beside what it would be with what is so today. Nothing is registered, changed or applied."""

    TITLE: ClassVar[str] = "a replay of a decision"

    sentence: Annotated[
        str, Words("What it would be now and what changed most, such as would be rejected now: load +30%.")
    ]
    changes: Annotated[tuple[ReplayChange, ...], Words("What changed since, that which tells most first.")]
    replayed_at: Moment

    @property
    def is_otherwise(self) -> bool:
        """Whether the verdict is another one."""
        return self.then != self.now


def replay_request(*, request: AdmissionRequest, user: User | None) -> Job:
    """Request the replay of a decision, whose job tells of all that runs: its caller sees the whole cluster.

    Raises
    ------
    Conflict
        There is no verdict yet, or it is a group's.
    Forbidden
        The caller sees a part of the cluster.
    """
    if is_seen_in_part(request.cluster_id):
        caller_now().check(request.cluster_id, request.cluster.slug)
    if not request.result:
        raise Conflict("There is no verdict yet that could be replayed.", code="wrong_state")
    check_alone(request)
    return job_submit(
        kind=JobKind.DECISION_REPLAY,
        title=f"Replay {request.version}",
        params={"admission": str(request.pk)},
        cluster=request.cluster,
        user=user,
        dedupe_key=f"replay:{request.pk}",
    )


def check_alone(request: AdmissionRequest) -> None:
    """Refuse to replay what was decided with a group: asked alone, a member gets another verdict. Raises Conflict."""
    if request.group_id is not None:
        raise Conflict(f"This cannot be replayed: {LACKS['in_group']}.", code="wrong_state")


def replay_latest(request: AdmissionRequest) -> tuple[Job | None, DecisionReplay | None]:
    """The newest job that replays a decision, of whatever state, and the newest answer; None where there is none."""
    jobs = Job.objects.filter(kind=JobKind.DECISION_REPLAY, cluster=request.cluster, params__admission=str(request.pk))
    newest = jobs.order_by("-created_at").first()
    done = jobs.filter(state=JobState.SUCCEEDED).order_by("-created_at").first()
    return newest, DecisionReplay.parse(done.result) if done is not None and done.result else None


def replay_decision(report: JobReporter) -> JobOutcome:
    """The work of the job of one decision."""
    job, cluster = report.job, report.job.cluster
    assert cluster is not None
    request = decisions_to_replay().filter(pk=job.params["admission"]).first()
    if request is None:
        raise Conflict("The decision is deleted.", code="wrong_state")
    report(0.0, "Taking a snapshot")
    answer = replayed(request, snapshot_take(cluster), report)
    page, address = f"/c/{cluster.slug}/admission/{request.pk}/", f"/api/v1/admissions/{request.pk}"
    return JobOutcome(answer.to_dict(), page, address, follow=lambda: announce(f"admission:{request.pk}"))


def decisions_to_replay() -> QuerySet[AdmissionRequest]:
    """Requests with a decision, with what a replay reads."""
    rows = AdmissionRequest.objects.filter(result__isnull=False).select_related(*_RELATED)
    return rows.defer("curves", "snapshot_parts")


def replayed(
    request: AdmissionRequest, snapshot: Snapshot, report: Callable[[float, str], None], taken: Taken = EVERYTHING
) -> DecisionReplay:
    """The decision with what is taken of today, of what runs in a snapshot without the query itself.

    The copy of the request is never written. It waits behind nobody: the question is what it would be, not when.

    Load of then is today's arrivals of the query times events per second then by those of today; costs of then, cycles
    of each of its inputs times cores per event and second then by those of today. Both are sums over the query that the
    decision kept.

    Raises
    ------
    Conflict
        The decision did not keep what is not taken of today.
    """
    then = request.decision
    assert then is not None
    question, rules = _question(request, then, snapshot), None
    policy_then = policy_numbered(request.cluster, then.policy_facts.version if then.policy_facts is not None else 0)
    if "policy" not in taken:
        assert question.standing is not None
        question = replace(question, standing=replace(question.standing, policy=policy_then))
        rules = rules_of(policy_then, request.query, snapshot.closed_nodes)
    now = of_today = _asked(request, question, report, rules)
    if not taken >= {"load", "cost"}:
        candidate = _as_then(request, question.candidate, then, of_today, taken)
        now = _asked(request, replace(question, candidate=candidate), report, rules)
    changed = decision_changes(then, of_today, policy_then, request.may_wait_s)
    changes = tuple(change for change in changed if change.kind in taken)
    return replay_of(request, now.verdict, now.headline, changes)


def replay_of(
    request: AdmissionRequest, verdict: str, because: str, changes: tuple[ReplayChange, ...]
) -> DecisionReplay:
    """A replay that came to a verdict."""
    return DecisionReplay(
        str(request.pk),
        request.query.name,
        request.version.number,
        request.previewed_at or request.created_at,
        request.verdict,
        verdict,
        because,
        replay_words(request.verdict, verdict, changes),
        changes,
        timezone.now(),
    )


def _copy(request: AdmissionRequest) -> AdmissionRequest:
    return AdmissionRequest(**{name: getattr(request, name) for name in _COPIED})


def _question(request: AdmissionRequest, then: AdmissionDecision, snapshot: Snapshot) -> RequestQuestion:
    question, facts = question_of(_copy(request), snapshot), then.policy_facts
    standing = question.standing
    if standing is None:
        return question
    is_version = facts.is_version if facts is not None else False
    return replace(question, standing=replace(standing, ahead=(), overdue=(), is_version=is_version))


def _asked(
    request: AdmissionRequest,
    question: RequestQuestion,
    report: Callable[[float, str], None],
    rules: AdmissionPolicy | None = None,
) -> AdmissionDecision:
    opened, _, _ = ask_engine(_copy(request), question, request.changes, report, time.perf_counter(), rules)
    return opened.decision


def _as_then(
    request: AdmissionRequest,
    candidate: Mapping[str, object],
    then: AdmissionDecision,
    now: AdmissionDecision,
    taken: Taken,
) -> Mapping[str, object]:
    """The candidate with the load and the costs that are not taken of today."""
    load, cost = shares_of(then, now)
    if ("load" not in taken and not load) or ("cost" not in taken and not cost):
        raise Conflict("Its load and costs of then were not kept, or are not known today.", code="wrong_state")
    if "load" not in taken and load and load != 1.0:
        candidate = StoppedRelatives(request.cluster).beside(candidate_of(request, rate_share=load))
    return candidate if "cost" in taken or not cost else candidate_costing(candidate, cost)
