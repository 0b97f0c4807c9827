"""REST: decisions and proposals as YAML or JSON that an engine's operator applies."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.admission.previews import ADMISSION
from apps.core.errors import Fault, Malformed
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin
from apps.exports.services import PARTS, admission_export, export_part, parallelism_export, placement_export
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from engine.exports.export import FORMATS, EngineExport, export_text

__all__ = []

_MEDIA = {"yaml": "application/yaml", "json": "application/json"}
_ENGINES = ("flink", "spark")
_DIRECTIONS = ("apply", "reverse")
_PARAMETERS = [
    OpenApiParameter("format", enum=FORMATS, default="yaml", description="Form of the answer."),
    OpenApiParameter("engine", enum=_ENGINES, description="The engine; that of the query's connection unless given."),
    OpenApiParameter("part", enum=PARTS, default="all", description="The whole, or a part as its tool takes it."),
    OpenApiParameter("direction", enum=_DIRECTIONS, default="apply", description="Of a part: apply it, or undo it."),
]
_TEXTS = {(200, kind): OpenApiTypes.ANY for kind in _MEDIA.values()}  # a part is what its tool takes


class _OwnFormat(BaseContentNegotiation):
    """`format` is a parameter of these views, not of REST framework's choice of a renderer."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class _ExportView(ApiMixin, APIView):
    asked_on = AskedOn.NARROWED

    content_negotiation_class = _OwnFormat

    def answer(self, request: Request, export: EngineExport, name: str) -> HttpResponse:
        """The export as the request asks for it."""
        asked = _asked(request)
        content = export_part(export, asked["part"], is_reverse=asked["direction"] == "reverse")
        form = asked["format"]
        response = HttpResponse(export_text(content, form), content_type=f"{_MEDIA[form]}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
        return response


class AdmissionExportView(_ExportView):
    """A decision on an imported query in terms of its engine."""

    @extend_schema(parameters=_PARAMETERS, responses=_TEXTS, operation_id="getAdmissionExport")
    def get(self, request: Request, pk: str) -> HttpResponse:
        """Settings, patches and calls that apply the decision, with their reverse and with notes on what gets lost."""
        row = row_visible(ADMISSION.visible().select_related("version__query__cluster"), pk=pk)
        export = admission_export(row, engine=_asked(request)["engine"])
        return self.answer(request, export, f"{row.query.name}-{str(row.pk)[:8]}")


class PlacementExportView(_ExportView):
    """A proposal for an imported query in terms of its engine."""

    @extend_schema(
        parameters=[*_PARAMETERS, OpenApiParameter("query", description="Which query, where it places several.")],
        responses=_TEXTS,
        operation_id="getPlacementExport",
    )
    def get(self, request: Request, pk: str) -> HttpResponse:
        """Settings, patches and calls that apply the proposal to one query, with their reverse and notes."""
        run = row_visible(PLACEMENT.visible().defer(None), pk=pk)
        query = request.query_params.get("query", "")
        export = placement_export(run, query=query, engine=_asked(request)["engine"])
        return self.answer(request, export, f"{query or 'placement'}-{str(run.pk)[:8]}")


class ParallelismExportView(_ExportView):
    """A parallelism of a query's newest plan in terms of its engine."""

    @extend_schema(
        parameters=[
            *_PARAMETERS,
            OpenApiParameter("parallelism", int, required=True, description="One of the plan's parallelisms."),
        ],
        responses=_TEXTS,
        operation_id="getParallelismExport",
    )
    def get(self, request: Request, pk: int) -> HttpResponse:
        """Settings, patches and calls that give the query that parallelism, with their reverse and notes."""
        query = row_visible(Query.objects.select_related("cluster", "running_version"), pk=pk)
        asked, told = _asked(request), request.query_params.get("parallelism", "")
        if not (told.isascii() and told.isdigit() and int(told[:9]) > 0 and len(told) < 10):
            message = f"parallelism is {told!r}; allowed: a whole number from 1"
            raise Malformed(f"{message[0].upper()}{message[1:]}.", [("parallelism", message)])
        export = parallelism_export(query, int(told), engine=asked["engine"])
        return self.answer(request, export, f"{query.name}-parallelism-{told}")


def _asked(request: Request) -> dict[str, str]:
    """Parameters of the request, each with its default; Malformed with every fault."""
    allowed = {"format": FORMATS, "engine": _ENGINES, "part": PARTS, "direction": _DIRECTIONS}
    defaults = {"format": "yaml", "engine": "", "part": "all", "direction": "apply"}
    asked = {name: request.query_params.get(name, default) for name, default in defaults.items()}
    faults = [
        Fault(name, f"{name} is {asked[name]!r}; allowed: {', '.join(values)}")
        for name, values in allowed.items()
        if asked[name] not in values and asked[name] != defaults[name]
    ]
    if faults:
        raise Malformed(faults[0].message[0].upper() + faults[0].message[1:] + ".", faults)
    return asked


urlpatterns = [
    path("admissions/<uuid:pk>/export", AdmissionExportView.as_view(), name="admission-export"),
    path("queries/<int:pk>/parallelism/export", ParallelismExportView.as_view(), name="query-parallelism-export"),
    path("placements/<uuid:pk>/export", PlacementExportView.as_view(), name="placement-export"),
]
