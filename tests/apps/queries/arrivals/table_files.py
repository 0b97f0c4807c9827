"""Small tables of arrivals as programs and people write them, read without a database."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from apps.queries.arrivals.inspection import Inspection, inspect_table
from apps.queries.arrivals.tables import TraceReading, read_trace

__all__ = ["look", "read", "table"]

_LIMIT = 10_000_000
NOW_S = 1_775_000_000.0  # April 2026: what is plausible does not depend on the clock


def look(text: str | bytes, **arguments: Any) -> Inspection:
    return inspect_table(_file(text), limit_bytes=_LIMIT, **{"now_s": NOW_S, **arguments})


def read(text: str | bytes, **arguments: Any) -> TraceReading:
    return read_trace(_file(text), limit_bytes=_LIMIT, **{"now_s": NOW_S, **arguments})


def table(header: str, rows: Iterable[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


def _file(text: str | bytes) -> io.BytesIO:
    return io.BytesIO(text.encode() if isinstance(text, str) else text)
