"""The statistics of a version's inputs: the list, and the two ways to change them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict

from apps.core.errors import Fault, Malformed
from apps.core.parsers import strict_json
from apps.fleet.choices import Evidence
from apps.pages.base import done
from apps.queries.models import OperatorInput, QueryVersion
from apps.queries.services import statistics_of, statistics_update

__all__ = ["InputLine", "StatisticsForm", "statistic_lines", "statistics_sentence"]

_NUMBERS = ("selectivity", "cycles_per_event", "events")


@dataclass(frozen=True)
class InputLine:
    """What is known of one input."""

    operator: str
    source: str
    position: int
    selectivity: float
    cycles_per_event: float
    evidence: str
    events: int
    batches: int
    measured_at: datetime | None
    is_model: bool
    is_left_out: bool


def statistic_lines(version: QueryVersion, result: Mapping[str, Any]) -> list[InputLine]:
    """Every input of a version in listing order; `is_left_out` where the interval says nothing of it."""
    left_out = {
        (one["operator"].rpartition("/")[2], one["input"].rpartition("/")[2]) for one in result.get("uncovered", [])
    }
    return [_line(row.name, entry, left_out) for row in version.operators.all() for entry in row.inputs.all()]


def _line(operator: str, entry: OperatorInput, left_out: set[tuple[str, str]]) -> InputLine:
    source = entry.upstream.name if entry.upstream else entry.source_id
    return InputLine(
        operator=operator,
        source=source,
        position=entry.position,
        selectivity=entry.selectivity,
        cycles_per_event=entry.cycles_per_event,
        evidence=entry.evidence,
        events=entry.events,
        batches=len(entry.batches),
        measured_at=entry.measured_at,
        is_model=bool(entry.model),
        is_left_out=(operator, source) in left_out or not entry.batches,
    )


def statistics_sentence(lines: list[InputLine]) -> str:
    """2 of 7 inputs are assumed; the interval leaves out 3."""
    assumed = sum(line.evidence == Evidence.ASSUMED for line in lines)
    left_out = sum(line.is_left_out for line in lines)
    how_many = f"{assumed} of {len(lines)} inputs rest" if assumed else "No input rests"
    first = f"{how_many} on assumed statistics."
    if left_out == len(lines):
        return f"{first} No input has a sample in batches, so the estimate has no interval."
    return f"{first} The interval leaves out {left_out} without a sample." if left_out else first


@dataclass
class _Row:
    """A line of the form as it was typed."""

    line: InputLine
    values: dict[str, str]
    names: dict[str, str]


class StatisticsForm:
    """A table of inputs, or the same as JSON with batches. What was typed is kept with its faults."""

    MODES = ("table", "json")
    evidence_choices = Evidence.choices

    def __init__(self, version: QueryVersion, mode: str, data: QueryDict | None = None) -> None:
        self.version = version
        self.mode = mode if mode in self.MODES else "table"
        self.data = data
        self.faults: list[Fault] = []

    @cached_property
    def rows(self) -> list[_Row]:
        return [self._row(i, line) for i, line in enumerate(statistic_lines(self.version, {}))]

    def _row(self, index: int, line: InputLine) -> _Row:
        names = {name: f"{name}-{index}" for name in (*_NUMBERS, "evidence")}
        known = {name: _plain(getattr(line, name)) for name in names}
        data = self.data
        values = known if data is None else {name: data.get(names[name], known[name]).strip() for name in names}
        return _Row(line, values, names)

    @cached_property
    def text(self) -> str:
        """The JSON to edit."""
        if self.data is not None:
            return self.data.get("statistics", "")
        known = [{**entry, "measured_at": _iso(entry["measured_at"])} for entry in statistics_of(self.version)]
        kept = [{key: value for key, value in entry.items() if value is not None} for entry in known]
        return json.dumps(kept, indent=1, ensure_ascii=False)

    def save(self) -> bool:
        """Store what was typed; False if it cannot be, with the faults kept."""
        try:
            statistics = self._typed() if self.mode == "table" else self._pasted()
            if statistics:
                statistics_update(version=self.version, statistics=statistics)
        except Malformed as error:
            self.faults = [self._told(fault) for fault in error.faults] or [Fault("", error.message)]
        return not self.faults

    def done(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return done(request, f"The statistics of {name} are saved.", "pages:query-statistics", slug, name)

    @cached_property
    def changed(self) -> list[_Row]:
        """Lines in which something else was typed: the others keep their evidence and age."""
        return [row for row in self.rows if row.values != {name: _plain(getattr(row.line, name)) for name in row.names}]

    def _typed(self) -> list[dict[str, Any]]:
        return [
            {
                "operator": row.line.operator,
                "input": row.line.source,
                "position": row.line.position,
                "evidence": row.values["evidence"],
                **{name: _number(row.values[name]) for name in _NUMBERS},
            }
            for row in self.changed
        ]

    def _pasted(self) -> Any:
        try:
            return strict_json(self.text.encode())
        except Malformed as error:
            message = error.message.replace("The body", "The text")
            raise Malformed(message, [Fault("", message)]) from None

    def _told(self, fault: Fault) -> Fault:
        """A fault of the table names its line by what it reads, not by its place in a list nobody typed."""
        found = re.match(r"statistics\[(\d+)\]\.?", fault.path)
        if self.mode != "table" or found is None:
            return fault
        line = self.changed[int(found[1])].line
        return Fault(f"{line.operator} from {line.source}", fault.message)


def _number(text: str) -> Any:
    """The number typed; text that is none is passed on, so that the refusal can name it."""
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _plain(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
