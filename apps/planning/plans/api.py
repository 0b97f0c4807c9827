"""REST: the plans of a query, compared and taken over."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import read_body
from apps.jobs.api import job_response
from apps.jobs.serializers import JobSerializer
from apps.planning.filters import PlanComparisonFilter
from apps.planning.models import PlanComparison
from apps.planning.plans.selectors import comparison_latest, comparison_under_way, comparisons_visible
from apps.planning.plans.serializers import (
    PlanAdoptedSerializer,
    PlanAdoptSerializer,
    PlanCompareSerializer,
    PlanComparisonDetailSerializer,
    PlanComparisonSerializer,
    PlansSerializer,
)
from apps.planning.plans.services import comparison_request, plan_adopt
from apps.queries.models import Query

__all__ = ["PlanAdoptView", "PlanComparisonViewSet", "PlansView"]


class PlansView(ApiMixin, APIView):
    """Alternatives of a query. GET shows them with the newest ranking, POST compares them."""

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
        row, job = comparison_request(
            query=_query(pk), user=signed_in_user(request), **read_body(PlanCompareSerializer, request)
        )
        shown = lambda _: PlanComparisonDetailSerializer(_fresh(row.pk)).data  # noqa: E731
        return job_response(request, job, shown, address=f"/api/v1/plan-comparisons/{row.pk}")


class PlanAdoptView(ApiMixin, APIView):
    """A plan of a ranking becomes a version of the query. Nothing that runs changes: admit the version next."""

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


class PlanComparisonViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Comparisons of plans, newest first."""

    queryset = PlanComparison.objects.none()
    filterset_class = PlanComparisonFilter
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return comparisons_visible()

    def get_serializer_class(self) -> type:
        return PlanComparisonDetailSerializer if self.action == "retrieve" else PlanComparisonSerializer


def _query(pk: int) -> Query:
    return get_object_or_404(Query.objects.select_related("cluster", "running_version"), pk=pk)


def _fresh(pk: Any) -> PlanComparison:
    return comparisons_visible().get(pk=pk)


def _comparison(query: Query, pk: Any) -> PlanComparison:
    comparison = comparison_latest(query) if pk is None else comparisons_visible().filter(query=query, pk=pk).first()
    if comparison is None:
        raise Missing(f"Query {query.name} has no such comparison.", [("comparison", "does not exist; compare first")])
    return comparison
