"""A live query on a cluster with two agents and a stream processor, without a process of any of them."""

from __future__ import annotations

from typing import Any

from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.models import Query, QueryVersion
from apps.queries.services import query_create, query_start
from apps.telemetry.configs import fixed_settings
from apps.telemetry.models import Agent, Assignment, LiveQuery, TelemetrySource
from engine.dataflow.pipeline import Pipeline

__all__ = ["CPS", "OPERATORS", "agent_ids", "body", "fingerprints", "go_live", "live_query", "make_live_cluster"]

CPS = 1e9
OPERATORS: list[dict[str, Any]] = [
    {"id": "window", "kind": "window", "expression": {"op": "window", "size_s": 10}},
    {"id": "good", "kind": "filter", "expression": {"op": "filter", "where": "err = 0"}},
    {
        "id": "count",
        "kind": "aggregate",
        "expression": {"op": "aggregate", "by": ["src"], "compute": {"n": "count(*)"}},
    },
]
_COLUMNS = {"ts": "timestamp", "src": "string", "err": "int64"}


def make_live_cluster(slug: str = "this-host", agents: int = 2) -> Cluster:
    """Nodes agent-1, agent-2, … and stream (two cores), each of 1e9 cycles/s; subintervals of 10 s."""
    cluster = cluster_create(slug=slug, name="This host", subinterval_s=10.0, horizon_s=600.0)
    edge = pool_create(cluster=cluster, name="edge", capacity_cps=CPS, cores=1)
    centre = pool_create(cluster=cluster, name="centre", capacity_cps=CPS, cores=2)
    for i in range(agents):
        node = node_create(pool=edge, name=f"agent-{i + 1}")
        Agent.objects.create(cluster=cluster, name=node.name, node=node)
    node_create(pool=centre, name="stream")
    TelemetrySource.objects.create(cluster=cluster, source_id="probes", kind="generator", time="ts", columns=_COLUMNS)
    arrivals_create_from_counts(cluster=cluster, source_id="probes", counts=[25.0] * cluster.slices)
    return cluster


def body(operators: list[dict[str, Any]] = OPERATORS) -> dict[str, Any]:
    """The chain as a deployment document's operators."""
    made, above = [], "probes"
    for operator in operators:
        stateless = operator["kind"] != "aggregate"
        inputs = [{"from": above, "selectivity": 1.0, "cycles_per_event": 1000.0}]
        made.append({**operator, "stateless": stateless, "inputs": inputs})
        above = operator["id"]
    return {"operators": made}


def live_query(
    cluster: Cluster, name: str = "errors", bound_s: float = 10.0, factors: Any = (1.0, 1.0, 1.0)
) -> LiveQuery:
    """A running query, live at every agent, placed on the stream processor."""
    objective = {"statistic": "worst", "bound_s": bound_s}
    query = query_create(cluster=cluster, name=name, body=body(), objective=objective)
    version = query.versions.get()
    query_start(version=version, placement={operator["id"]: "stream" for operator in OPERATORS})
    live = go_live(query, version)
    for agent in Agent.objects.filter(cluster=cluster):
        Assignment.objects.create(live=live, agent=agent, settings=fixed_settings(factors))
    return live


def go_live(query: Query, version: QueryVersion, operators: list[dict[str, Any]] = OPERATORS) -> LiveQuery:
    document = {"source": {"id": "probes", "time": "ts", "columns": _COLUMNS}, "operators": operators}
    pipeline = Pipeline.parse(document)
    source = TelemetrySource.objects.get(cluster=query.cluster, source_id="probes")
    fields = {"version": version, "source": source, "plan": pipeline.digest, "pipeline": document}
    fields |= {"source_operators": pipeline.source_operators, "state": "running"}
    return LiveQuery.objects.update_or_create(query=query, defaults=fields)[0]


def fingerprints(live: LiveQuery) -> dict[str, str]:
    return {operator.id: operator.fingerprint for operator in Pipeline.parse(live.pipeline).operators}


def agent_ids(cluster: Cluster) -> list[str]:
    return [str(agent.pk) for agent in Agent.objects.filter(cluster=cluster).order_by("name")]
