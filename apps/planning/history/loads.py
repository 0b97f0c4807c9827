"""Counted arrivals of live queries as load histories of their sources, of which forecasts are made."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from apps.planning.forecasts.histories import history_store_measured
from apps.queries.arrivals.grid import EventCounts
from apps.telemetry.models import LiveQuery

__all__ = ["loads_store"]


def loads_store(folder: Path) -> int:
    """Keep the output of the job `arrivals` as load histories; returns how many were made or extended.

    Several queries that read a source count the same records: the most that any of them saw is taken. Counts of
    queries that are gone, and sources whose history somebody brought, are left alone.
    """
    rows = pq.read_table(folder, columns=["query", "starts_us", "width_us", "count"])
    by_query = {name.as_py(): rows.filter(pc.equal(rows["query"], name)) for name in rows["query"].unique()}
    parts: dict[tuple[int, str], list[pa.Table]] = defaultdict(list)
    clusters = {}
    for live in LiveQuery.objects.select_related("query__cluster", "source").order_by("pk"):
        cluster = live.query.cluster
        if (table := by_query.get(f"{cluster.slug}/{live.query.name}")) is not None:
            clusters[cluster.pk] = cluster
            parts[cluster.pk, live.source.source_id].append(table)
    stored = [
        history_store_measured(cluster=clusters[pk], source_id=source_id, trace=_trace(tables))
        for (pk, source_id), tables in parts.items()
    ]
    return sum(row is not None for row in stored)


def _trace(tables: list[pa.Table]) -> EventCounts:
    """One series of counts, the largest of each subinterval; of the width that came last where it was changed."""
    rows = pa.concat_tables(tables)
    newest = rows["width_us"][int(np.argmax(rows["starts_us"].to_numpy()))]
    rows = rows.filter(pc.equal(rows["width_us"], newest))
    largest = rows.group_by(["starts_us"]).aggregate([("count", "max")]).sort_by("starts_us")
    starts_s = largest["starts_us"].to_numpy() / 1e6
    return EventCounts(
        starts_s, np.full(len(starts_s), newest.as_py() / 1e6), largest["count_max"].to_numpy().astype(float)
    )
