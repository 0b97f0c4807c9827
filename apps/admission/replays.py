"""Replays of decisions: what each would be today, by today's statistics, model, policy and cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, ClassVar

from django.utils import timezone

from apps.accounts.models import User
from apps.admission.models import AdmissionRequest
from apps.admission.policy_previews import DAYS
from apps.admission.questions import ask_engine, question_of
from apps.core.errors import Conflict, SluiceError, from_engine
from apps.core.events import announce
from apps.core.reach import caller_now, is_seen_in_part
from apps.fleet.models import Cluster
from apps.jobs.models import LATER, Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.policies.selectors import policy_numbered
from apps.queries.snapshots.cluster import Snapshot
from apps.queries.snapshots.parts import snapshot_take
from engine.admission.replay import ReplayChange, decision_changes
from engine.errors import EngineError
from engine.records import Moment, Record, Words
from engine.words import counted
from engine.words.replays import replay_words

__all__ = [
    "DecisionReplay",
    "MonthReplay",
    "month_replay_request",
    "replay_decisions",
    "replay_latest",
    "replay_request",
]

MAX_REPLAYED = 500  # versions, the newest decisions
_COPIED = ("cluster", "query", "version", "objective", "placement", "changes", "may_wait_s", "target")
_RELATED = ("cluster", "query__team", "version__query__cluster", "job")


@dataclass(frozen=True)
class DecisionReplay(Record):
    """A decision beside what it would be today. Nothing is registered, changed or applied."""

    TITLE: ClassVar[str] = "a replay of a decision"

    id: Annotated[str, Words("Of the admission request.")]
    query: str
    version: int
    decided_at: Moment
    then: Annotated[str, Words("Its verdict.")]
    now: Annotated[str, Words("The verdict of today.")]
    sentence: Annotated[
        str, Words("What it would be now and what changed most, such as would be rejected now: load +30%.")
    ]
    because: Annotated[str, Words("The headline of today's verdict.")]
    changes: Annotated[tuple[ReplayChange, ...], Words("What changed since, that which tells most first.")]
    replayed_at: Moment

    @property
    def is_otherwise(self) -> bool:
        """Whether the verdict is another one."""
        return self.then != self.now


@dataclass(frozen=True)
class MonthReplay(Record):
    """Decisions of the last 30 days as they would be today: of each version the last one."""

    TITLE: ClassVar[str] = "a replay of a month"

    since: Moment
    decisions: Annotated[int, Words("Versions that were decided on in that time.")]
    replayed: Annotated[int, Words("Of them, those that could be decided on today.")]
    otherwise: Annotated[int, Words("Of these, those with another verdict.")]
    verdicts: Annotated[Mapping[str, int], Words("How many of each pair of verdicts, such as admit>reject.")]
    listed: Annotated[tuple[DecisionReplay, ...], Words("Those with another verdict, the newest first.")]
    lacking: Annotated[tuple[str, ...], Words("How many could not be decided on, and why.")]
    left_out: Annotated[int, Words("Older ones, beyond the newest 500.")] = 0

    @property
    def sentence(self) -> str:
        """3 of 40 decisions of the last 30 days would be otherwise."""
        if not self.replayed:
            return f"No decision of the last {DAYS} days can be replayed."
        return f"{self.otherwise} of {counted(self.replayed, 'decision')} of the last {DAYS} days would be otherwise."


def replay_request(*, request: AdmissionRequest, user: User | None) -> Job:
    """Request the replay of a decision, whose job tells of all that runs: its caller sees the whole cluster.

    Raises
    ------
    Conflict
        There is no verdict yet.
    Forbidden
        The caller sees a part of the cluster.
    """
    if is_seen_in_part(request.cluster_id):
        caller_now().check(request.cluster_id, request.cluster.slug)
    if not request.result:
        raise Conflict("There is no verdict yet that could be replayed.", code="wrong_state")
    return job_submit(
        kind=JobKind.DECISION_REPLAY,
        title=f"Replay {request.version}",
        params={"admission": str(request.pk)},
        cluster=request.cluster,
        user=user,
        dedupe_key=f"replay:{request.pk}",
    )


def month_replay_request(*, cluster: Cluster, user: User | None) -> Job:
    """Request the replay of the cluster's decisions of the last 30 days, in the background."""
    return job_submit(
        kind=JobKind.DECISION_REPLAY,
        title=f"Replay decisions of {cluster.slug}",
        params={LATER: True},
        cluster=cluster,
        user=user,
        dedupe_key=f"replays:{cluster.pk}",
    )


def replay_latest(request: AdmissionRequest) -> tuple[Job | None, DecisionReplay | None]:
    """The newest job that replays a decision, of whatever state, and the newest answer; None where there is none."""
    jobs = Job.objects.filter(kind=JobKind.DECISION_REPLAY, cluster=request.cluster, params__admission=str(request.pk))
    newest = jobs.order_by("-created_at").first()
    done = jobs.filter(state=JobState.SUCCEEDED).order_by("-created_at").first()
    return newest, DecisionReplay.parse(done.result) if done is not None and done.result else None


def replay_decisions(report: JobReporter) -> JobOutcome:
    """The work of the job: one decision, or those of the month."""
    job, cluster = report.job, report.job.cluster
    assert cluster is not None
    key = job.params.get("admission")
    rows = AdmissionRequest.objects.filter(result__isnull=False).select_related(*_RELATED)
    if key is None:
        return JobOutcome(_month(cluster, report).to_dict())
    request = rows.filter(pk=key).first()
    if request is None:
        raise Conflict("The decision is deleted.", code="wrong_state")
    report(0.0, "Taking a snapshot")
    answer = _replay(request, snapshot_take(cluster), report)
    page, address = f"/c/{cluster.slug}/admission/{request.pk}/", f"/api/v1/admissions/{request.pk}"
    return JobOutcome(answer.to_dict(), page, address, follow=lambda: announce(f"admission:{request.pk}"))


def _month(cluster: Cluster, report: JobReporter) -> MonthReplay:
    """Replay the last decision of each version, all by one snapshot."""
    since, snapshot = timezone.now() - timedelta(days=DAYS), snapshot_take(cluster)
    keys = list(_last_of_versions(cluster, since))
    lacks, verdicts, found = Counter[str](), Counter[str](), list[DecisionReplay]()
    chosen = keys[:MAX_REPLAYED]
    for i, key in enumerate(chosen):
        report(i / len(chosen), f"Decision {i + 1} of {len(chosen)}")
        request = AdmissionRequest.objects.select_related(*_RELATED).defer("curves").filter(pk=key).first()
        if request is None:
            continue  # deleted meanwhile
        try:
            answer = _replay(request, snapshot, lambda share, step: None)
        except SluiceError as error:
            lacks[error.message] += 1
            continue
        except EngineError as error:
            lacks[from_engine(error).message] += 1
            continue
        verdicts[f"{answer.then}>{answer.now}"] += 1
        if answer.is_otherwise:
            found.append(answer)
    lacking = tuple(f"{counted(n, 'decision')}: {why}" for why, n in lacks.most_common())
    replayed, left_out = sum(verdicts.values()), max(0, len(keys) - MAX_REPLAYED)
    return MonthReplay(since, len(keys), replayed, len(found), dict(verdicts), tuple(found), lacking, left_out)


def _last_of_versions(cluster: Cluster, since: datetime) -> Iterator[object]:
    """Keys of the last decision of each version, the newest first."""
    rows = AdmissionRequest.objects.filter(cluster=cluster, result__isnull=False, previewed_at__gte=since)
    seen = set[int]()
    for key, version in rows.order_by("-previewed_at", "-pk").values_list("pk", "version"):
        if version not in seen:
            seen.add(version)
            yield key


def _replay(request: AdmissionRequest, snapshot: Snapshot, report: Callable[[float, str], None]) -> DecisionReplay:
    """The verdict about the same question today, of what runs today without the query itself.

    The copy of the request is never written. It waits behind nobody: the question is what it would be, not when.
    """
    then = request.decision
    assert then is not None
    copy = AdmissionRequest(**{name: getattr(request, name) for name in _COPIED})
    question = question_of(copy, snapshot)
    standing = question.standing
    if standing is not None:
        facts = then.policy_facts
        is_version = facts.is_version if facts is not None else False
        question = replace(question, standing=replace(standing, ahead=(), overdue=(), is_version=is_version))
    opened, _, _ = ask_engine(copy, question, copy.changes, report, time.perf_counter())
    now = opened.decision
    policy_then = policy_numbered(request.cluster, then.policy_facts.version if then.policy_facts is not None else 0)
    changes = decision_changes(then, now, policy_then, request.may_wait_s)
    return DecisionReplay(
        str(request.pk),
        request.query.name,
        request.version.number,
        request.previewed_at or request.created_at,
        request.verdict,
        now.verdict,
        replay_words(request.verdict, now.verdict, changes),
        now.headline,
        changes,
        timezone.now(),
    )
