"""Remedies of a late query: searched by a job, kept with the state of the cluster, previewed with a click, and REST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint, signed_in_user
from apps.core.errors import Forbidden, Impossible, Malformed, Missing, Stale
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.estimates.bases import cluster_base
from apps.estimates.calibration import query_calibrations
from apps.fleet.models import Cluster
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.planning.choices import Find, ScenarioPlacement
from apps.planning.forecast_findings import Shortage, forecast_latest, forecast_series, shortages
from apps.planning.models import Forecast
from apps.planning.parallelism import parallelism_request, scalable_job
from apps.planning.placement_search import PLACEMENT
from apps.planning.plans import comparison_latest
from apps.planning.remedy_parts import RemedyPart, remedies_seen
from apps.planning.what_ifs import WHAT_IF
from apps.policies.selectors import admission_rules, policy_of
from apps.predictions.selectors import prediction_record
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from apps.queries.snapshots.parts import parts_shown, snapshot_take
from engine.document.deployment import Deployment
from engine.document.elements import Replica
from engine.errors import DocumentError
from engine.plans.answer import PlanRanking
from engine.remedies.answer import QueryRemedies, Remedy

__all__ = [
    "KeptRemedies",
    "QueryRemediesView",
    "RemedyPreview",
    "RemedyPreviewView",
    "find_query_remedies",
    "placement_limits",
    "remedies_by_query",
    "remedies_job",
    "remedies_latest",
    "remedies_request",
    "remedy_preview",
]

_PREVIEW_S = 1.0  # a placement search that may make no other moves has little to look for


@dataclass(frozen=True)
class KeptRemedies:
    """The newest remedies of a query; `at_load` is the moment of the forecast whose load they are for, None for now's.

    They are stale once the cluster has changed, or the newest forecast is another: that of their load, or of a query
    that holds now, which the new one may see late.
    """

    answer: QueryRemedies
    at: datetime
    at_load: datetime | None
    is_stale: bool

    def remedy(self, id_: str) -> Remedy:
        """A remedy by its id.

        Raises
        ------
        Malformed
            There is none, with those that there are.
        """
        found = next((remedy for remedy in self.answer.remedies if remedy.id == id_), None)
        if found is None:
            allowed = ", ".join(remedy.id for remedy in self.answer.remedies) or "none, there is no remedy"
            message = f"remedy is {id_!r}; allowed: {allowed}"
            raise Malformed(f"{message}.", [("remedy", message)])
        return found


def remedies_request(*, query: Query, user: User | None = None) -> Job:
    """Look for remedies of a running query; the job that found those of the cluster as it is, where there is one.

    Raises
    ------
    Impossible
        The query does not run, or has no objective.
    """
    if query.state != QueryState.RUNNING:
        message = f"it is {query.get_state_display().lower()}"
        raise Impossible(f"Query {query.name} needs no remedy: {message}.", [("query", message)])
    if query.objective_bound_s is None:
        message = "it has no objective"
        raise Impossible(f"Query {query.name} needs no remedy: {message}.", [("query", message)])
    job = _jobs(query).filter(state=JobState.SUCCEEDED).first()
    if job is not None and not _kept(query, job).is_stale:
        return job
    return job_submit(
        JobKind.REMEDIES,
        f"What helps {query.name}",
        {"query": query.pk},
        cluster=query.cluster,
        user=user,
        dedupe_key=f"remedies:{query.pk}",
    )


def remedies_job(query: Query) -> Job | None:
    """The newest job that looks for a query's remedies, of whatever state."""
    return _jobs(query).first()


def remedies_latest(query: Query) -> KeptRemedies | None:
    """The newest remedies of a query."""
    job = _jobs(query).filter(state=JobState.SUCCEEDED).first()
    return None if job is None else _kept(query, job)


def remedies_by_query(queries: Sequence[Query]) -> dict[int, QueryRemedies]:
    """The newest remedies of each of some queries of a cluster, by its key, where they are of what runs there now.

    Those at the load of a forecast are left out: they are not for who is late now.
    """
    if not queries:
        return {}
    cluster = queries[0].cluster
    jobs = Job.objects.filter(kind=JobKind.REMEDIES, cluster=cluster, state=JobState.SUCCEEDED)
    newest = {
        job.params["query"]: job
        for job in jobs.filter(params__query__in=[query.pk for query in queries]).order_by("created_at")
        if job.result
    }
    if not newest:
        return {}
    digest = parts_shown(cluster, lambda: None).digest
    return {
        pk: QueryRemedies.parse(job.result["remedies"])
        for pk, job in newest.items()
        if job.result is not None and job.result["snapshot"] == digest and job.result["at_load"] is None
    }


def _jobs(query: Query) -> Any:
    rows = Job.objects.filter(kind=JobKind.REMEDIES, cluster=query.cluster, params__query=query.pk)
    return rows.order_by("-created_at")


def _kept(query: Query, job: Job) -> KeptRemedies:
    result: Mapping[str, Any] = job.result or {}
    at_load = result["at_load"] and datetime.fromisoformat(result["at_load"])
    answer = QueryRemedies.parse(result["remedies"])
    is_stale = parts_shown(query.cluster, lambda: job).digest != result["snapshot"]
    if not is_stale and (at_load is not None or answer.state == "holds"):
        forecast = forecast_latest(query.cluster)
        is_stale = (None if forecast is None else forecast.pk) != result["forecast"]
    return KeptRemedies(answer, job.finished_at or job.created_at, at_load, is_stale)


def find_query_remedies(report: JobReporter) -> JobOutcome:
    """The work of the job: remedies by the kept base of the cluster, at the load at which the query is late.

    That is the load of now; of a query that holds now, and that the newest forecast sees late, the load of then.
    """
    from engine.remedies.search import find_remedies  # numba with it, which only workers load

    cluster = report.job.cluster
    query = Query.objects.select_related("cluster", "running_version").filter(pk=report.job.params["query"]).first()
    if cluster is None or query is None or query.state != QueryState.RUNNING:
        raise Impossible("The query does not run any more.", [("query", "it does not run any more")])
    report(0.0, "Taking a snapshot")
    snapshot = snapshot_take(cluster)
    base = cluster_base(cluster, snapshot.deployment, lambda share, step: report(0.1 * share, step))
    forecast = forecast_latest(cluster)
    curves: Mapping[str, Mapping[str, Sequence[float]]] = {}
    seen: Shortage | None = None
    if forecast is not None and not forecast.is_over and base.estimate.queries[query.name].state == "holds":
        curves = forecast_series(forecast).get("sources", {})
        seen = next((entry for entry in shortages(cluster, forecast) if curves and entry.query == query.name), None)
    if seen is not None and forecast is not None:
        report(0.1, "Estimating the forecast load")
        base = base.moved(_at_forecast(snapshot.deployment, curves, forecast, seen))
    policy = admission_rules(cluster, query, snapshot.closed_nodes)
    answer = find_remedies(
        base,
        query.name,
        mace_every=SLICES_PER_SUBINTERVAL,
        policy=policy,
        cluster_policy=policy_of(cluster),
        calibrations=query_calibrations(cluster),
        record=prediction_record(cluster),
        currency=cluster.currency,
        job=scalable_job(query, base.estimate.deployment),
        plans=_plans(query, base.estimate.deployment),
        progress=lambda share, step: report(0.15 + 0.85 * share, step),
    )
    result = {
        "remedies": answer.to_dict(),
        "snapshot": snapshot.digest,
        "forecast": None if forecast is None else forecast.pk,
        "at_load": seen.first_at.isoformat() if seen is not None else None,
    }
    page = f"/c/{cluster.slug}/queries/{query.name}/remedies/"
    return JobOutcome(result, page, f"/api/v1/queries/{query.pk}/remedies")


def _plans(query: Query, deployment: Deployment) -> dict[str, Deployment]:
    """The plan that the newest comparison recommends, in place of the running one that it was held against.

    Empty where another version runs by now, or where its nodes or sources are gone.
    """
    row, version = comparison_latest(query), query.running_version
    if row is None or version is None or not row.recommended or row.adopted_id is not None or row.capacity_cps:
        return {}
    ranked = next((plan for plan in PlanRanking.parse(row.result).plans if plan.key == row.recommended), None)
    if ranked is None or row.running != version.number:
        return {}
    places = [(operator, ranked.placement.get(operator.id)) for operator in ranked.dataflow]
    own = tuple(replace(operator, query=query.name, replicas=replicas) for operator, replicas in places if replicas)
    others = tuple(operator for operator in deployment.operators if operator.query != query.name)
    try:
        whole = replace(deployment, operators=(*others, *own)).extended()
    except DocumentError:
        return {}
    return {row.recommended: whole} if len(own) == len(places) else {}


def _at_forecast(
    deployment: Deployment, curves: Mapping[str, Mapping[str, Sequence[float]]], forecast: Forecast, seen: Shortage
) -> Deployment:
    """The deployment with the arrivals that a forecast expects when it first sees the query late: shapes stay.

    Each source's arrivals are multiplied by its forecast rate over its present mean one; private copies, by that of the
    source that they are of.
    """
    index = round((seen.first_at - forecast.starts_at).total_seconds() / forecast.bucket_s)
    band = "high" if seen.band == "high" else "mean"
    factors = {}
    for source in deployment.sources:
        now_per_s = float(source.arrivals.mean()) / deployment.subinterval_s
        if source.id in curves and now_per_s > 0.0:
            factors[source.id] = curves[source.id][band][index] / now_per_s
    origins = {
        source.id: source.id if source.id in factors else source.id.rpartition("@")[0] for source in deployment.sources
    }
    scaled = {source.id: source.arrivals * factors.get(origins[source.id], 1.0) for source in deployment.sources}
    return deployment.with_arrivals(scaled)


@dataclass(frozen=True)
class RemedyPreview:
    """Where a remedy is previewed, and the job that computes it; None where the answer is there already."""

    page: str
    address: str
    job: Job | None


def remedy_preview(*, query: Query, remedy: str, user: User | None) -> RemedyPreview:
    """Preview a remedy where such changes are previewed, applied and exported; nothing changes.

    Raises
    ------
    Missing
        Nobody has looked for remedies of the query.
    Malformed
        There is no such remedy.
    Stale
        The cluster has changed since.
    Forbidden
        The caller sees a part of the cluster: what to ask an operator for.
    """
    kept = remedies_latest(query)
    if kept is None:
        raise Missing(f"Nobody has looked for remedies of {query.name} yet; POST asks for them.")
    chosen, cluster = kept.remedy(remedy), query.cluster
    parts = remedies_seen(query, kept.answer).parts
    if parts is not None:
        asked = parts[chosen.id].request or "The query's team does this itself."
        message = f"Previews show the whole cluster: they take the scope 'operate' on it. {role_hint(Scope.OPERATE)}"
        raise Forbidden(f"{message} {asked}", code="scope_missing")
    if kept.is_stale:
        raise Stale("The cluster has changed since the remedies were found. Look for them again.")
    own = f"/c/{cluster.slug}/queries/{query.name}"
    if chosen.preview == "plans":
        return RemedyPreview(f"{own}/plans/", f"/api/v1/queries/{query.pk}/plans", None)
    if chosen.preview == "parallelism":
        count = chosen.parallelism
        job = parallelism_request(query=query, question={"parallelism": [count]}, user=user)
        return RemedyPreview(f"{own}/parallelism/?chosen={count}", f"/api/v1/queries/{query.pk}/parallelism", job)
    if chosen.preview == "scenario":
        return _scenario_preview(cluster, chosen, user)
    constraints = placement_limits(chosen.placement, cluster.nodes.values_list("name", flat=True))
    run, job = PLACEMENT.request(cluster=cluster, user=user, budget_s=_PREVIEW_S, constraints=constraints)
    return RemedyPreview(PLACEMENT.page(run), f"/api/v1/placements/{run.pk}", job)


def placement_limits(placement: Mapping[str, Sequence[Replica]], nodes: Iterable[str]) -> dict[str, Any]:
    """Constraints of a search that puts operators on the nodes of a placement, and moves nothing else.

    A pin names one node. An operator of which parts are on several may be on these alone: all others are forbidden.
    """
    wanted = {name: {part.node for part in parts} for name, parts in placement.items()}
    return {
        "pin": {name: node for name, (node, *others) in wanted.items() if not others},
        "forbid": {name: sorted({*nodes} - homes) for name, homes in wanted.items() if len(homes) > 1},
        "max_moves": sum(len(parts) for parts in placement.values()),
    }


def _scenario_preview(cluster: Cluster, remedy: Remedy, user: User | None) -> RemedyPreview:
    """A comparison of what is with the changes of a remedy; operators move to new nodes, and nowhere else."""
    place = ScenarioPlacement.SEARCH if remedy.kind == "add_node" else ScenarioPlacement.KEEP
    now = {"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}
    scenario = {"name": str(remedy.title), "changes": [dict(c) for c in remedy.changes], "place": str(place)}
    run, job = WHAT_IF.request(cluster=cluster, user=user, scenarios=[now, scenario], find=Find.COMPARE)
    return RemedyPreview(WHAT_IF.page(run), f"/api/v1/what-ifs/{run.pk}", job)


class RemediesAnswerSerializer(serializers.Serializer):
    """The newest remedies of a query."""

    query = serializers.CharField()
    query_id = serializers.IntegerField()
    found_at = serializers.DateTimeField()
    at_load = serializers.DateTimeField(
        allow_null=True, help_text="Forecast moment whose load they are for; null: now's."
    )
    is_stale = serializers.BooleanField(help_text="Whether the cluster has changed since.")
    answer = StoredRecordField(QueryRemedies)
    parts = serializers.ListField(
        child=StoredRecordField(RemedyPart),
        allow_null=True,
        help_text="What each is to members of a team, who see queries of others in sums; null: of the whole cluster.",
    )


class RemedyQuestionSerializer(StrictSerializer):
    """Which remedy."""

    remedy = serializers.CharField(help_text="Its id, as `answer.remedies` has it.")


class RemedyPreviewSerializer(serializers.Serializer):
    """Where a remedy is previewed."""

    page = serializers.CharField()
    address = serializers.CharField(help_text="REST resource of the preview.")
    job = JobSerializer(allow_null=True, help_text="Null: the answer is there already.")


class QueryRemediesView(ApiMixin, APIView):
    """Remedies of a query that is late."""

    asked_on = AskedOn.PARTS

    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    @extend_schema(responses=RemediesAnswerSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """The newest remedies, the best first, each estimated in full, with its effect on everybody else."""
        query = _query(pk)
        return Response(_answer(query))

    @extend_schema(request=None, responses={200: RemediesAnswerSerializer, 202: JobSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Look for remedies of a running query. 202 with a job, or the remedies with `Prefer: wait=N`.

        Of a cluster that has not changed since, the job is the one that found those that are there.
        """
        query = _query(pk)
        job = remedies_request(query=query, user=signed_in_user(request))
        return job_response(request, job, lambda _: _answer(query))


class RemedyPreviewView(ApiMixin, APIView):
    """Preview of a remedy."""

    asked_on = AskedOn.SEEN

    scopes = {"POST": Scope.OPERATE}

    @extend_schema(request=RemedyQuestionSerializer, responses=RemedyPreviewSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Preview a remedy as a placement, a scenario, a parallelism or a plan, by its kind; nothing changes."""
        asked = read_body(RemedyQuestionSerializer, request)
        found = remedy_preview(query=_query(pk), remedy=asked["remedy"], user=signed_in_user(request))
        return Response(RemedyPreviewSerializer(found).data)


def _query(pk: int) -> Query:
    return row_visible(Query.objects.select_related("cluster", "running_version"), pk=pk)


def _answer(query: Query) -> Any:
    kept = remedies_latest(query)
    if kept is None:
        raise Missing(f"Nobody has looked for remedies of {query.name} yet; POST asks for them.")
    seen = remedies_seen(query, kept.answer)
    parts = None if seen.parts is None else list(seen.parts.values())
    values = {"query": query.name, "query_id": query.pk, "found_at": kept.at, "answer": seen.answer, "parts": parts}
    return RemediesAnswerSerializer(values | {"at_load": kept.at_load, "is_stale": kept.is_stale}).data
