"""Uploaded files, kept for a day between preview and storing, and the window of a trace that is read from one."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core import signing
from django.core.files.base import File

from apps.core.errors import Fault, Malformed, Missing, TooLarge
from apps.fleet.models import Cluster
from apps.queries.arrivals.grid import EventStamps, Trace, busiest_start, resample, stamp_step_s
from apps.queries.arrivals.inspection import Inspection, inspect_table
from apps.queries.arrivals.series import check_length, fill_faults, malformed, raise_faults
from apps.queries.arrivals.tables import TraceReading, read_trace
from apps.queries.arrivals.times import iso_utc, parser_of, zone_of
from engine.arrays import FloatArray
from engine.document.kinds import MAX_DISPERSION
from engine.estimation.noise.dispersion import dispersion

__all__ = [
    "KEPT_S",
    "TEXT_FACTOR",
    "TraceWindow",
    "Upload",
    "UploadedTrace",
    "inspect_upload",
    "read_trace_window",
    "text_limit_bytes",
    "upload_keep",
    "upload_open",
    "uploads_purge",
]


KEPT_S = 86_400
# Compressed files may unpack to this many times the limit of an upload.
TEXT_FACTOR = 10
_SALT = "sluice.upload"
_FINER = 4  # parts of a slice in which single events are counted for their dispersion


class Upload:
    """A kept file: its bytes and the name it had. Use it as a context manager."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


def upload_keep(file: File[Any]) -> str:
    """Keep an uploaded file and return its key: random, signed, good for a day.

    Raises
    ------
    TooLarge
        The file is larger than `SLUICE_UPLOAD_MAX_MB`.
    """
    check_size(file)
    uploads_purge()
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    file.seek(0)
    with (folder / token).open("xb") as kept:
        for chunk in file.chunks():
            kept.write(chunk)
    os.utime(folder / token, (now_s := time.time(), now_s))  # aged by this clock, not by that of the disk's server
    return signing.dumps({"file": token, "name": Path(file.name or "upload").name[:120]}, salt=_SALT)


def upload_open(key: str) -> Upload:
    """Open a kept file.

    Raises
    ------
    Malformed
        The key is not one of ours.
    Missing
        The file has been purged, or was uploaded more than a day ago.
    """
    try:
        held = signing.loads(key, salt=_SALT, max_age=KEPT_S)
        return Upload((_folder() / held["file"]).open("rb"), held["name"])
    except (signing.SignatureExpired, FileNotFoundError):
        raise Missing("The upload has expired. Upload the file again.", [("key", "has expired")]) from None
    except signing.BadSignature:
        raise Malformed("key: not the key of an upload.", [("key", "not the key of an upload")]) from None


def uploads_purge() -> int:
    """Remove files kept for longer than a day; returns how many."""
    removed, oldest = 0, time.time() - KEPT_S
    with suppress(FileNotFoundError):
        for path in _folder().iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    removed += 1
    return removed


def check_size(file: File[Any]) -> None:
    """Refuse a file above the limit, naming it."""
    limit = settings.UPLOAD_MAX_BYTES
    if file.size > limit:
        message = f"the file has {file.size / 1e6:.1f} MB; at most {limit / 1e6:g} MB are taken (SLUICE_UPLOAD_MAX_MB)"
        raise TooLarge(f"file: {message}.", [("file", message)])


def text_limit_bytes() -> int:
    """Limit of the text that an uploaded file may unpack to."""
    return TEXT_FACTOR * int(settings.UPLOAD_MAX_BYTES)


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "uploads"


@dataclass(frozen=True, eq=False)
class TraceWindow:
    """Events per slice from `start_s` (unix seconds) on, and how they were read.

    `step_s` is the width at which they are known; of single events the index of dispersion is told as well, at a width
    of `dispersion_step_s`, finer than a slice.
    """

    values: FloatArray
    start_s: float
    reading: TraceReading
    spec: dict[str, Any]
    step_s: float | None = None
    dispersion: float | None = None
    dispersion_step_s: float | None = None


@dataclass(frozen=True)
class UploadedTrace:
    """A kept upload and how it is to be read as a trace.

    Attributes
    ----------
    key : str
        From `apps.queries.arrivals.services.arrivals_inspect`.
    time_column, count_column : str
        Names of columns. Without a count column every line is one event.
    time_zone : str
        Of times that name none.
    time_format, count_kind, decimal_mark : str
        Found out unless given: `TIME_FORMATS`, `COUNT_KINDS` and `DECIMAL_MARKS` have those that there are.
    leave_out_problems : bool
        Take the good lines although others cannot be read.
    """

    key: str
    time_column: str
    count_column: str | None = None
    time_zone: str = "UTC"
    time_format: str | None = None
    count_kind: str | None = None
    decimal_mark: str | None = None
    leave_out_problems: bool = False

    @classmethod
    def split(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a service: `upload`, made of the values that say how to read, and the other values."""
        own = {entry.name for entry in fields(cls)}
        others = {name: value for name, value in values.items() if name not in own}
        return {"upload": cls(**{name: value for name, value in values.items() if name in own}), **others}

    def read(self) -> tuple[str, TraceReading, Trace]:
        """The whole trace, with the file's name and how it was read.

        Raises
        ------
        Malformed
            Lines that cannot be read (unless they are to be left out), columns that do not exist, no usable line.
        """
        with upload_open(self.key) as upload:
            reading = read_trace(
                upload.file,
                limit_bytes=text_limit_bytes(),
                time_column=self.time_column,
                count_column=self.count_column or None,
                time_zone=self.time_zone,
                time_format=self.time_format or None,
                count_kind=self.count_kind or None,
                decimal_mark=self.decimal_mark or None,
            )
            return upload.name, reading, _whole_trace(reading, self.leave_out_problems)

    def spec(self, name: str, reading: TraceReading) -> dict[str, Any]:
        """Record of what was read, and how, kept with what is stored."""
        return {
            "file": name,
            "time_column": self.time_column,
            "time_format": reading.time_format,
            "count_column": self.count_column,
            "count_kind": reading.count_kind,
            "time_zone": self.time_zone,
            "lines": reading.rows,
            "lines_left_out": reading.problems_total,
            "notes": list(reading.notes),
        }


def read_trace_window(
    *, cluster: Cluster, upload: UploadedTrace, stretch: str = "busiest", fill: str = ""
) -> TraceWindow:
    """Read a stretch of a kept upload; nothing is stored. Parameters are those of `arrivals_create_from_upload`.

    Raises
    ------
    Malformed
        With every fault: lines that cannot be read, columns that do not exist, a trace too short without `fill`.
    """
    raise_faults(fill_faults(fill))
    name, reading, trace = upload.read()
    start_s = _start(trace, stretch, cluster.horizon_s, upload.time_zone)
    check_length(trace, start_s, cluster, fill)
    values = resample(trace, start_s=start_s, slice_s=cluster.slice_s, slices=cluster.slices, fill=fill or "zero")
    spec = upload.spec(name, reading) | {
        "stretch": stretch,
        "fill": fill,
        "step_s": reading.step_s,
        "notes": [*reading.notes, *_horizon_notes(reading.step_s, cluster.horizon_s)],
    }
    if not isinstance(trace, EventStamps):
        return TraceWindow(values, start_s, reading, spec, step_s=reading.step_s)
    known_s, finer_s = stamp_step_s(trace), cluster.slice_s / _FINER
    recorded = math.ceil((trace.end_s - start_s) / cluster.slice_s)
    slices = max(1, min(recorded, cluster.slices)) * _FINER
    scatter = dispersion(resample(trace, start_s=start_s, slice_s=finer_s, slices=slices))
    if known_s > finer_s or not math.isfinite(scatter):  # times that are rounded come in clumps of their own
        return TraceWindow(values, start_s, reading, spec, step_s=known_s)
    return TraceWindow(values, start_s, reading, spec, known_s, min(scatter, MAX_DISPERSION), finer_s)


def _horizon_notes(step_s: float | None, horizon_s: float) -> list[str]:
    if step_s is None or step_s <= horizon_s * (1.0 + 1e-9):
        return []
    return [
        f"A count lasts {step_s:g} s, longer than the horizon ({horizon_s:g} s): its events are spread evenly, and how "
        "many of them come within a horizon is not known."
    ]


def _whole_trace(reading: TraceReading, leave_out_problems: bool) -> Trace:
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


def inspect_upload(key: str, time_zone: str = "UTC") -> tuple[str, Inspection]:
    """Look once more at a kept upload: its name, and what it seems to hold."""
    zone_of(time_zone)
    with upload_open(key) as upload:
        return upload.name, inspect_table(upload.file, limit_bytes=text_limit_bytes(), time_zone=time_zone)
