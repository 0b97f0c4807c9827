"""REST: backtests."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.serializers import ClusterField
from apps.jobs.api import job_response
from apps.jobs.serializers import JobSerializer
from apps.planning.backtests.selectors import backtests_visible
from apps.planning.backtests.services import backtest_delete, backtest_request
from apps.planning.choices import RequestTiming
from apps.planning.filters import BacktestFilter
from apps.planning.models import BacktestRun

__all__ = ["BacktestCreateSerializer", "BacktestDetailSerializer", "BacktestSerializer", "BacktestViewSet"]


class BacktestCreateSerializer(StrictSerializer):
    """Request for a backtest: a period and a policy."""

    cluster = ClusterField()
    since = serializers.DateTimeField(required=False, help_text="Default: a week before until.")
    until = serializers.DateTimeField(required=False, help_text="Default: now.")
    policy = serializers.DictField(
        required=False,
        help_text="admission, at_risk, assumed, headroom, placement, max_moves; see the API guide.",
    )
    ask = serializers.ChoiceField(
        choices=RequestTiming.choices, required=False, help_text="When requests are asked; default recorded."
    )


class BacktestSerializer(serializers.ModelSerializer):
    """A backtest in a list: its parameters, and its result in a few numbers."""

    cluster = serializers.CharField(source="cluster.slug")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    policy = serializers.JSONField()
    facts = serializers.JSONField(help_text="headline, admitted, seconds_over and others; empty while not answered.")
    answered_at = serializers.DateTimeField(required=False, allow_null=True)

    class Meta:
        model = BacktestRun
        fields = ["id", "cluster", "since", "until", "policy", "ask", "state", "job", "facts", "requested_by"]
        fields += ["created_at", "answered_at", "duration_s"]


class BacktestDetailSerializer(BacktestSerializer):
    """A backtest with its result."""

    result = serializers.SerializerMethodField(help_text="The engine's answer; null while there is none.")

    class Meta(BacktestSerializer.Meta):
        fields = [*BacktestSerializer.Meta.fields, "result"]

    @field_type(dict[str, Any] | None)
    def get_result(self, row: BacktestRun) -> dict[str, Any] | None:
        return row.result


class BacktestViewSet(
    ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet
):
    """Recorded periods replayed through another policy of admission and placement. POST asks: 202 with a job, or the
    answer with `Prefer: wait=N`.
    """

    queryset = BacktestRun.objects.none()
    serializer_class = BacktestSerializer
    filterset_class = BacktestFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "DELETE": Scope.OPERATE}

    def get_queryset(self) -> Any:
        return backtests_visible()

    def get_serializer_class(self) -> type:
        return BacktestDetailSerializer if self.action == "retrieve" else BacktestSerializer

    @extend_schema(request=BacktestCreateSerializer, responses={200: BacktestDetailSerializer, 202: JobSerializer})
    def create(self, request: Request) -> Response:
        """Replay a recorded period through another policy. 202 with a job, or the answer with `Prefer: wait=N`."""
        row, job = backtest_request(user=signed_in_user(request), **read_body(BacktestCreateSerializer, request))
        shown = lambda _: BacktestDetailSerializer(backtests_visible().get(pk=row.pk)).data  # noqa: E731
        return job_response(request, job, shown, address=f"/api/v1/backtests/{row.pk}")

    def perform_destroy(self, instance: BacktestRun) -> None:
        backtest_delete(row=instance)
