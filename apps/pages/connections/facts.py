"""Facts on the pages of one connection: its state, findings and costs, what its engine showed, and its jobs here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Min, Sum
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.connections.choices import ConnectionOrigin, ConnectionState, JobEventKind
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.connections.selectors import STALE_AFTER, jobs_listed, next_round_at, statistics_age
from apps.estimates.models import ObjectiveStatus
from apps.fleet.choices import Evidence
from apps.fleet.models import Node
from apps.jobs.models import FINISHED, Job, JobKind
from apps.pages.connections.looks import RUNNING, JobLook, Look, MarkerLine, job_mark
from apps.pages.connections.tables import connection_address, connection_mark
from apps.pages.context import url_of
from apps.pages.overview.findings import Stat
from apps.queries.models import OperatorInput
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, rate, seconds
from apps.ui.sentences import sentence
from apps.ui.times import ago, short
from engine.connectors.finding_groups import is_decisive
from engine.connectors.picture import Finding
from engine.words import duration_words

__all__ = [
    "ConnectionFacts",
    "EventLine",
    "JobLine",
    "accuracy_url_of",
    "event_lines",
    "measured_inputs_of",
]

_JOB_KINDS = (JobKind.CONNECTION_CHECK, JobKind.CONNECTION_IMPORT, JobKind.CONNECTION_REFRESH)
_LEVELS = (
    ("warning", Mark("watch", "watch", "Warnings")),
    ("missing", Mark("unknown", "watch", "Missing")),
    ("assumed", Mark("assumed", "", "Assumed in its place")),
    ("found", Mark("ok", "ok", "Found")),
)
_DECISIVE = Mark("watch", "watch", "What changes the answer")
_MAX_FINDINGS = 100  # of each kind
_FEW_FINDINGS = 4
_SHOWN_DECISIVE = 3  # of each kind that changes the answer


@dataclass(frozen=True)
class FoldedFindings:
    """Findings of one kind: a few, and the rest behind a click; `more` are not shown."""

    shown: Sequence[Finding]
    rest: Sequence[Finding]
    more: int

    @property
    def total(self) -> int:
        return len(self.shown) + len(self.rest) + self.more

    @property
    def folded(self) -> int:
        return len(self.rest) + self.more


@dataclass(frozen=True)
class FindingGroup:
    """Findings that change the answer, or those of one level, by kind."""

    mark: Mark
    kinds: Sequence[FoldedFindings]
    is_urgent: bool

    @property
    def total(self) -> int:
        return sum(kind.total for kind in self.kinds)

    @property
    def is_open(self) -> bool:
        """Whether it is shown at once: what changes the answer is, and a short list; the rest opens by a click."""
        return self.is_urgent or len(self.kinds) <= _FEW_FINDINGS


def _folded(findings: Sequence[Finding], is_urgent: bool) -> list[FoldedFindings]:
    """Findings by kind, in the order of the first of each."""
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(f"{finding.level} {finding.code}", []).append(finding)
    shown = _SHOWN_DECISIVE if is_urgent else 1
    return [
        FoldedFindings(own[:shown], own[shown:_MAX_FINDINGS], max(0, len(own) - _MAX_FINDINGS))
        for own in by_kind.values()
    ]


@dataclass(frozen=True)
class JobLine:
    """An imported job on the page of its connection."""

    job: ImportedJob
    polls: int
    first_at: datetime | None
    last_at: datetime | None
    events: float
    measured_inputs: int
    inputs: int
    standing: ObjectiveStatus | None
    markers: MarkerLine | None
    now: datetime

    @property
    def mark(self) -> Mark:
        return job_mark(self.job.state)

    @property
    def url(self) -> str:
        return url_of("pages:query", self.job.connection.cluster.slug, self.job.query.name)

    @property
    def span(self) -> str:
        """Time between its first and newest poll."""
        if self.first_at is None or self.last_at is None or self.last_at <= self.first_at:
            return ""
        return duration_words((self.last_at - self.first_at).total_seconds())

    @property
    def is_stale(self) -> bool:
        age = statistics_age(self.job, self.now)
        return age is not None and age > STALE_AFTER and self.measured_inputs > 0

    @property
    def measured(self) -> Quantity:
        """Latency measured lately."""
        standing = self.standing
        if standing is None or standing.measured_s is None:
            return Quantity(MISSING)
        return seconds(standing.measured_s, apart_from=_estimate_s(standing))

    @property
    def estimate(self) -> Quantity:
        standing = self.standing
        value = _estimate_s(standing) if standing is not None else None
        return Quantity(MISSING) if value is None else seconds(value, apart_from=standing and standing.measured_s)

    @property
    def accuracy_url(self) -> str:
        return accuracy_url_of(self.job)

    @property
    def events_of_life(self) -> list[EventLine]:
        """Recognised changes, the newest first."""
        return event_lines(self.job)


@dataclass(frozen=True)
class EventLine:
    """A recognised change of a job."""

    at: datetime | None
    kind: str
    words: str

    @property
    def label(self) -> str:
        return JobEventKind(self.kind).label if self.kind in JobEventKind.values else self.kind


class ConnectionFacts:
    """One connection; every property is computed when a template asks for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.slug = connection.cluster.slug
        self.mark = connection_mark(connection)
        self.address = connection_address(connection)
        self.now = timezone.now()

    @property
    def is_upload(self) -> bool:
        return bool(self.connection.origin == ConnectionOrigin.UPLOAD)

    @property
    def is_imported(self) -> bool:
        return self.connection.imported_at is not None

    @property
    def is_wrong(self) -> bool:
        """Whether it does not answer, or with something else."""
        return self.connection.state in {ConnectionState.AWAY, ConnectionState.REFUSED}

    @property
    def reason(self) -> str:
        """Why it is in its state, as a sentence."""
        words = str(self.connection.state_words).strip()
        return words if not words or words.endswith((".", "?", "!")) else f"{words}."

    @property
    def next_at(self) -> datetime | None:
        return next_round_at(self.connection, self.now)

    @cached_property
    def job(self) -> Job | None:
        """The newest check, import or refresh that somebody asked for."""
        rows = Job.objects.filter(cluster=self.connection.cluster, kind__in=_JOB_KINDS)
        return rows.filter(params__connection=self.connection.pk).order_by("-created_at").first()

    @property
    def open_job(self) -> Job | None:
        return self.job if self.job is not None and self.job.state not in FINISHED else None

    @property
    def failed_job(self) -> Job | None:
        """The newest one, where it ended in an error."""
        return self.job if self.job is not None and self.job.error else None

    @cached_property
    def look(self) -> Look:
        return Look(self.connection)

    @cached_property
    def findings(self) -> list[FindingGroup]:
        """Findings of the last look by kind: those that change the answer, then the most urgent level first."""
        rows = self.connection.kept_findings
        groups = [(_DECISIVE, [row for row in rows if is_decisive(row)])]
        for level, mark in _LEVELS:
            groups.append((mark, [row for row in rows if row.level == level and not is_decisive(row)]))
        return [FindingGroup(mark, _folded(own, mark is _DECISIVE), mark is _DECISIVE) for mark, own in groups if own]

    @property
    def cost(self) -> SafeString | str:
        """A round asks 34 questions and reads 210 kB in 0.4 s."""
        cost = self.connection.round_cost
        if cost is None or not cost.requests:
            return ""
        return sentence(
            "pages/connections/sentences/cost.html",
            requests=cost.requests,
            size=bytes_size(cost.bytes),
            took=seconds(cost.seconds),
            interval=seconds(self.connection.poll_interval_s),
            rate=rate(cost.requests / self.connection.poll_interval_s),
            is_upload=self.is_upload,
        )

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/connections/sentences/state.html", facts=self, connection=self.connection)

    @cached_property
    def jobs(self) -> list[JobLine]:
        """Imported jobs, those that run first."""
        jobs = list(jobs_listed().filter(connection=self.connection))
        kept = KeptPoll.objects.filter(job__connection=self.connection).order_by().values("job")
        rows = kept.annotate(number=Count("pk"), first=Min("at"), last=Max("at"))
        polls = {job: (n, first, last) for job, n, first, last in rows.values_list("job", "number", "first", "last")}
        inputs = measured_inputs_of([job.version_id for job in jobs if job.version_id])
        standings = ObjectiveStatus.objects.filter(query__in=[job.query_id for job in jobs])
        standings = standings.select_related("estimate").defer("estimate__result", "estimate__series")
        by_query = {row.query_id: row for row in standings}
        lines = [
            JobLine(
                job,
                *polls.get(job.pk, (0, None, None)),
                *inputs.get(job.version_id, (0.0, 0, 0)),
                by_query.get(job.query_id),
                self.look.markers_of(job),
                self.now,
            )
            for job in jobs
        ]
        return sorted(lines, key=lambda line: line.job.state != RUNNING)

    @property
    def job_looks(self) -> list[JobLook]:
        """Jobs of the last look, each with its query where it was imported."""
        urls = {line.job.engine_id: line.url for line in self.jobs}
        return [JobLook(job, urls.get(job.id, "")) for job in self.look.jobs]

    @property
    def running_count(self) -> int:
        return sum(line.job.state == RUNNING for line in self.jobs)

    @property
    def poll_count(self) -> int:
        return sum(line.polls for line in self.jobs)

    @property
    def stats(self) -> list[Stat]:
        """State, the next round, and where jobs run these and their polls."""
        connection, jobs = self.connection, self.jobs
        since = f"since {short(connection.state_since)}"
        answered = ago(connection.answered_at) if connection.answered_at else "never"
        upcoming = f"next {short(self.next_at)}" if self.next_at else self._unasked
        spans = [line.span for line in jobs if line.span]
        of = f"of {len(jobs)} imported" if jobs else "none imported yet"
        state = [
            Stat("State", Quantity(self.mark.label), since, self.mark.tone if self.is_wrong else ""),
            Stat("Last poll", Quantity(answered), upcoming),
        ]
        if not connection.runs_jobs:
            return state
        return [
            *state,
            Stat("Jobs running", Quantity(str(self.running_count)), of),
            Stat("Polls kept", Quantity(count(self.poll_count)), f"over {spans[0]}" if spans else "none yet"),
        ]

    @property
    def _unasked(self) -> str:
        if self.is_upload:
            return "by upload"
        return "paused" if self.connection.state == ConnectionState.PAUSED else "after the import"

    # -- of the dialog that deletes

    @property
    def node_count(self) -> int:
        return Node.objects.filter(pool__cluster=self.connection.cluster, pool__name=self.connection.pool_name).count()


def measured_inputs_of(versions: Sequence[int]) -> dict[int, tuple[float, int, int]]:
    """By id of a version: events sampled, measured inputs, inputs."""
    rows = OperatorInput.objects.filter(operator__version__in=versions).order_by().values("operator__version")
    measured = rows.filter(evidence=Evidence.MEASURED).annotate(number=Count("pk"), sampled=Sum("events"))
    by_version = {
        version: (float(sampled or 0), number)
        for version, sampled, number in measured.values_list("operator__version", "sampled", "number")
    }
    counts = rows.annotate(number=Count("pk")).values_list("operator__version", "number")
    return {version: (*by_version.get(version, (0.0, 0)), number) for version, number in counts}


def _estimate_s(standing: ObjectiveStatus) -> float | None:
    return standing.estimate.estimate_s if standing.estimate is not None else None


def accuracy_url_of(job: ImportedJob) -> str:
    """Address of the scores of a job's query by what its engine measured."""
    query = urlencode({"query": job.query.name, "origin": job.connection.engine})
    return f"{url_of('pages:accuracy', job.connection.cluster.slug)}?{query}"


def event_lines(job: ImportedJob) -> list[EventLine]:
    """Recognised changes of a job, the newest first."""
    rows = [EventLine(_parsed(row.get("at")), row.get("kind", ""), row.get("words", "")) for row in job.events]
    return sorted(rows, key=lambda row: row.at or datetime.min.replace(tzinfo=timezone.get_current_timezone()))[::-1]


def _parsed(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
