"""A fuzz of the API's description: no answer is an error of the server, and none has what the description does not.

Operations take turns until the time is over (`--fuzz-seconds`); seed, operation and turn alone say what is sent, so
`--fuzz-seed` sends the same again. What a call makes is read, changed and deleted; then all of it is undone, so that
all calls meet the same world.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import time
import traceback
import warnings
from collections import Counter
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from apps.core.counters import TokenRateThrottle
from tests.apps.contracts.test_endpoints import client_of

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
#: Media types that Schemathesis does not know, and those it writes them as.
_MEDIA_TYPES = {
    "application/vnd.sluice.frames": "application/octet-stream",
    "application/vnd.apache.arrow.stream": "application/octet-stream",
    "application/x-ndjson": "application/json",
}
_EXAMPLES = 5  # of an operation, each turn
_ODD_TEXTS = [
    "%",
    "%s",
    "%(a)s",
    "\0",
    "²",
    "٣",
    "1e999",
    "9" * 40,
    "é" * 300,
    "../",
    "",
]
#: Names of parameters in addresses, and what the world has under them where the names differ.
_IN_WORLD = {"slug": "cluster", "window_us": "window", "operator": "window_operator"}
#: Names of rooms in addresses, and their rows in the world.
_ROWS = {
    "queries": "query_pk",
    "nodes": "node_pk",
    "node-pools": "pool",
    "links": "link",
    "agents": "agent_pk",
    "live-queries": "live",
    "telemetry-sources": "source_pk",
    "static-tables": "table_pk",
    "enrolment-tokens": "enrolment",
    "arrivals": "series",
    "spark-queries": "spark_query",
    "load-histories": "history",
    "report-definitions": "definition",
    "report-schedules": "schedule",
    "alert-rules": "rule",
    "executions": "execution",
    "model-versions": "model_version",
    "fine-tunings": "fine_tuning",
    "plan-comparisons": "comparison",
    "resource-plans": "resource_plan",
    "what-ifs": "what_if",
    "kubernetes-reviews": "kubernetes_review",
    "saved-views": "saved_view",
    "imported-jobs": "imported_job",
}


_COUNTS = {"source_id": "taps", "counts": [1.0, 2.0]}
_SOURCE = {"source_id": "fuzzed", "kind": "replay", "columns": {"t": "timestamp", "v": "float"}, "time": "t"}
#: Bodies that are taken, of which some members are replaced by made-up ones: alone these hardly ever make anything.
_TAKEN: dict[str, dict[str, Any]] = {
    "clusters": {"slug": "fuzzed", "name": "Fuzzed", "subinterval_s": 60},
    "node-pools": {"name": "fuzzed", "capacity_cps": 1e9, "cores": 2},
    "nodes": {"name": "fuzzed", "pool": "fuzzed", "capacity_cps": 1e9, "cores": 2},
    "queries": {
        "name": "fuzzed",
        "operators": [
            {"id": "m", "kind": "map", "inputs": [{"from": "clicks", "selectivity": 1, "cycles_per_event": 9}]},
            {"id": "s", "kind": "sink", "inputs": [{"from": "m", "selectivity": 1, "cycles_per_event": 9}]},
        ],
    },
    "scenarios": {"name": "fuzzed"},
    "webhooks": {"name": "fuzzed", "url": "https://example.org/x"},
    "enrolment-tokens": {},
    "telemetry-sources": _SOURCE,
    "static-tables": {"name": "fuzzed", "columns": {"host": "string"}, "rows": [["a"]]},
    "connections": {"name": "fuzzed", "engine": "flink"},
    "spark-queries": {"name": "fuzzed", "origin": "listener"},
    "report-definitions": {"name": "Fuzzed", "kind": "provisioning", "parameters": {"sections": ["fleet"]}},
    "saved-views": {"name": "fuzzed", "list": "queries", "parameters": {}},
    "arrivals": _COUNTS,
    "admissions": {"query": "draft"},
    "admissions/groups": {"members": [{"query": "draft"}, {"query": "paired"}]},
    "placements": {"budget_s": 0.1},
    "forecasts": {"horizon_days": 1},
    "planned-events": {
        "name": "fuzzed",
        "factors": [{"of": "rest", "by": 2}],
        "starts_at": "2030-11-27T08:00",
        "ends_at": "2030-11-30T00:00",
    },
    "what-ifs": {"scenarios": []},
    "predictions": {},
    "estimates": {},
}


@pytest.fixture
def token(world: dict[str, Any]) -> str:
    return str(client_of("admin")._credentials["HTTP_AUTHORIZATION"])


@pytest.fixture
def operations(world: dict[str, Any]) -> list[Any]:
    described = SchemaGenerator().get_schema(request=None, public=True)
    schema = schemathesis.openapi.from_dict(described)
    schema.app = get_wsgi_application()
    for kind, as_kind in _MEDIA_TYPES.items():
        schemathesis.serializer.alias(kind, as_kind)
    return [result.ok() for result in schema.get_all_operations()]


def _world_value(path: str, name: str, world: dict[str, Any]) -> Any:
    """The value of a parameter of an address that leads to something."""
    if name in _IN_WORLD or name in world:
        return world[_IN_WORLD.get(name, name)]
    owner = path.split("{")[0].rstrip("/").rpartition("/")[2]
    return world.get(_ROWS.get(owner, owner.removesuffix("s").replace("-", "_")))


def _send(operation: Any, case: Any, draw: Any, world: dict[str, Any], token: str) -> Any:
    for name in case.path_parameters or {}:
        known = _world_value(operation.path, name, world)
        if known is not None and draw(st.integers(0, 3)):
            case.path_parameters[name] = str(known)
    for part in (case.query, case.headers):
        for name in list(part or {}):
            if not draw(st.integers(0, 4)):
                part[name] = draw(st.sampled_from(_ODD_TEXTS))
    taken = _TAKEN.get(operation.path.removeprefix("/api/v1/")) if operation.method.upper() == "POST" else None
    if taken is not None and isinstance(case.body, dict) and draw(st.integers(0, 3)):
        made_up = {name: value for name, value in case.body.items() if not draw(st.integers(0, 7))}
        case.body, case.media_type = {"cluster": world["cluster"], **taken, **made_up}, "application/json"
        if operation.path.endswith("/clusters"):
            del case.body["cluster"]
    if isinstance(case.body, dict):
        if "cluster" in case.body and draw(st.integers(0, 3)):
            case.body["cluster"] = world["cluster"]
        if "wait_s" in case.body:
            case.body["wait_s"] = 0
    headers = {"Authorization": token}
    return case.call(headers=headers, base_url="http://localhost")


class _Errors(logging.Handler):
    """Keeps the last stack trace that was logged."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.last = "".join(traceback.format_exception(*record.exc_info)[-4:])


class _Fuzz:
    """Calls of the operations of a description, and the faults of their answers."""

    def __init__(self, operations: list[Any], world: dict[str, Any], token: str, errors: _Errors) -> None:
        self.operations, self.world, self.token, self.errors = operations, world, token, errors
        self.faults: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.slowest = (0.0, "")

    def call(self, operation: Any, number: int) -> None:
        """Call one operation a few times, with what the number says, and what it makes by all operations of that."""

        @seed(number)
        @settings(
            max_examples=_EXAMPLES,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), data=st.data())
        def examples(case: Any, data: st.DataObject) -> None:
            began = time.monotonic()
            with transaction.atomic():
                try:
                    response = _send(operation, case, data.draw, self.world, self.token)
                    self._check(operation, case, response)
                    if response.status_code == 201 and "location" in response.headers:
                        self._walk(response.headers["location"][0])
                finally:
                    transaction.set_rollback(True)
            took = f"{operation.label}, {case.as_curl_command()[:300]}"
            self.slowest = max(self.slowest, (time.monotonic() - began, took))

        examples()

    def _walk(self, location: str) -> None:
        """Read, change and delete what was made, and read it again."""
        for method in ("GET", "PATCH", "DELETE", "GET"):
            for operation in self.operations:
                match = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(operation.path)), location)
                if match is not None and operation.method.upper() == method:
                    body = {"body": {}, "media_type": "application/json"} if method == "PATCH" else {}
                    case = operation.Case(path_parameters=match.groupdict(), **body)
                    answer = case.call(headers={"Authorization": self.token}, base_url="http://localhost")
                    self._check(operation, case, answer)

    def _check(self, operation: Any, case: Any, response: Any) -> None:
        self.statuses[response.status_code] += 1
        try:
            case.validate_response(response, checks=_CHECKS)
        except (Failure, FailureGroup) as failure:
            causes = getattr(failure, "exceptions", [failure])
            said = "; ".join(f"{cause.title}: {cause.message[:600]}" for cause in causes)
            trace = self.errors.last if response.status_code >= 500 else ""
            curl = case.as_curl_command()[:600]
            self.faults.append(f"{operation.label}: {response.status_code} {said}\n{trace}    {curl}")


def test_fuzz_finds_no_answer_that_is_not_described(
    operations: list[Any],
    world: dict[str, Any],
    token: str,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors, log = _Errors(logging.ERROR), logging.getLogger()
    monkeypatch.setattr(log, "handlers", [errors])
    # the server would close the connection after each request, and with it the transaction that undoes them
    monkeypatch.setattr(request_started, "receivers", [])
    monkeypatch.setattr(request_finished, "receivers", [])
    request_started.sender_receivers_cache.clear()
    request_finished.sender_receivers_cache.clear()
    monkeypatch.setattr(TokenRateThrottle, "allow_request", lambda *_: True)
    seconds, chosen = pytestconfig.getoption("--fuzz-seconds"), pytestconfig.getoption("--fuzz-seed")
    first = random.SystemRandom().randrange(10**6) if chosen is None else chosen
    with capsys.disabled():
        print(f"\nfuzz: --fuzz-seed {first} --fuzz-seconds {seconds:g}")
    fuzz, until = _Fuzz(operations, world, token, errors), time.monotonic() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Schemathesis and Hypothesis, about the description
        for turn in itertools.count():
            order = list(operations)
            random.Random(first + turn).shuffle(order)
            for operation in order:
                if time.monotonic() > until:
                    break
                number = random.Random(f"{first} {turn} {operation.label}").randrange(2**32)
                fuzz.call(operation, number)
            if time.monotonic() > until:
                break
    with capsys.disabled():
        print(f"fuzz: {len(fuzz.faults)} faults in answers by status {dict(sorted(fuzz.statuses.items()))}")
        print(f"fuzz: the slowest took {fuzz.slowest[0]:.1f} s: {fuzz.slowest[1]}")
    assert not fuzz.faults, f"--fuzz-seed {first}:\n" + "\n".join(dict.fromkeys(fuzz.faults))
