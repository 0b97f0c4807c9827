"""Replay of a month: the last decision of each version asked again, counted by how the verdicts differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from apps.accounts.models import User
from apps.admission.models import AdmissionRequest
from apps.admission.policy_previews import DAYS
from apps.admission.replays import (
    DecisionReplay,
    check_alone,
    decisions_to_replay,
    replay_decision,
    replay_of,
    replayed,
)
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault, Malformed, SluiceError, from_engine
from apps.fleet.models import Cluster
from apps.jobs.models import LATER, Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.policies.selectors import policy_of
from apps.queries.snapshots.parts import snapshot_take
from engine.admission.policy_replay import LACKS, replay_policy
from engine.admission.replay import TAKEN, ReplayChange, Taken
from engine.errors import EngineError
from engine.policies.policy import ClusterPolicy
from engine.records import Moment, Record, Words
from engine.words import counted

__all__ = [
    "MonthQuestion",
    "MonthReplay",
    "month_replay_job",
    "month_replay_latest",
    "month_replay_request",
    "replay_decisions",
]

MAX_REPLAYED = 500  # versions, the newest decisions
_FIRST_YEAR = 1900  # in no time zone does such a month begin before the calendar does
_POLICY: Taken = frozenset({"policy"})
_Kind = Literal["load", "cost", "model", "policy", "cluster"]


@dataclass(frozen=True)
class MonthQuestion(Record):
    """Decisions that are replayed, and what is taken of today."""

    TITLE: ClassVar[str] = "a question for a replay"

    month: Annotated[str | None, Words("Such as 2026-10, by the time zone of the cluster; null: the last 30 days.")] = (
        None
    )
    taken: Annotated[
        tuple[_Kind, ...],
        Words(
            "What is taken as it is today; the rest as the decision kept it. Of model and cluster it kept the "
            "estimates alone: both are taken of today, or the policy alone is."
        ),
    ] = TAKEN  # type: ignore[assignment]

    def find_faults(self) -> Iterator[Fault]:
        if self.month is not None and _parsed(self.month) is None:
            allowed = f"a year from {_FIRST_YEAR} on and a month, such as 2026-10"
            yield Fault("month", f"month is {self.month!r}; allowed: {allowed}")
        taken = frozenset(self.taken)
        if taken != _POLICY and not taken >= {"model", "cluster"}:
            told = ", ".join(kind for kind in TAKEN if kind in taken) or "nothing"
            allowed = "allowed: policy alone, or model and cluster with any of load, cost and policy"
            yield Fault("taken", f"taken is {told}; {allowed}")

    @property
    def words(self) -> str:
        """The time of the decisions, after "of"."""
        begins = _parsed(self.month) if self.month is not None else None
        return f"the last {DAYS} days" if begins is None else f"{begins:%B %Y}"

    def period(self, cluster: Cluster) -> tuple[datetime, datetime]:
        """When the decisions were made that are replayed: from and before.

        Raises
        ------
        Malformed
            The month has not begun.
        """
        now, begins = shared_now(), _parsed(self.month) if self.month is not None else None
        if begins is None:
            return now - timedelta(days=DAYS), now
        since = _midnight(begins, cluster)
        if since > now:
            message = f"month is {self.month!r}, which has not begun; allowed: up to {_month_of(now, cluster)}"
            raise Malformed(f"{message}.", [("month", message)])
        return since, _midnight((begins + timedelta(days=31)).replace(day=1), cluster)


@dataclass(frozen=True)
class MonthReplay(Record):
    """Decisions of a month with what is so today: of each version the last one."""

    TITLE: ClassVar[str] = "a replay of a month"

    since: Moment
    until: Moment
    question: MonthQuestion
    replayed_at: Moment
    decisions: Annotated[int, Words("Versions that were decided on in that time.")]
    replayed: Annotated[int, Words("Of them, those that could be decided on today.")]
    otherwise: Annotated[int, Words("Of these, those with another verdict.")]
    verdicts: Annotated[Mapping[str, int], Words("How many of each pair of verdicts, such as admit>reject.")]
    listed: Annotated[tuple[DecisionReplay, ...], Words("Those with another verdict, the newest first.")]
    lacking: Annotated[tuple[str, ...], Words("How many could not be decided on, and why.")]
    left_out: Annotated[int, Words("Older ones, beyond the newest 500.")] = 0

    @property
    def sentence(self) -> str:
        """17 of 212 decisions of October 2026 would be otherwise."""
        if not self.replayed:
            return f"No decision of {self.question.words} can be replayed."
        decisions = counted(self.replayed, "decision")
        return f"{self.otherwise} of {decisions} of {self.question.words} would be otherwise."


def month_replay_request(*, cluster: Cluster, question: Any, user: User | None) -> Job:
    """Request the replay of the cluster's decisions of a time, in the background; the same question joins its job.

    Raises
    ------
    Malformed
        The question has faults.
    """
    try:
        asked = MonthQuestion.parse(question)
    except EngineError as error:
        raise from_engine(error) from None
    asked.period(cluster)
    taken = "+".join(kind for kind in TAKEN if kind in asked.taken)
    return job_submit(
        kind=JobKind.DECISION_REPLAY,
        title=f"Replay decisions of {asked.words}",
        params={LATER: True, "month": asked.to_dict()},
        cluster=cluster,
        user=user,
        dedupe_key=f"replays:{cluster.pk}:{asked.month or ''}:{taken}",
    )


def month_replay_job(cluster: Cluster) -> Job | None:
    """The newest job that replays decisions of a time, of whatever state."""
    return _jobs(cluster).first()


def month_replay_latest(cluster: Cluster) -> MonthReplay | None:
    """The newest answer; None while there is none."""
    job = _jobs(cluster).filter(state=JobState.SUCCEEDED).first()
    return MonthReplay.parse(job.result) if job is not None and job.result else None


def _jobs(cluster: Cluster) -> Any:
    rows = Job.objects.filter(kind=JobKind.DECISION_REPLAY, cluster=cluster, params__has_key="month")
    return rows.order_by("-created_at")


def replay_decisions(report: JobReporter) -> JobOutcome:
    """The work of the job: one decision, or those of a time."""
    job, cluster = report.job, report.job.cluster
    if "month" not in job.params:
        return replay_decision(report)
    assert cluster is not None
    answer = _replay(cluster, MonthQuestion.parse(job.params["month"]), report)
    return JobOutcome(answer.to_dict(), f"/c/{cluster.slug}/admission/replays/")


def _replay(cluster: Cluster, question: MonthQuestion, report: JobReporter) -> MonthReplay:
    """Replay the last decision of each version, all by one snapshot."""
    since, until = question.period(cluster)
    taken, policy = frozenset(question.taken), policy_of(cluster)
    snapshot = None if taken == _POLICY else snapshot_take(cluster)
    keys = list(_last_of_versions(cluster, since, until))
    lacks, verdicts, found = Counter[str](), Counter[str](), list[DecisionReplay]()
    chosen = keys[:MAX_REPLAYED]
    for i, key in enumerate(chosen):
        report(i / len(chosen), f"Decision {i + 1} of {len(chosen)}")
        request = decisions_to_replay().filter(pk=key).first()
        if request is None:
            continue  # deleted meanwhile
        try:
            check_alone(request)
            if snapshot is None:
                answer = _by_policy(request, policy)
            else:
                answer = replayed(request, snapshot, lambda share, step: None, taken)
        except SluiceError as error:
            lacks[error.message] += 1
            continue
        except EngineError as error:
            lacks[from_engine(error).message] += 1
            continue
        verdicts[f"{answer.then}>{answer.now}"] += 1
        if answer.is_otherwise:
            found.append(answer)
    return MonthReplay(
        since,
        until,
        question,
        shared_now(),
        decisions=len(keys),
        replayed=sum(verdicts.values()),
        otherwise=len(found),
        verdicts=dict(verdicts),
        listed=tuple(found),
        lacking=tuple(f"{counted(n, 'decision')}: {why}" for why, n in lacks.most_common()),
        left_out=max(0, len(keys) - MAX_REPLAYED),
    )


def _by_policy(request: AdmissionRequest, policy: ClusterPolicy) -> DecisionReplay:
    """The decision by the policy of today on the evidence of then."""
    then = request.decision
    assert then is not None
    answer = replay_policy(then, policy, request.may_wait_s)
    if answer.verdict is None:
        raise Conflict(LACKS[answer.lacking], code="wrong_state")
    changes = (ReplayChange("policy", None),) if answer.verdict != request.verdict else ()
    return replay_of(request, answer.verdict, answer.because or then.headline, changes)


def _last_of_versions(cluster: Cluster, since: datetime, until: datetime) -> Iterator[object]:
    """Keys of the last decision of each version, the newest first."""
    rows = AdmissionRequest.objects.filter(cluster=cluster, result__isnull=False, previewed_at__gte=since)
    rows = rows.filter(previewed_at__lt=until)
    seen = set[int]()
    for key, version in rows.order_by("-previewed_at", "-pk").values_list("pk", "version"):
        if version not in seen:
            seen.add(version)
            yield key


def _parsed(month: str) -> date | None:
    try:
        begins = date.fromisoformat(f"{month}-01") if len(month) == 7 else None
    except ValueError:
        return None
    return begins if begins is not None and begins.year >= _FIRST_YEAR else None


def _month_of(moment: datetime, cluster: Cluster) -> str:
    return f"{moment.astimezone(ZoneInfo(cluster.time_zone)):%Y-%m}"


def _midnight(day: date, cluster: Cluster) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(cluster.time_zone))
