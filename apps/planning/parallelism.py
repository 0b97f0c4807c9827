"""Parallelism of a running query: what its engine says of it, plans by a job, and REST."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.admission.decisions import placement_now
from apps.connections.choices import ConnectionEngine
from apps.connections.looks import KeptJob, KeptLook, KeptOperator
from apps.connections.models import Connection, ImportedJob
from apps.connections.selectors import imported_job_of
from apps.core.errors import Impossible, Missing, from_engine
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin
from apps.core.rest.records import StoredRecordField
from apps.estimates.bases import cluster_base
from apps.fleet.choices import NodeState
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.snapshots.elements import operator_id
from engine.connectors.picture import CounterPoll, Place
from engine.document.deployment import Deployment
from engine.errors import DocumentError, EngineError, Fault, suggestion
from engine.parallelism.answer import ParallelismPlan
from engine.parallelism.job import MEASURED, SOURCE, JobOperator, JobPlace, ScalableJob, document_job, feed_of
from engine.parallelism.key_groups import MAX_GROUPS
from engine.parallelism.question import ParallelismQuestion

__all__ = [
    "KeptPlan",
    "QueryParallelismView",
    "parallelism_job",
    "parallelism_latest",
    "parallelism_request",
    "plan_query",
    "scalable_job",
]

_POLLS = 200  # newest of a job's, in which restarts and shares of subtasks are looked for
_MAX_RESTART_S = 1800.0  # a longer gap between polls tells of something else
_WAITING = "threads_are_servers"  # finding on a place whose threads mostly wait


@dataclass(frozen=True)
class KeptPlan:
    """The newest plan of a query, with what was asked and when it was answered."""

    plan: ParallelismPlan
    question: ParallelismQuestion
    at: datetime
    is_stale: bool  #: whether another version runs since, or the same one elsewhere, or other nodes are draining


def parallelism_request(*, query: Query, question: Mapping[str, object], user: User | None = None) -> Job:
    """Request a plan of a running query's parallelism.

    Raises
    ------
    Malformed
        With every fault of the question.
    Impossible
        The query does not run.
    """
    try:
        asked = ParallelismQuestion.parse(question)
        _check_names(query, asked)
    except EngineError as error:
        raise from_engine(error) from error
    if query.state != QueryState.RUNNING:
        message = f"it is {query.get_state_display().lower()}"
        raise Impossible(f"Query {query.name} has no parallelism: {message}.", [("query", message)])
    wanted = asked.to_dict()
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:32]
    return job_submit(
        kind=JobKind.PARALLELISM,
        title=f"Parallelism of {query.name}",
        params={"query": query.pk, "question": wanted},
        cluster=query.cluster,
        user=user,
        dedupe_key=f"parallelism:{query.pk}:{digest}",
    )


def _check_names(query: Query, question: ParallelismQuestion) -> None:
    """Refuse operators that the query does not have; whether one can be scaled is the engine's to say."""
    version = query.running_version
    known = [] if version is None else list(version.operators.values_list("name", flat=True))
    named = [(f"operators[{k}]", name) for k, name in enumerate(question.operators or ())]
    named += [(f"partitions.{name}", name) for name in question.partitions]
    faults = [
        Fault(path, f"{name!r} is no operator of {query.name}" + _allowed(name, known))
        for path, name in named
        if known and name not in known
    ]
    if faults:
        raise DocumentError(faults, "question about parallelism")


def _allowed(name: str, known: Sequence[str]) -> str:
    return suggestion(name, list(known)) or f"; allowed: {', '.join(known)}"


def parallelism_job(query: Query) -> Job | None:
    """The newest job that plans a query's parallelism, of whatever state."""
    return _jobs(query).first()


def parallelism_latest(query: Query) -> KeptPlan | None:
    """The newest plan of a query's parallelism."""
    job = _jobs(query).filter(state=JobState.SUCCEEDED).first()
    if job is None or not job.result:
        return None
    question, plan = ParallelismQuestion.parse(job.params["question"]), ParallelismPlan.parse(job.result["plan"])
    return KeptPlan(plan, question, job.finished_at or job.created_at, job.result["placement"] != _placement(query))


def _placement(query: Query) -> dict[str, object]:
    """Basis of a plan: the version that runs and where, and the nodes that take nothing new."""
    closed = sorted(query.cluster.nodes.filter(state=NodeState.DRAINING).values_list("name", flat=True))
    return {"version": query.running_version_id, "replicas": placement_now(query), "closed": closed}


def _jobs(query: Query) -> Any:
    rows = Job.objects.filter(kind=JobKind.PARALLELISM, cluster=query.cluster, params__query=query.pk)
    return rows.order_by("-created_at")


def plan_query(report: JobReporter) -> JobOutcome:
    """Plan the parallelism of the job's query by the kept base of its cluster."""
    from engine.parallelism.plan import plan_parallelism  # numba with it, which only workers load

    params, cluster = report.job.params, report.job.cluster
    query = Query.objects.select_related("cluster", "running_version").filter(pk=params["query"]).first()
    if query is None or query.state != QueryState.RUNNING:
        raise Impossible("The query does not run any more.", [("query", "it does not run any more")])
    report(0.0, "Taking a snapshot")
    placement = _placement(query)
    snapshot = cluster_snapshot(cluster)
    deployment = snapshot.deployment
    base = cluster_base(cluster, deployment, report)
    report(0.5, "Parallelism")
    question, job = ParallelismQuestion.parse(params["question"]), scalable_job(query, deployment)
    plan = plan_parallelism(base, job, question, closed=snapshot.closed_nodes)
    return JobOutcome(
        {"plan": plan.to_dict(), "placement": placement},
        f"/c/{cluster.slug}/queries/{query.name}/parallelism/",
        f"/api/v1/queries/{query.pk}/parallelism",
    )


def scalable_job(query: Query, deployment: Deployment) -> ScalableJob:
    """A query as its engine runs it; one that no engine told of, by its document."""
    told = document_job(deployment, query.name)
    row = imported_job_of(query)
    look = None if row is None else row.connection.kept_look
    job = None if look is None or row is None else next((job for job in look.jobs if job.id == row.engine_id), None)
    is_told = row is not None and row.connection.engine in {ConnectionEngine.FLINK, ConnectionEngine.SPARK}
    if row is None or look is None or job is None or not is_told:
        return told
    operators = _operators(row, job, query, deployment)
    if operators.keys() != told.operators.keys():  # the engine runs another version by now
        return told
    restart_s = _restart_s(row)
    return replace(
        told,
        operators=operators,
        places=_places(row.connection, look, deployment),
        restart_s=restart_s,
        restart_basis=told.restart_basis if restart_s is None else MEASURED,
        is_engine_known=True,
    )


def _operators(row: ImportedJob, job: KeptJob, query: Query, deployment: Deployment) -> dict[str, JobOperator]:
    shares = _shares(row)
    vertices: Mapping[str, KeptOperator] = {operator.id: operator for operator in job.operators}
    found = {}
    for name, vertex in row.vertices.items():
        id_ = operator_id(query.name, name)
        told, j = vertices.get(vertex), deployment.operator_index.get(id_)
        if told is None or j is None:
            continue
        by_subtask = shares.get(vertex, ())
        feed = feed_of([entry.strategy for entry in told.inputs], deployment.operators[j])
        most = MAX_GROUPS if row.connection.engine == ConnectionEngine.SPARK else told.max_parallelism
        found[id_] = JobOperator(
            feed=feed,
            parallelism=told.parallelism,
            max_parallelism=most,
            partitions=told.partitions if feed == SOURCE else None,
            shares=by_subtask if len(by_subtask) == told.parallelism else (),
            slot_group=told.slot_group or "",
        )
    return found


def _polls(row: ImportedJob) -> list[CounterPoll]:
    """Newest polls of a job, the oldest first."""
    return [CounterPoll.parse(poll.data) for poll in reversed(row.polls.order_by("-at")[:_POLLS])]


def _shares(row: ImportedJob) -> dict[str, tuple[float, ...]]:
    """Part of its events that each subtask of a vertex took over the polls of the present attempt."""
    polls = _polls(row)
    own = [poll for poll in polls if poll.attempt == polls[-1].attempt]
    if len(own) < 2:
        return {}
    found = {}
    for vertex, counters in own[-1].vertices.items():
        before = own[0].vertices.get(vertex)
        after_in, before_in = counters.records_in_by_subtask, before.records_in_by_subtask if before else ()
        taken = [b - a for a, b in zip(before_in, after_in, strict=False)]
        if len(before_in) == len(after_in) > 0 and min(taken) >= 0.0 and sum(taken) > 0.0:
            found[vertex] = tuple(events / sum(taken) for events in taken)
    return found


def _restart_s(row: ImportedJob) -> tuple[float, float] | None:
    """Seconds that restarts took at most: gaps between the last poll of an attempt and the first of the next."""
    polls = _polls(row)
    gaps = [
        after.at_s - before.at_s
        for before, after in pairwise(polls)
        if before.attempt != after.attempt and after.at_s - before.at_s <= _MAX_RESTART_S
    ]
    return (0.0, max(gaps)) if gaps else None


def _places(connection: Connection, look: KeptLook, deployment: Deployment) -> dict[str, JobPlace]:
    """Nodes of the engine with their slots: each job takes, of each sharing group, its widest operator's."""
    taken: Counter[str] = Counter()
    for job in look.jobs:
        for slot in _slots(job):
            taken[slot] += 1
    cores: dict[str, float] = {}
    for place in look.places:
        cores[_host(place)] = cores.get(_host(place), 0.0) + place.cores
    waiting = {finding.subject for finding in connection.kept_findings if finding.code == _WAITING}
    by_id = {place.id: place for place in look.places}
    nodes = {node.id: by_id[id_] for node in deployment.nodes if (id_ := node.labels.get("place", "")) in by_id}
    return {
        node: JobPlace(
            slots=place.slots,
            free=max(0, place.slots - taken[place.name]),
            host=_host(place),
            host_cores=cores[_host(place)],
            waits=place.name in waiting,
        )
        for node, place in nodes.items()
    }


def _slots(job: KeptJob) -> Iterable[str]:
    """Name of the place of each slot that a job takes; a look tells places of a vertex, not of each subtask."""
    widest: dict[str, KeptOperator] = {}
    for operator in job.operators:
        group = operator.slot_group or ""
        if group not in widest or operator.parallelism > widest[group].parallelism:
            widest[group] = operator
    for operator in widest.values():
        names = operator.places
        yield from (names[k % len(names)] for k in range(operator.parallelism) if names)


def _host(place: Place) -> str:
    return place.host or place.id


class ParallelismAnswerSerializer(serializers.Serializer):
    """The newest plan of a query's parallelism."""

    query = serializers.CharField()
    query_id = serializers.IntegerField()
    answered_at = serializers.DateTimeField()
    is_stale = serializers.BooleanField(
        help_text="Whether another version runs since, or the same one elsewhere, or other nodes are draining."
    )
    question = StoredRecordField(ParallelismQuestion)
    plan = StoredRecordField(ParallelismPlan)


class QueryParallelismView(ApiMixin, APIView):
    """Parallelisms of a running query side by side."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    @extend_schema(responses=ParallelismAnswerSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """The newest plan: rate, latency, slots, restart and catch-up by parallelism, and the autoscaler's choice."""
        query = _query(pk)
        kept = parallelism_latest(query)
        if kept is None:
            raise Missing(f"Query {query.name} has no plan of its parallelism yet; POST asks for one.")
        return Response(_answer(query, kept))

    @extend_schema(request=ParallelismQuestion, responses={200: ParallelismAnswerSerializer, 202: JobSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Plan the parallelism of a running query. 202 with a job, or the plan with `Prefer: wait=N`."""
        query = _query(pk)
        job = parallelism_request(query=query, question=request.data, user=signed_in_user(request))
        address = f"/api/v1/queries/{query.pk}/parallelism"
        return job_response(request, job, lambda _: _answer(query, parallelism_latest(query)), address=address)


def _query(pk: int) -> Query:
    return row_visible(Query.objects.select_related("cluster", "running_version"), pk=pk)


def _answer(query: Query, kept: KeptPlan | None) -> Any:
    if kept is None:
        raise Missing(f"Query {query.name} has no plan of its parallelism.")
    values = {"answered_at": kept.at, "is_stale": kept.is_stale, "question": kept.question, "plan": kept.plan}
    return ParallelismAnswerSerializer({"query": query.name, "query_id": query.pk, **values}).data
