"""Batch jobs over the history: what each reads, what it writes, and the sentence of figures that it ends with."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.history.archive import (
    MERGE_FOLDER,
    RESULTS,
    STATISTICS_ROWS,
    batch_numbers,
    day_files,
    day_folder,
    drop_old_days,
    kept_days,
    swap_files,
)
from spark_jobs.history.figures import (
    RESULT_KEY,
    RUNS,
    STATISTICS_KEY,
    arrival_counts,
    arrival_tables,
    cost_fits,
    interval_factors_by_group,
    latest_rows,
    operator_sums,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS", "DaySpan", "HistoryContext", "last_days", "output_folder"]

_FILE_BYTES = 64 * 2**20  # of a merged day, about
_KEYS = {"statistics": STATISTICS_KEY, "results": RESULT_KEY}
_SCHEMAS = {"statistics": STATISTICS_ROWS, "results": RESULTS, "runs": RUNS}

Figures = dict[str, Any]


@dataclass(frozen=True)
class DaySpan:
    """UTC days from the first to the last, both included."""

    since: date
    until: date

    def __contains__(self, day: date) -> bool:
        return self.since <= day <= self.until

    def __str__(self) -> str:
        return f"{self.since.isoformat()} to {self.until.isoformat()}"


def output_folder(folder: Path, job: str) -> Path:
    """Folder of a job's output: Parquet files, and `_summary.json` with its figures."""
    return folder / "outputs" / job


def read_rows(spark: SparkSession, files: list[Path], schema: pa.Schema) -> DataFrame:
    """The rows of some files. Columns that an earlier release did not write are null."""
    ddl = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], ddl)
    return spark.read.schema(ddl).parquet(*map(str, files))


class HistoryContext:
    """Session, folder and days of one run, and the rows that its jobs share.

    `report` is called with what a job is at, in words. `now` is the time of the whole run: no job looks at a clock.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        span: DaySpan,
        *,
        now: datetime,
        retention_days: int,
        report: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.spark, self.folder, self.span = spark, folder, span
        self.now, self.retention_days, self.report = now, retention_days, report

    @property
    def today(self) -> date:
        """UTC day that is not over yet."""
        return self.now.astimezone(UTC).date()

    def rows(self, kind: str) -> DataFrame:
        """Rows of a kind of the run's days, as they were written."""
        days = [day for day in kept_days(self.folder, kind) if day in self.span]
        files = [path for day in days for path in day_files(day_folder(self.folder, kind, day))]
        return read_rows(self.spark, files, _SCHEMAS[kind])

    @cached_property
    def statistics(self) -> DataFrame:
        """One row for each subinterval of an operator at a place."""
        rows = self.rows("statistics").na.fill(0)
        return latest_rows(rows, STATISTICS_KEY).persist(StorageLevel.MEMORY_AND_DISK)

    @cached_property
    def sums(self) -> DataFrame:
        """Sums by operator and place."""
        return operator_sums(self.statistics).persist(StorageLevel.MEMORY_AND_DISK)

    def write(self, job: str, rows: DataFrame, figures: Callable[[DataFrame], Figures]) -> Figures:
        """Replace a job's output by these rows, and tell its figures, which are made of what was written."""
        target = output_folder(self.folder, job)
        fresh, old = target.with_name(f"{job}.new"), target.with_name(f"{job}.old")
        for path in (fresh, old):
            shutil.rmtree(path, ignore_errors=True)
        rows.coalesce(1).write.parquet(str(fresh))
        told = {"rows": 0} | figures(self.spark.read.parquet(str(fresh)))
        (fresh / "_summary.json").write_text(json.dumps(told))
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        return told


def compact(context: HistoryContext) -> Figures:
    """Make few files of the many of each finished day, without rows that a later batch replaced; drop old days."""
    dropped = drop_old_days(context.folder, context.today, context.retention_days)
    total = {"rows": 0, "days": 0, "files_before": 0, "files_after": 0, "bytes_before": 0, "bytes_after": 0}
    for kind in _KEYS:
        for day in kept_days(context.folder, kind):
            if day >= context.today:
                continue
            context.report(f"{kind} of {day.isoformat()}")
            for name, value in compact_day(context.spark, context.folder, kind, day).items():
                total[name] += value
    return total | {"dropped_days": dropped}


def compact_day(spark: SparkSession, folder: Path, kind: str, day: date) -> Figures:
    """Make few files of a day's many; nothing where they are few already. Batches that come meanwhile stay."""
    place = day_folder(folder, kind, day)
    files = day_files(place)
    size = sum(path.stat().st_size for path in files)
    wanted = max(1, math.ceil(size / _FILE_BYTES))
    if len(files) <= wanted:
        return {}
    rows = latest_rows(read_rows(spark, files, _SCHEMAS[kind]), _KEYS[kind])
    merge = place / MERGE_FOLDER
    rows.coalesce(wanted).sortWithinPartitions("query", "window_us").write.option("compression", "zstd").parquet(
        str(merge), mode="overwrite"
    )
    newest = "{:06d}-{:012d}".format(*max(batch_numbers(path.name) for path in files))
    stamp = f"{time.time_ns() // 1000:017d}"
    written = sorted(merge.glob("*.parquet"))
    parts = {f"days-{newest}-{stamp}-{number:02d}.parquet": path for number, path in enumerate(written)}
    swap_files(place, parts, [path.name for path in files])
    after = [place / name for name in parts]
    return {
        "rows": read_rows(spark, after, _SCHEMAS[kind]).count(),
        "days": 1,
        "files_before": len(files),
        "files_after": len(after),
        "bytes_before": size,
        "bytes_after": sum(path.stat().st_size for path in after),
    }


def statistics(context: HistoryContext) -> Figures:
    """Sum up counts, CPU time, costs and variation of each operator and place over the days."""

    def figures(rows: DataFrame) -> Figures:
        measured = sql.when(sql.col("cost_s") > 0, sql.col("cost_error_s") / sql.col("cost_s"))
        return _first(
            rows.agg(
                sql.count(sql.lit(1)).alias("rows"),
                sql.sum("subintervals").alias("subintervals"),
                sql.countDistinct("query").alias("queries"),
                sql.sum("records_processed").alias("records"),
                (sql.sum("cpu_ns") / 1e9).alias("cpu_s"),
                sql.max(measured).alias("cost_error_max"),
            )
        )

    return context.write("statistics", context.sums, figures)


def costs(context: HistoryContext) -> Figures:
    """Refit the costs of a record and of a group, by operator and place."""

    def figures(rows: DataFrame) -> Figures:
        return _first(
            rows.agg(
                sql.count(sql.lit(1)).alias("rows"),
                sql.count("group_cost_s").alias("with_groups"),
                sql.sum("sampled").alias("records"),
                sql.median("standard_error").alias("error_median"),
            )
        )

    return context.write("costs", cost_fits(context.sums), figures)


def arrivals(context: HistoryContext) -> Figures:
    """Count the arrivals of each query by subinterval; a table for each besides, which the console imports."""
    tables = output_folder(context.folder, "arrivals").with_name("arrival-tables")

    def figures(rows: DataFrame) -> Figures:
        by_query = arrival_tables(rows).repartition("query").sortWithinPartitions("query", "time")
        by_query.write.partitionBy("query").csv(str(tables), header=True, mode="overwrite")
        return _first(
            rows.agg(
                sql.count(sql.lit(1)).alias("rows"),
                sql.countDistinct("query").alias("queries"),
                sql.sum("count").alias("records"),
                sql.min("starts_us").alias("first_us"),
                sql.max(sql.col("starts_us") + sql.col("width_us")).alias("end_us"),
            )
        )

    return context.write("arrivals", arrival_counts(context.statistics), figures)


def calibration(context: HistoryContext) -> Figures:
    """Make factors of intervals from the scored runs of the days."""
    runs = context.rows("runs").dropDuplicates(["cluster", "query", "origin", "statistic", "at_s"])

    def figures(rows: DataFrame) -> Figures:
        origins = [_plain(row) for row in rows.where(sql.col("query") == "").collect()]
        return {"rows": rows.count(), "runs": sum(origin["runs"] for origin in origins), "origins": origins}

    return context.write("calibration", interval_factors_by_group(runs, context.now.timestamp()), figures)


#: Every job by its name, in the order of a run of all.
JOBS: Mapping[str, Callable[[HistoryContext], Figures]] = {
    "compact": compact,
    "statistics": statistics,
    "costs": costs,
    "arrivals": arrivals,
    "calibration": calibration,
}


def last_days(today: date, days: int) -> DaySpan:
    """So many days up to `today`."""
    return DaySpan(today - timedelta(days=days - 1), today)


def _first(rows: DataFrame) -> Figures:
    row = rows.first()
    assert row is not None  # of an aggregate there is one
    return _plain(row)


def _plain(row: Any) -> Figures:
    """A row as JSON takes it: without what is not known, and no number that is none."""
    told = row.asDict()
    return {name: value for name, value in told.items() if value is not None and value == value}
