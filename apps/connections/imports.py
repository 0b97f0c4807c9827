"""Pictures of engines into clusters: pools, nodes, queries, arrivals and statistics, joined on the engine's own ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.connections.job_import import ImportOutcome, JobImport, polls_known, renamed_query
from apps.connections.looks import look_of
from apps.connections.models import Connection, ImportedJob
from apps.connections.readers import consumer_lags, reader_of
from apps.connections.rounds import EngineLook, lags_store
from apps.core.errors import Missing
from apps.estimates.refresh import refresh_by_telemetry, telemetry_pace
from apps.fleet.choices import CycleUnit, NodeState
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
from apps.queries.choices import QueryState
from engine.connectors.document import SERVER_CPS, ImportedNode, distinct_names, import_picture, slug
from engine.connectors.picture import EngineJob, EnginePicture, JobSample

__all__ = ["SampledJobs", "job_names", "look_samples", "look_store"]

_KEEP_OFFER = timedelta(days=1)  # of a job under another name
_KEEP_LOST_NODES = timedelta(days=1)
_QUOTA = "quota_cps"  # label of a node whose cores are as small as the engine's quota: nobody else made them so


@dataclass(frozen=True)
class SampledJobs:
    """Statistics of a look's jobs, and how many polls each rests on, by the job's id."""

    samples: Mapping[str, JobSample]
    polls: Mapping[str, int]


def look_samples(connection: Connection, look: EngineLook, now: datetime | None = None) -> SampledJobs:
    """Statistics of a look and of the polls that are kept, which takes seconds where there are many jobs.

    So it has to be over before the transaction of `look_store` begins, for which everybody who writes waits.
    """
    names, present = job_names(look.picture.jobs), now or timezone.now()
    rows = {row.name: row for row in connection.jobs.all()}
    samples, counts = dict[str, JobSample](), dict[str, int]()
    for job in look.picture.jobs:
        row, fresh = rows.get(names[job.id]), look.polls.get(job.id, [])
        polls = list(fresh) if row is None else polls_known(row, fresh, present)
        offsets = look.offsets.get(job.id, {})
        samples[job.id] = reader_of(connection).sample(job, look.picture, look.answers, polls, offsets)
        counts[job.id] = len(polls)
    return SampledJobs(samples, counts)


def look_store(
    *,
    connection: Connection,
    look: EngineLook,
    sampled: SampledJobs,
    objectives: Mapping[str, Mapping[str, object]] | None = None,
    ended: Mapping[str, str] | None = None,
    user: User | None = None,
    now: datetime | None = None,
) -> ImportOutcome:
    """Store a look: everything, or with any fault nothing. Repeated, it changes only what changed.

    `sampled`: what `look_samples` makes of it.
    `objectives`: by a job's name, `{"statistic", "bound_s"}`; `*` is for every job. Queries keep theirs where there is
    none. `ended`: by id of a job that is over, its state in the engine's word.

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
        store = _LookStore(row, cluster, look, sampled, objectives or {}, user, now or timezone.now())
        store.run(ended or {})
        if row.runs_jobs and not look.picture.jobs and row.imported_at is None:
            message = "No job runs there, so there is nothing to import."
            store.outcome.find("missing", "jobs_missing", "", message)
        elif row.imported_at is None:
            row.imported_at = store.now
        store.keep()
        return store.outcome


class _LookStore:
    """One look being stored, in order of dependence: nodes, arrivals, queries, what is over."""

    def __init__(
        self,
        connection: Connection,
        cluster: Cluster,
        look: EngineLook,
        sampled: SampledJobs,
        objectives: Mapping[str, Mapping[str, object]],
        user: User | None,
        now: datetime,
    ) -> None:
        self.connection, self.cluster, self.look, self.now = connection, cluster, look, now
        self.outcome = ImportOutcome(findings=list(look.all_findings))
        self.rows = {row.name: row for row in connection.jobs.select_related("query__cluster", "version")}
        for row in self.rows.values():
            row.connection = connection
        self.nodes = NodeImport(connection, cluster, self.outcome, now)
        pace = telemetry_pace(cluster)
        self.jobs = JobImport(connection, cluster, look, objectives, user, pace, self.outcome, now)
        self.sampled = sampled
        for sample in sampled.samples.values():
            self.outcome.find_all(sample.findings)
            for operator in sample.operators.values():
                self.outcome.find_all(operator.findings)

    @property
    def picture(self) -> EnginePicture:
        return self.look.picture

    def run(self, ended: Mapping[str, str]) -> None:
        names = job_names(self.picture.jobs)
        rows = {job.id: self.rows.get(names[job.id]) for job in self.picture.jobs}
        pool = import_picture(
            self.picture,
            self.sampled.samples,
            names=self._query_names(names),
            nodes=self.nodes.names(),
            taken_nodes=self.nodes.taken(),
        )
        self.outcome.find_all(pool.findings)
        nodes = {plan.place: self.nodes.store(plan) for plan in pool.nodes}
        places = {node.name: place for place, node in nodes.items()}
        jobs = {job.id: job for job in self.picture.jobs}
        taken = set(self.cluster.arrivals.values_list("source_id", flat=True))
        for plan in pool.queries:
            row, id_ = rows[plan.job], plan.job
            self.jobs.store(
                row, jobs[id_], names[id_], renamed_query(plan, row, taken), self.sampled.samples[id_], places
            )
        self._describe_twice()
        self._describe_renamed(jobs, names)
        left_out = {*self.picture.left_out, *self.picture.left_out.values()}
        for name, row in self.rows.items():
            if name not in names.values() and not left_out & {row.engine_id, name}:
                self.jobs.end(row, ended.get(row.engine_id, ""))
        if not self.connection.runs_jobs:
            self.outcome.find_all(lags_store(self.cluster, consumer_lags(self.look.answers), self.now))
        self.nodes.shrink(pool.nodes)
        self.nodes.lose({node.pk for node in nodes.values()})

    def _describe_twice(self) -> None:
        """Jobs that another connection of the cluster runs as well: one engine asked twice counts twice."""
        others = ImportedJob.objects.filter(connection__cluster=self.cluster, query__state=QueryState.RUNNING)
        others = others.exclude(connection=self.connection).select_related("connection")
        started = {(row.engine_id, row.started_at): row.connection.name for row in others}
        for job in self.picture.jobs:
            other = started.get((job.id, datetime.fromtimestamp(job.started_at_s, UTC)))
            if other is not None:
                message = f"The connection {other} runs this job as well: an engine that is asked twice counts twice."
                self.outcome.find("warning", "job_twice", job.name, message)

    def _describe_renamed(self, jobs: Mapping[str, EngineJob], names: Mapping[str, str]) -> None:
        """New jobs with the operators of one that is over: a redeploy under another name begins without history."""
        over = [row for name, row in self.rows.items() if name not in names.values()]
        for id_, name in names.items():
            vertices = sorted(vertex.id for vertex in jobs[id_].vertices)
            begun = self.rows[name].created_at if name in self.rows else self.now
            same = [row for row in over if sorted(row.vertices.values()) == vertices and row.seen_at <= begun]
            if same and self.now - begun < _KEEP_OFFER:
                before = max(same, key=lambda row: row.seen_at)
                message = (
                    f"{name} has the very operators of {before.name}, which runs no more: it looks like that job under "
                    f"another name. Deployed as {before.name} it goes on as the query {before.query.name}, with its "
                    "history; as it is, it is a query of its own."
                )
                self.outcome.find("warning", "job_renamed", name, message)

    def _query_names(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Names of queries by id of the job: of known jobs theirs, of others one that the cluster does not have."""
        known = {id_: self.rows[name].query.name for id_, name in names.items() if name in self.rows}
        fresh = [(id_, slug(name)) for id_, name in names.items() if name not in self.rows]
        return {**known, **distinct_names(fresh, self.cluster.queries.values_list("name", flat=True))}

    def keep(self) -> None:
        """Store what the connection itself shows."""
        row = self.connection
        row.engine_version = self.picture.version[:40] or row.engine_version
        row.findings = [finding.to_dict() for finding in self.outcome.findings]
        row.look = look_of(
            self.picture,
            {id_: sample.operators.values() for id_, sample in self.sampled.samples.items()},
            self.sampled.polls,
            self.look.markers,
            self.look.partitions,
        ).to_dict()
        row.save(update_fields=["engine_version", "findings", "look", "imported_at", "updated_at"])


def job_names(jobs: Iterable[EngineJob]) -> dict[str, str]:
    """Names that join jobs to their queries, by id. The second of one name, in order of start, gets a number."""
    names: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: (job.started_at_s, job.id)):
        name, number = job.name[:190], 2
        while name in names.values():
            name, number = f"{job.name[:190]} ({number})", number + 1
        names[job.id] = name
    return names


@dataclass(frozen=True)
class NodeImport:
    """Nodes of one look being stored; the cluster is locked."""

    connection: Connection
    cluster: Cluster
    outcome: ImportOutcome
    now: datetime

    def names(self) -> dict[str, str]:
        """Names of nodes by the id of the place that each is."""
        rows = self.cluster.nodes.filter(pool__name=self.connection.pool_name).order_by("pk")
        return {labels["place"]: name for name, labels in rows.values_list("name", "labels") if "place" in labels}

    def taken(self) -> set[str]:
        """Names of nodes that are no places of this engine; another engine may call its own alike."""
        rows = self.cluster.nodes.exclude(pool__name=self.connection.pool_name)
        return set(rows.values_list("name", flat=True))

    def store(self, plan: ImportedNode) -> Node:
        """The node that a place is, made or brought back where it is not there, with no fewer cores than before.

        Its capacity follows the engine's quota; one that somebody set is lowered by it, and not raised.
        """
        row = self.cluster.nodes.select_related("pool", "cluster").filter(name=plan.name).first()
        if row is None:
            row = node_create(
                pool=self._pool(plan),
                name=plan.name,
                capacity_cps=plan.capacity_cps,
                cores=plan.cores,
                memory_bytes=_memory(plan),
                labels={**plan.labels, **_quota_label(plan)},
            )
            self.outcome.created.append(f"node {plan.name}")
            return row
        row.cluster = self.cluster
        if row.state == NodeState.OFFLINE:
            row = node_activate(node=row)
        changed: dict[str, object] = {"cores": plan.cores} if plan.cores > row.cores else {}
        memory = _memory(plan)
        if memory is not None and memory != row.memory_bytes:
            changed["memory_bytes"] = memory
        if f"{row.capacity_cps:.0f}" == row.labels.get(_QUOTA, f"{SERVER_CPS:.0f}"):  # the engine's, not a person's
            others = {name: value for name, value in row.labels.items() if name != _QUOTA}
            changed |= {"capacity_cps": plan.capacity_cps, "labels": {**others, **_quota_label(plan)}}
        elif plan.quota_cps is not None and plan.capacity_cps < row.capacity_cps:
            changed["capacity_cps"] = plan.capacity_cps
        if any(getattr(row, name) != value for name, value in changed.items()):
            row = node_update(node=row, **changed)
            self.outcome.updated.append(f"node {plan.name}")
        return row

    def _pool(self, plan: ImportedNode) -> NodePool:
        name = self.connection.pool_name
        pool = self.cluster.pools.filter(name=name).first()
        if pool is None:
            fields = {"cores": plan.cores, "memory_bytes": _memory(plan), "cycle_unit": CycleUnit.CPU_NS}
            pool = pool_create(cluster=self.cluster, name=name, capacity_cps=SERVER_CPS, **fields)
            self.outcome.created.append(f"pool {name}")
        pool.cluster = self.cluster
        return pool

    def shrink(self, plans: Sequence[ImportedNode]) -> None:
        """Fewer slots than before, once nothing is placed beyond them."""
        for plan in plans:
            row = self.cluster.nodes.select_related("pool", "cluster").get(name=plan.name)
            if plan.cores < row.cores:
                self.outcome.attempt(
                    lambda row=row, plan=plan: node_update(node=row, cores=plan.cores), "node_cores", plan.name
                )

    def lose(self, present: set[int]) -> None:
        """Places that are gone: their nodes are offline as soon as nothing is placed there, and deleted a day later.

        Processes with names by chance, as in Kubernetes, would otherwise leave more nodes with every redeploy.
        """
        rows = self.cluster.nodes.select_related("pool", "cluster").filter(pool__name=self.connection.pool_name)
        for row in rows.filter(state=NodeState.OFFLINE, updated_at__lt=self.now - _KEEP_LOST_NODES):
            self.outcome.attempt(lambda row=row: node_delete(node=row), "node_in_use", row.name)
        for row in rows.exclude(pk__in=present).filter(state__in=(NodeState.ACTIVE, NodeState.DRAINING)):
            self.outcome.attempt(lambda row=row: node_take_offline(node=row), "node_in_use", row.name)
            self.outcome.find("warning", "place_gone", row.name, f"{row.name} is not listed by the engine any more.")


def _quota_label(plan: ImportedNode) -> dict[str, str]:
    """The label of a node that is smaller than a core by a quota."""
    return {_QUOTA: f"{plan.capacity_cps:.0f}"} if plan.capacity_cps < SERVER_CPS else {}


def _memory(plan: ImportedNode) -> int | None:
    """Whole bytes that state may take on a place; None where the engine does not tell."""
    return None if plan.memory_bytes is None else max(1, round(plan.memory_bytes))
