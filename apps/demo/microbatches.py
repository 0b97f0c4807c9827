"""A Spark query of the demo: progress of 43 micro-batches, as Spark would have written it."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.microbatch.choices import SparkQueryOrigin
from apps.microbatch.progress import progress_ingest
from apps.microbatch.services import spark_query_create

__all__ = ["SPARK_QUERY", "spark_query_build"]

SPARK_QUERY = "orders-by-region"
_BATCHES, _TRIGGER_S, _SEED = 43, 10.0, 42
_FIXED_MS, _PER_ROW_MS = 900.0, 0.0105
_MEAN_RATE, _SWING = 38_000.0, 0.35
_SETTINGS = {"trigger_s": _TRIGGER_S, "executors": 2, "cores_per_executor": 4, "max_rows_per_trigger": 900_000}


@transaction.atomic
def spark_query_build(cluster: Cluster, user: User) -> None:
    """Watch a stateful query by an uploaded file, unless the cluster has it."""
    if cluster.spark_queries.filter(name=SPARK_QUERY).exists():
        return
    fields: dict[str, Any] = {**_SETTINGS, "constraint_s": 20.0, "statistic": "q0.95"}
    origin = SparkQueryOrigin.FILE
    query = spark_query_create(cluster=cluster, name=SPARK_QUERY, origin=origin, user=user, **fields)
    begins_at = timezone.now().replace(microsecond=0) - timedelta(seconds=_TRIGGER_S * (_BATCHES + 6))
    progress_ingest(query=query, documents=_documents(begins_at))


def _documents(begins_at: datetime) -> list[dict[str, Any]]:
    chance = random.Random(_SEED)
    found, state_rows = [], 180_000
    for batch in range(_BATCHES):
        rate = _MEAN_RATE * (1 + _SWING * math.sin(2 * math.pi * batch / 28)) * chance.uniform(0.93, 1.07)
        rows = round(rate * _TRIGGER_S)
        usual_ms = (_FIXED_MS + _PER_ROW_MS * rows) * chance.uniform(0.94, 1.06)
        duration_ms = round(usual_ms * (1 + max(0.0, 0.9 - 0.35 * batch)))  # the first ones load and compile
        state_rows += chance.randrange(-900, 1_100)
        began_at = begins_at + timedelta(seconds=_TRIGGER_S * batch, milliseconds=chance.randrange(0, 6))
        found.append(_document(batch, began_at, rows, duration_ms, state_rows))
    return found


def _document(batch: int, began_at: datetime, rows: int, duration_ms: int, state_rows: int) -> dict[str, Any]:
    beside_ms = {"latestOffset": 14, "getBatch": 1, "queryPlanning": 42, "walCommit": 31, "commitOffsets": 29}
    latest = began_at - timedelta(milliseconds=620)
    return {
        "id": "5a1f0a52-8c6e-4b1e-9d1f-5e2c7a0e4d10",
        "runId": "0d9b7a7e-3f0f-4c43-8d52-6a1b1f7f2c01",
        "name": SPARK_QUERY,
        "timestamp": _instant(began_at),
        "batchId": 1_180 + batch,
        "numInputRows": rows,
        "inputRowsPerSecond": rows / _TRIGGER_S,
        "durationMs": {**beside_ms, "addBatch": duration_ms - sum(beside_ms.values()), "triggerExecution": duration_ms},
        "eventTime": {"max": _instant(latest), "watermark": _instant(latest - timedelta(seconds=30))},
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": state_rows,
                "memoryUsedBytes": 412 * state_rows,
                "allUpdatesTimeMs": round(0.31 * duration_ms),
                "allRemovalsTimeMs": round(0.02 * duration_ms),
                "commitTimeMs": 118,
                "numRowsDroppedByWatermark": rows // 90_000,
                "numShufflePartitions": 16,
            }
        ],
        "sources": [
            {
                "description": "KafkaV2[Subscribe[orders]]",
                "endOffset": {"orders": {str(partition): batch * rows // 8 for partition in range(8)}},
                "numInputRows": rows,
            }
        ],
        "sink": {"description": "DeltaSink[/warehouse/orders_by_region]", "numOutputRows": -1},
    }


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
