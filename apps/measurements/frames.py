"""Frames of statistics: checked, then stored; a repeated frame changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from agent.wire.frames import MAX_NUMBER, Frame, FrameKind
from agent.wire.schemas import MAX_CHARACTERS, STATISTICS
from agent.wire.sums import SUM_NAMES
from apps.core.errors import Fault, Impossible, fault_count
from apps.core.events import announce
from apps.measurements.models import StatisticsWindow
from apps.measurements.subintervals import kept_from
from apps.queries.models import Query
from apps.telemetry.frames import frame_rows, receiver

__all__ = ["statistics_receive"]

_MAX_FAULTS = 20
_AHEAD = timedelta(hours=1)  # what lies further ahead would never age
_REPLACED = (*SUM_NAMES, "cluster", "fingerprint", "width_s", "batch", "measured")


def statistics_receive(frames: Iterable[Frame]) -> int:
    """Keep the rows of STATISTICS frames; returns how many were new or of a later batch.

    Rows of queries that are gone, of subintervals that are summed up by the hour already, and of clocks that are more
    than an hour ahead are left out: one agent's clock must not keep the statistics of the others from being stored.

    Raises
    ------
    Malformed
        A body that is no Arrow stream or has another schema.
    Impossible
        With every row that says what cannot be.
    """
    rows = [row for frame in frames for row in frame_rows(frame, STATISTICS, "statistics")]
    faults = [fault for i, row in enumerate(rows) for fault in _faults(i, row)][:_MAX_FAULTS]
    if faults:
        message = f"{fault_count(faults)}; first: {faults[0].path} {faults[0].message}"
        raise Impossible(f"The statistics have {message}.", faults)
    return _keep(rows)


@receiver(FrameKind.STATISTICS)
def _receive(frames: Sequence[Frame]) -> None:
    statistics_receive(frames)


def _faults(index: int, row: Any) -> Iterable[Fault]:
    path = f"rows[{index}]"
    empty = [name for name, value in vars(row).items() if value is None]
    if empty:
        yield Fault(path, f"{', '.join(empty)} is null; allowed: a value")
        return
    for name, limit in MAX_CHARACTERS.items():
        if not 0 < len(getattr(row, name)) <= limit:
            yield Fault(f"{path}.{name}", f"{name} has {len(getattr(row, name))} characters; allowed: 1 to {limit}")
    for name, value in vars(row).items():
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and not (math.isfinite(value) and value >= 0)
        ):
            yield Fault(f"{path}.{name}", f"{name} is {value}; allowed: a number of at least 0")
    if row.window_us > MAX_NUMBER:
        yield Fault(f"{path}.window_us", f"window_us is {row.window_us}; allowed: 0 to {MAX_NUMBER}")
    if not 0 < row.width_us <= 86_400_000_000:
        yield Fault(f"{path}.width_us", f"width_us is {row.width_us}; allowed: 1 to 86400000000")


@transaction.atomic
def _keep(rows: Sequence[Any]) -> int:
    queries = _queries({row.query for row in rows})
    newest: dict[tuple[Any, ...], StatisticsWindow] = {}
    latest = timezone.now() + _AHEAD
    for row in rows:
        query = queries.get(row.query)
        if query is None:
            continue
        window = _window(row, query)
        if not kept_from(timedelta(seconds=window.width_s)) <= window.starts_at <= latest:
            continue
        key = _key(window)
        if key not in newest or newest[key].batch <= window.batch:
            newest[key] = window
    batches = _known(newest.values())
    fresh = [window for key, window in newest.items() if batches.get(key, -1) < window.batch]
    StatisticsWindow.objects.bulk_create(
        fresh,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["query", "plan", "operator", "place", "starts_at"],
        update_fields=_REPLACED,
    )
    for slug in {query.cluster.slug for query in queries.values()}:
        announce(f"statistics:{slug}")
    return len(fresh)


def _queries(names: set[str]) -> dict[str, Query]:
    """Queries by ``cluster/name``, locked: two frames about one query go one after the other."""
    pairs = {tuple(name.split("/", 1)) for name in names if "/" in name}
    queries = Query.objects.select_for_update(of=("self",)).select_related("cluster").order_by("pk")
    rows = queries.filter(cluster__slug__in={slug for slug, _ in pairs}, name__in={name for _, name in pairs})
    return {f"{row.cluster.slug}/{row.name}": row for row in rows}


def _window(row: Any, query: Query) -> StatisticsWindow:
    return StatisticsWindow(
        cluster=query.cluster,
        query=query,
        plan=row.plan,
        operator=row.operator,
        fingerprint=row.fingerprint,
        place=row.place,
        starts_at=datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row.window_us),
        width_s=row.width_us / 1e6,
        batch=row.batch,
        measured=row.measured,
        **{name: getattr(row, name) for name in SUM_NAMES},
    )


def _key(window: StatisticsWindow) -> tuple[Any, ...]:
    return window.query_id, window.plan, window.operator, window.place, window.starts_at


def _known(windows: Iterable[StatisticsWindow]) -> dict[tuple[Any, ...], int]:
    """Batches of the rows that are kept already, of the queries and times in question."""
    listed = list(windows)
    if not listed:
        return {}
    rows = StatisticsWindow.objects.filter(
        query__in={window.query_id for window in listed},
        starts_at__range=(min(window.starts_at for window in listed), max(window.starts_at for window in listed)),
    )
    stored = rows.values_list("query_id", "plan", "operator", "place", "starts_at", "batch")
    return {tuple(key): batch for *key, batch in stored}
