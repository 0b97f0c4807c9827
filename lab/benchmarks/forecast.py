"""Forecasts of a recorded load judged by its own past: ``./sluice lab forecast FILE... [--bucket-s 3600]``.

Each file is a table of counts or time stamps (CSV, also gzip, xz or zstd). Printed per file: what was fitted, and
by how far ahead the errors and the coverage of the 90 % band at rolling origins, beside those of repeating the last
season.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.arrays import FloatArray
from engine.forecasts.forecast import LoadForecast, forecast
from engine.forecasts.history import bucket_fault
from lab.benchmarks.machine import machine

__all__ = ["counts_of_file", "main"]


def main(arguments: Sequence[str]) -> int:
    """Judge every file; returns 0."""
    parser = argparse.ArgumentParser(prog="sluice lab forecast")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--bucket-s", type=int, default=3600, help="length of a bucket (3600)")
    parser.add_argument("--weeks", type=int, default=8, help="the newest weeks that are used (8)")
    parser.add_argument("--days", type=int, default=14, help="days to forecast (14)")
    asked = parser.parse_args(arguments)
    if fault := bucket_fault(asked.bucket_s):
        parser.error(fault)
    import statsmodels.tsa.seasonal  # noqa: F401 - so that the first file's time is not that of loading it

    print(machine())
    for file in asked.files:
        counts = counts_of_file(Path(file), asked.bucket_s)[-asked.weeks * 604_800 // asked.bucket_s :]
        started = time.perf_counter()
        load_forecast = forecast(counts, bucket_s=float(asked.bucket_s), horizon=asked.days * 86_400 // asked.bucket_s)
        _print(Path(file).name, counts, load_forecast, time.perf_counter() - started)
    return 0


def counts_of_file(path: Path, bucket_s: int) -> FloatArray:
    """The file in buckets, read as uploads are."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    import django

    django.setup()
    from apps.core.errors import Malformed
    from apps.planning.load_buckets import bucket_trace
    from apps.queries.arrivals.inspection import inspect_table, read_trace

    file, limit = io.BytesIO(path.read_bytes()), 2 * 10**9
    seen = inspect_table(file, limit_bytes=limit)
    reading = read_trace(
        file, limit_bytes=limit, time_column=seen.time_column or "", count_column=seen.count_column, time_zone="UTC"
    )
    assert reading.trace is not None, f"{path} has no line that can be used"
    try:
        return bucket_trace(reading.trace, bucket_s)[1]
    except Malformed as error:
        raise SystemExit(f"{path.name}: {error.message}") from None


def _print(name: str, counts: FloatArray, load_forecast: LoadForecast, took_s: float) -> None:
    unknown = int(np.isnan(counts).sum())
    print(f"\n{name}: {len(counts)} buckets, {unknown} unknown; {load_forecast.model}; {took_s:.1f} s")
    for note in load_forecast.notes:
        print(f"  {note}")
    print(f"  {'ahead':<20}{'n':>6}{'median':>9}{'(naive)':>9}{'mean':>9}{'(naive)':>9}{'in band':>9}{'(naive)':>9}")
    for band in load_forecast.backtest.bands:
        values = (
            band.median_ape,
            band.naive_median_ape,
            band.mape,
            band.naive_mape,
            band.coverage,
            band.naive_coverage,
        )
        cells = "".join(f"{'-' if value is None else f'{100 * value:.1f}%':>9}" for value in values)
        print(f"  {band.ahead:<20}{band.n:>6}{cells}")
