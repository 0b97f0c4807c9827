"""Bytes that agents sent of late, beside what the baselines would have sent of the same records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.refinement.documents import learned_in
from apps.refinement.giving import assignments_adapting
from apps.refinement.predicting import Known, known_of, predict
from apps.refinement.recorded import EPOCH_US, recorded_of
from apps.refinement.showing import SavedBytes
from apps.telemetry.epochs import EpochRow
from engine.jarvis.settings import Settings

__all__ = ["saved_bytes"]

_BASELINES = {name: Settings(method=name) for name in ("all-src", "filter-src", "best-op")}
_MOST_EPOCHS = 30  # of a query are replayed; they stand for the others


def saved_bytes(cluster: Cluster, agents: Iterable[Any] | None = None, last_s: float = 300.0) -> dict[str, SavedBytes]:
    """By agent's id, of those that adapt: what it sent of the last epochs' records, and what others would have sent.

    All-SP is what came in; the other baselines are None where an operator's cost is not known yet.
    """
    wanted = None if agents is None else {str(pk) for pk in agents}
    parts = [one for one in assignments_adapting(cluster) if wanted is None or str(one.agent_id) in wanted]
    recorded = recorded_of({one.agent for one in parts}, timezone.now(), last_s)
    learned = learned_in(cluster)
    sums: dict[str, list[SavedBytes]] = {}
    for one in parts:
        rows = recorded.get(str(one.agent_id), {}).get(one.live.key, [])
        if rows:
            row = learned.get((one.live_id, one.agent_id))
            known = known_of(row.document, one.live) if row else None
            sums.setdefault(str(one.agent_id), []).append(_of_query(rows, known))
    return {agent: _together(listed) for agent, listed in sums.items()}


def _of_query(rows: Sequence[EpochRow], known: Known | None) -> SavedBytes:
    records = sum(row.records_in for row in rows)
    return SavedBytes(
        records=records,
        sent=sum(row.bytes_sent for row in rows),
        all_sp=sum(row.bytes_in for row in rows),
        span_s=(rows[-1].epoch_us - rows[0].epoch_us + EPOCH_US) / 1e6,
        **_baselines(rows, known, records),
    )


def _baselines(rows: Sequence[EpochRow], known: Known | None, records: int) -> Mapping[str, float | None]:
    """Bytes of each baseline on some of the epochs, scaled up to all of them."""
    if known is None:
        return {}
    step = -(-len(rows) // _MOST_EPOCHS)
    found = {}
    for name, settings in _BASELINES.items():
        made = predict(known, settings, rows[::step])
        found[name.replace("-", "_")] = made.bytes_sent / made.records * records if made.records else None
    return found


def _together(listed: Sequence[SavedBytes]) -> SavedBytes:
    sums: dict[str, float | None] = {}
    for name in ("all_src", "filter_src", "best_op"):
        values = [getattr(one, name) for one in listed]
        sums[name] = None if None in values else sum(values)
    return SavedBytes(
        records=sum(one.records for one in listed),
        sent=sum(one.sent for one in listed),
        all_sp=sum(one.all_sp for one in listed),
        span_s=max(one.span_s for one in listed),
        **sums,
    )
