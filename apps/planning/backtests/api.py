"""REST: backtests."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin
from apps.jobs.api import job_response
from apps.jobs.serializers import JobSerializer
from apps.planning.backtests.selectors import backtests_visible
from apps.planning.backtests.serializers import BacktestCreateSerializer, BacktestDetailSerializer, BacktestSerializer
from apps.planning.backtests.services import backtest_delete, backtest_request
from apps.planning.filters import BacktestFilter
from apps.planning.models import BacktestRun

__all__ = ["BacktestViewSet"]


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
        serializer = BacktestCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        row, job = backtest_request(user=signed_in_user(request), **serializer.validated_data)
        shown = lambda _: BacktestDetailSerializer(backtests_visible().get(pk=row.pk)).data  # noqa: E731
        response = job_response(request, job, shown)
        response.setdefault("Content-Location", f"/api/v1/backtests/{row.pk}")
        return response

    def perform_destroy(self, instance: BacktestRun) -> None:
        backtest_delete(row=instance)
