"""REST: report definitions, their schedules, the reports, and webhooks."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.limits import MAX_NAME, MAX_TIME_ZONE, MAX_URL
from apps.core.rest.api import Router, ServiceViewSet, StrictSerializer
from apps.core.rest.problems import StoredProblemSerializer
from apps.core.rest.serializers import RowField, show_row
from apps.fleet.serializers import ClusterField
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.viewsets import RunDeletion, RunListViewSet
from apps.reports import services
from apps.reports.calendar import RULE_FIELDS
from apps.reports.choices import FORMATS, ReportKind
from apps.reports.deliveries import api_links, delivery_send_again, webhook_secret
from apps.reports.lifecycle import REPORT, report_download, report_facts
from apps.reports.models import Delivery, Report, ReportDefinition, ReportSchedule, Webhook
from apps.reports.node_counts import NodeCountsView
from apps.reports.selectors import (
    DefinitionFilter,
    ReportFilter,
    ScheduleFilter,
    WebhookFilter,
    definitions_listed,
    schedule_sentence,
    schedules_listed,
    webhooks_listed,
)
from apps.reports.services import schedule_preview, schedule_remove, schedule_set

__all__ = ["DeliverySerializer"]

_FILES = {
    (200, kind.partition(";")[0]): OpenApiResponse(OpenApiTypes.OBJECT if name == "json" else OpenApiTypes.BINARY)
    for name, (kind, _) in FORMATS.items()
}


class WebhookSerializer(StrictSerializer):
    """An address that is told of finished reports. Its secret is shown once, when it is made or renewed."""

    id = serializers.UUIDField(read_only=True)
    cluster = ClusterField()
    name = serializers.CharField(max_length=MAX_NAME)
    url = serializers.CharField(max_length=MAX_URL, help_text="http or https; private networks only by setting.")
    sends_decisions = serializers.BooleanField(
        required=False, default=False, help_text="Whether it is told of decisions applied to imported queries."
    )
    definition_count = serializers.IntegerField(read_only=True, default=0)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def validate_cluster(self, cluster: Any) -> Any:
        return _kept(self.instance, cluster)


class SecretSerializer(WebhookSerializer):
    """A webhook with what its messages are signed with."""

    secret = serializers.SerializerMethodField()

    @extend_schema_field(serializers.CharField())
    def get_secret(self, row: Webhook) -> str:
        return str(self.context["secret"])


class DefinitionSerializer(StrictSerializer):
    """A report as somebody wants it."""

    id = serializers.IntegerField(read_only=True)
    cluster = ClusterField()
    kind = serializers.ChoiceField(choices=ReportKind.choices)
    name = serializers.CharField(max_length=MAX_NAME)
    parameters = serializers.DictField(
        required=False, help_text="Provisioning: sections, horizon_days, growth (0.6 is +60 %). Latency: query or team."
    )
    formats = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="What mails carry: html, pdf, csv, json."
    )
    emails = serializers.ListField(child=serializers.CharField(), required=False)
    webhooks = RowField(many=True, queryset=Webhook.objects.all(), required=False)
    enabled = serializers.BooleanField(required=False)
    schedule = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    @extend_schema_field(serializers.IntegerField(allow_null=True, help_text="Number in report-schedules."))
    def get_schedule(self, row: ReportDefinition) -> int | None:
        schedule = getattr(row, "schedule", None)
        return schedule.pk if schedule is not None else None

    def validate_cluster(self, cluster: Any) -> Any:
        return _kept(self.instance, cluster)

    def validate_kind(self, kind: Any) -> Any:
        if self.instance is not None and kind != self.instance.kind:
            raise serializers.ValidationError("this field cannot be changed")
        return kind


def _kept(instance: Any, cluster: Any) -> Any:
    if instance is not None and cluster != instance.cluster:
        raise serializers.ValidationError("this field cannot be changed")
    return cluster


@extend_schema_field(
    {"type": "object", "properties": RULE_FIELDS, "required": ["every"], "additionalProperties": False}
)
class RuleField(serializers.DictField):
    """A calendar rule; `read_rule` checks it."""


class PreviewSerializer(StrictSerializer):
    """A calendar rule in a time zone."""

    rule = RuleField(
        help_text='Such as {"every": "week", "days": ["mon"], "at": "07:00"}; every is day, week, month, year, hours '
        "or rrule."
    )
    time_zone = serializers.CharField(max_length=MAX_TIME_ZONE, help_text="Such as Europe/Berlin.")


class ScheduleSerializer(PreviewSerializer):
    """Schedule of a definition. POST again to replace it."""

    id = serializers.IntegerField(read_only=True)
    definition = RowField(queryset=ReportDefinition.objects.all())
    sentence = serializers.SerializerMethodField()
    next_at = serializers.DateTimeField(read_only=True, allow_null=True)
    last_due_at = serializers.DateTimeField(read_only=True, allow_null=True)

    @extend_schema_field(serializers.CharField())
    def get_sentence(self, row: Any) -> str:
        return schedule_sentence(row)

    def validate_definition(self, definition: Any) -> Any:
        if self.instance is not None and definition != self.instance.definition:
            raise serializers.ValidationError("this field cannot be changed")
        return definition


class RunSerializer(serializers.Serializer):
    """One due time to come."""

    at = serializers.DateTimeField(help_text="The instant.")
    clock = serializers.CharField(help_text="The time of the clock that the rule names.")
    note = serializers.CharField(allow_blank=True, help_text="Where the clock jumps over that time.")


class DeliverySerializer(serializers.ModelSerializer):
    """A report on its way to one reader. Of a webhook only the host is told: the rest often holds a secret."""

    target = serializers.CharField(source="shown_target")

    class Meta:
        model = Delivery
        fields = ["id", "channel", "target", "state", "attempts", "next_try_at", "last_error", "sent_at"]


class ReportSerializer(serializers.ModelSerializer):
    """A report and where its files are."""

    definition = serializers.IntegerField(source="definition_id")
    name = serializers.CharField(source="definition.name")
    kind = serializers.CharField(source="definition.kind")
    cluster = serializers.CharField(source="definition.cluster.slug")
    job = serializers.UUIDField(source="job_id", allow_null=True)
    requested_by: Any = serializers.SlugRelatedField(slug_field="username", read_only=True)
    error = StoredProblemSerializer(read_only=True, allow_null=True)
    links = serializers.SerializerMethodField()

    class Meta:
        model = Report
        fields = ["id", "definition", "name", "kind", "cluster", "job", "state", "trigger", "due_at", "missed"]
        fields += ["covers_from", "covers_until", "finding", "requested_by", "error", "links"]
        fields += ["created_at", "written_at"]
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_links(self, row: Report) -> dict[str, str]:
        return api_links(row)


class ReportDetailSerializer(ReportSerializer):
    """A report with its facts and deliveries."""

    facts = serializers.SerializerMethodField()
    deliveries = DeliverySerializer(many=True, read_only=True)

    class Meta(ReportSerializer.Meta):
        fields = [*ReportSerializer.Meta.fields, "deliveries", "facts"]
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": True, "nullable": True})
    def get_facts(self, row: Report) -> dict[str, Any] | None:
        facts = report_facts(row)
        return None if facts is None else facts.to_dict()


class DefinitionViewSet(ServiceViewSet):
    """Report definitions and their recipients. `run` writes a report now; the schedule stays as it is."""

    queryset = ReportDefinition.objects.none()
    serializer_class = DefinitionSerializer
    filterset_class = DefinitionFilter
    ordering = "pk"
    row_keyword = "definition"
    creator_keyword = "user"
    service_create = staticmethod(services.definition_create)
    service_update = staticmethod(services.definition_update)
    service_delete = staticmethod(services.definition_delete)

    def get_queryset(self) -> Any:
        return definitions_listed()

    @extend_schema(request=None, responses={200: ReportDetailSerializer, 202: JobSerializer})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str | None = None) -> Response:
        """Write a report now: 202 with a job, or the report with `Prefer: wait=N`."""
        report, job = REPORT.request(definition=self.get_object(), user=signed_in_user(request))
        rows, address = REPORT.visible(), REPORT.address(report)
        return job_response(request, job, lambda _: show_row(report, rows, ReportDetailSerializer), address=address)


class ScheduleViewSet(ServiceViewSet):
    """Schedules of definitions. A definition has one schedule: posting another replaces it."""

    queryset = ReportSchedule.objects.none()
    serializer_class = ScheduleSerializer
    filterset_class = ScheduleFilter
    ordering = "pk"
    row_keyword = "schedule"
    service_create = staticmethod(schedule_set)

    def get_queryset(self) -> Any:
        return schedules_listed()

    @staticmethod
    def service_update(*, schedule: ReportSchedule, **values: Any) -> Model:
        values.pop("definition", None)
        current = {"rule": schedule.rule, "time_zone": schedule.time_zone}
        return schedule_set(definition=schedule.definition, **{**current, **values})

    service_delete = staticmethod(schedule_remove)

    @extend_schema(request=PreviewSerializer, responses=RunSerializer(many=True), filters=False)
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def preview(self, request: Request) -> Response:
        """The next five due times of a rule; nothing is stored."""
        serializer = PreviewSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        _, runs = schedule_preview(**serializer.validated_data)
        rows = [{"at": run.at, "clock": f"{run.clock:%Y-%m-%d %H:%M}", "note": run.note} for run in runs]
        return Response(RunSerializer(rows, many=True).data)


class ReportViewSet(RunDeletion, RunListViewSet):
    """Reports that were written, newest first; each in HTML, PDF, CSV and JSON."""

    kind = REPORT
    queryset = Report.objects.none()
    filterset_class = ReportFilter
    serializer_class, detail_class = ReportSerializer, ReportDetailSerializer
    ordering = "-created_at"
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    @extend_schema(operation_id="getReportFile", responses=_FILES, filters=False)
    @action(detail=True, methods=["get"], url_path=f"(?P<form>{'|'.join(FORMATS)})", url_name="file")
    def file(self, request: Request, pk: str | None = None, form: str = "pdf") -> HttpResponse:
        """The report as a file: html, pdf, csv (a zip file of tables) or json."""
        return report_download(self.get_object(), form)

    @extend_schema(request=None, responses=DeliverySerializer)
    @action(detail=True, methods=["post"], url_path=r"deliveries/(?P<number>[0-9]{1,18})/send")
    def send(self, request: Request, pk: str | None = None, number: str = "0") -> Response:
        """Send it to one reader again, from the first try on."""
        delivery = get_object_or_404(self.get_object().deliveries, pk=int(number))
        return Response(DeliverySerializer(delivery_send_again(delivery=delivery)).data)


class WebhookViewSet(ServiceViewSet):
    """Addresses that are told of finished reports by a signed POST. They often hold a secret of their own."""

    scopes = {"GET": Scope.OPERATE}
    queryset = Webhook.objects.none()
    serializer_class = WebhookSerializer
    filterset_class = WebhookFilter
    ordering = "name"
    row_keyword = "webhook"
    service_create = staticmethod(services.webhook_create)
    secret_actions = frozenset({"create", "renew_secret"})
    service_update = staticmethod(services.webhook_update)
    service_delete = staticmethod(services.webhook_delete)

    def get_queryset(self) -> Any:
        return webhooks_listed()

    @extend_schema(responses={201: SecretSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response = super().create(request, *args, **kwargs)
        row = Webhook.objects.get(pk=response.data["id"])
        response.data = {**response.data, "secret": webhook_secret(row)}
        return response

    @extend_schema(request=None, responses=SecretSerializer)
    @action(detail=True, methods=["post"], url_path="renew-secret")
    def renew_secret(self, request: Request, pk: str | None = None) -> Response:
        """Sign with a new secret from now on; the answer shows it."""
        row = services.webhook_renew_secret(webhook=self.get_object())
        return Response({**self._shown(row), "secret": webhook_secret(row)})


router = Router()
router.register("reports", ReportViewSet, basename="report")
router.register("report-definitions", DefinitionViewSet, basename="report-definition")
router.register("report-schedules", ScheduleViewSet, basename="report-schedule")
router.register("webhooks", WebhookViewSet, basename="webhook")

urlpatterns = [
    path("planned-events/<int:pk>/nodes", NodeCountsView.as_view(), name="planned-event-nodes"),
    *router.urls,
]
