"""A cluster of two hosts, a query that never ran, and a model of the cluster that predicts the analytic anchor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.predictions.choices import ExecutionOrigin, ModelOrigin, ModelState
from apps.predictions.ensembles import next_number
from apps.predictions.models import ModelVersion, ObservedExecution
from apps.queries.arrivals.services import arrivals_create_from_counts, arrivals_fields_update
from apps.queries.models import Query
from apps.queries.services import query_create
from engine.costream.answer import CostFigures, PredictedCosts, PredictedVote
from tests.engine.costream.anchors import anchor_archive

__all__ = ["make_cluster", "make_model", "make_query", "make_record", "never_run_body"]

CORE_CPS = 2.4e9


def make_cluster(slug: str = "lab") -> Cluster:
    """Nodes strong (4 cores) and weak, the source s of 100 events/s with its fields, 60 s."""
    cluster = cluster_create(slug=slug, name=slug.upper(), subinterval_s=1.0, horizon_s=60.0)
    for name, cores, memory_bytes in (("strong", 4, 16 * 10**9), ("weak", 1, 2 * 10**9)):
        pool = pool_create(
            cluster=cluster, name=f"{name}s", capacity_cps=CORE_CPS, cores=cores, memory_bytes=memory_bytes
        )
        node_create(pool=pool, name=name)
    row = arrivals_create_from_counts(cluster=cluster, source_id="s", counts=[25.0] * cluster.slices)
    arrivals_fields_update(arrivals=row, event_fields={"ints": 2, "strings": 2})
    return cluster


def never_run_body() -> dict[str, Any]:
    """A filter and a mean over 4 s, without costs."""
    return {
        "operators": [
            {
                "id": "keep",
                "kind": "filter",
                "filter": {"function": "<", "literal_type": "int"},
                "inputs": [{"from": "s", "selectivity": 0.5}],
            },
            {
                "id": "mean",
                "kind": "aggregate",
                "aggregate": {"function": "mean", "argument_type": "int", "group_by_type": "string"},
                "window": {"policy": "time", "type": "tumbling", "size": 4, "emit": "on_update"},
                "inputs": [{"from": "keep", "selectivity": 0.1}],
            },
        ]
    }


def make_query(cluster: Cluster, name: str = "new", bound_s: float | None = 2.0, **body: Any) -> Query:
    objective = {"statistic": "mean", "bound_s": bound_s} if bound_s else None
    return query_create(cluster=cluster, name=name, body=never_run_body() | body, objective=objective)


def make_model(cluster: Cluster, *, in_force: bool = True, **anchor: Any) -> ModelVersion:
    """A fine-tuned version of the cluster, in force in the place of another."""
    weights, card = anchor_archive(**anchor)
    if in_force:
        ModelVersion.objects.filter(cluster=cluster, state=ModelState.IN_FORCE).update(state=ModelState.AVAILABLE)
    return ModelVersion.objects.create(
        cluster=cluster,
        number=next_number(cluster),
        origin=ModelOrigin.FINE_TUNED,
        state=ModelState.IN_FORCE if in_force else ModelState.AVAILABLE,
        digest=card.sha256,
        card=card.to_dict(),
        weights=weights,
    )


def make_record(model: ModelVersion, *, runs: int = 30, held: int = 30, queries: int = 3) -> None:
    """Executions that a cluster's model predicted at 3 to 5 s: the first `held` took 4 s, the others 8 s."""
    cluster = model.cluster
    assert cluster is not None
    versions = [make_query(cluster, f"scored-{k}").versions.get() for k in range(queries)]
    cost, vote = CostFigures(4.0, 3.0, 5.0), PredictedVote(3, holds=True)
    costs = PredictedCosts(
        cost, cost, cost, success=vote, backpressure=PredictedVote(0, holds=False), members=3, level=0.8
    )
    now = timezone.now()
    ObservedExecution.objects.bulk_create(
        ObservedExecution(
            cluster=cluster,
            query=versions[i % queries].query,
            version=versions[i % queries],
            model=model,
            origin=ExecutionOrigin.REPORTED,
            starts_at=now - timedelta(minutes=5 * (i + 1)),
            ends_at=now - timedelta(minutes=5 * i),
            predicted=costs.to_dict(),
            end_to_end_latency_s=4.0 if i < held else 8.0,
            success=True,
            trace={},
        )
        for i in range(runs)
    )
