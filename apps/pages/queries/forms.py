"""Forms of a query: its facts, its operators as a document or line by line, and their statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict

from apps.core.errors import Fault, Malformed
from apps.core.limits import MAX_NAME, MAX_NOTE, MAX_SLUG
from apps.core.rest.parsers import strict_json
from apps.fleet.choices import CostEvidence, CycleUnit, Evidence
from apps.pages.base import done
from apps.pages.labels import TypedLabelsField
from apps.pages.queries.features import FEATURES, FeatureField, feature_document
from apps.pages.queries.inputs import cost_variation_words
from apps.queries.choices import OperatorKind
from apps.queries.models import OperatorInput, Query, QueryVersion
from apps.queries.statistics import statistics_of, statistics_update
from apps.ui.forms import choice_field
from engine.document.cycles import cycle_unit_words
from engine.estimation.answer import UncoveredInput
from engine.words import counted, statistic_words

__all__ = [
    "EXAMPLE",
    "NEVER_RAN",
    "DocumentForm",
    "InputLine",
    "OperatorLine",
    "QueryForm",
    "StatisticsForm",
    "VersionForm",
    "example_document",
    "operator_lines",
    "statistic_lines",
    "statistics_sentence",
]


_STATISTICS = ("worst", "q0.999", "q0.99", "q0.95", "q0.9", "q0.5", "mean")
_NONE = "none"
_FIELDS = ("id", "kind", "from", "selectivity", "cycles_per_event", "cycle_unit", "bytes_per_event", "stateless")
_FIELDS += tuple(feature.key for feature in FEATURES)

EXAMPLE: list[dict[str, Any]] = [
    {
        "id": "parse",
        "kind": "map",
        "stateless": True,
        "bytes_per_event": 180,
        "inputs": [{"from": "", "selectivity": 1.0, "cycles_per_event": 60_000}],
    },
    {
        "id": "relevant",
        "kind": "filter",
        "stateless": True,
        "bytes_per_event": 180,
        "inputs": [{"from": "parse", "selectivity": 0.4, "cycles_per_event": 20_000}],
    },
    {
        "id": "per-minute",
        "kind": "window",
        "stateless": False,
        "bytes_per_event": 60,
        "window": {"policy": "time", "type": "tumbling", "size": 60, "slide": 60},
        "inputs": [{"from": "relevant", "selectivity": 0.02, "cycles_per_event": 90_000}],
    },
    {
        "id": "alert",
        "kind": "sink",
        "stateless": True,
        "bytes_per_event": 60,
        "inputs": [{"from": "per-minute", "selectivity": 1.0, "cycles_per_event": 40_000}],
    },
]


NEVER_RAN: list[dict[str, Any]] = [
    {
        "id": "large",
        "kind": "filter",
        "filter": {"function": ">", "literal_type": "int"},
        "bytes_per_event": 180,
        "inputs": [{"from": "", "selectivity": 0.4}],
    },
    {
        "id": "by-shop",
        "kind": "aggregate",
        "aggregate": {"function": "mean", "argument_type": "int", "group_by_type": "string"},
        "window": {"policy": "time", "type": "tumbling", "size": 8},
        "bytes_per_event": 60,
        "inputs": [{"from": "large", "selectivity": 0.05}],
    },
    {"id": "alert", "kind": "sink", "bytes_per_event": 60, "inputs": [{"from": "by-shop", "selectivity": 1.0}]},
]


def example_document(source: str, *, never_ran: bool = False) -> str:
    """A query that reads `source`: with assumed costs, or one that never ran and says what a prediction needs."""
    first, *others = NEVER_RAN if never_ran else EXAMPLE
    begin = {**first, "inputs": [{**first["inputs"][0], "from": source}]}
    return json.dumps({"operators": [begin, *others]}, indent=2)


class QueryForm(forms.Form):
    """Name, owner and objective."""

    name = forms.CharField(max_length=MAX_SLUG, help_text="Lower-case letters, digits, dots, hyphens and underscores.")
    team = forms.CharField(max_length=MAX_NAME, required=False, help_text="The team to contact about the query.")
    labels = TypedLabelsField()
    statistic = forms.ChoiceField(label="Objective for", help_text="Which latency the objective is about.")
    bound_s = forms.FloatField(
        label="Objective", required=False, help_text='Upper bound. For none, choose "No objective" above.'
    )
    priority = forms.IntegerField(
        initial=0,
        help_text="A whole number. Each step doubles the query's weight in placements by objectives; "
        "admission does not use it.",
    )
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, query: Query | None = None, **kwargs: Any) -> None:
        if query is not None:
            kwargs["initial"] = _known(query)
        super().__init__(*args, **kwargs)
        statistics = dict.fromkeys([*_STATISTICS, *([query.objective_statistic] if query else [])])
        choices = [(statistic, statistic_words(statistic, begins=True)) for statistic in statistics if statistic]
        choice_field(self, "statistic").choices = [*choices, (_NONE, "No objective")]

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        if data.get("statistic", _NONE) != _NONE and data.get("bound_s") is None and "bound_s" not in self.errors:
            self.add_error("bound_s", "Enter a number of seconds above 0, or choose no objective.")

    @property
    def values(self) -> dict[str, object]:
        """The values that services take."""
        data = dict(self.cleaned_data)
        statistic, bound_s = data.pop("statistic"), data.pop("bound_s")
        return {**data, "objective": {"statistic": statistic, "bound_s": bound_s} if statistic != _NONE else None}


def _known(query: Query) -> dict[str, Any]:
    return {
        "name": query.name,
        "team": str(query.team or ""),
        "labels": query.labels,
        "statistic": query.objective_statistic or _NONE,
        "bound_s": query.objective_bound_s,
        "priority": query.priority,
        "description": query.description,
    }


class DocumentForm(forms.Form):
    """A query's operators as JSON, pasted or as a file."""

    document = forms.CharField(
        label="Operators",
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false"}),
        help_text='`{"operators": […]}` as in the deployment document; a node is optional. Without `cycles_per_event` '
        "an operator never ran, and Sluice predicts the query from its plan.",
        error_messages={"required": "Paste the operators, or choose a file."},
    )
    file = forms.FileField(
        label="Or a file",
        required=False,
        help_text="A .json file with the same content. It takes precedence over the text.",
    )

    # a file may stand for the text, which the browser cannot know
    use_required_attribute = False

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        file = data.get("file")
        if file:
            self.errors.pop("document", None)
            # the text stays in the form when the document is refused, so that it can be mended there
            data["document"] = file.read().decode("utf-8-sig", errors="replace")
            shown = cast(QueryDict, self.data).copy()
            shown[self.add_prefix("document")] = data["document"]
            self.data = shown

    def body(self) -> Any:
        """The document as read. Malformed, with line and column, if it is no JSON."""
        try:
            return strict_json(self.cleaned_data["document"].encode())
        except Malformed as error:
            message = error.message.replace("The body", "The text")
            raise Malformed(message, [Fault("document", message)]) from None


class VersionForm(DocumentForm):
    """A further version of a query."""

    note = forms.CharField(max_length=MAX_NOTE, required=False, help_text="A short summary of the change.")
    carry_statistics = forms.BooleanField(
        label="Carry over statistics",
        required=False,
        initial=True,
        help_text="Inputs that the newest version has too keep their statistics.",
    )
    field_order = ["note", "document", "file", "carry_statistics"]


@dataclass
class OperatorLine:
    """An operator as typed, with the faults of each field."""

    key: str
    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    kinds: Sequence[tuple[str, str]] = tuple(OperatorKind.choices)
    units: Sequence[tuple[str, str]] = tuple(CycleUnit.choices)

    @classmethod
    def read(cls, key: str, data: QueryDict) -> OperatorLine:
        return cls(key, {name: data.get(f"{key}-{name}", "").strip() for name in _FIELDS})

    @property
    def is_empty(self) -> bool:
        typed = ("id", "from", "selectivity", "cycles_per_event", "bytes_per_event")
        return not any(self.values.get(name) for name in typed)

    @property
    def document(self) -> dict[str, Any]:
        """As the deployment document has it; what is no number is passed on, so that the refusal can name it."""
        values = self.values
        numbers = {name: _number(values[name]) for name in ("selectivity", "cycles_per_event") if values[name]}
        names = [name.strip() for name in values["from"].split(",") if name.strip()]
        operator: dict[str, Any] = {"id": values["id"], "kind": values["kind"] or OperatorKind.OTHER.value}
        operator["inputs"] = [{"from": name, **numbers} for name in names]
        if values["cycle_unit"] not in ("", CycleUnit.NOMINAL):
            operator["evidence"] = {"kind": Evidence.ASSUMED.value, "cycle_unit": values["cycle_unit"]}
        if values["bytes_per_event"]:
            operator["bytes_per_event"] = _number(values["bytes_per_event"])
        if values["stateless"]:
            operator["stateless"] = values["stateless"] == "yes"
        return operator | feature_document(operator["kind"], values, _number)

    @property
    def features(self) -> list[tuple[FeatureField, str, list[str]]]:
        """Features for a prediction: (field, typed text, faults)."""
        return [(field, self.values.get(field.key, ""), self.errors.get(field.key, [])) for field in FEATURES]

    @property
    def has_features(self) -> bool:
        """Whether something of them was typed, or is wrong."""
        return any(text or faults for _, text, faults in self.features)

    def blame(self, path: str, message: str) -> None:
        """Keep a fault at the field its path ends with."""
        plain = re.sub(r"\[\d+\]", "", path).strip(".")
        feature = plain.replace(".", "_")
        name = feature if feature in _FIELDS else plain.rpartition(".")[2]
        self.errors.setdefault(name if name in _FIELDS else "from" if name == "inputs" else "id", []).append(message)


def operator_lines(data: QueryDict) -> list[OperatorLine]:
    """The typed operators in order, empty ones left out unless they are all."""
    lines = [OperatorLine.read(key, data) for key in data.getlist("row")[:500] if re.fullmatch(r"o\d{1,6}", key)]
    return [line for line in lines if not line.is_empty] or lines[:1]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_NUMBERS = ("selectivity", "cycles_per_event", "events")


@dataclass(frozen=True)
class InputLine:
    """Statistics of one input."""

    operator: str
    source: str
    position: int
    selectivity: float
    cycles_per_event: float | None
    cycle_unit: str
    evidence: str
    events: int
    batches: int
    measured_at: datetime | None
    is_model: bool
    is_left_out: bool
    variation: str

    @property
    def never_ran(self) -> bool:
        return self.cycles_per_event is None

    @property
    def unit_words(self) -> str:
        """Unit of its cost, where it is not nominal cycles."""
        return "" if self.cycle_unit == CycleUnit.NOMINAL else cycle_unit_words(self.cycle_unit)


def statistic_lines(version: QueryVersion, uncovered: Iterable[UncoveredInput] = ()) -> list[InputLine]:
    """Every input of a version in listing order; `is_left_out` where the interval says nothing of it."""
    left_out = {(entry.operator.rpartition("/")[2], entry.input.rpartition("/")[2]) for entry in uncovered}
    return [_line(row.name, entry, left_out) for row in version.operators.all() for entry in row.inputs.all()]


def _line(operator: str, entry: OperatorInput, left_out: set[tuple[str, str]]) -> InputLine:
    source = entry.upstream.name if entry.upstream else entry.source_id
    return InputLine(
        operator=operator,
        source=source,
        position=entry.position,
        selectivity=entry.selectivity,
        cycles_per_event=entry.cycles_per_event,
        cycle_unit=entry.cycle_unit,
        evidence=entry.evidence,
        events=entry.events,
        batches=len(entry.batches),
        measured_at=entry.measured_at,
        is_model=bool(entry.model),
        is_left_out=(operator, source) in left_out or not entry.batches,
        variation=cost_variation_words(entry),
    )


def statistics_sentence(lines: list[InputLine]) -> str:
    """2 of 7 inputs rest on assumed statistics. The interval takes the means of 3 without a sample as they are."""
    unknown = sum(line.never_ran for line in lines)
    if unknown:
        which = f"{unknown} of {len(lines)} inputs" if unknown < len(lines) else "No input"
        known = "have no known cost" if unknown < len(lines) else "has a known cost"
        if any(line.evidence == CostEvidence.UNKNOWN for line in lines):
            return (
                f"{which} {known}: it runs, and nothing tells. Its figures leave that out, and are the least there is."
            )
        return f"{which} {known}: a model predicts the query, and Mace takes nominal costs for what it does to others."
    assumed = sum(line.evidence == Evidence.ASSUMED for line in lines)
    left_out = sum(line.is_left_out for line in lines)
    first = "No input rests on assumed statistics."
    if assumed:
        which = f"{assumed} of {counted(len(lines), 'input')}"
        first = f"{which} {'rests' if len(lines) == 1 else 'rest'} on assumed statistics."
    if left_out == len(lines):
        return f"{first} No input has a sample in batches: the interval takes their means as they are."
    return f"{first} The interval takes the means of {left_out} without a sample as they are." if left_out else first


@dataclass
class _StatisticRow:
    """A line of the form as it was typed."""

    line: InputLine
    values: dict[str, str]
    names: dict[str, str]

    def is_unknown(self, name: str) -> bool:
        """Whether a number is not known yet and was left empty."""
        return not self.values[name] and getattr(self.line, name) is None


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
    def rows(self) -> list[_StatisticRow]:
        return [self._row(i, line) for i, line in enumerate(statistic_lines(self.version))]

    def _row(self, index: int, line: InputLine) -> _StatisticRow:
        names = {name: f"{name}-{index}" for name in (*_NUMBERS, "evidence")}
        known = {name: _plain(getattr(line, name)) for name in names}
        data = self.data
        values = known if data is None else {name: data.get(names[name], known[name]).strip() for name in names}
        return _StatisticRow(line, values, names)

    @cached_property
    def text(self) -> str:
        """The JSON to edit."""
        if self.data is not None:
            return self.data.get("statistics", "")
        statistics = [{**entry, "measured_at": _iso(entry["measured_at"])} for entry in statistics_of(self.version)]
        kept = [{key: value for key, value in entry.items() if value is not None} for entry in statistics]
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
    def changed(self) -> list[_StatisticRow]:
        """Lines in which something else was typed: the others keep their evidence and age."""
        return [row for row in self.rows if row.values != {name: _plain(getattr(row.line, name)) for name in row.names}]

    def _typed(self) -> list[dict[str, object]]:
        return [
            {
                "operator": row.line.operator,
                "input": row.line.source,
                "position": row.line.position,
                "evidence": row.values["evidence"],
                **{name: _number_or_text(row.values[name]) for name in _NUMBERS if not row.is_unknown(name)},
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
        match = re.match(r"statistics\[(\d+)\]\.?", fault.path)
        if self.mode != "table" or match is None:
            return fault
        line = self.changed[int(match[1])].line
        return Fault(f"{line.operator} from {line.source}", fault.message)


def _number_or_text(text: str) -> Any:
    """The number typed; text that is none is passed on, so that the refusal can name it."""
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
