"""Scored runs for the history: one Parquet file for each UTC day, so that they outlive their rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from apps.estimates.models import AccuracyObservation
from engine.files import replace_file

__all__ = ["EXPORTED_RUNS", "scored_runs_export"]

_SETTLED = timedelta(hours=1)  # after its end a day's runs are all judged
#: Columns of the file and the fields they come from, as `spark_jobs.history.calibration.RUNS` reads them.
_FIELDS = {
    "origin": "origin",
    "evidence": "evidence",
    "statistic": "statistic",
    "windowed": "windowed",
    "estimate_s": "expected_s",
    "low_s": "stated_low_s",
    "high_s": "stated_high_s",
    "shown_low_s": "low_s",
    "shown_high_s": "high_s",
    "realised_s": "observed_s",
}
_TEXTS = ("cluster", "query", "origin", "evidence", "statistic")
_NUMBERS = ("at_s", "estimate_s", "low_s", "high_s", "shown_low_s", "shown_high_s", "realised_s")
EXPORTED_RUNS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("windowed", pa.bool_()),
        *((name, pa.float64()) for name in _NUMBERS),
    ]
)


def scored_runs_export(folder: Path, *, now: datetime, days: int) -> int:
    """Write the scored runs of the last days that were not written in whole before; returns how many.

    Left out is what counts in no figure: runs without an interval, and those of a disturbed stream processor.
    """
    written = 0
    for back in range(days):
        day = now.astimezone(UTC).date() - timedelta(days=back)
        path = folder / "runs" / f"day={day.isoformat()}" / "runs.parquet"
        if not _is_whole(path, day) and (rows := _rows(day)):
            path.parent.mkdir(parents=True, exist_ok=True)
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, EXPORTED_RUNS), sink, compression="zstd")
            replace_file(path, sink.getvalue().to_pybytes())
            written += len(rows)
    return written


def _is_whole(path: Path, day: date) -> bool:
    """Whether the day's file was written when the day was over."""
    over = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC) + _SETTLED
    return path.exists() and path.stat().st_mtime > over.timestamp()


def _rows(day: date) -> list[dict[str, object]]:
    begin = datetime.combine(day, datetime.min.time(), UTC)
    observed = AccuracyObservation.objects.filter(
        starts_at__gte=begin,
        starts_at__lt=begin + timedelta(days=1),
        disturbed="",
        stated_low_s__isnull=False,
        stated_high_s__isnull=False,
    )
    columns = observed.order_by("starts_at", "pk").values(
        "cluster__slug", "query__name", "starts_at", *_FIELDS.values()
    )
    return [
        {name: values[column] for name, column in _FIELDS.items()}
        | {
            "cluster": values["cluster__slug"],
            "query": f"{values['cluster__slug']}/{values['query__name']}",
            "at_s": values["starts_at"].timestamp(),
        }
        for values in columns.iterator()
    ]
