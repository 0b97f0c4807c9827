"""Comparisons of a query's plans: requested, ranked, and a plan adopted as a new version."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Fault, Impossible, Malformed, Missing, Stale
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_PLAN_KEY
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type, read_body, show_row
from apps.fleet.models import Cluster
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.jobs.viewsets import RunListViewSet
from apps.planning.choices import COMPARISON_STATES, ComparisonReason, PlanPlacement, RunState
from apps.planning.models import PlanComparison
from apps.planning.plan_question import load_question, version_digest, version_key, version_samples
from apps.queries.bodies import version_body, with_operators
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, OperatorInput, Query, QueryVersion
from apps.queries.services import query_announce, query_version_create
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from engine.document.elements import Replica
from engine.plans.answer import OneNode, PlanFinding, PlanRanking, RankedPlan
from engine.plans.samples import Drift

__all__ = [
    "MAX_COMPARISONS",
    "MAX_VERSIONS",
    "PLANS",
    "PlanAdoptView",
    "PlanComparisonFilter",
    "PlanComparisonViewSet",
    "PlansView",
    "comparison_latest",
    "comparison_under_way",
    "comparisons_latest",
    "plan_adopt",
    "plan_body",
    "plans_recommended",
]

MAX_VERSIONS = 6  # the newest, and the one that runs
MAX_COMPARISONS = 50  # of a query


class PlansKind(RunKind[PlanComparison]):
    """Comparison of a query's versions and their rewritings."""

    model, job, name, path = PlanComparison, JobKind.PLANS, "comparison", "plan-comparisons"
    asked, answered = RunState.COMPUTING, RunState.DONE
    columns = ("result", "snapshot", "recommended", "running", "basis", "samples", "drift_digest")
    related, bulk = ("query__cluster", "requested_by", "adopted"), ("samples", "basis")

    def title(self, run: PlanComparison) -> str:
        return f"Compare plans of {run.query.name}"

    def cluster(self, run: PlanComparison) -> Cluster:
        return run.query.cluster

    def page(self, run: PlanComparison) -> str:
        return f"/c/{run.query.cluster.slug}/queries/{run.query.name}/plans/"

    def announce(self, run: PlanComparison) -> None:
        query_announce(run.query)

    @transaction.atomic
    def create(
        self,
        *,
        query: Query,
        user: User | None,
        reason: str = ComparisonReason.ASKED,
        versions: Sequence[int] | None = None,
        capacity_cps: float | None = None,
        hop_cycles: float = 0.0,
        places: str = PlanPlacement.KEEP,
    ) -> PlanComparison:
        """Create a comparison without a job. One with the same parameters that still waits is returned instead.

        Parameters
        ----------
        versions : sequence of int, optional
            Numbers of versions; the running one and the newest, six at most, unless given.
        capacity_cps : float, optional
            Judge on one node of this capacity instead of within the cluster.
        hop_cycles : float
            Cycles an event spends in a queue between two operators; 0: not known, and nothing is fused.

        Raises
        ------
        Malformed
            Numbers that are no versions, values out of range.
        Impossible
            No node to run on, or a source without arrivals.
        """
        query = (
            Query.objects.select_for_update(of=("self",)).select_related("cluster", "running_version").get(pk=query.pk)
        )
        numbers = _version_numbers(query, versions)
        _check_parameters(query, numbers, capacity_cps, hop_cycles, places)
        asked = {"versions": numbers, "capacity_cps": capacity_cps, "hop_cycles": hop_cycles, "places": places}
        same = PlanComparison.objects.filter(query=query, state=RunState.COMPUTING, **asked).select_related("job")
        waiting = next(
            (
                comparison
                for comparison in same
                if comparison.job is not None and comparison.job.state == JobState.QUEUED
            ),
            None,
        )
        return waiting or PlanComparison.objects.create(query=query, requested_by=user, reason=reason, **asked)

    def answer(self, run: PlanComparison, report: JobReporter) -> None:
        from engine.plans.comparison import compare  # numba with it, which only workers load

        report(0.0, "Taking a snapshot")
        asked = load_question(run)
        capacity = run.capacity_cps
        answer = compare(
            asked.deployment,
            run.query.name,
            asked.entered,
            running=asked.running,
            node=OneNode(capacity) if capacity else None,
            hop_cycles=run.hop_cycles,
            places=str(run.places),
            closed=asked.closed_nodes,
            mace_every=SLICES_PER_SUBINTERVAL,
            progress=report,
        )
        base = asked.versions[asked.running or answer.plans[0].base or list(asked.versions)[-1]]
        run.result, run.snapshot, run.recommended = answer.to_dict(), asked.snapshot, answer.recommended or ""
        run.running = asked.versions[asked.running].number if asked.running else None
        run.basis = {key: version_digest(version) for key, version in asked.versions.items()}
        run.samples, run.drift_digest = version_samples(base), version_digest(base)

    def keep(self, run: PlanComparison, answer: None, job: Job) -> PlanComparison:
        """Store a comparison and drop the query's oldest."""
        self.store(run)
        old = PlanComparison.objects.filter(query=run.query).values_list("pk", flat=True)[MAX_COMPARISONS:]
        PlanComparison.objects.filter(pk__in=list(old)).delete()
        return run

    def facts(self, run: PlanComparison) -> Mapping[str, object]:
        answer = PlanRanking.parse(run.result)
        return {"finding": answer.finding.kind, "recommended": run.recommended, "plans": len(answer.plans)}


PLANS = register(PlansKind())


def _version_numbers(query: Query, versions: Sequence[int] | None) -> list[int]:
    numbers = list(query.versions.order_by("-number").values_list("number", flat=True))
    if versions is None:
        running = query.running_version.number if query.running_version_id else None
        newest = [number for number in numbers if number != running][: MAX_VERSIONS - (running is not None)]
        return sorted([*newest, *([running] if running is not None else [])])
    faults = []
    if unknown := [number for number in versions if number not in numbers]:
        listed = ", ".join(map(str, numbers[:10])) or "none"
        faults.append(Fault("versions", f"{unknown} are no versions of {query.name}; allowed: {listed}"))
    if len(set(versions)) > MAX_VERSIONS:
        faults.append(Fault("versions", f"{len(set(versions))} versions are named; allowed: {MAX_VERSIONS}"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    return sorted(set(versions))


def _check_parameters(
    query: Query, numbers: Sequence[int], capacity_cps: float | None, hop_cycles: float, places: str
) -> None:
    faults = []
    if capacity_cps is not None and not (math.isfinite(capacity_cps) and capacity_cps >= 1):
        faults.append(Fault("capacity_cps", f"capacity_cps is {capacity_cps}; allowed: at least 1, as of nodes"))
    if not (math.isfinite(hop_cycles) and hop_cycles >= 0):
        faults.append(Fault("hop_cycles", f"hop_cycles is {hop_cycles}; allowed: at least 0"))
    if places not in PlanPlacement.values:
        faults.append(Fault("places", f"places is {places!r}; allowed: {', '.join(PlanPlacement.values)}"))
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)
    if not numbers:
        raise Impossible(f"Query {query.name} has no version to compare.", [("query", "has no version")])
    if capacity_cps is None and not query.cluster.nodes.exists():
        raise Impossible(
            f"Cluster {query.cluster.slug} has no nodes; give capacity_cps to judge on one.",
            [("capacity_cps", "is missing, and the cluster has no nodes")],
        )
    read = OperatorInput.objects.filter(operator__version__query=query, operator__version__number__in=numbers)
    names = set(read.exclude(source_id="").values_list("source_id", flat=True))
    series = ArrivalSeries.objects.filter(cluster=query.cluster, source_id__in=names)
    if missing := sorted(names - set(series.values_list("source_id", flat=True))):
        raise Impossible(
            f"No arrivals are known of {', '.join(missing)}; upload or generate them first.",
            [(f"sources.{name}", "has no arrivals") for name in missing],
        )


def comparison_latest(query: Query) -> PlanComparison | None:
    """The newest comparison that has a ranking."""
    return PLANS.visible().filter(query=query, state=RunState.DONE).first()


def comparison_under_way(query: Query) -> PlanComparison | None:
    """The newest comparison, if it has not ended."""
    newest = PlanComparison.objects.select_related("job").filter(query=query).first()
    return newest if newest is not None and newest.state == RunState.COMPUTING else None


def comparisons_latest(queries: Iterable[Query]) -> dict[int, PlanComparison]:
    """The newest ranked comparison of each of several queries, by the query's key."""
    latest: dict[int, PlanComparison] = {}
    rows = PlanComparison.objects.filter(query__in=list(queries), state=RunState.DONE).defer("result")
    for row in rows.order_by("created_at"):
        latest[row.query_id] = row
    return latest


def plans_recommended(cluster: Cluster) -> list[PlanComparison]:
    """The newest comparisons of running queries with a faster plan that is not adopted yet."""
    rows = PlanComparison.objects.filter(query__cluster=cluster, query__state=QueryState.RUNNING, state=RunState.DONE)
    newest: dict[int, PlanComparison] = {}
    for row in rows.select_related("query__running_version").defer("samples", "basis", "result").order_by("created_at"):
        newest[row.query_id] = row
    return [
        row
        for row in newest.values()
        if row.recommended and row.adopted_id is None and row.running == row.query.running_version.number
    ]


@transaction.atomic
def plan_adopt(*, comparison: PlanComparison, plan: str, user: User | None = None) -> QueryVersion:
    """Adopt a plan of a comparison as a version that can be admitted; nothing that runs changes.

    A plan that is a version already is given back as it is, and so is one that was adopted before.

    Raises
    ------
    Conflict
        The comparison has no ranking.
    Missing
        It has no such plan.
    Stale
        The version it was rewritten from has other statistics now.
    """
    row = PlanComparison.objects.select_for_update(of=("self",)).select_related("query__cluster", "adopted")
    comparison = row.get(pk=comparison.pk)
    if comparison.state != RunState.DONE:
        raise Conflict(f"The comparison is {comparison.get_state_display().lower()}; there is no plan to adopt.")
    plans = {chosen.key: chosen for chosen in PlanRanking.parse(comparison.result).plans}
    if plan not in plans:
        keys = ", ".join(plans)
        raise Missing(f"The comparison has no plan {plan!r}.", [("plan", f"plan is {plan!r}; allowed: {keys}")])
    if comparison.adopted is not None and comparison.adopted_key == plan:
        return comparison.adopted
    chosen = plans[plan]
    base = _version(comparison, chosen.base or plan)
    if chosen.origin == "entered":
        return base
    if comparison.basis.get(version_key(base)) != version_digest(base):
        message = f"The statistics of version {base.number} have changed since the comparison; compare again."
        raise Stale(message, [("plan", "rests on statistics that have changed")])
    version = query_version_create(
        query=comparison.query, body=plan_body(chosen, base), note=_note(chosen, base), user=user
    )
    comparison.adopted, comparison.adopted_key = version, plan
    comparison.save(update_fields=["adopted", "adopted_key"])
    return version


def _version(comparison: PlanComparison, key: str) -> QueryVersion:
    rows = with_operators(QueryVersion.objects.filter(query=comparison.query, number=int(key.removeprefix("v"))))
    return rows.get()


def _note(plan: RankedPlan, base: QueryVersion) -> str:
    words = "; ".join(str(step.words).replace("`", "") for step in plan.steps)
    text = f"Rewritten from version {base.number}: {words}"
    return text if len(text) <= 200 else f"{text[:199]}…"


def plan_body(plan: RankedPlan, base: QueryVersion) -> dict[str, Any]:
    """Operators by their bare names, on the nodes the plan was judged on.

    A polynomial model is taken from the version itself: the engine had it restated for a slice.
    """
    models = {(op["id"], k): entry.get("model") for op in version_body(base)["operators"] for k, entry in _inputs(op)}
    return {"operators": [_operator(op, plan.placement, base.query.name, models) for op in plan.operators]}


def _inputs(operator: Mapping[str, Any]) -> Any:
    return enumerate(operator["inputs"])


def _operator(
    operator: Mapping[str, Any],
    placement: Mapping[str, Sequence[Replica]],
    query: str,
    models: Mapping[tuple[str, int], Any],
) -> dict[str, Any]:
    name = operator["id"].removeprefix(f"{query}/")
    kept = {key: value for key, value in operator.items() if key not in {"node", "core", "split", "query", "inputs"}}
    inputs = []
    for k, entry in _inputs(operator):
        model = models.get((name, k)) if "model" in entry else None
        statistics = {key: value for key, value in entry.items() if key != "model"}
        read = entry["from"].removeprefix(f"{query}/").removesuffix(f"@{query}")
        inputs.append({**statistics, "from": read} | ({"model": model} if model else {}))
    return {**kept, "id": name, "inputs": inputs, **_place(placement.get(operator["id"], ()))}


def _place(replicas: Sequence[Replica]) -> dict[str, object]:
    if len(replicas) == 1 and replicas[0].fraction == 1.0:
        return {"node": replicas[0].node, "core": replicas[0].core}
    return {"split": [asdict(replica) for replica in replicas]} if replicas else {}


class PlanComparisonFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=done`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=COMPARISON_STATES)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "finished_at", "state", query="query__name", cluster="query__cluster__slug")


class PlanCompareSerializer(StrictSerializer):
    """Parameters of a comparison."""

    versions = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        required=False,
        min_length=1,
        help_text="Numbers of versions; the running one and the newest unless given.",
    )
    capacity_cps = serializers.FloatField(
        required=False, allow_null=True, help_text="Judge on one node of this capacity instead of within the cluster."
    )
    hop_cycles = serializers.FloatField(
        required=False, default=0.0, help_text="Cycles an event spends in a queue between operators; 0: not known."
    )
    places = serializers.ChoiceField(PlanPlacement.choices, required=False, default=PlanPlacement.KEEP)


class PlanComparisonSerializer(serializers.ModelSerializer):
    """A comparison in a list."""

    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    cluster = serializers.CharField(source="query.cluster.slug")
    finding = StoredRecordField(PlanFinding, source="result.finding", allow_null=True, read_only=True)
    adopted = serializers.SerializerMethodField(help_text="Number of the version that a plan of it became.")
    versions = serializers.ListField(child=serializers.IntegerField())

    class Meta:
        model = PlanComparison
        fields = ["id", "cluster", "query", "query_id", "job", "state", "reason", "message", "versions", "running"]
        fields += ["capacity_cps", "hop_cycles", "places", "snapshot", "finding", "recommended", "adopted"]
        fields += ["created_at", "finished_at"]

    @field_type(int | None)
    def get_adopted(self, row: PlanComparison) -> int | None:
        return row.adopted.number if row.adopted else None


class PlanComparisonDetailSerializer(PlanComparisonSerializer):
    """A comparison with its ranking, its plans, the rules applied and not applied, and the newest test for drift."""

    result = StoredRecordField(PlanRanking)
    drift = StoredRecordField(Drift)

    class Meta(PlanComparisonSerializer.Meta):
        fields = [*PlanComparisonSerializer.Meta.fields, "drift", "drift_at", "result"]


class PlansSerializer(serializers.Serializer):
    """The alternatives of a query, and the newest ranking of them."""

    query = serializers.CharField()
    versions = serializers.ListField(child=serializers.IntegerField(), help_text="Numbers, newest first.")
    running = serializers.IntegerField(allow_null=True)
    under_way = serializers.UUIDField(allow_null=True, help_text="Comparison that is being made.")
    latest = PlanComparisonDetailSerializer(allow_null=True)


class PlanAdoptSerializer(StrictSerializer):
    """Choice of the plan that becomes a version."""

    plan = serializers.CharField(max_length=MAX_PLAN_KEY, help_text="Its key in the ranking, such as r1.")
    comparison = serializers.UUIDField(required=False, help_text="The newest with a ranking unless given.")


class PlanAdoptedSerializer(serializers.Serializer):
    """The version a plan became, and what to send to `admissions` to preview it."""

    version = serializers.IntegerField()
    note = serializers.CharField()
    admission = serializers.JSONField(help_text="Body for POST admissions.")


class PlansView(ApiMixin, APIView):
    """Alternatives of a query. GET shows them with the newest ranking, POST compares them."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    @extend_schema(responses=PlansSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Versions, and the newest ranking of them and of what the rules make of them."""
        query = _query(pk)
        under_way = comparison_under_way(query)
        shown = {
            "query": query.name,
            "versions": list(query.versions.values_list("number", flat=True)),
            "running": query.running_version.number if query.running_version else None,
            "under_way": under_way.pk if under_way else None,
            "latest": comparison_latest(query),
        }
        return Response(PlansSerializer(shown).data)

    @extend_schema(request=PlanCompareSerializer, responses={200: PlanComparisonDetailSerializer, 202: JobSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Compare the plans: 202 with a job, or the ranking with `Prefer: wait=N`."""
        asked = read_body(PlanCompareSerializer, request)
        row, job = PLANS.request(query=_query(pk), user=signed_in_user(request), **asked)
        assert job is not None
        rows, address = PLANS.visible(), PLANS.address(row)
        return job_response(
            request, job, lambda _: show_row(row, rows, PlanComparisonDetailSerializer), address=address
        )


class PlanAdoptView(ApiMixin, APIView):
    """A plan of a ranking becomes a version of the query. Nothing that runs changes: admit the version next."""

    asked_on = AskedOn.NARROWED

    scopes = {"POST": Scope.OPERATE}

    @extend_schema(request=PlanAdoptSerializer, responses={201: PlanAdoptedSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Make a plan of the ranking a version of the query.

        Refused with 409 when the statistics behind the ranking have changed since.
        """
        query, asked = _query(pk), read_body(PlanAdoptSerializer, request)
        row = _comparison(query, asked.get("comparison"))
        version = plan_adopt(comparison=row, plan=asked["plan"], user=signed_in_user(request))
        admission = {"cluster": query.cluster.slug, "query": query.name, "version": version.number}
        shown = {"version": version.number, "note": version.note, "admission": admission}
        location = f"/api/v1/queries/{query.pk}/versions/{version.number}"
        return Response(PlanAdoptedSerializer(shown).data, status=201, headers={"Location": location})


class PlanComparisonViewSet(RunListViewSet):
    """Comparisons of plans, newest first."""

    kind = PLANS
    queryset = PlanComparison.objects.none()
    filterset_class = PlanComparisonFilter
    serializer_class, detail_class = PlanComparisonSerializer, PlanComparisonDetailSerializer


def _query(pk: int) -> Query:
    return row_visible(Query.objects.select_related("cluster", "running_version"), pk=pk)


def _comparison(query: Query, pk: Any) -> PlanComparison:
    comparison = comparison_latest(query) if pk is None else PLANS.visible().filter(query=query, pk=pk).first()
    if comparison is None:
        raise Missing(f"Query {query.name} has no such comparison.", [("comparison", "does not exist; compare first")])
    return comparison
