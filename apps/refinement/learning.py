"""Frames of the stream processor that say what was learned: noted, and proposed where it is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from django.db import transaction
from django.utils import timezone

from agent.wire import REFINEMENTS, WATERMARKS, Frame, FrameKind, WireError, table_of
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.refinement.noting import operators_note
from apps.refinement.proposing import proposal_make
from apps.refinement.watermarks import watermarks_note
from apps.telemetry.configs import live_served
from apps.telemetry.models import LiveQuery
from apps.telemetry.receiving import receiver

__all__ = ["learned_receive", "watermarks_receive"]

Note = Callable[[LiveQuery, Sequence[Mapping[str, Any]], datetime], int]


@receiver(FrameKind.REFINED)
def _refined(frames: Sequence[Frame]) -> None:
    learned_receive(frames)


@receiver(FrameKind.WATERMARKS)
def _watermarks(frames: Sequence[Frame]) -> None:
    watermarks_receive(frames)


def learned_receive(frames: Iterable[Frame], now: datetime | None = None) -> int:
    """Note what frames say of operators of plans that run, and propose what is new; returns how many agents' figures
    were newer.

    Raises
    ------
    Malformed
        A body that is no Arrow stream or has another schema.
    """
    return _receive(frames, REFINEMENTS, "refinements", operators_note, now)


def watermarks_receive(frames: Iterable[Frame], now: datetime | None = None) -> int:
    """The same of what frames say of sweeping watermarks."""
    return _receive(frames, WATERMARKS, "watermarks", watermarks_note, now)


@transaction.atomic
def _receive(frames: Iterable[Frame], schema: pa.Schema, what: str, note: Note, now: datetime | None) -> int:
    now = now or timezone.now()
    lives = {live.key: live for live in live_served().select_related("query__cluster")}
    newer = 0
    clusters: dict[int, Cluster] = {}
    for frame in frames:
        rows = _rows(frame, schema, what)
        live = lives.get(frame.query)
        if live is None or live.plan != frame.plan:
            continue
        clusters[live.query.cluster_id] = live.query.cluster
        newer += note(live, rows, now)
    if newer:
        for _, cluster in sorted(clusters.items()):  # in one order, since each is locked
            proposal_make(cluster=cluster, now=now)
    return newer


def _rows(frame: Frame, schema: pa.Schema, what: str) -> list[dict[str, Any]]:
    try:
        table = table_of(frame.body)
    except WireError as error:
        raise Malformed(f"The {what} cannot be read: {error}.", [("body", str(error))]) from None
    if not table.schema.equals(schema):
        message = f"columns are {', '.join(table.column_names)[:300]}; allowed: {', '.join(schema.names)}"
        raise Malformed(f"The {what} have another schema.", [("body", message)])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
