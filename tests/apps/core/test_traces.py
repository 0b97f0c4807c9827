"""Traces: what a collector is sent of requests, tasks and jobs, and what it is not."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
from celery import Celery
from celery.signals import before_task_publish
from django.conf import settings as django_settings
from django.test import Client

from apps.accounts.models import User
from apps.core import traces
from apps.core.logs import BoundFormatter, SparseFilter, line_formatter
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, run_job
from apps.jobs.services import job_resend, job_submit
from console import env

pytest.importorskip("opentelemetry.sdk", reason="deploy/traces.txt is not installed: traces are not tested")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{CALLER}-00f067aa0ba902b7-01"


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP on loopback, and keeps the bodies."""

    daemon_threads = True

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), CollectorHandler)

    def spans(self) -> list[Any]:
        """All spans that were sent so far, in the order of their starts."""
        traces.flush_spans()
        found = [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        assert isinstance(self.server, Collector)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def fresh(settings: Any) -> Iterator[Any]:
    """Settings under which the provider of spans is made anew, and given up after the test."""
    traces._provider.cache_clear()
    before_task_publish.connect(traces.pass_parent_on)
    yield settings
    before_task_publish.disconnect(traces.pass_parent_on)
    if traces._provider.cache_info().currsize:
        traces._provider().shutdown()
    traces._provider.cache_clear()


@pytest.fixture
def collector(fresh: Any) -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        fresh.OTLP_ENDPOINT = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


def facts(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def waiting_parents() -> list[str]:
    """The `traceparent` of each task that waits at the broker."""
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        queues = [key for key in client.scan_iter() if client.type(key) == b"list"]
        messages = [json.loads(text) for key in queues for text in client.lrange(key, 0, -1)]
    return [message["headers"].get("traceparent", "") for message in messages]


@pytest.mark.django_db
def test_a_request_is_one_span_in_its_callers_trace(
    collector: Collector, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.get(
        "/api/v1/jobs/5cc9f1d4-not-told?token=slu_secret",
        headers={"traceparent": PARENT, "tracestate": "a=slu_secret", "X-Request-ID": "mine"},
    )
    client.generic("SLU_SECRET", "/login/", "slu_secret")
    client.get("/login/", headers={"traceparent": "00-slu_secret"})
    first, odd, own = collector.spans()
    refusals = [line_formatter().format(record) for record in caplog.records if record.name == "django.request"]
    assert f"trace_id={CALLER}" in refusals[0]
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (CALLER, PARENT.split("-")[2])
    assert facts(first)["sluice.request_id"] == "mine"
    assert odd.name == "_OTHER signin:login"
    assert (own.name, own.trace_id.hex() == CALLER, own.parent_span_id) == ("GET signin:login", False, b"")
    assert facts(own)["http.response.status_code"] == 200 and facts(own)["http.route"] == "/login/"
    assert b"secret" not in b"".join(collector.bodies).lower() and b"not-told" not in b"".join(collector.bodies)


@pytest.mark.django_db(transaction=True)
def test_a_job_stays_in_the_trace_of_who_asked_though_it_is_sent_again(collector: Collector, rf: Any) -> None:
    request = rf.get("/", headers={"traceparent": PARENT})
    with traces.request_span(request, "mine"):
        job = job_submit(JobKind.ESTIMATE, "Estimate it", {})
    job_resend(Job.objects.get(pk=job.pk))
    parents = waiting_parents()
    assert parents == [job.traceparent] * 2 and CALLER in job.traceparent

    app = Celery("traced", task_cls=traces.TracedTask, set_as_current=False)
    lines: list[str] = []
    in_a_worker = BoundFormatter(logging.Formatter("%(message)s"))

    def work(report: Any) -> JobOutcome:
        record = logging.makeLogRecord({"msg": "at work", "name": "x", "levelno": 20, "levelname": "INFO"})
        lines.extend([line_formatter().format(record), in_a_worker.format(record)])
        return JobOutcome()

    @app.task(name="traced")
    def do_job(job_id: str) -> None:
        run_job(job_id, work)

    do_job.push_request(traceparent=parents[1], id="message")
    do_job(str(job.pk))
    request_span, task_span = collector.spans()
    assert task_span.trace_id.hex() == request_span.trace_id.hex() == CALLER
    assert task_span.parent_span_id == request_span.span_id
    assert facts(task_span) | {"sluice.job": str(job.pk), "sluice.job_state": JobState.SUCCEEDED} == facts(task_span)
    assert facts(task_span)["sluice.job_kind"] == JobKind.ESTIMATE
    assert all(f"trace_id={CALLER}" in line and f"job={job.pk}" in line for line in lines)


def test_an_error_is_named_by_its_class_alone(collector: Collector) -> None:
    app = Celery("traced", task_cls=traces.TracedTask, set_as_current=False)

    @app.task(name="traced")
    def fail() -> None:
        raise LookupError("slu_secret")

    with pytest.raises(LookupError):
        fail()
    (span,) = collector.spans()
    assert facts(span)["error.type"] == "LookupError" and span.status.code == 2
    assert b"slu_secret" not in b"".join(collector.bodies)


@pytest.mark.django_db(transaction=True)
def test_without_an_endpoint_nothing_carries_anything(client: Client, fresh: Any) -> None:
    fresh.OTLP_ENDPOINT = ""
    client.get("/login/", headers={"traceparent": PARENT})
    job = job_submit(JobKind.ESTIMATE, "Estimate it", {}, user=User.objects.create_user("asks"))
    assert job.traceparent == "" and waiting_parents() == [""]
    assert traces._provider.cache_info().currsize == 0


@pytest.mark.django_db
def test_a_collector_that_is_away_costs_a_line(
    client: Client, fresh: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.OTLP_ENDPOINT = "http://127.0.0.1:9"
    monkeypatch.setattr(traces, "_TIMEOUT_S", 0.05)
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setattr(logging.getLogger(exporter), "filters", [SparseFilter()])
    for _ in range(3):
        assert client.get("/login/").status_code == 200
        traces.flush_spans()
    assert [record.name for record in caplog.records if record.name.startswith("opentelemetry")] == [exporter]


def test_an_endpoint_without_its_packages_is_told_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise env.PackageNotFoundError(name)

    monkeypatch.setattr(env, "version", none)
    assert env.Env.read({}).otlp_endpoint == ""
    with pytest.raises(env.EnvError, match=r"SLUICE_OTLP_ENDPOINT: .* pip install -r deploy/traces\.txt"):
        env.Env.read({"SLUICE_OTLP_ENDPOINT": "http://collector:4318"})


def test_an_endpoint_is_an_address_without_a_query() -> None:
    for wrong in ("collector:4318", "grpc://collector:4317", "http://", "http://collector:4318?slu_secret"):
        with pytest.raises(env.EnvError) as error:
            env.Env.read({"SLUICE_OTLP_ENDPOINT": wrong})
        assert "SLUICE_OTLP_ENDPOINT" in str(error.value) and "slu_secret" not in str(error.value)
