"""Inputs of a query: how their costs and arrivals vary, and what waits at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.errors import Fault, Malformed
from apps.measurements.models import OperatorStatistic
from apps.queries.backlogs import AgedBacklog, backlogs_of, backlogs_update
from apps.queries.choices import ArrivalOrigin
from apps.queries.models import ArrivalSeries, OperatorInput, Query, QueryVersion
from apps.ui.numbers import MISSING, count, seconds, significant
from engine.document.elements import MAX_BACKLOG_AGE_S
from engine.words import duration_words

__all__ = [
    "BacklogForm",
    "SourceLine",
    "cost_dispersion_words",
    "cost_variation_words",
    "source_lines",
]

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


@dataclass(frozen=True)
class BacklogLine:
    """One input, what was typed or is known of it, and since when."""

    key: str
    operator: str
    stream: str
    label: str
    events: str
    behind_s: str
    read: str


class BacklogForm:
    """Form of what waits at the inputs of a query. A source is one line, whoever reads it."""

    limit = duration_words(MAX_BACKLOG_AGE_S)

    def __init__(self, query: Query, version: QueryVersion, data: Mapping[str, str] | None = None) -> None:
        self.query, self._version, self._data = query, version, data
        self.faults: list[Fault] = []

    @property
    def has_readings(self) -> bool:
        """Whether anything was stated or measured."""
        return bool(self.query.backlogs)

    @cached_property
    def lines(self) -> list[BacklogLine]:
        """Inputs: sources first, then operators that read operators, and what else is known."""
        known = {row.key: row for row in backlogs_of(self.query)}
        sources: dict[tuple[str, str], None] = {}
        inner: dict[tuple[str, str], None] = {}
        for row in self._version.operators.all():
            for entry in row.inputs.all():
                if entry.upstream:
                    inner["" if (row.name, entry.upstream.name) not in known else row.name, entry.upstream.name] = None
                elif (row.name, entry.source_id) in known:
                    sources[row.name, entry.source_id] = None
                else:
                    sources["", entry.source_id] = None
        return [self._line(i, *key, known.get(key)) for i, key in enumerate([*sources, *inner])]

    def _line(self, i: int, operator: str, stream: str, row: AgedBacklog | None) -> BacklogLine:
        key = f"b{i}"
        texts = {"events": _text(row and row.events), "behind_s": _text(row and row.behind_s)}
        if self._data is not None:
            texts = {name: self._data.get(f"{key}_{name}", "").strip() for name in texts}
        label = f"{stream} at {operator}" if operator else stream
        return BacklogLine(key, operator, stream, label, texts["events"], texts["behind_s"], _read_words(row))

    def save(self) -> bool:
        """State what was typed; with a fault, everything stays as it was."""
        body: list[dict[str, object]] = []
        stated: list[BacklogLine] = []
        for line in self.lines:
            texts = {"events": line.events, "behind_s": line.behind_s}
            amounts = {name: _number(text) for name, text in texts.items() if text}
            if amounts:
                operator = {"operator": line.operator} if line.operator else {}
                body.append({**operator, "from": line.stream, **amounts})
                stated.append(line)
        try:
            backlogs_update(query=self.query, backlogs=body)
        except Malformed as error:
            self.faults = [_told(fault, stated) for fault in error.faults] or [Fault("", error.message)]
        return not self.faults


def _told(fault: Fault, stated: Sequence[BacklogLine]) -> Fault:
    """A fault names its line by what waits there, not by its place in a list nobody typed."""
    match = re.match(r"backlogs\[(\d+)\]", fault.path)
    return Fault(stated[int(match[1])].label, fault.message) if match else fault


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _read_words(row: AgedBacklog | None) -> str:
    if row is None:
        return "nothing known"
    words = f"{row.origin} {duration_words(row.age_s or 0.0)} ago"
    return f"{words}: too old, not used" if row.is_stale else words
