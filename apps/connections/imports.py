"""Pictures of engines into clusters: pools, nodes, queries, arrivals and statistics, joined on the engine's own ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.connections.choices import ConnectionOrigin, JobEventKind
from apps.connections.looks import look_document
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.connections.readers import reader_of
from apps.connections.rounds import EngineLook
from apps.core.errors import Conflict, Missing, SluiceError
from apps.estimates.refresh import refresh_by_telemetry, telemetry_pace
from apps.fleet.choices import Evidence, NodeState
from apps.fleet.models import Cluster, Node, NodePool
from apps.fleet.services import (
    cluster_locked,
    node_activate,
    node_create,
    node_delete,
    node_take_offline,
    node_update,
    pool_create,
)
from apps.measurements.arrivals import ArrivalsNews, arrivals_compared, arrivals_store, without_gaps
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.choices import QueryState
from apps.queries.definitions import query_create, query_update, query_version_create
from apps.queries.lifecycle import placement_move, query_start, query_stop
from apps.queries.models import OperatorInput, Placement, QueryVersion
from apps.queries.statistics import statistics_update
from engine.connectors.document import SERVER_CPS, ImportedNode, ImportedQuery, import_picture
from engine.connectors.names import distinct_names, slug
from engine.connectors.picture import ArrivalCounts, CounterPoll, EngineJob, EnginePicture, Finding, JobSample
from engine.document.elements import Batch
from engine.measurement.changes import MeasuredChange, Pace, certain_move, combine_changes, statistic_differs
from engine.measurement.statistics import InputStatistic, estimate_ratio
from engine.words import listed

__all__ = ["KEEP_POLLS", "MAX_POLLS", "ImportOutcome", "look_store", "polls_purge"]

KEEP_LOST_NODES = timedelta(days=1)
KEEP_POLLS = timedelta(hours=2)  # statistics are of the newest of them
MAX_POLLS = 400  # of one job
_GONE_AFTER = timedelta(seconds=60)  # a JobManager that starts again lists no jobs for a moment
_SAMPLED = ("batches", "cost_dispersion", "cost_dispersion_events")
_MAX_EVENTS = 50  # kept of a job


@dataclass
class ImportOutcome:
    """Effects of storing a look, in the words of a document's import: `node n1`, `query orders`, `source clicks`."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    jobs: list[ImportedJob] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As the job's result shows it."""
        names = [job.query.name for job in self.jobs]
        return {"created": self.created, "updated": self.updated, "ended": self.ended, "queries": names}


def look_store(
    *,
    connection: Connection,
    look: EngineLook,
    objectives: Mapping[str, Any] | None = None,
    ended: Mapping[str, str] | None = None,
    user: User | None = None,
    now: datetime | None = None,
) -> ImportOutcome:
    """Store a look: everything, or with any fault nothing. Repeated, it changes only what changed.

    Parameters
    ----------
    objectives : mapping, optional
        By a job's name, `{"statistic", "bound_s"}`; `*` is for every job. Queries keep theirs where there is none.
    ended : mapping, optional
        By id of a job that is over, its state in the engine's word.

    Raises
    ------
    Malformed, Conflict, Impossible
        What does not fit the cluster, with every fault.
    Missing
        The connection was deleted meanwhile.
    """
    with transaction.atomic(), refresh_by_telemetry():
        cluster = cluster_locked(connection.cluster).get()
        row = Connection.objects.select_for_update(of=("self",)).filter(pk=connection.pk).first()
        if row is None:
            raise Missing(f"The connection {connection.name!r} was deleted meanwhile; nothing was stored.")
        row.cluster = cluster
        store = _Store(row, cluster, look, objectives or {}, user, now or timezone.now())
        store.run(ended or {})
        if not look.picture.jobs and row.imported_at is None:
            store.find("missing", "jobs_missing", "", "No job runs there, so there is nothing to import.")
        elif row.imported_at is None:
            row.imported_at = store.now
        store.keep()
        return store.outcome


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


class _Store:
    """One look being stored, in order of dependence: nodes, arrivals, queries, what is over."""

    def __init__(
        self,
        connection: Connection,
        cluster: Cluster,
        look: EngineLook,
        objectives: Mapping[str, Any],
        user: User | None,
        now: datetime,
    ) -> None:
        self.connection, self.cluster, self.look = connection, cluster, look
        self.objectives, self.user, self.now = objectives, user, now
        self.outcome = ImportOutcome()
        self.findings = list(look.all_findings)
        self.rows = {row.name: row for row in connection.jobs.select_related("query__cluster", "version")}
        self.samples: dict[str, JobSample] = {}
        self.polls: dict[str, int] = {}
        self.pace: Pace = telemetry_pace(cluster)

    @property
    def picture(self) -> EnginePicture:
        return self.look.picture

    def find(self, level: Any, code: str, subject: str, message: str) -> None:
        finding = Finding(level, code, subject, message)
        if finding not in self.findings:
            self.findings.append(finding)

    def run(self, ended: Mapping[str, str]) -> None:
        names = job_names(self.picture.jobs)
        rows = {job.id: self.rows.get(names[job.id]) for job in self.picture.jobs}
        self.samples = {job.id: self._sample(rows[job.id], job) for job in self.picture.jobs}
        pool = import_picture(self.picture, self.samples, names=self._query_names(names))
        self._find_all(pool.findings)
        nodes = {plan.place: self._node(plan) for plan in pool.nodes}
        jobs = {job.id: job for job in self.picture.jobs}
        taken = set(self.cluster.arrivals.values_list("source_id", flat=True))
        for plan in pool.queries:
            self._job(
                jobs[plan.job],
                names[plan.job],
                _renamed(plan, rows[plan.job], taken),
                {node.name: place for place, node in nodes.items()},
            )
        for name, row in self.rows.items():
            if name not in names.values():
                self._end(row, ended.get(row.engine_id, ""))
        self._shrink(pool.nodes)
        self._lose({node.pk for node in nodes.values()})

    def _query_names(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Names of queries by id of the job: of known jobs theirs, of others one that the cluster does not have."""
        known = {id_: self.rows[name].query.name for id_, name in names.items() if name in self.rows}
        fresh = [(id_, slug(name)) for id_, name in names.items() if name not in self.rows]
        return {**known, **distinct_names(fresh, self.cluster.queries.values_list("name", flat=True))}

    def _find_all(self, findings: Iterable[Finding]) -> None:
        self.findings += [finding for finding in findings if finding not in self.findings]

    def _sample(self, row: ImportedJob | None, job: EngineJob) -> JobSample:
        polls = self._known_polls(row, job)
        self.polls[job.id] = len(polls)
        offsets = self.look.offsets.get(job.id, {})
        sample = reader_of(self.connection).sample(job, self.picture, self.look.answers, polls, offsets)
        self._find_all(sample.findings)
        for operator in sample.operators.values():
            self._find_all(operator.findings)
        return sample

    def keep(self) -> None:
        """Store what the connection itself shows."""
        row, self.outcome.findings = self.connection, self.findings
        row.engine_version = self.picture.version[:40] or row.engine_version
        row.findings = [finding_document(finding) for finding in self.findings]
        row.look = look_document(
            self.picture, {id_: sample.operators.values() for id_, sample in self.samples.items()}, self.polls
        )
        row.save(update_fields=["engine_version", "findings", "look", "imported_at", "updated_at"])

    # -- nodes

    def _pool(self, plan: ImportedNode) -> NodePool:
        name = self.connection.pool_name
        pool = self.cluster.pools.filter(name=name).first()
        if pool is None:
            memory = None if plan.memory_bytes is None else max(1, round(plan.memory_bytes))
            fields = {"cores": plan.cores, "memory_bytes": memory}
            pool = pool_create(cluster=self.cluster, name=name, capacity_cps=SERVER_CPS, **fields)
            self.outcome.created.append(f"pool {name}")
        pool.cluster = self.cluster
        return pool

    def _node(self, plan: ImportedNode) -> Node:
        row = self.cluster.nodes.select_related("pool", "cluster").filter(name=plan.name).first()
        if row is None:
            labels = dict(plan.labels)
            row = node_create(
                pool=self._pool(plan), name=plan.name, capacity_cps=SERVER_CPS, cores=plan.cores, labels=labels
            )
            self.outcome.created.append(f"node {plan.name}")
            return row
        row.cluster = self.cluster
        if row.pool.name != self.connection.pool_name:
            message = (
                f"node {plan.name!r} exists already, in the pool {row.pool.name!r}, which is no place of this engine"
            )
            raise Conflict(f"{message}.", [(f"nodes.{plan.name}", message)])
        if row.state == NodeState.OFFLINE:
            row = node_activate(node=row)
        if plan.cores > row.cores:
            row = node_update(node=row, cores=plan.cores)
            self.outcome.updated.append(f"node {plan.name}")
        return row

    def _shrink(self, plans: Sequence[ImportedNode]) -> None:
        """Fewer slots than before, once nothing is placed beyond them."""
        for plan in plans:
            row = self.cluster.nodes.select_related("pool", "cluster").get(name=plan.name)
            if plan.cores < row.cores:
                self._attempt(
                    lambda row=row, plan=plan: node_update(node=row, cores=plan.cores), "node_cores", plan.name
                )

    def _lose(self, present: set[int]) -> None:
        """Places that are gone: their nodes are offline as soon as nothing is placed there, and deleted a day later.

        Processes with names by chance, as in Kubernetes, would otherwise leave more nodes with every redeploy.
        """
        rows = self.cluster.nodes.select_related("pool", "cluster").filter(pool__name=self.connection.pool_name)
        for row in rows.filter(state=NodeState.OFFLINE, updated_at__lt=self.now - KEEP_LOST_NODES):
            self._attempt(lambda row=row: node_delete(node=row), "node_in_use", row.name)
        for row in rows.exclude(pk__in=present).filter(state__in=(NodeState.ACTIVE, NodeState.DRAINING)):
            self._attempt(lambda row=row: node_take_offline(node=row), "node_in_use", row.name)
            self.find("warning", "place_gone", row.name, f"{row.name} is not listed by the engine any more.")

    def _attempt(self, change: Any, code: str, subject: str) -> None:
        """A change that other things may stand against; then it is a finding, and the rest is stored."""
        try:
            with transaction.atomic():
                change()
        except SluiceError as error:
            self.find("warning", code, subject, error.message)

    # -- jobs

    def _job(self, job: EngineJob, name: str, plan: ImportedQuery, places: Mapping[str, str]) -> None:
        row = self.rows.get(name)
        self._find_all(plan.findings)
        unplaced = [operator for operator, replicas in plan.placement.items() if not replicas]
        if unplaced:
            message = f"{job.name} has operators without a place: {listed(unplaced, 5)}. It is taken in when it runs."
            self.find("missing", "operators_unplaced", job.name, message)
            return
        news = list(self._arrivals(plan, self.samples[job.id].arrivals))
        if row is None:
            row = self._create(job, name, plan, places)
        else:
            self._update(row, job, plan, places, news)
        self._store_polls(row, job)
        for arrivals in news:
            if self.pace.is_due(arrivals.news):
                arrivals_store(cluster=self.cluster, news=arrivals)
        self._objective(row, name)
        self.outcome.jobs.append(row)

    def _known_polls(self, row: ImportedJob | None, job: EngineJob) -> list[CounterPoll]:
        """Polls of the window: those that are kept, and those of this look. Ids of its vertices join its runs."""
        fresh = self.look.polls.get(job.id, [])
        if row is None:
            return list(fresh)
        kept = row.polls.order_by("-at")
        if self.connection.origin == ConnectionOrigin.URL:
            kept = kept.filter(received_at__gte=self.now - KEEP_POLLS)
        stored = [CounterPoll.parse(poll.data) for poll in kept[:MAX_POLLS]]
        known = {poll.at_s for poll in stored}
        return [*stored, *(poll for poll in fresh if poll.at_s not in known)]

    def _store_polls(self, row: ImportedJob, job: EngineJob) -> None:
        rows = [
            KeptPoll(
                job=row,
                at=datetime.fromtimestamp(poll.at_s, UTC),
                attempt=poll.attempt,
                version=row.version,
                data=poll.to_dict(),
                received_at=self.now,
            )
            for poll in self.look.polls.get(job.id, [])
        ]
        KeptPoll.objects.bulk_create(rows, ignore_conflicts=True)

    def _arrivals(self, plan: ImportedQuery, arrivals: Mapping[str, ArrivalCounts]) -> Iterable[ArrivalsNews]:
        """Arrivals that differ from what is stored. A source that was never counted gets none, said as assumed."""
        for source, vertex in plan.sources.items():
            counts = arrivals.get(vertex)
            known = None if counts is None else counts_trace(counts)
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
                self.find("assumed", "arrivals_missing", plan.name, message)

    def _create(self, job: EngineJob, name: str, plan: ImportedQuery, places: Mapping[str, str]) -> ImportedJob:
        note = f"imported from {self.connection.name}"
        description = f"{job.name}, job {job.id} of {self.connection.get_engine_display()} at {self.connection.name}"
        query = query_create(
            cluster=self.cluster, name=plan.name, body=plan.body, description=description, note=note, user=self.user
        )
        version = query.versions.get()
        query = query_start(version=version, placement=plan.placement)
        row = ImportedJob(connection=self.connection, query=query, name=name)
        self._describe(row, job, plan, places, version)
        row.measured_at = self.now if self.samples[job.id].operators else None
        self._event(row, JobEventKind.APPEARED, f"Job {job.id} runs since {_words(job.started_at_s)}.")
        row.save()
        self.outcome.created.append(f"query {plan.name}")
        return row

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
        self._refine(row, version, plan, arrivals)
        row.save()

    def _refine(
        self, row: ImportedJob, version: QueryVersion, plan: ImportedQuery, arrivals: Sequence[ArrivalsNews]
    ) -> None:
        """Statistics that say more than the stored ones, once the pace of estimates lets them through."""
        measured = {
            (operator["id"], position): entry
            for operator in plan.body["operators"]
            if operator.get("evidence", {}).get("kind") == Evidence.MEASURED
            for position, entry in enumerate(operator["inputs"])
        }
        if measured:
            row.measured_at = self.now
        records, changes = [], [news.news for news in arrivals]
        for stored in OperatorInput.objects.filter(operator__version=version).select_related("operator"):
            entry = measured.get((stored.operator.name, stored.position))
            statistic = None if entry is None else measured_statistic(entry)
            if entry is not None and statistic is not None and says_more(statistic, stored, self.now):
                kept = {name: entry[name] for name in _SAMPLED if name in entry}
                records.append({"operator": stored.operator.name, "position": stored.position, **kept})
                changes.append(change_of(statistic, stored))
        if records and self.pace.is_due(combine_changes(changes)):
            statistics_update(version=version, statistics=records, now=self.now)
            self.outcome.updated.append(f"statistics {row.query.name}")

    def _objective(self, row: ImportedJob, name: str) -> None:
        objective = self.objectives.get(name, self.objectives.get("*"))
        if objective is not None:
            row.query = query_update(query=row.query, objective=objective)

    def _end(self, row: ImportedJob, state: str) -> None:
        """A job that is over, by its state or because the engine has not listed it for a while."""
        if row.query.state != QueryState.RUNNING:
            return
        if not state and self.now - row.seen_at < _GONE_AFTER:
            self.find("warning", "job_unlisted", row.name, f"{row.name} is not listed by the engine now.")
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


def _renamed(plan: ImportedQuery, row: ImportedJob | None, taken: Collection[str]) -> ImportedQuery:
    """A plan whose operators have the names that they had before, by their vertices, and none that a source has."""
    known = {} if row is None else {vertex: name for name, vertex in row.vertices.items()}
    given = {name: known[vertex] for name, vertex in plan.vertices.items() if vertex in known}
    fresh = [(name, name) for name in plan.vertices if name not in given]
    names = {**given, **distinct_names(fresh, {*given.values(), *taken, *plan.sources})}
    operators = [
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


def job_names(jobs: Iterable[EngineJob]) -> dict[str, str]:
    """Names that join jobs to their queries, by id. The second of one name, in order of start, gets a number."""
    names: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: (job.started_at_s, job.id)):
        name, number = job.name[:190], 2
        while name in names.values():
            name, number = f"{job.name[:190]} ({number})", number + 1
        names[job.id] = name
    return names


def finding_document(finding: Finding) -> dict[str, str]:
    """A finding as it is kept and shown."""
    names = ("level", "code", "subject", "message")
    return {name: getattr(finding, name) for name in names}


def counts_trace(counts: ArrivalCounts) -> tuple[Any, int] | None:
    """Counts of a source without gaps, and how many were filled in; None where nothing was counted."""
    known = [(i, count) for i, count in enumerate(counts.counts) if count is not None]
    if not known:
        return None
    starts = counts.start_s + counts.step_s * np.array([i for i, _ in known], dtype=np.float64)
    trace = without_gaps(starts, np.array([count for _, count in known], dtype=np.float64), counts.step_s)
    return trace, len(trace.starts_s) - len(known)


def measured_statistic(entry: Mapping[str, Any]) -> InputStatistic | None:
    """Statistic of an input with its errors, from its batches; None where it has none."""
    batches = [Batch(**batch) for batch in entry.get("batches", ()) if batch["events"] > 0.0]
    if not batches:
        return None
    events = [batch.events for batch in batches]
    return InputStatistic(
        selectivity=estimate_ratio([batch.outputs for batch in batches], events),
        cycles_per_event=estimate_ratio([batch.cycles for batch in batches], events),
        events=sum(events),
        subintervals=len(batches),
        batches=tuple(batches),
    )


def says_more(measured: InputStatistic, stored: OperatorInput, now: datetime) -> bool:
    """Whether a measured statistic says more than the stored one."""
    is_measured = stored.evidence == Evidence.MEASURED and stored.measured_at is not None
    return statistic_differs(
        measured,
        selectivity=stored.selectivity,
        cycles_per_event=stored.cycles_per_event or 0.0,
        events=stored.events,
        age_s=(now - stored.measured_at).total_seconds() if is_measured and stored.measured_at else None,
    )


def change_of(measured: InputStatistic, stored: OperatorInput) -> MeasuredChange:
    """Move of a measured statistic from the stored one."""
    moves = [certain_move(measured.selectivity, stored.selectivity)]
    if stored.cycles_per_event is not None:
        moves.append(certain_move(measured.cycles_per_event, stored.cycles_per_event))
    return MeasuredChange(first=stored.evidence != Evidence.MEASURED, moved=max(moves))


def _is_moved(version: QueryVersion, placement: Mapping[str, Any]) -> bool:
    stored: dict[str, list[tuple[str, int, float]]] = {}
    rows = Placement.objects.filter(operator__version=version)
    for name, node, core, fraction in rows.values_list("operator__name", "node__name", "core", "fraction"):
        stored.setdefault(name, []).append((node, core, round(fraction, 6)))
    wanted = {
        name: sorted((part["node"], part.get("core", 0), round(part.get("fraction", 1.0), 6)) for part in parts)
        for name, parts in placement.items()
    }
    return {name: sorted(parts) for name, parts in stored.items()} != wanted


def _words(moment_s: float) -> str:
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
