"""Variation of a query's costs and arrivals in words: of its inputs, its measured operators and its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.measurements.models import OperatorStatistic
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries, OperatorInput, QueryVersion
from apps.ui.numbers import MISSING, count, seconds, significant

__all__ = ["SourceLine", "cost_dispersion_words", "cost_variation_words", "source_lines"]

_WORDS = '{} <small class="muted">{}</small>'


def cost_variation_words(entry: OperatorInput) -> SafeString:
    """cv² 0.5, dispersion 12 over 540 events; what an estimate takes in place of what is not known."""
    known = []
    if entry.cost_cv2 is not None:
        known.append(f"cv² {significant(entry.cost_cv2)}")
    if entry.cost_dispersion is not None and entry.cost_dispersion_events is not None:
        over = count(round(entry.cost_dispersion_events))
        known.append(f"dispersion {significant(entry.cost_dispersion)} over {over} events")
    if known:
        return format_html("{}", ", ".join(known))
    return format_html('<span class="muted">{}</span>', "from batches" if len(entry.batches) > 1 else "assumed")


def cost_dispersion_words(row: OperatorStatistic) -> SafeString | str:
    """12 over 540 records, in 7,009 runs."""
    if row.cost_dispersion is None or row.cost_dispersion_events is None:
        return MISSING
    behind = f"over {count(round(row.cost_dispersion_events))} records, in {count(row.cost_units)} {row.cost_unit}"
    return format_html(_WORDS, significant(row.cost_dispersion), behind)


@dataclass(frozen=True)
class SourceLine:
    """A source that a query reads: how finely its arrivals are known, and how they scatter."""

    source: str
    evidence: str
    mean_eps: float
    known_per: str
    dispersion: SafeString
    updated_at: datetime


def source_lines(version: QueryVersion) -> list[SourceLine]:
    """Every source that a version with fetched operators reads."""
    names = {entry.source_id for row in version.operators.all() for entry in row.inputs.all() if entry.source_id}
    rows = ArrivalSeries.objects.filter(cluster=version.query.cluster_id, source_id__in=names).defer("data")
    return [
        SourceLine(
            source=row.source_id,
            evidence=row.evidence,
            mean_eps=row.mean_eps,
            known_per=str(seconds(row.step_s or row.slice_s)),
            dispersion=_dispersion(row),
            updated_at=row.updated_at,
        )
        for row in rows.order_by("source_id")
    ]


def _dispersion(row: ArrivalSeries) -> SafeString:
    """3.1 at 0.2 s, measured over 2 h; or the model that takes its place."""
    if row.dispersion is None or row.dispersion_step_s is None:
        return format_html('<span class="muted">{}</span>', "assumed" if row.step_s else "from the counts")
    spec: Mapping[str, Any] = row.spec
    origin = "stated"
    if row.origin == ArrivalOrigin.TELEMETRY and "measured_s" in spec:
        pairs = f", {count(spec['dispersion_pairs'])} pairs of steps" if "dispersion_pairs" in spec else ""
        origin = f"measured over {seconds(spec['measured_s'])}{pairs}"
    elif row.origin == ArrivalOrigin.UPLOAD:
        origin = "counted in the uploaded events"
    return format_html(_WORDS, f"{significant(row.dispersion)} at {seconds(row.dispersion_step_s)}", origin)
