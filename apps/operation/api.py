"""REST: the conditions of Sluice itself, for administrators."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.core.rest.api import ApiMixin
from apps.operation.conditions import OperationConditions, operation_conditions

__all__ = ["OperationView"]


class OperationView(ApiMixin, APIView):
    """Conditions of Sluice itself."""

    scopes = {"GET": Scope.ADMIN}

    @extend_schema(responses=OperationConditions)
    def get(self, request: Request) -> Response:
        """Processes, queues, database, broker, agents, credentials, disk and slow requests, each with what to do."""
        return Response(operation_conditions().to_dict())


urlpatterns = [path("operation", OperationView.as_view(), name="operation")]
