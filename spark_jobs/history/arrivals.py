"""Arrivals of queries by subinterval over days: what forecasts and backtests take as the load of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from engine.measurement.places import STREAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["arrival_counts", "arrival_tables"]

_PAIRS = ("fine_pairs", "second_pairs", "slow_pairs")


def arrival_counts(rows: DataFrame) -> DataFrame:
    """Records that came to a query's source in each subinterval, all agents together.

    Parameters
    ----------
    rows : DataFrame
        Of statistics, one for each subinterval of an operator at a place.

    Returns
    -------
    DataFrame
        query, starts_us, width_us, count, agents; a subinterval of which no agent told anything has no row.

    Notes
    -----
    Agents tell how arrivals vary with the first operator of a query and no other, so the one of which most is told is
    the first. A query of which nothing is told, by agents of an earlier release, has no rows.
    """
    pairs = sum((sql.col(name) for name in _PAIRS), sql.lit(0.0))
    of_plan = Window.partitionBy("query", "plan")
    of_operator = Window.partitionBy("query", "plan", "operator")
    of_agents = rows.where(sql.col("place") != STREAM).withColumn("pairs", sql.sum(pairs).over(of_operator))
    ranked = of_agents.withColumn("most", sql.max("pairs").over(of_plan))
    firsts = ranked.where((sql.col("pairs") > 0) & (sql.col("pairs") == sql.col("most")))
    # an agent that changed its plan within a subinterval has a row of each
    counts = firsts.groupBy("query", sql.col("window_us").alias("starts_us"), "width_us").agg(
        sql.sum("records_in").alias("count"), sql.countDistinct("place").alias("agents")
    )
    return counts.orderBy("query", "starts_us")


def arrival_tables(counts: DataFrame) -> DataFrame:
    """The same as the tables that the console imports: query, time (ISO 8601, UTC), count."""
    time = sql.date_format(sql.timestamp_micros("starts_us"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    return counts.select("query", time.alias("time"), "count")
