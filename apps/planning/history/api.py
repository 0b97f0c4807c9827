"""REST: jobs over the stream processor's history."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import StrictSerializer, read_body
from apps.jobs.api import job_response
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer
from apps.planning.choices import HistoryJob
from apps.planning.history.selectors import history_status
from apps.planning.history.services import history_request

__all__ = ["HistoryView"]


class HistoryRequestSerializer(StrictSerializer):
    """Jobs to run; all of them where none is named."""

    jobs = serializers.ListField(child=serializers.ChoiceField(HistoryJob.choices), required=False, max_length=20)


class HistoryJobStatusSerializer(serializers.Serializer):
    """A job with its last run."""

    job = serializers.ChoiceField(HistoryJob.choices)
    ended_at = serializers.DateTimeField(allow_null=True, help_text="Null until it has run.")
    duration_s = serializers.FloatField(allow_null=True)
    rows = serializers.IntegerField(allow_null=True, help_text="Rows of its output.")
    figures = serializers.DictField(help_text="What it told of them.")
    fault = serializers.CharField(allow_blank=True, help_text="Why it failed; empty where it did not.")


class HistoryRunsSerializer(serializers.Serializer):
    """The history's jobs, in the order in which they run."""

    jobs = HistoryJobStatusSerializer(many=True)
    under_way = JobSerializer(allow_null=True)
    next_at = serializers.DateTimeField()
    days = serializers.DictField(help_text="{kind: {first, last, days, files, bytes}}, as of the last run.")


class HistoryView(ApiMixin, APIView):
    """Batch jobs over what the stream processor wrote day by day."""

    @extend_schema(responses=HistoryRunsSerializer)
    def get(self, request: Request) -> Response:
        """Last run of each job, the run under way, and when the next is due."""
        return Response(HistoryRunsSerializer(history_status()).data)

    @extend_schema(request=HistoryRequestSerializer, responses={200: HistoryRunsSerializer, 202: JobSerializer})
    def post(self, request: Request) -> Response:
        """Run jobs: 202 with a job, or their state with `Prefer: wait=N`. 409 while a run is under way."""
        job = history_request(user=signed_in_user(request), **read_body(HistoryRequestSerializer, request))
        return job_response(request, job, _status)


def _status(job: Job) -> Any:
    return HistoryRunsSerializer(history_status()).data
