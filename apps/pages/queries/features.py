"""Features that a prediction needs of a query that never ran: of its operators, and of its sources' events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.http import QueryDict

from apps.core.errors import Fault, Malformed
from apps.core.reach import is_seen_in_part
from apps.fleet.models import Cluster
from apps.queries.arrivals.services import arrivals_fields_update
from apps.queries.masks import arrivals_seen
from apps.queries.models import ArrivalSeries, Operator, QueryVersion
from apps.ui.numbers import MISSING, seconds, significant
from engine.document.elements import AT_CLOSE, AT_EVENT, EVENT, ON_CLOSE, ON_UPDATE, SESSION, WINDOW_END
from engine.document.kinds import AGGREGATE_FUNCTIONS, FILTER_FUNCTIONS, VALUE_TYPES
from engine.words import counted, listed

__all__ = [
    "FEATURES",
    "FIELD_TYPES",
    "FeatureField",
    "FeatureLine",
    "SourceFields",
    "feature_document",
    "feature_lines",
    "fields_text",
]

#: Types of the fields of an event, by their names in documents.
FIELD_TYPES = {"ints": "Ints", "strings": "Strings", "doubles": "Doubles"}
_WINDOWED = "window"  # of operators with a window
_WINDOWED_KINDS = ("join", "aggregate", "window")


@dataclass(frozen=True)
class FeatureField:
    """A field of the form; `name` is its place in the document, `group` the kinds of operator that have it."""

    name: str
    label: str
    group: str
    choices: Sequence[str] = ()
    hint: str = ""

    @property
    def key(self) -> str:
        """Name in the form: filter_function of filter.function."""
        return self.name.replace(".", "_")


FEATURES = (
    FeatureField("filter.function", "Comparison", "filter", FILTER_FUNCTIONS),
    FeatureField("filter.literal_type", "Compared with", "filter", VALUE_TYPES, "Type of the literal."),
    FeatureField("join.key_type", "Key", "join", VALUE_TYPES, "Type of the key."),
    FeatureField("aggregate.function", "Function", "aggregate", AGGREGATE_FUNCTIONS),
    FeatureField("aggregate.argument_type", "Of", "aggregate", VALUE_TYPES, "Type of what it reads."),
    FeatureField("aggregate.group_by_type", "Grouped by", "aggregate", ("none", *VALUE_TYPES)),
    FeatureField("window.policy", "Window by", _WINDOWED, ("time", "count")),
    FeatureField("window.type", "Window", _WINDOWED, ("tumbling", "sliding", SESSION)),
    FeatureField(
        "window.size", "Window size", _WINDOWED, hint="Seconds, or events; of a session the gap that ends it."
    ),
    FeatureField("window.slide", "Slide", _WINDOWED, hint="Of a sliding window."),
    FeatureField(
        "window.emit", "Emits", _WINDOWED, (ON_CLOSE, ON_UPDATE), "When its results go out; on close unless given."
    ),
    FeatureField(
        "window.watermark_delay_s", "Watermark delay", _WINDOWED, hint="Seconds, of event time; empty: by the clock."
    ),
    FeatureField(
        "window.allowed_lateness_s", "Allowed lateness", _WINDOWED, hint="Seconds that final results are held."
    ),
    FeatureField(
        "window.work_at",
        "Works",
        _WINDOWED,
        (AT_EVENT, AT_CLOSE),
        "On each event as it comes, or on all when it closes; each unless given.",
    ),
    FeatureField("window.measured_from", "Latency from", _WINDOWED, (EVENT, WINDOW_END), "Each event unless given."),
    FeatureField(
        "trigger.interval_s", "Trigger", "any", hint="Seconds between micro-batches; empty: it runs continuously."
    ),
    FeatureField("trigger.overhead_s", "Batch, fixed", "any", hint="Seconds of a micro-batch beyond its events' work."),
    FeatureField(
        "buffer_timeout_s", "Buffer timeout", "any", hint="Seconds that what it puts out may wait in a buffer."
    ),
    FeatureField("tuple_values_in", "Values read", "any", hint="Of an event; empty: as its inputs have."),
    FeatureField("tuple_values_out", "Values put out", "any", hint="Of an event; empty: from its kind."),
)


def feature_document(kind: str, values: Mapping[str, str], number: Callable[[str], Any]) -> dict[str, Any]:
    """Typed features of an operator of a kind as the deployment document has them; `number` reads what is to be one.

    Those of other kinds, which the form hides, are left out.
    """
    document: dict[str, Any] = {}
    for feature in FEATURES:
        typed = values.get(feature.key, "")
        if typed and (feature.group in (kind, "any") or (feature.group == _WINDOWED and kind in _WINDOWED_KINDS)):
            parent, _, name = feature.name.rpartition(".")
            value = typed if feature.choices else number(typed)
            (document.setdefault(parent, {}) if parent else document)[name] = value
    return document


# -- as a page shows them


@dataclass(frozen=True)
class FeatureLine:
    """An operator, or the events of a source, with what is stated of it."""

    name: str
    kind: str
    text: str
    is_stated: bool
    source: ArrivalSeries | None = None


def feature_lines(version: QueryVersion) -> list[FeatureLine]:
    """Sources first, then operators in their order."""
    operators: Sequence[Operator] = list(version.operators.all())
    names = {entry.source_id for row in operators for entry in row.inputs.all() if entry.source_id}
    rows = ArrivalSeries.objects.filter(cluster=version.query.cluster, source_id__in=names).defer("data", "spec")
    return [*(_source_line(row) for row in rows), *(_operator_line(row) for row in operators)]


def _source_line(row: ArrivalSeries) -> FeatureLine:
    text = fields_text(row.event_fields)
    return FeatureLine(row.source_id, "Source", text or "Fields of its events are not stated", bool(text), row)


def fields_text(fields: Mapping[str, int]) -> str:
    """3 ints, 4 strings and 1 double; empty where nothing is stated."""
    return listed([counted(fields[name], name[:-1]) for name in FIELD_TYPES if fields.get(name)], 3)


def _operator_line(row: Operator) -> FeatureLine:
    extra = row.extra
    parts = [part for part in (_stated(row.kind, extra), _window(extra.get("window")), _values(extra)) if part]
    needed = {"filter": ("filter",), "join": ("join", "window"), "aggregate": ("aggregate", "window")}
    missing = [name for name in needed.get(row.kind, ()) if not extra.get(name)]
    text = "; ".join(parts) or ("Nothing is stated" if missing else "Nothing is needed")
    return FeatureLine(row.name, str(row.get_kind_display()), text[:1].upper() + text[1:], not missing)


def _stated(kind: str, extra: Mapping[str, Any]) -> str:
    if kind == "filter" and extra.get("filter"):
        function, literal = extra["filter"]["function"], _article(extra["filter"]["literal_type"])
        return f"{_COMPARISONS.get(function, f'compares by {function} with')} {literal}"
    if kind == "join" and extra.get("join"):
        return f"key of type {extra['join']['key_type']}"
    if kind == "aggregate" and extra.get("aggregate"):
        given = extra["aggregate"]
        group = given.get("group_by_type", "none")
        grouped = "not grouped" if group == "none" else f"grouped by {_article(group)}"
        return f"{given['function']} of {_article(given['argument_type'])}, {grouped}"
    return ""


_COMPARISONS = {
    "startswith": "begins with",
    "endswith": "ends with",
    "contains": "contains",
    "other": "compares with",
}


def _article(value_type: str) -> str:
    return f"{'an' if value_type == 'int' else 'a'} {value_type}"


def _window(window: Mapping[str, Any] | None) -> str:
    if not window:
        return ""

    def size(value: float | None) -> str:
        return str(seconds(value)) if window["policy"] == "time" else f"{significant(value)} events"

    slide = f" by {size(window['slide'])}" if window["type"] == "sliding" and window.get("slide") else ""
    return f"{window['type']} window of {size(window['size'])}{slide}"


def _values(extra: Mapping[str, Any]) -> str:
    width, out = (extra.get(f"tuple_values_{side}") for side in ("in", "out"))
    if width is None and out is None:
        return ""
    told = [MISSING if value is None else significant(value) for value in (width, out)]
    return f"{told[0]} values read, {told[1]} put out"


# -- fields of the sources, as they are typed


@dataclass
class _SourceLine:
    row: ArrivalSeries
    values: dict[str, str]
    errors: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """(name in the form, label, typed text) of each type."""
        return [(f"fields-{self.row.pk}-{name}", label, self.values[name]) for name, label in FIELD_TYPES.items()]

    @property
    def is_changed(self) -> bool:
        return self.values != _written(self.row.event_fields)


_SOURCES_SHOWN = 12


class SourceFields:
    """Fields of the events of a cluster's sources: shown, typed and stored."""

    types = tuple(FIELD_TYPES.values())

    def __init__(self, cluster: Cluster, data: QueryDict | None = None) -> None:
        self.rows = arrivals_seen(cluster).defer("data", "spec").order_by("source_id")
        shown = self.rows[:_SOURCES_SHOWN] if data is None else self.rows.filter(pk__in=_sources_typed(data))
        self.names = [row.source_id for row in shown]
        changed = () if is_seen_in_part(cluster.pk) else shown  # a source is everybody's who reads it
        self.lines = [_SourceLine(row, _typed(row, data)) for row in changed]

    @cached_property
    def more(self) -> int:
        """Number of sources that are not shown, whose fields stand on their own pages."""
        return int(self.rows.count()) - len(self.names)

    @property
    def has_gaps(self) -> bool:
        """Whether the fields of a source are not stated."""
        return bool(self.lines) and self.rows.filter(event_fields={}).exists()

    @property
    def is_wrong(self) -> bool:
        return any(line.errors for line in self.lines)

    def store(self) -> list[Fault]:
        """Store what was changed, and give what is wrong with it; the caller's transaction holds all of it or none."""
        faults: list[Fault] = []
        for line in self.lines:
            if line.is_changed:
                typed = {name: _number(text) for name, text in line.values.items() if text}
                try:
                    arrivals_fields_update(arrivals=line.row, event_fields=typed or None)
                except Malformed as error:
                    line.errors = [fault.message for fault in error.faults]
                    faults += [Fault(f"{line.row.source_id}: {f.path}", f.message) for f in error.faults]
        return faults


def _sources_typed(data: QueryDict) -> set[int]:
    """Ids of the sources whose fields were sent."""
    parts = (name.split("-") for name in data if name.startswith("fields-"))
    return {int(part[1]) for part in parts if len(part) == 3 and part[1].isdecimal() and len(part[1]) < 19}


def _typed(row: ArrivalSeries, data: QueryDict | None) -> dict[str, str]:
    stored = _written(row.event_fields)
    if data is None:
        return stored
    return {name: data.get(f"fields-{row.pk}-{name}", stored[name]).strip() for name in FIELD_TYPES}


def _written(fields: Mapping[str, int]) -> dict[str, str]:
    return {name: str(fields[name]) if name in fields else "" for name in FIELD_TYPES}


def _number(text: str) -> Any:
    """The whole number typed; text that is none is passed on, so that the refusal can name it."""
    try:
        return int(text)
    except ValueError:
        return text
