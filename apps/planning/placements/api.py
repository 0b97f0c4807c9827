"""REST: placement runs, from the search to the moves."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import read_body
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import job_response
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer
from apps.planning.filters import PlacementFilter
from apps.planning.models import PlacementRun
from apps.planning.placements.moves import placement_abort, placement_apply, placement_undo
from apps.planning.placements.selectors import placements_visible
from apps.planning.placements.serializers import (
    PlacementApplySerializer,
    PlacementCreateSerializer,
    PlacementDetailSerializer,
    PlacementSerializer,
)
from apps.planning.placements.services import placement_delete, placement_request, placement_stop

__all__ = ["PlacementViewSet"]

_ANSWER = {200: PlacementDetailSerializer, 202: JobSerializer}


class PlacementViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Placement runs. POST searches: 202 with a job, or the proposal with `Prefer: wait=N`.

    Nothing moves before the proposal is applied. Applying is refused with 409 when the cluster has moved since the
    search looked at it; `changed` says what. Moves are made in batches, as a job that can be aborted and undone.
    """

    queryset = PlacementRun.objects.none()
    filterset_class = PlacementFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "DELETE": Scope.OPERATE}

    def get_queryset(self) -> Any:
        return placements_visible()

    def get_serializer_class(self) -> type:
        return _SERIALIZERS.get(self.action, PlacementSerializer)

    @extend_schema(responses=_ANSWER)
    def create(self, request: Request) -> Response:
        """Search a placement. 202 with a job, or the proposal with `Prefer: wait=N`.

        Nothing moves before the proposal is applied.
        """
        asked = read_body(PlacementCreateSerializer, request)
        cluster = cluster_by_slug(asked.pop("cluster"))
        run, job = placement_request(cluster=cluster, user=signed_in_user(request), **asked)
        return _answer(request, run, job)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a run that has ended; what it moved stays where it is."""
        placement_delete(run=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=PlacementDetailSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stop a search and keep the best so far as its proposal. Cancelling its job keeps nothing."""
        return _shown(placement_stop(run=self.get_object()))

    @extend_schema(request=PlacementApplySerializer, responses=_ANSWER)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Apply the moves of a proposal, batch by batch."""
        how = read_body(PlacementApplySerializer, request)
        run, job = placement_apply(run=self.get_object(), user=signed_in_user(request), **how)
        return _answer(request, run, job)

    @extend_schema(request=None, responses=PlacementDetailSerializer)
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """Abort after the current batch; what was moved stays."""
        return _shown(placement_abort(run=self.get_object()))

    @extend_schema(request=None, responses=_ANSWER)
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Move back what was moved, the last batch first; refused if anything else has moved since."""
        run, job = placement_undo(run=self.get_object(), user=signed_in_user(request))
        return _answer(request, run, job)


_SERIALIZERS = {"create": PlacementCreateSerializer, "retrieve": PlacementDetailSerializer}


def _shown(run: PlacementRun) -> Response:
    return Response(PlacementDetailSerializer(placements_visible().get(pk=run.pk)).data)


def _answer(request: Request, run: PlacementRun, job: Job) -> Response:
    return job_response(request, job, lambda _: _shown(run).data, address=f"/api/v1/placements/{run.pk}")
