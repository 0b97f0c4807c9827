"""Traces as OpenTelemetry has them: a span for each request and each task, sent to `settings.OTLP_ENDPOINT`.

Off without an endpoint: then nothing of OpenTelemetry is loaded, and no log line or task carries anything of it. A
span says which route or task ran, for how long and how it ended. What people and programs send (paths with their
values, queries, headers, bodies, texts of errors) is in none.

What crosses processes is the W3C's `traceparent` (Trace Context, section 3.2): a request has it from its caller, a task
from the one that sent it, and a job keeps it in its row, so that a job that is sent again stays in its trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import structlog
from celery import Task
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from agent import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

__all__ = [
    "PARENT_HEADER",
    "RequestSpan",
    "TracedTask",
    "flush_spans",
    "note_on_span",
    "pass_parent_on",
    "request_span",
    "span_parent",
    "within_trace",
]

PARENT_HEADER = "traceparent"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_QUEUE = 2048  # spans that wait to be sent; more than that are dropped
_BATCH = 512
_EVERY_MS = 2000.0
_TIMEOUT_S = 2.0  # of one batch with its repetitions: a process that ends waits as long


class RequestSpan:
    """The span of a request, to be told the answer; it tells nobody where traces are off."""

    def __init__(self, request: HttpRequest, span: Span | None) -> None:
        self._request = request
        self._span = span

    def answered(self, response: HttpResponse) -> None:
        """Name the span after the route that Django found, and store the status."""
        if self._span is None:
            return
        match = self._request.resolver_match
        if match is not None:
            self._span.update_name(f"{_method(self._request)} {match.view_name}")
            self._span.set_attribute("http.route", f"/{match.route.rstrip('$')}")
        self._span.set_attribute("http.response.status_code", response.status_code)
        if response.status_code >= 500:
            _fail(self._span)


@contextmanager
def request_span(request: HttpRequest, request_id: str) -> Iterator[RequestSpan]:
    """A span of a request, in its caller's trace if it names one."""
    if not settings.OTLP_ENDPOINT:
        yield RequestSpan(request, None)
        return
    from opentelemetry.trace import SpanKind

    method = _method(request)
    facts = {"http.request.method": method, "url.scheme": request.scheme, "sluice.request_id": request_id}
    with _span(method, _context(request.headers), SpanKind.SERVER, facts) as span:
        request.trace_id = _trace_id(span)  # type: ignore[attr-defined] # for lines that Django writes afterwards
        yield RequestSpan(request, span)


class TracedTask(Task):
    """A task of Celery with a span of its own, in the trace of the request or task that sent it."""

    abstract = True

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run it; Celery has noted its request already, so that this need not."""
        from opentelemetry.trace import SpanKind

        parent = getattr(self.request, PARENT_HEADER, None)
        facts = {"messaging.system": "celery", "messaging.message.id": str(self.request.id or "")}
        with _span(str(self.name), _context({PARENT_HEADER: parent} if parent else {}), SpanKind.CONSUMER, facts):
            return self.run(*arguments, **options)


def pass_parent_on(headers: dict[str, Any], **_: Any) -> None:
    """Write the present span into a task's headers (receiver of Celery's `before_task_publish`)."""
    if parent := span_parent():
        headers[PARENT_HEADER] = parent


def span_parent() -> str:
    """The present span as a `traceparent`; empty outside of one, and where traces are off."""
    if not settings.OTLP_ENDPOINT:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(PARENT_HEADER, "")


@contextmanager
def within_trace(parent: str) -> Iterator[None]:
    """Tasks sent inside belong to the trace of `parent`, a `traceparent`; to the present one if that is empty."""
    if not parent or not settings.OTLP_ENDPOINT:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(_context({PARENT_HEADER: parent}))
    try:
        yield
    finally:
        detach(token)


def note_on_span(**facts: str | int) -> None:
    """Add facts to the present span, each under its name with `sluice.` before it."""
    if not settings.OTLP_ENDPOINT:
        return
    from opentelemetry.trace import get_current_span

    for name, value in facts.items():
        get_current_span().set_attribute(f"sluice.{name}", value)


def flush_spans(**_: Any) -> None:
    """Send what waits, as a process ends that Python's own end does not reach (Celery's `worker_process_shutdown`)."""
    if _provider.cache_info().currsize:
        _provider().force_flush()


@contextmanager
def _span(name: str, context: Context, kind: Any, facts: Mapping[str, str]) -> Iterator[Span]:
    """A span that log lines name; an exception that leaves it is named by its class, since its text may tell."""
    tracer = _provider().get_tracer("sluice", VERSION)
    with (
        tracer.start_as_current_span(
            name, context, kind, facts, record_exception=False, set_status_on_exception=False
        ) as span,
        structlog.contextvars.bound_contextvars(trace_id=_trace_id(span)),
    ):
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            _fail(span)
            raise


def _trace_id(span: Span) -> str:
    return format(span.get_span_context().trace_id, "032x")


def _fail(span: Span) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


def _context(headers: Mapping[str, str]) -> Context:
    """The caller's span. Its `tracestate` is left out: a caller may write anything there, and spans would tell it."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {PARENT_HEADER: headers[PARENT_HEADER]} if PARENT_HEADER in headers else {}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _method(request: HttpRequest) -> str:
    """One of few: a caller may write anything."""
    return request.method if request.method in _METHODS else "_OTHER"


@cache
def _provider() -> TracerProvider:
    """Made with a process's first span: a worker makes it after the fork, with a thread of its own."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(f"{settings.OTLP_ENDPOINT}/v1/traces", timeout=_TIMEOUT_S)
    provider = TracerProvider(resource=Resource.create({"service.name": "sluice", "service.version": VERSION}))
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter, max_queue_size=_QUEUE, max_export_batch_size=_BATCH, schedule_delay_millis=_EVERY_MS
        )
    )
    return provider
