"""A cluster with a probing query, agents that joined it, and the frames they send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from rest_framework.test import APIClient

from agent.wire import COUNTERS, Frame, FrameKind, batch_bytes, encode_frame
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.telemetry.agent_services import Enrolled, agent_enrol, enrolment_create
from apps.telemetry.live_services import live_start
from apps.telemetry.models import LiveQuery
from apps.telemetry.pipelines import partials_schema, pipeline_by_digest, records_schema
from apps.telemetry.sources import source_upsert
from tests.apps.domain import make_arrivals, make_cluster, make_query, start

COLUMNS = {
    "ts": "timestamp",
    "src_ip": "string",
    "src_cluster": "string",
    "dst_ip": "string",
    "dst_cluster": "string",
    "rtt_us": "int64",
    "err_code": "int64",
}
SOURCE: dict[str, Any] = {
    "kind": "tcp_probe",
    "options": {"interval_s": 1.0, "peers": [{"address": "10.0.0.2:9101"}]},
    "time": "ts",
    "columns": COLUMNS,
    "lateness_s": 1.0,
}
EXPRESSIONS: dict[str, dict[str, Any]] = {
    "window": {"op": "window", "size_s": 10},
    "good": {"op": "filter", "where": "err_code = 0"},
    "rtt": {"op": "aggregate", "by": ["src_ip", "dst_ip"], "compute": {"n": "count(*)", "mean_rtt": "avg(rtt_us)"}},
}
KINDS = {"window": "window", "filter": "filter", "aggregate": "aggregate", "join": "join", "map": "map"}

#: Of load factors, as a heartbeat tells it.
CHANGE = {
    "epoch_us": 1_700_000_000_000_000,
    "why": "budget",
    "epochs": 2,
    "from": [1.0, 0.0],
    "to": [1.0, 0.5],
    "bytes_before": 40.5,
    "bytes_after": None,
}


def body(expressions: dict[str, dict[str, Any]] = EXPRESSIONS, source: str = "probes") -> dict[str, Any]:
    """A query's body: a chain of operators with expressions."""
    operators, before = [], source
    for name, expression in expressions.items():
        reads = {"from": before, "selectivity": 1.0, "cycles_per_event": 1_000}
        operators.append({"id": name, "kind": KINDS[expression["op"]], "expression": expression, "inputs": [reads]})
        before = name
    return {"operators": operators}


def probing(slug: str = "eu-1", expressions: dict[str, dict[str, Any]] = EXPRESSIONS) -> Query:
    """A running query that watches round trips, its source known to the cluster."""
    cluster = make_cluster(slug)
    source_upsert(cluster=cluster, source_id="probes", **SOURCE)
    return running(cluster, expressions)


def running(cluster: Cluster, expressions: dict[str, dict[str, Any]] = EXPRESSIONS, name: str = "s2s") -> Query:
    if not cluster.arrivals.filter(source_id="probes").exists():
        make_arrivals(cluster, "probes")
    return start(make_query(cluster, name, body=body(expressions)))


def enrolled(cluster: Cluster, name: str = "a1", **facts: Any) -> Enrolled:
    """An agent that joined."""
    _, secret = enrolment_create(cluster=cluster, user=None)
    return agent_enrol(token=secret, name=name, **facts)


def live_at(query: Query, *names: str, **fields: Any) -> tuple[LiveQuery, list[Enrolled]]:
    """The query live on newly enrolled agents."""
    joined = [enrolled(query.cluster, name) for name in names or ("a1",)]
    return live_start(query=query, agents=[enrolment.agent for enrolment in joined], **fields), joined


def client_of(joined: Enrolled) -> APIClient:
    """REST as the agent speaks it."""
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {joined.secret}")
    return client


def records(live: LiveQuery, entry: int = 0, rows: int = 3) -> bytes:
    """A body of records that may enter at an operator."""
    return batch_bytes(_rows(records_schema(pipeline_by_digest(live.plan), entry), rows))


def partials(live: LiveQuery, entry: int, rows: int = 2) -> bytes:
    return batch_bytes(_rows(partials_schema(pipeline_by_digest(live.plan), entry), rows))


def _rows(schema: Any, rows: int) -> pa.Table:
    values: dict[Any, Any] = {pa.int64(): 7, pa.string(): "10.0.0.1", pa.float64(): 0.5, pa.bool_(): True}
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    columns = [
        pa.array([values.get(f.type, moment if pa.types.is_timestamp(f.type) else None)] * rows, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def counters(*of: tuple[str | None, str | None]) -> bytes:
    """Two rows for each query and plan."""
    rows = [{"query": query, "plan": plan} for query, plan in of for _ in range(2)]
    return batch_bytes(pa.Table.from_pylist(rows, schema=COUNTERS))


def counted(joined: Enrolled, seq: int, *of: tuple[str | None, str | None], **fields: Any) -> Frame:
    """A frame of counters."""
    return Frame(FrameKind.COUNTERS, str(joined.agent.pk), "l1", seq, body=counters(*of), **fields)


def frame(live: LiveQuery, joined: Enrolled, seq: int, **fields: Any) -> Frame:
    """A frame of records unless told otherwise."""
    common = {
        "kind": FrameKind.RECORDS,
        "agent": str(joined.agent.pk),
        "life": "l1",
        "query": live.key,
        "plan": live.plan,
    }
    made: dict[str, Any] = {**common, "seq": seq, "epoch": 1_700_000_000_000_000 + seq, **fields}
    if made["kind"] == FrameKind.RECORDS and "body" not in made:
        made["body"] = records(live, made.get("entry", 0))
    return Frame(**made)


def mark(live: LiveQuery, joined: Enrolled, seq: int) -> Frame:
    marks = {str(entry): 1_700_000_000_000_000 for entry in range(live.source_operators + 1)}
    return frame(live, joined, seq, kind=FrameKind.MARK, extra={"watermarks": marks})


def post(client: APIClient, *frames: Frame | bytes) -> Any:
    """Frames as a post to the console."""
    data = b"".join(item if isinstance(item, bytes) else encode_frame(item) for item in frames)
    return client.post("/api/v1/telemetry/batches", data, content_type="application/vnd.sluice.frames")


def epoch(number: int, **fields: Any) -> dict[str, Any]:
    """An epoch as a heartbeat tells of it."""
    row: dict[str, Any] = {"e": 1_700_000_000_000_000 + number * 1_000_000, "p": [1.0, 0.5, 0.0], "n": 100, "bi": 8600}
    return row | {"bs": 4300, "o": 2, "u": 0.015, "b": 0.02, "i": 0.005, "d": 0.4, "v": None} | fields


def heartbeat(client: APIClient, joined: Enrolled, **says: Any) -> Any:
    import time

    body = {"life": "l1", "version": "0.1.0", "time": time.time(), "cpu_cores": 0.01, **says}
    return client.post(f"/api/v1/agents/{joined.agent.pk}/heartbeat", body, format="json")
