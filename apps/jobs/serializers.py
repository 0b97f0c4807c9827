"""Jobs over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.rest.problems import StoredProblemSerializer
from apps.jobs.models import Job

__all__ = ["JobSerializer"]


class JobSerializer(serializers.ModelSerializer):
    """State, progress (0 to 1), step in words, and where the result is."""

    url = serializers.SerializerMethodField()
    cluster: Any = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    requested_by: Any = serializers.SlugRelatedField(slug_field="username", read_only=True)
    error = StoredProblemSerializer(read_only=True, allow_null=True)

    class Meta:
        model = Job
        fields = [
            "id",
            "url",
            "kind",
            "title",
            "cluster",
            "requested_by",
            "state",
            "progress",
            "step",
            "attempt",
            "cancel_requested",
            "result",
            "result_url",
            "result_api_url",
            "error",
            "created_at",
            "started_at",
            "finished_at",
        ]
        read_only_fields = fields

    @extend_schema_field(serializers.CharField())
    def get_url(self, job: Job) -> str:
        return f"/api/v1/jobs/{job.pk}"
