"""REST: jobs. Other resources create them; here they are read and cancelled."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.rest.api import ApiMixin, Router
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job
from apps.jobs.selectors import jobs_visible
from apps.jobs.serializers import JobSerializer
from apps.jobs.services import job_cancel

__all__ = ["JobViewSet"]


class JobViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Background work: state, progress from 0 to 1, step, and the address of its result."""

    queryset = Job.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilter
    ordering = "-created_at"

    def get_queryset(self) -> Any:
        return jobs_visible()

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel: a waiting job at once, a running one at its next step. 409 if it has ended already."""
        return Response(JobSerializer(job_cancel(self.get_object())).data)


router = Router()
router.register("jobs", JobViewSet, basename="job")
urlpatterns = router.urls
