"""REST for machines: frames of agents, records of producers, the plan and the frames of the stream processor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agent.wire import MAX_BODY_BYTES, MAX_POST_BYTES
from apps.accounts.choices import Scope
from apps.core.body_sizes import BodySize
from apps.core.errors import Fault, Malformed
from apps.core.metrics import metrics_response
from apps.core.reach import AskedOn, check_cluster
from apps.core.rest.api import ApiMixin, etag_of
from apps.core.rest.parsers import SizedParser
from apps.telemetry.configs import stream_plan
from apps.telemetry.directory import AgentAuthentication, AgentPermission
from apps.telemetry.frames import ProducerPost, batch_take, frames_ingest, frames_read, frames_receive
from apps.telemetry.pipelines import pipeline_by_digest
from apps.telemetry.selectors import live_by_key, stream_state
from apps.telemetry.streams import state_reading, state_reading_request, stream_families, stream_figures

__all__ = [
    "AcceptedSerializer",
    "ArrowParser",
    "BatchAcceptedSerializer",
    "BatchesView",
    "FramesParser",
    "FramesView",
    "KeyedStateView",
    "PipelineView",
    "PlanView",
    "ProducerView",
    "StreamMetricsView",
    "StreamPlanSerializer",
    "StreamStateView",
]


class AcceptedSerializer(serializers.Serializer):
    """Progress of an agent's frames."""

    accepted_seq = serializers.IntegerField()
    committed_seq = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class BatchAcceptedSerializer(serializers.Serializer):
    """Progress of a producer's batches."""

    accepted_sequence = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class StreamPlanSerializer(serializers.Serializer):
    """Plan of the stream processor."""

    version = serializers.IntegerField()
    queries = serializers.ListField(child=serializers.DictField())


class FramesParser(SizedParser):
    """`application/vnd.sluice.frames`: frames one after the other."""

    media_type = "application/vnd.sluice.frames"


class ArrowParser(FramesParser):
    """`application/vnd.apache.arrow.stream`: an Arrow IPC stream."""

    media_type = "application/vnd.apache.arrow.stream"


_FRAMES = {"POST": BodySize(max_values=0, max_bytes=MAX_POST_BYTES)}
_BATCH = {"POST": BodySize(max_values=0, max_bytes=MAX_BODY_BYTES)}
_BYTES = {"application/vnd.sluice.frames": OpenApiTypes.BINARY}
_ARROW = {"application/vnd.apache.arrow.stream": OpenApiTypes.BINARY}
_MAX_NUMBER = 2**52


def _header(name: str, text: str, *, required: bool = True) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, required=required, description=text)


class BatchesView(ApiMixin, APIView):
    """Frames of agents."""

    authentication_classes = [AgentAuthentication]
    permission_classes = [AgentPermission]
    parser_classes = [FramesParser]
    body_sizes = _FRAMES

    @extend_schema(request=_BYTES, responses=AcceptedSerializer)
    def post(self, request: Request) -> Response:
        """Ingest numbered frames of an agent, each once. 409 `gap` names the expected one; 429 `full` asks to wait."""
        return Response(frames_ingest(sender=request.auth, data=request.data))


class ProducerView(ApiMixin, APIView):
    """Records of producers."""

    asked_on = AskedOn.NARROWED

    parser_classes = [ArrowParser]
    body_sizes = _BATCH
    scopes = {"POST": Scope.INGEST}

    @extend_schema(
        parameters=[
            _header("X-Sluice-Producer", "Name of the producer."),
            _header("X-Sluice-Sequence", "1, 2, 3 …: the number of this batch."),
            _header("X-Sluice-Watermark", "Microseconds since 1970: no later record is older."),
            _header("X-Sluice-Life", "Another text begins another numbering.", required=False),
        ],
        request=_ARROW,
        responses=BatchAcceptedSerializer,
    )
    def post(self, request: Request, cluster: str, query: str, operator: str) -> Response:
        """Ingest one batch of records, an Arrow IPC stream, that enters a live query at an operator."""
        post = _post_of(request)
        live = live_by_key(cluster, query)
        check_cluster(live.query.cluster)
        return Response(batch_take(live=live, operator=operator, post=post, body=request.data or b""))


def _post_of(request: Request) -> ProducerPost:
    faults: list[Fault] = []
    numbers = {}
    for name, minimum in (("X-Sluice-Sequence", 1), ("X-Sluice-Watermark", 0)):
        text = request.headers.get(name, "")
        good = text.isascii() and text.isdigit() and len(text) < 17 and minimum <= int(text) < _MAX_NUMBER
        numbers[name] = int(text) if good else 0
        if not good:
            faults.append(Fault(name, f"{name} is {text[:40]!r}; allowed: a whole number from {minimum}"))
    producer, life = request.headers.get("X-Sluice-Producer", ""), request.headers.get("X-Sluice-Life", "0")
    if not producer:
        faults.append(Fault("X-Sluice-Producer", "X-Sluice-Producer is missing; allowed: a name"))
    if not (life.isascii() and life.isalnum() and len(life) <= 32):
        faults.append(Fault("X-Sluice-Life", f"X-Sluice-Life is {life[:40]!r}; allowed: 1 to 32 letters and digits"))
    if faults:
        raise Malformed(f"{faults[0].message}.", faults)
    return ProducerPost(producer, numbers["X-Sluice-Sequence"], numbers["X-Sluice-Watermark"], life)


class PlanView(ApiMixin, APIView):
    """The plan of the stream processor."""

    scopes = {"GET": Scope.INGEST}

    @extend_schema(responses=StreamPlanSerializer)
    def get(self, request: Request) -> Response:
        """Live queries with their pipelines and agents. `If-None-Match` saves the read."""
        return _conditional(request, stream_plan())


class PipelineView(ApiMixin, APIView):
    """Pipelines by digest."""

    scopes = {"GET": Scope.INGEST}

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, digest: str) -> Response:
        """A pipeline that runs, or once ran: frames computed with it may still arrive."""
        return Response(pipeline_by_digest(digest).document)


class FramesView(ApiMixin, APIView):
    """Results and statistics."""

    parser_classes = [FramesParser]
    body_sizes = _FRAMES
    scopes = {"POST": Scope.INGEST}

    @extend_schema(request=_BYTES, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        """Ingest result and statistics frames of the stream processor; repeated frames change nothing."""
        frames = [frame for frame, _ in frames_read(request.data)]
        return Response({"received": frames_receive(frames)})


class StreamStateView(ApiMixin, APIView):
    """State of the stream processor."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """State, lag and watermarks; `away` without a recent report."""
        return Response(stream_state())


class KeyedStateView(ApiMixin, APIView):
    """Keyed state of the stream processor."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """`figures` of batches and operators as last reported; `reading` of variables and largest keys, or null."""
        reading = state_reading()
        return Response({"figures": asdict(stream_figures()), "reading": None if reading is None else asdict(reading)})

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        """Ask for a reading, which the stream processor makes at most once a minute; a GET then shows it."""
        state_reading_request()
        return Response({"requested": True})


class StreamMetricsView(ApiMixin, APIView):
    """Metrics for Prometheus."""

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Metrics of the stream processor in Prometheus' text format."""
        return metrics_response(request.headers.get("Accept", ""), stream_families(stream_figures()))


def _conditional(request: Request, body: Any) -> Response:
    etag = etag_of(body)
    if request.headers.get("If-None-Match") == etag:
        return Response(None, status=304, headers={"ETag": etag})
    return Response(body, headers={"ETag": etag})


urlpatterns = [
    path("telemetry/batches", BatchesView.as_view(), name="telemetry-batches"),
    path("streams/<str:cluster>/<str:query>/<str:operator>/batches", ProducerView.as_view(), name="producer-batches"),
    path("stream-processor", StreamStateView.as_view(), name="stream-processor"),
    path("stream-processor/state", KeyedStateView.as_view(), name="stream-processor-state"),
    path("stream-processor/metrics", StreamMetricsView.as_view(), name="stream-processor-metrics"),
    path("stream-processor/plan", PlanView.as_view(), name="stream-processor-plan"),
    path("stream-processor/pipelines/<str:digest>", PipelineView.as_view(), name="stream-processor-pipeline"),
    path("stream-processor/frames", FramesView.as_view(), name="stream-processor-frames"),
]
