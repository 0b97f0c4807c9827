"""Facts on the pages of one connection: its state, findings and costs, what its engine showed, and its jobs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Min, Sum
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.connections.choices import ConnectionOrigin, ConnectionState, JobEventKind
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.connections.selectors import STALE_AFTER, imported_job_of, jobs_listed, next_round_at, statistics_age
from apps.estimates.models import ObjectiveStatus
from apps.fleet.choices import Evidence
from apps.fleet.models import Node
from apps.jobs.models import FINISHED, Job, JobKind
from apps.pages.connections.tables import connection_address, connection_mark
from apps.pages.context import url_of
from apps.pages.overview.findings import Stat
from apps.queries.models import OperatorInput, Query
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, percent, rate, seconds
from apps.ui.sentences import sentence
from apps.ui.times import ago, short
from engine.words import counted, duration_words, listed

__all__ = ["ConnectionFacts", "ImportedFacts", "JobLine", "Look", "imported_facts", "place_of_node"]

_JOB_KINDS = (JobKind.CONNECTION_CHECK, JobKind.CONNECTION_IMPORT, JobKind.CONNECTION_REFRESH)
_LEVELS = (
    ("warning", Mark("watch", "watch", "Warnings")),
    ("missing", Mark("unknown", "watch", "Missing")),
    ("assumed", Mark("assumed", "", "Assumed in its place")),
    ("found", Mark("ok", "ok", "Found")),
)
_MAX_FINDINGS = 100  # shown of each level
_FEW_FINDINGS = 4
_WARNING_CODES = {"contended", "source_backpressured"}  # of a job, on the page of its query
_MAX_OPERATORS = 200  # shown of a job
_RUNNING = "running"
_ENDED = Mark("close", "", "")
_JOB_MARKS = {
    _RUNNING: Mark("ok", "ok", "Running"),
    "restarting": Mark("jobs", "watch", "Restarting"),
    "failing": Mark("bad", "bad", "Failing"),
    "failed": Mark("bad", "bad", "Failed"),
}
_PLACES = {"flink": "TaskManager,TaskManagers", "spark": "executor,executors"}


@dataclass(frozen=True)
class FindingGroup:
    """Findings of one level, by job; `more` are not shown."""

    level: str
    mark: Mark
    findings: Sequence[Mapping[str, str]]
    more: int

    @property
    def total(self) -> int:
        return len(self.findings) + self.more

    @property
    def is_open(self) -> bool:
        """Whether it is shown at once: what is missing or wrong is, a long list of the rest opens by a click."""
        return self.level in {"warning", "missing"} or self.total <= _FEW_FINDINGS

    @property
    def by_job(self) -> list[tuple[str, list[Mapping[str, str]]]]:
        """(job or node, its findings); those of the engine itself come first, without a name."""
        return [(name, list(rows)) for name, rows in groupby(self.findings, key=_job_of)]


@dataclass(frozen=True)
class OperatorLook:
    """An operator as the engine showed it."""

    operator: Mapping[str, Any]

    @property
    def inputs(self) -> str:
        """orders (hash), payments (hash)."""
        named = [f"{entry['from']} ({entry['strategy']})" for entry in self.operator["inputs"]]
        return listed(named, 3) if named else MISSING

    @property
    def places(self) -> str:
        return listed(self.operator["places"], 2) if self.operator["places"] else MISSING

    @property
    def has_sample(self) -> bool:
        return bool(self.operator.get("span_s"))

    @property
    def cost(self) -> Quantity:
        return seconds(self.operator.get("cost_s"))

    @property
    def selectivity(self) -> Any:
        return self.operator.get("selectivity")

    @property
    def events(self) -> str:
        return count(self.operator["events"]) if self.has_sample else MISSING

    @property
    def span(self) -> str:
        return duration_words(self.operator["span_s"]) if self.has_sample else MISSING

    @property
    def contended_share(self) -> float:
        """Share of the measured time in which the host was so busy that costs are too high."""
        return float(self.operator.get("contended_s") or 0.0) / self.operator["span_s"] if self.has_sample else 0.0

    @property
    def contended(self) -> str:
        return f"{percent(self.contended_share)} of it contended" if self.contended_share else ""


@dataclass(frozen=True)
class JobLook:
    """A job as the engine showed it; `url` is the page of the query that it is here."""

    job: Mapping[str, Any]
    url: str = ""

    @property
    def mark(self) -> Mark:
        return _job_mark(self.job["state"])

    @property
    def started_at(self) -> datetime:
        return _moment(self.job["started_at_s"])

    @property
    def operators(self) -> list[OperatorLook]:
        return [OperatorLook(operator) for operator in self.job["operators"][:_MAX_OPERATORS]]

    @property
    def hidden(self) -> int:
        """Operators that are not shown."""
        return max(len(self.job["operators"]) - _MAX_OPERATORS, 0)

    @property
    def threads(self) -> int:
        return sum(operator["parallelism"] for operator in self.job["operators"])

    @property
    def measured(self) -> str:
        """7 polls over 1 min, 5,200 events; 12% contended."""
        sampled = [OperatorLook(operator) for operator in self.job["operators"] if operator.get("span_s")]
        polls = counted(self.job["polls"], "poll")
        if not sampled:
            return f"{polls}; statistics need two" if self.job["polls"] < 2 else f"{polls}, no events between them"
        span_s = max(line.operator["span_s"] for line in sampled)
        events = sum(line.operator["events"] for line in sampled)
        return f"{polls} over {duration_words(span_s)}, {count(events)} events"

    @property
    def contended(self) -> str:
        """Worst share of contended time of its operators."""
        share = max((OperatorLook(operator).contended_share for operator in self.job["operators"]), default=0.0)
        return f"{percent(share)}" if share else ""


class Look:
    """Places and jobs of the last look."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.document: Mapping[str, Any] = connection.look or {}

    def __bool__(self) -> bool:
        return bool(self.document)

    @property
    def at(self) -> datetime:
        return _moment(self.document["at_s"])

    @property
    def places(self) -> list[Mapping[str, Any]]:
        return sorted(self.document.get("places", []), key=lambda place: str(place["name"]))

    @property
    def jobs(self) -> list[JobLook]:
        return [JobLook(job) for job in self.document.get("jobs", [])]

    @property
    def running(self) -> list[Mapping[str, Any]]:
        """Jobs that can be imported."""
        return [job for job in self.document.get("jobs", []) if job["state"] == _RUNNING]

    @property
    def place_nouns(self) -> str:
        """Noun of a place of this engine, one and several."""
        return _PLACES.get(self.connection.engine, "place,places")

    @property
    def place_noun(self) -> str:
        return self.place_nouns.partition(",")[0]

    @property
    def slots(self) -> int:
        return sum(place["slots"] for place in self.places)

    @property
    def cores(self) -> float:
        return float(sum(place["cores"] for place in self.places))

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/connections/sentences/look.html", look=self)


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
    now: datetime

    @property
    def mark(self) -> Mark:
        return _job_mark(self.job.state)

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
        return _accuracy_url(self.job)

    @property
    def events_of_life(self) -> list[EventLine]:
        """Recognised changes, the newest first."""
        return _event_lines(self.job)


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
        """Findings of the last look, the most urgent level first, each by job."""
        rows = list(self.connection.findings or [])
        groups = []
        for level, mark in _LEVELS:
            chosen = sorted((row for row in rows if row["level"] == level), key=_job_of)
            if chosen:
                shown = chosen[:_MAX_FINDINGS]
                groups.append(FindingGroup(level, mark, shown, len(chosen) - len(shown)))
        return groups

    @property
    def cost(self) -> SafeString | str:
        """A round asks 34 questions and reads 210 kB in 0.4 s."""
        cost = self.connection.cost or {}
        if not cost.get("requests"):
            return ""
        return sentence(
            "pages/connections/sentences/cost.html",
            requests=cost["requests"],
            size=bytes_size(cost.get("bytes")),
            took=seconds(cost.get("seconds")),
            interval=seconds(self.connection.poll_interval_s),
            rate=rate(cost["requests"] / self.connection.poll_interval_s),
            is_upload=self.is_upload,
        )

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/connections/sentences/state.html", facts=self, connection=self.connection)

    @cached_property
    def jobs(self) -> list[JobLine]:
        """Imported jobs, those that run first."""
        jobs = list(jobs_listed().filter(connection=self.connection))
        polls: dict[int, dict[str, Any]] = {
            row["job"]: row
            for row in KeptPoll.objects.filter(job__connection=self.connection)
            .order_by()
            .values("job")
            .annotate(number=Count("pk"), first=Min("at"), last=Max("at"))
        }
        inputs = _inputs([job.version_id for job in jobs if job.version_id])
        standings = ObjectiveStatus.objects.filter(query__in=[job.query_id for job in jobs])
        standings = standings.select_related("estimate").defer("estimate__result", "estimate__series")
        by_query = {row.query_id: row for row in standings}
        lines = [
            JobLine(
                job,
                polls.get(job.pk, {}).get("number", 0),
                polls.get(job.pk, {}).get("first"),
                polls.get(job.pk, {}).get("last"),
                *inputs.get(job.version_id, (0.0, 0, 0)),
                by_query.get(job.query_id),
                self.now,
            )
            for job in jobs
        ]
        return sorted(lines, key=lambda line: line.job.state != _RUNNING)

    @property
    def job_looks(self) -> list[JobLook]:
        """Jobs of the last look, each with its query where it was imported."""
        urls = {line.job.engine_id: line.url for line in self.jobs}
        return [JobLook(line.job, urls.get(line.job["id"], "")) for line in self.look.jobs]

    @property
    def running_count(self) -> int:
        return sum(line.job.state == _RUNNING for line in self.jobs)

    @property
    def poll_count(self) -> int:
        return sum(line.polls for line in self.jobs)

    @property
    def stats(self) -> list[Stat]:
        """State, jobs, polls and the next round."""
        connection, jobs = self.connection, self.jobs
        since = f"since {short(connection.state_since)}"
        answered = ago(connection.answered_at) if connection.answered_at else "never"
        upcoming = f"next {short(self.next_at)}" if self.next_at else self._unasked
        spans = [line.span for line in jobs if line.span]
        of = f"of {len(jobs)} imported" if jobs else "none imported yet"
        return [
            Stat("State", Quantity(self.mark.label), since, self.mark.tone if self.is_wrong else ""),
            Stat("Jobs running", Quantity(str(self.running_count)), of),
            Stat("Last poll", Quantity(answered), upcoming),
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


class ImportedFacts:
    """Origin of a query that is a job of an engine."""

    def __init__(self, job: ImportedJob) -> None:
        self.job = job
        self.connection = job.connection
        self.slug = job.connection.cluster.slug
        self.mark = connection_mark(self.connection)
        self.job_mark = _job_mark(job.state)
        self.address = connection_address(self.connection)

    @property
    def url(self) -> str:
        return url_of("pages:connection", self.slug, self.connection.pk)

    @property
    def accuracy_url(self) -> str:
        return _accuracy_url(self.job)

    @property
    def polls(self) -> int:
        return self.job.polls.count()

    @property
    def is_away(self) -> bool:
        return self.connection.state in {ConnectionState.AWAY, ConnectionState.REFUSED}

    @property
    def age(self) -> str:
        """Age of its statistics in words; empty where nothing was measured yet."""
        age = statistics_age(self.job)
        return "" if age is None else duration_words(max(age.total_seconds(), 1.0))

    @cached_property
    def measured_inputs(self) -> tuple[int, int]:
        """(inputs with measured statistics, all inputs) of its version."""
        _, measured, inputs = _inputs([self.job.version_id] if self.job.version_id else []).get(
            self.job.version_id or 0, (0.0, 0, 0)
        )
        return measured, inputs

    @property
    def is_old(self) -> bool:
        age = statistics_age(self.job)
        return age is not None and age > STALE_AFTER and self.measured_inputs[0] > 0

    @property
    def events(self) -> list[EventLine]:
        return _event_lines(self.job)[:5]

    @property
    def warnings(self) -> list[Mapping[str, str]]:
        """Warnings of the last look that its numbers cannot be read without, such as of contention."""
        rows = [row for row in self.connection.findings or [] if row["code"] in _WARNING_CODES]
        return [row for row in rows if _job_of(row) == self.job.name][:2]


def imported_facts(query: Query) -> ImportedFacts | None:
    """Origin of a query; None where no engine runs it."""
    job = imported_job_of(query)
    return ImportedFacts(job) if job is not None else None


@dataclass(frozen=True)
class NodePlace:
    """Place of an engine that a node is."""

    connection: Connection
    noun: str
    place: Mapping[str, Any]

    @property
    def memory(self) -> Quantity:
        return bytes_size(self.place.get("memory_bytes"))

    @property
    def cpu_load(self) -> Quantity:
        return percent(self.place.get("cpu_load"))

    @property
    def url(self) -> str:
        return url_of("pages:connection", self.connection.cluster.slug, self.connection.pk)

    @property
    def at(self) -> datetime:
        return Look(self.connection).at


def place_of_node(node: Node) -> NodePlace | None:
    """The TaskManager or executor that a node is; None for a machine that no engine brought."""
    rows = node.cluster.connections.select_related("cluster").defer("findings")
    connection = next((row for row in rows if row.pool_name == node.pool.name), None)
    if connection is None:
        return None
    look = Look(connection)
    known = {place["id"]: place for place in look.places}
    ids = (job.places.get(node.name) for job in connection.jobs.only("places"))
    place = next((known[place_id] for place_id in ids if place_id in known), None)
    return NodePlace(connection, look.place_noun, place) if place is not None else None


def _inputs(versions: Sequence[int]) -> dict[int, tuple[float, int, int]]:
    """By id of a version: events sampled, measured inputs, inputs."""
    rows = OperatorInput.objects.filter(operator__version__in=versions).order_by().values("operator__version")
    measured = rows.filter(evidence=Evidence.MEASURED).annotate(number=Count("pk"), sampled=Sum("events"))
    by_version: dict[int, dict[str, Any]] = {row["operator__version"]: row for row in measured}
    counts = {}
    for row in rows.annotate(number=Count("pk")):
        sampled = by_version.get(row["operator__version"], {})
        counts[row["operator__version"]] = (float(sampled.get("sampled") or 0), sampled.get("number", 0), row["number"])
    return counts


def _estimate_s(standing: ObjectiveStatus) -> float | None:
    return standing.estimate.estimate_s if standing.estimate is not None else None


def _accuracy_url(job: ImportedJob) -> str:
    query = urlencode({"query": job.query.name, "origin": job.connection.engine})
    return f"{url_of('pages:accuracy', job.connection.cluster.slug)}?{query}"


def _event_lines(job: ImportedJob) -> list[EventLine]:
    rows = [EventLine(_parsed(row.get("at")), row.get("kind", ""), row.get("words", "")) for row in job.events]
    return sorted(rows, key=lambda row: row.at or datetime.min.replace(tzinfo=timezone.get_current_timezone()))[::-1]


def _job_of(finding: Mapping[str, str]) -> str:
    """Job or node that a finding is about; empty for the engine itself."""
    return finding["subject"].partition("/")[0]


def _job_mark(state: str) -> Mark:
    known = _JOB_MARKS.get(state)
    return known or Mark(_ENDED.drawing, _ENDED.tone, state.replace("_", " ").capitalize() or "Not known")


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, timezone.get_current_timezone())


def _parsed(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
