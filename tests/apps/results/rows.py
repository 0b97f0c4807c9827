"""Frames of results as the stream processor sends them, about a query of two groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from agent.wire import Frame, FrameKind, batch_bytes
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.results.models import AlertRule
from apps.results.services import alert_rule_create
from apps.telemetry.frames import frames_receive
from apps.telemetry.models import KnownPlan, LiveQuery, TelemetrySource
from engine.dataflow import Pipeline
from tests.apps import small_cluster

__all__ = ["BEGIN_US", "WIDTH_US", "arrive", "live_query", "pipeline", "result", "rows_of", "rule_of"]

BEGIN_US = int(datetime(2026, 11, 21, 14, 0, tzinfo=UTC).timestamp()) * 1_000_000
WIDTH_US = 10_000_000

_DOCUMENT: dict[str, Any] = {
    "source": {
        "id": "clicks",
        "time": "ts",
        "columns": {"ts": "timestamp", "src": "string", "dst": "string", "rtt_us": "int64", "err": "int64"},
    },
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 10}},
        {"id": "answered", "expression": {"op": "filter", "where": "err = 0"}},
        {
            "id": "pairs",
            "expression": {
                "op": "aggregate",
                "by": ["src", "dst"],
                "compute": {"n": "count(*)", "rtt": "quantile(rtt_us, 0.5)"},
            },
        },
    ],
}


def pipeline() -> Pipeline:
    """Median round trips by source and destination, over ten seconds."""
    return Pipeline.parse(_DOCUMENT)


def live_query(cluster: Cluster, name: str = "probes", *, state: str = "running") -> LiveQuery:
    """A running query of the pipeline, without agents."""
    query = cluster.queries.filter(name=name).first() or small_cluster.start_query(cluster, name, 0.3, "a", bound_s=5.0)
    found = pipeline()
    source, _ = TelemetrySource.objects.get_or_create(
        cluster=cluster,
        source_id="clicks",
        defaults={"kind": "producer", "time": "ts", "columns": found.document["source"]["columns"]},
    )
    live = LiveQuery.objects.create(
        query=query,
        version=query.running_version,
        source=source,
        plan=found.digest,
        pipeline=dict(found.document),
        source_operators=found.source_operators,
        state=state,
    )
    KnownPlan.objects.create(query=live.key, digest=live.plan, pipeline=live.pipeline, live=live)
    return live


def rows_of(values: Mapping[tuple[str, str], float | None], window: int = 0) -> pa.Table:
    """Rows of the window of that number: {(src, dst): median}."""
    begin = datetime.fromtimestamp((BEGIN_US + window * WIDTH_US) / 1e6, UTC)
    schema = pa.schema(
        [
            ("window_start", pa.timestamp("us", tz="UTC")),
            ("src", pa.string()),
            ("dst", pa.string()),
            ("n", pa.int64()),
            ("rtt", pa.float64()),
        ]
    )
    listed = [
        {"window_start": begin, "src": src, "dst": dst, "n": 10 + i, "rtt": rtt}
        for i, ((src, dst), rtt) in enumerate(values.items())
    ]
    return pa.Table.from_pylist(listed, schema=schema)


def result(
    query: Query,
    values: Mapping[tuple[str, str], float | None],
    window: int = 0,
    *,
    revision: int = 0,
    latency_s: float = 1.5,
    missing: Sequence[str] = (),
    **extra: Any,
) -> Frame:
    """A RESULT frame of one window."""
    at_us = BEGIN_US + window * WIDTH_US
    closing_us = at_us + WIDTH_US
    says = {
        "window_us": at_us,
        "width_us": WIDTH_US,
        "revision": revision,
        "batch": window,
        "complete": not missing,
        "missing": list(missing),
        "late": 0,
        "rows": len(values),
        "records": 20,
        "closing_epoch_us": closing_us,
        "emitted_us": closing_us + round(latency_s * 1e6),
        **extra,
    }
    return Frame(
        kind=FrameKind.RESULT,
        agent="stream",
        life="1",
        seq=1,
        query=f"{query.cluster.slug}/{query.name}",
        plan=pipeline().digest,
        extra=says,
        body=batch_bytes(rows_of(values, window)),
    )


def rule_of(live: LiveQuery, **values: Any) -> AlertRule:
    """A rule that an `rtt` above 20 breaks."""
    given = {"name": "slow", "column": "rtt", "comparison": "gt", "threshold": 20.0, **values}
    return alert_rule_create(query=live.query, **given)


def arrive(live: LiveQuery, window: int, values: Any, **more: Any) -> None:
    """The console gets the result of a window."""
    frames_receive([result(live.query, values, window, **more)])
