"""A stretch of an uploaded trace, one horizon long, on a cluster's grid: looked at before it is stored, or stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, BinaryIO

from apps.core.errors import Fault, Malformed
from apps.fleet.models import Cluster
from apps.queries.arrival_checks import check_length, fill_faults, malformed, refuse
from apps.queries.csv_reading import Reading, read_trace
from apps.queries.inspecting import Inspection, inspect
from apps.queries.resampling import Trace, busiest_start, resample
from apps.queries.times import iso_utc, parser_of, zone_of
from apps.queries.uploads import text_limit_bytes, upload_open
from engine.elements import FloatArray

__all__ = ["Stretch", "stretch_of_upload", "trace_of_upload", "upload_inspection"]


@dataclass(frozen=True, eq=False)
class Stretch:
    """Events per slice from `start_s` (unix seconds) on, and how they were read."""

    values: FloatArray
    start_s: float
    reading: Reading
    spec: dict[str, Any]


def stretch_of_upload(
    *,
    cluster: Cluster,
    key: str,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
    stretch: str = "busiest",
    fill: str = "",
    leave_out_problems: bool = False,
) -> Stretch:
    """Read a stretch of a kept upload; nothing is stored. Parameters are those of `arrivals_create_from_upload`.

    Raises
    ------
    Malformed
        With every fault: lines that cannot be read, columns that do not exist, a trace too short without `fill`.
    """
    refuse(fill_faults(fill))
    name, reading, trace = trace_of_upload(key, time_column, count_column, time_zone, time_format, leave_out_problems)
    start_s = _start(trace, stretch, cluster.horizon_s, time_zone)
    check_length(trace, start_s, cluster, fill)
    values = resample(trace, start_s=start_s, slice_s=cluster.slice_s, slices=cluster.slices, fill=fill or "zero")
    spec = {
        "file": name,
        "time_column": time_column,
        "count_column": count_column,
        "time_zone": time_zone,
        "stretch": stretch,
        "fill": fill,
        "lines": reading.rows,
        "lines_left_out": reading.problems_total,
        "step_s": reading.step_s,
        "notes": list(reading.notes),
    }
    return Stretch(values, start_s, reading, spec)


def trace_of_upload(
    key: str,
    time_column: str,
    count_column: str | None = None,
    time_zone: str = "UTC",
    time_format: str | None = None,
    leave_out_problems: bool = False,
) -> tuple[str, Reading, Trace]:
    """The whole trace of a kept upload, with the file's name and how it was read.

    Raises
    ------
    Malformed
        Lines that cannot be read (unless they are to be left out), columns that do not exist, no usable line.
    """
    with upload_open(key) as upload:
        reading = _read(upload.file, time_column, count_column, time_zone, time_format)
        return upload.name, reading, _whole_trace(reading, leave_out_problems)


def _read(
    file: BinaryIO, time_column: str, count_column: str | None, time_zone: str, time_format: str | None
) -> Reading:
    return read_trace(
        file,
        limit_bytes=text_limit_bytes(),
        time_column=time_column,
        count_column=count_column or None,
        time_zone=time_zone,
        time_format=time_format or None,
    )


def _whole_trace(reading: Reading, leave_out_problems: bool) -> Trace:
    if reading.problems_total and not leave_out_problems:
        faults = [Fault(f"file.line[{problem.line}].{problem.column}", str(problem)) for problem in reading.problems]
        count = "1 line" if reading.problems_total == 1 else f"{reading.problems_total} lines"
        raise Malformed(f"{count} cannot be read; first: {reading.problems[0]}. Nothing was stored.", faults)
    if reading.trace is None:
        raise Malformed("The file has no line that can be used.", [("file", "has no usable line")])
    return reading.trace


def _start(trace: Trace, stretch: str, horizon_s: float, time_zone: str) -> float:
    if stretch == "busiest":
        return busiest_start(trace, horizon_s)
    if stretch == "first":
        return trace.start_s
    try:
        start_s = parser_of("iso", zone_of(time_zone))(stretch)
    except ValueError:
        start_s = math.nan
    if not trace.start_s <= start_s < trace.end_s:
        allowed = f"busiest, first, or a time from {iso_utc(trace.start_s)} to {iso_utc(trace.end_s)}"
        raise malformed([Fault("stretch", f"stretch is {stretch!r}; allowed: {allowed}")])
    return start_s


def upload_inspection(key: str, time_zone: str = "UTC") -> tuple[str, Inspection]:
    """Look once more at a kept upload: its name, and what it seems to hold."""
    zone_of(time_zone)
    with upload_open(key) as upload:
        return upload.name, inspect(upload.file, limit_bytes=text_limit_bytes(), time_zone=time_zone)
