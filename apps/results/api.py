"""REST: results of queries, alert rules and alerts."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of, signed_in_user
from apps.core.addresses import host_of
from apps.core.errors import Missing
from apps.core.limits import MAX_NOTE, MAX_WINDOWS_LISTED
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, ServiceViewSet, StrictModelSerializer, StrictSerializer
from apps.core.rest.lists import parse_whole_number
from apps.core.rest.serializers import NoticeDeliverySerializer, RowField, field_type, show_row
from apps.queries.models import Query
from apps.results import services
from apps.results.models import Alert, AlertDelivery, AlertRule, ResultWindow
from apps.results.notices import rule_secret
from apps.results.rows import rows_json, table_in
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
from apps.results.windows import ARROW, results_arrow, results_csv

__all__ = [
    "AcknowledgeSerializer",
    "AlertRuleSerializer",
    "AlertRuleViewSet",
    "AlertSerializer",
    "AlertViewSet",
    "ResultFileView",
    "ResultRowsSerializer",
    "ResultSerializer",
    "ResultViewSet",
    "RuleSecretSerializer",
]


class ResultSerializer(serializers.ModelSerializer):
    """A window without its rows."""

    version = serializers.IntegerField(source="version_number", allow_null=True)
    missing = serializers.ListField(child=serializers.CharField())
    recovered = serializers.DictField(child=serializers.IntegerField(), help_text="Records by agent that left them.")

    class Meta:
        model = ResultWindow
        fields = ["window_us", "width_us", "revision", "version", "plan", "complete", "missing", "recovered"]
        fields += ["late", "early", "records", "row_count", "batch"]
        fields += ["closing_epoch_at", "emitted_at", "latency_s", "received_at"]


class ResultRowsSerializer(ResultSerializer):
    """A window with its rows."""

    columns = serializers.SerializerMethodField(help_text="{name: type}.")
    rows = serializers.SerializerMethodField(help_text="[{column: value}].")

    class Meta(ResultSerializer.Meta):
        fields = [*ResultSerializer.Meta.fields, "columns", "rows"]

    @field_type(dict[str, str])
    def get_columns(self, row: ResultWindow) -> dict[str, str]:
        return {field.name: str(field.type) for field in table_in(row.body).schema}

    @field_type(list[dict[str, Any]])
    def get_rows(self, row: ResultWindow) -> list[dict[str, Any]]:
        return list(rows_json(table_in(row.body)))


class AlertRuleSerializer(StrictModelSerializer):
    """A rule with what it says now."""

    query = RowField(queryset=Query.objects.all(), help_text="Number of the query.")
    cluster = serializers.CharField(source="query.cluster.slug", read_only=True)
    firing_count = serializers.IntegerField(read_only=True)
    emails = serializers.ListField(child=serializers.CharField(), required=False, help_text="Mailed.")
    webhooks = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Told by a signed POST. Who may not operate sees their hosts.",
    )

    class Meta:
        model = AlertRule
        fields = ["id", "cluster", "query", "name", "column", "comparison", "threshold", "for_windows", "where"]
        fields += ["severity", "enabled", "emails", "webhooks", "firing_count", "fault", "unlisted", "evaluated_at"]
        fields += ["created_at", "updated_at"]
        read_only_fields = ["fault", "unlisted", "evaluated_at", "created_at", "updated_at"]
        validators: list[Any] = []  # the service names the fault at `name`

    def to_representation(self, row: AlertRule) -> dict[str, Any]:
        shown = super().to_representation(row)
        request = self.context["request"]
        if Scope.OPERATE not in scopes_of(request.user, request.auth):
            shown["webhooks"] = [host_of(url) for url in row.webhooks]
        return shown

    def validate_query(self, query: Query) -> Query:
        if self.instance is not None and self.instance.query_id != query.pk:
            raise serializers.ValidationError("a rule stays with its query; make another one")
        return query


class RuleSecretSerializer(serializers.Serializer):
    """Key that signs a rule's messages to webhooks."""

    secret = serializers.CharField()


class _NoticeSerializer(NoticeDeliverySerializer):
    """Delivery of a notice to one recipient. Of a webhook only the host is shown."""

    class Meta(NoticeDeliverySerializer.Meta):
        model = AlertDelivery


class AlertSerializer(serializers.ModelSerializer):
    """An alert with the rule it belongs to."""

    cluster = serializers.CharField(source="rule.query.cluster.slug")
    query = serializers.CharField(source="rule.query.name")
    query_id = serializers.IntegerField(source="rule.query_id")
    rule_name = serializers.CharField(source="rule.name")
    severity = serializers.CharField(source="rule.severity")
    acknowledged_by = serializers.CharField(source="acknowledged_by.username", default=None, allow_null=True)
    group = serializers.DictField()
    deliveries = _NoticeSerializer(many=True, read_only=True)

    class Meta:
        model = Alert
        fields = ["id", "cluster", "query", "query_id", "rule", "rule_name", "severity", "group", "state"]
        fields += ["opened_at", "opened_window_us", "opened_value", "last_window_us", "last_value", "worst_value"]
        fields += ["resolved_at", "resolved_by", "resolved_value", "acknowledged_at", "acknowledged_by", "note"]
        fields += ["deliveries"]


class AcknowledgeSerializer(StrictSerializer):
    """Note of the operator who acknowledged it."""

    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_NOTE)


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

    asked_on = AskedOn.NARROWED

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
        return Response(show_row(row, self.get_queryset(), self.get_serializer))


def _query(pk: Any) -> Query:
    return row_visible(Query.objects.select_related("cluster"), pk=int(pk))


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
