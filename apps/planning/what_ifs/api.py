"""REST: scenarios, what-ifs, and the bench's quick answer."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import read_body
from apps.core.viewsets import ServiceViewSet
from apps.jobs.api import job_response
from apps.jobs.serializers import JobSerializer
from apps.planning.choices import Find, RunState
from apps.planning.filters import ScenarioFilter, WhatIfFilter
from apps.planning.models import Scenario, WhatIf
from apps.planning.what_ifs.inputs import read_options
from apps.planning.what_ifs.selectors import scenarios_visible, what_ifs_visible
from apps.planning.what_ifs.serializers import (
    ScenarioSerializer,
    SweepSerializer,
    WhatIfCreateSerializer,
    WhatIfDetailSerializer,
    WhatIfSerializer,
)
from apps.planning.what_ifs.services import scenario_create, scenario_delete, scenario_update, what_if_request
from apps.planning.what_ifs.sweeps import BenchFigures, bench_sweep

__all__ = ["ScenarioViewSet", "WhatIfViewSet"]

_PATIENCE_S = 20.0


class WhatIfViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """What-ifs: other nodes, loads, objectives or queries. POST asks: 202 with a job, or the answer with `Prefer:
    wait=N`.

    The same question on an unchanged cluster gives the answer that is there. Answers stay readable; `stale` and
    `changes` say whether the cluster has moved since.
    """

    body_sizes = {"create": DOCUMENT}
    queryset = WhatIf.objects.none()
    serializer_class = WhatIfSerializer
    filterset_class = WhatIfFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "sweep": Scope.READ}

    def get_queryset(self) -> Any:
        return what_ifs_visible()

    def get_serializer_class(self) -> type:
        return WhatIfDetailSerializer if self.action == "retrieve" else WhatIfSerializer

    @extend_schema(request=WhatIfCreateSerializer, responses={200: WhatIfDetailSerializer, 202: JobSerializer})
    def create(self, request: Request) -> Response:
        """Ask a what-if. 202 with a job, or the answer with `Prefer: wait=N`.

        The same question on an unchanged cluster gives the answer that is there.
        """
        asked = read_body(WhatIfCreateSerializer, request)
        row, job = what_if_request(user=signed_in_user(request), **asked)
        if job is None or (row.state == RunState.ANSWERED and job.is_finished):
            return Response(_shown(row), headers={"Content-Location": _address(row)})
        return job_response(request, job, lambda _: _shown(row), address=_address(row))

    @extend_schema(request=SweepSerializer, responses=BenchFigures)
    @action(detail=False, methods=["post"])
    def sweep(self, request: Request) -> Response:
        """The bench's answer at once: worst cases by number of nodes, by Mace. Nothing is stored.

        A cluster too large for an answer in about a second is refused with 422 and the code `too_large`: ask a what-if
        with `find: sweep`, which a job answers. 503 while the bench is prepared for a cluster that has moved.
        """
        asked = read_body(SweepSerializer, request)
        options = read_options(Find.SWEEP, asked.get("options", {}))
        question, sweep = bench_sweep(asked["cluster"], options, patience_s=_PATIENCE_S)
        figures = BenchFigures(
            snapshot=question.snapshot.digest,
            basis=question.basis,
            now=sweep.now,
            smallest=sweep.smallest.nodes if sweep.smallest else None,
            lacking=question.lacking,
            sizes=tuple(sweep.sizes),
        )
        return Response(figures.to_dict())


class ScenarioViewSet(ServiceViewSet):
    """Named sets of changes to a cluster, to be compared side by side."""

    body_sizes = {"create": DOCUMENT, "partial_update": DOCUMENT}
    queryset = Scenario.objects.none()
    serializer_class = ScenarioSerializer
    filterset_class = ScenarioFilter
    ordering = "name"
    row_keyword = "scenario"
    creator_keyword = "user"
    service_create = staticmethod(scenario_create)
    service_update = staticmethod(scenario_update)
    service_delete = staticmethod(scenario_delete)

    def get_queryset(self) -> Any:
        return scenarios_visible()


def _address(row: WhatIf) -> str:
    return f"/api/v1/what-ifs/{row.pk}"


def _shown(row: WhatIf) -> Any:
    return WhatIfDetailSerializer(what_ifs_visible().get(pk=row.pk)).data
