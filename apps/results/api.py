"""REST: results of queries, alert rules and alerts."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.limits import MAX_WINDOWS_LISTED
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, ServiceViewSet
from apps.core.rest.lists import parse_whole_number
from apps.queries.models import Query
from apps.results import services
from apps.results.models import Alert, AlertRule, ResultWindow
from apps.results.notices import rule_secret
from apps.results.selectors import (
    AlertFilter,
    AlertRuleFilter,
    ResultFilter,
    alert_rules_listed,
    alerts_listed,
    alerts_with_notices,
    result_latest,
    results_listed,
)
from apps.results.serializers import (
    AcknowledgeSerializer,
    AlertRuleSerializer,
    AlertSerializer,
    ResultRowsSerializer,
    ResultSerializer,
    RuleSecretSerializer,
)
from apps.results.windows import ARROW, results_arrow, results_csv

__all__ = [
    "AlertRuleViewSet",
    "AlertViewSet",
    "ResultFileView",
    "ResultViewSet",
]

_WINDOWS = OpenApiParameter("windows", int, description=f"How many of the newest windows, 1 to {MAX_WINDOWS_LISTED}.")
_FILES = {
    (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "Every row as CSV."),
    (200, ARROW): OpenApiResponse(OpenApiTypes.BINARY, "Every row as one Arrow IPC stream."),
}


class ResultViewSet(ReadViewSet):
    """Windows of a query's results, newest first; one of them with its rows."""

    queryset = ResultWindow.objects.none()
    filterset_class = ResultFilter
    ordering = "-window_us"
    lookup_field = "window_us"
    lookup_value_regex = "[0-9]{1,18}|latest"
    scopes = {"GET": Scope.READ}

    def get_serializer_class(self) -> type:
        return ResultRowsSerializer if self.action == "retrieve" else ResultSerializer

    def get_queryset(self) -> Any:
        query = _query(self.kwargs["query_pk"])
        rows = ResultWindow.objects.all() if self.action == "retrieve" else results_listed()
        return rows.filter(query=query)

    def get_object(self) -> ResultWindow:
        """A window by its start in microseconds, or `latest`; of several plans the newest."""
        window_us, query = self.kwargs["window_us"], _query(self.kwargs["query_pk"])
        if window_us == "latest":
            window = result_latest(query)
        else:
            window = ResultWindow.objects.filter(query=query, window_us=int(window_us)).order_by("-pk").first()
        if window is None:
            raise Missing(f"Query {query.name} has no result of window {window_us}.")
        return window


class ResultFileView(ApiMixin, APIView):
    """The newest windows of a query as one file, oldest first."""

    scopes = {"GET": Scope.READ}

    @extend_schema(operation_id="getQueryResultFile", parameters=[_WINDOWS], responses=_FILES)
    def get(self, request: Request, query_pk: int, form: str) -> HttpResponseBase:
        """Every row of the newest windows, `?windows=100`."""
        query = _query(query_pk)
        count = parse_whole_number(request.query_params.get("windows", "100"), "windows", 1, MAX_WINDOWS_LISTED)
        rows = ResultWindow.objects.filter(query=query).order_by("-window_us", "-pk")[:count]
        windows, name = list(rows)[::-1], f"results-{query.name}"
        write: Any = results_csv if form == "csv" else results_arrow
        response: HttpResponse = write(windows, name)
        return response


class AlertRuleViewSet(ServiceViewSet):
    """Thresholds on columns of results. A rule that means something else after a change begins anew."""

    queryset = AlertRule.objects.none()
    serializer_class = AlertRuleSerializer
    filterset_class = AlertRuleFilter
    ordering = "name"
    row_keyword = "rule"
    creator_keyword = "user"
    service_create = staticmethod(services.alert_rule_create)
    scopes = {"webhook_secret": Scope.OPERATE}
    secret_actions = frozenset({"webhook_secret"})
    service_delete = staticmethod(services.alert_rule_delete)

    def get_queryset(self) -> Any:
        return alert_rules_listed()

    @staticmethod
    def service_update(*, rule: AlertRule, **values: Any) -> Model:
        values.pop("query", None)
        return services.alert_rule_update(rule=rule, **values)

    @extend_schema(responses=RuleSecretSerializer, filters=False)
    @action(detail=True, methods=["get"], url_path="webhook-secret")
    def webhook_secret(self, request: Request, pk: str | None = None) -> Response:
        """Key that signs the rule's messages to webhooks."""
        return Response({"secret": rule_secret(self.get_object())})


class AlertViewSet(ReadViewSet):
    """Alerts of a rule, newest first."""

    queryset = Alert.objects.none()
    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    ordering = "-opened_at"

    def get_queryset(self) -> Any:
        return alerts_with_notices(alerts_listed())

    @extend_schema(request=AcknowledgeSerializer, responses=AlertSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str | None = None) -> Response:
        """Say that somebody has seen it. The first who says so is remembered."""
        serializer = AcknowledgeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        row = services.alert_acknowledge(
            alert=self.get_object(), user=signed_in_user(request), **serializer.validated_data
        )
        return Response(self.get_serializer(self.get_queryset().get(pk=row.pk)).data)


def _query(pk: Any) -> Query:
    return get_object_or_404(Query.objects.select_related("cluster"), pk=int(pk))


router = Router()
router.register("alert-rules", AlertRuleViewSet, basename="alert-rule")
router.register("alerts", AlertViewSet, basename="alert")

urlpatterns: list[URLPattern | URLResolver] = [
    path("queries/<int:query_pk>/results", ResultViewSet.as_view({"get": "list"}), name="query-results"),
    re_path(
        r"^queries/(?P<query_pk>[0-9]{1,18})/results\.(?P<form>csv|arrow)$",
        ResultFileView.as_view(),
        name="query-results-file",
    ),
    re_path(
        r"^queries/(?P<query_pk>[0-9]{1,18})/results/(?P<window_us>[0-9]{1,18}|latest)$",
        ResultViewSet.as_view({"get": "retrieve"}),
        name="query-result",
    ),
    *router.urls,
]
