"""Jobs of an engine as queries that run: new, restarted, rescaled, redeployed, over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.connections.choices import ConnectionOrigin, JobEventKind
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.connections.refinements import (
    checkpoints_refine,
    doubts_refine,
    has_measured,
    state_refine,
    statistics_refine,
    triggers_refine,
    windows_refine,
)
from apps.connections.rounds import EngineLook
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.measurements.arrivals import ArrivalsNews, arrivals_compared, arrivals_store, without_gaps
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.backlogs import backlogs_measure
from apps.queries.choices import QueryState
from apps.queries.models import Placement, QueryVersion
from apps.queries.services import (
    placement_move,
    query_create,
    query_start,
    query_stop,
    query_update,
    query_version_create,
)
from engine.connectors.document import (
    ImportedQuery,
    OperatorDocument,
    ReplicaDocument,
    distinct_names,
)
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, Finding, FindingLevel, JobSample
from engine.measurement.changes import Pace
from engine.words import listed

__all__ = [
    "KEEP_POLLS",
    "MAX_POLLS",
    "ImportOutcome",
    "JobImport",
    "polls_known",
    "polls_purge",
    "polls_store",
    "renamed_query",
]


KEEP_POLLS = timedelta(hours=2)  # statistics are of the newest of them
MAX_POLLS = 400  # of one job


def polls_known(row: ImportedJob, fresh: Sequence[CounterPoll], now: datetime) -> list[CounterPoll]:
    """Polls of a job that count: those that are kept, and fresh ones. Ids of its vertices join its runs."""
    kept = row.polls.order_by("-at")
    if row.connection.origin == ConnectionOrigin.URL:
        kept = kept.filter(received_at__gte=now - KEEP_POLLS)
    stored = [CounterPoll.parse(poll.data) for poll in kept[:MAX_POLLS]]
    known = {poll.at_s for poll in stored}
    return [*stored, *(poll for poll in fresh if poll.at_s not in known)]


def polls_store(row: ImportedJob, polls: Sequence[CounterPoll], now: datetime) -> None:
    """Keep polls of a job; one of a moment that is known already is left out."""
    rows = [
        KeptPoll(
            job=row,
            at=datetime.fromtimestamp(poll.at_s, UTC),
            attempt=poll.attempt,
            version=row.version,
            data=poll.to_dict(),
            received_at=now,
        )
        for poll in polls
    ]
    KeptPoll.objects.bulk_create(rows, ignore_conflicts=True)


def polls_purge(now: datetime | None = None) -> int:
    """Purge polls older than `KEEP_POLLS`, except of uploads, and those beyond `MAX_POLLS`; returns how many."""
    before = (now or timezone.now()) - KEEP_POLLS
    old = KeptPoll.objects.filter(received_at__lt=before).exclude(job__connection__origin=ConnectionOrigin.UPLOAD)
    purged = old.delete()[0]
    for job in ImportedJob.objects.all():
        edge = job.polls.order_by("-at").values_list("at", flat=True)[MAX_POLLS:].first()
        if edge is not None:
            purged += job.polls.filter(at__lte=edge).delete()[0]
    return purged


@dataclass
class ImportOutcome:
    """Effects of storing a look, in the words of a document's import: `node n1`, `query orders`, `source clicks`."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    jobs: list[ImportedJob] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def find(self, level: FindingLevel, code: str, subject: str, message: str) -> None:
        """Add a finding, unless it is there."""
        self.find_all([Finding(level, code, subject, message)])

    def find_all(self, findings: Iterable[Finding]) -> None:
        """Add findings that are not there."""
        self.findings += [finding for finding in findings if finding not in self.findings]

    def attempt(self, change: Callable[[], object], code: str, subject: str) -> None:
        """Make a change that other things may stand against; then it is a finding, and the rest is stored."""
        try:
            with transaction.atomic():
                change()
        except SluiceError as error:
            self.find("warning", code, subject, error.message)

    def as_dict(self) -> dict[str, list[str]]:
        """As the job's result shows it."""
        names = [job.query.name for job in self.jobs]
        return {"created": self.created, "updated": self.updated, "ended": self.ended, "queries": names}


_GONE_AFTER = timedelta(seconds=60)  # a JobManager that starts again lists no jobs for a moment
_MAX_EVENTS = 50  # kept of a job


@dataclass(frozen=True)
class JobImport:
    """Jobs of one look being stored; the cluster is locked, and its nodes are there.

    `objectives` are by a job's name, `*` for every job.
    """

    connection: Connection
    cluster: Cluster
    look: EngineLook
    objectives: Mapping[str, Mapping[str, object]]
    user: User | None
    pace: Pace
    outcome: ImportOutcome
    now: datetime

    def store(
        self,
        row: ImportedJob | None,
        job: EngineJob,
        name: str,
        plan: ImportedQuery,
        sample: JobSample,
        places: Mapping[str, str],
    ) -> None:
        """A job as a query that runs: a new one where `row` is None, otherwise what has changed of it.

        `places` are ids of places by the names of their nodes.
        """
        self.outcome.find_all(plan.findings)
        unplaced = [operator for operator, replicas in plan.placement.items() if not replicas]
        if unplaced:
            message = f"{job.name} has operators without a place: {listed(unplaced, 5)}. It is taken in when it runs."
            self.outcome.find("missing", "operators_unplaced", job.name, message)
            return
        news = list(self._arrivals(plan, sample.arrivals))
        if row is None:
            row = self._create(job, name, plan, places, is_measured=bool(sample.operators))
        else:
            self._update(row, job, plan, places, news)
        polls_store(row, self.look.polls.get(job.id, []), self.now)
        for arrivals in news:
            if self.pace.is_due(arrivals.news):
                arrivals_store(cluster=self.cluster, news=arrivals)
        self._objective(row, name)
        self._backlog(row, job, plan, sample)
        self.outcome.jobs.append(row)

    def _create(
        self, job: EngineJob, name: str, plan: ImportedQuery, places: Mapping[str, str], *, is_measured: bool
    ) -> ImportedJob:
        note = f"imported from {self.connection.name}"
        description = f"{job.name}, job {job.id} of {self.connection.get_engine_display()} at {self.connection.name}"
        query = query_create(
            cluster=self.cluster, name=plan.name, body=plan.body, description=description, note=note, user=self.user
        )
        version = query.versions.get()
        query = query_start(version=version, placement=plan.placement)
        row = ImportedJob(connection=self.connection, query=query, name=name)
        self._describe(row, job, plan, places, version)
        row.measured_at = self.now if is_measured else None
        self._event(row, JobEventKind.APPEARED, f"Job {job.id} runs since {_words(job.started_at_s)}.")
        row.save()
        self.outcome.created.append(f"query {plan.name}")
        return row

    def _update(
        self,
        row: ImportedJob,
        job: EngineJob,
        plan: ImportedQuery,
        places: Mapping[str, str],
        arrivals: Sequence[ArrivalsNews],
    ) -> None:
        query, was_running = row.query, row.query.state == QueryState.RUNNING
        newest = self.look.polls.get(job.id, [])
        is_restarted = row.engine_id != job.id or bool(newest and row.attempt and newest[-1].attempt != row.attempt)
        version = row.version
        if version is None or row.shape != job.shape:
            same = sorted(row.vertices) == sorted(plan.vertices)
            kind = JobEventKind.RESCALED if same else JobEventKind.REDEPLOYED
            note = f"{'rescaled' if same else 'redeployed'} in {self.connection.name}"
            version = query_version_create(
                query=query, body=plan.body, note=note, user=self.user, carry_statistics=True
            )
            row.versions_seen += 1
            words = f"Version {version.number}: {'other parallelism' if same else 'other operators'}, job {job.id}."
            self._event(row, kind, words)
            self.outcome.updated.append(f"query {query.name}")
            query = query_start(version=version, placement=plan.placement)
        elif not was_running:
            query = query_start(version=version, placement=plan.placement)
            self._event(row, JobEventKind.RETURNED, f"Job {job.id} runs since {_words(job.started_at_s)}.")
            self.outcome.updated.append(f"query {query.name}")
        elif _is_moved(version, plan.placement):
            query = placement_move(query=query, placement=plan.placement)
            self.outcome.updated.append(f"placement {query.name}")
        if is_restarted and row.shape == job.shape:
            row.restarts_seen += 1
            self._event(row, JobEventKind.RESTARTED, f"Counters begin anew, job {job.id}.")
        query.refresh_from_db()
        row.query = query
        self._describe(row, job, plan, places, version)
        if has_measured(plan.body):
            row.measured_at = self.now
        changes = [news.news for news in arrivals]
        if statistics_refine(version, plan.body, changes, self.pace, self.now):
            self.outcome.updated.append(f"statistics {query.name}")
            windows_refine(version, plan.body)
        if state_refine(version, plan.body, self.pace, self.now):
            self.outcome.updated.append(f"state {query.name}")
        if checkpoints_refine(version, plan.body, self.pace):
            self.outcome.updated.append(f"checkpoints {query.name}")
        if triggers_refine(version, plan.body):
            self.outcome.updated.append(f"trigger {query.name}")
        if doubts_refine(version, plan.body):
            self.outcome.updated.append(f"doubts {query.name}")
        row.save()

    def _describe(
        self, row: ImportedJob, job: EngineJob, plan: ImportedQuery, places: Mapping[str, str], version: QueryVersion
    ) -> None:
        newest = self.look.polls.get(job.id, [])
        row.version, row.engine_id, row.state, row.shape = version, job.id, job.state[:40], job.shape
        row.attempt = newest[-1].attempt if newest else row.attempt
        used = {part["node"] for replicas in plan.placement.values() for part in replicas}
        row.vertices, row.places = dict(plan.vertices), {name: places[name] for name in sorted(used)}
        row.settings = dict(job.settings)
        row.started_at = datetime.fromtimestamp(job.started_at_s, UTC)
        row.seen_at = self.now

    def _arrivals(self, plan: ImportedQuery, arrivals: Mapping[str, ArrivalCounts]) -> Iterable[ArrivalsNews]:
        """Arrivals that differ from what is stored. A source that was never counted gets none, said as assumed."""
        for source, vertex in plan.sources.items():
            counts = arrivals.get(vertex)
            known = None if counts is None else _counts_trace(counts)
            exists = self.cluster.arrivals.filter(source_id=source).exists()
            if counts is not None and known is not None:
                compared = arrivals_compared(
                    self.cluster, source, *known, None, now=self.now, known_step_s=counts.known_step_s
                )
                if not exists:
                    assert compared is not None  # there is nothing that it could be like
                    arrivals_store(cluster=self.cluster, news=compared)
                    self.outcome.created.append(f"source {source}")
                elif compared is not None:
                    yield compared
            elif not exists:
                nothing = [0.0] * self.cluster.slices
                arrivals_create_from_counts(
                    cluster=self.cluster, source_id=source, counts=nothing, description="nothing was counted yet"
                )
                self.outcome.created.append(f"source {source}")
                message = f"No event of {source} was counted yet; none are assumed until some are."
                self.outcome.find("assumed", "arrivals_missing", plan.name, message)

    def _backlog(self, row: ImportedJob, job: EngineJob, plan: ImportedQuery, sample: JobSample) -> None:
        """Store what waits before its sources, at the time that the engine told it."""
        waiting = {**sample.waiting, **self.look.waiting.get(job.id, {})}
        events = {source: waiting[vertex] for source, vertex in plan.sources.items() if vertex in waiting}
        at_s = sample.newest_s if sample.waiting else self.look.picture.at_s
        if events and at_s is not None:
            read_at = min(self.now, datetime.fromtimestamp(at_s, UTC))
            backlogs_measure(query=row.query, events=events, read_at=read_at)

    def _objective(self, row: ImportedJob, name: str) -> None:
        objective = self.objectives.get(name, self.objectives.get("*"))
        if objective is not None:
            row.query = query_update(query=row.query, objective=objective)

    def end(self, row: ImportedJob, state: str) -> None:
        """A job that is over, by its state or because the engine has not listed it for a while."""
        if row.query.state != QueryState.RUNNING:
            return
        if not state and self.now - row.seen_at < _GONE_AFTER:
            self.outcome.find("warning", "job_unlisted", row.name, f"{row.name} is not listed by the engine now.")
            return
        row.state = (state or "gone")[:40]
        query_stop(query=row.query)
        words = f"Its state is {state}." if state else "The engine lists it no more."
        self._event(row, JobEventKind.ENDED, words)
        row.save()
        self.outcome.ended.append(f"query {row.query.name}")

    def _event(self, row: ImportedJob, kind: JobEventKind, words: str) -> None:
        event = {"at": self.now.isoformat(), "kind": kind.value, "words": words[:300]}
        row.events = [*row.events, event][-_MAX_EVENTS:]


def renamed_query(plan: ImportedQuery, row: ImportedJob | None, taken: Collection[str]) -> ImportedQuery:
    """A plan whose operators have the names that they had before, by their vertices, and none that a source has."""
    known = {} if row is None else {vertex: name for name, vertex in row.vertices.items()}
    given = {name: known[vertex] for name, vertex in plan.vertices.items() if vertex in known}
    fresh = [(name, name) for name in plan.vertices if name not in given]
    names = {**given, **distinct_names(fresh, {*given.values(), *taken, *plan.sources})}
    operators: list[OperatorDocument] = [
        {
            **operator,
            "id": names[operator["id"]],
            "inputs": [{**entry, "from": names.get(entry["from"], entry["from"])} for entry in operator["inputs"]],
        }
        for operator in plan.body["operators"]
    ]
    return replace(
        plan,
        body={**plan.body, "operators": operators},
        placement={names[name]: replicas for name, replicas in plan.placement.items()},
        vertices={names[name]: vertex for name, vertex in plan.vertices.items()},
    )


def _counts_trace(counts: ArrivalCounts) -> tuple[Any, int] | None:
    """Counts of a source without gaps, and how many were filled in; None where nothing was counted."""
    known = [(i, count) for i, count in enumerate(counts.counts) if count is not None]
    if not known:
        return None
    starts = counts.start_s + counts.step_s * np.array([i for i, _ in known], dtype=np.float64)
    trace = without_gaps(starts, np.array([count for _, count in known], dtype=np.float64), counts.step_s)
    return trace, len(trace.starts_s) - len(known)


def _is_moved(version: QueryVersion, placement: Mapping[str, list[ReplicaDocument]]) -> bool:
    stored: dict[str, list[tuple[str, int, float]]] = {}
    rows = Placement.objects.filter(operator__version=version)
    for name, node, core, fraction in rows.values_list("operator__name", "node__name", "core", "fraction"):
        stored.setdefault(name, []).append((node, core, round(fraction, 6)))
    wanted = {
        name: sorted((part["node"], part["core"], round(part["fraction"], 6)) for part in parts)
        for name, parts in placement.items()
    }
    return {name: sorted(parts) for name, parts in stored.items()} != wanted


def _words(moment_s: float) -> str:
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
