"""Lists of changes: of a cluster, and of one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.moments import ObjectDifference
from apps.ledger.recorder import canonical, tracked_models
from apps.ledger.selectors import ChangeFilter, changes_of, shown_fields
from apps.ledger.undo import undo_obstacle
from apps.pages.sources.collectors import COLLECTORS
from apps.ui.numbers import MISSING, bytes_size, cps, percent, rate, seconds
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import exact, time_tag
from engine.words import counted

__all__ = ["UNDO_FORM", "DifferenceRow", "change_json", "changes_table", "difference_rows", "kind_words"]

UNDO_FORM = "undo-form"  #: id of the form that the list's buttons send
_SHOWN = 4  # fields of a change that a list names
_LENGTH = 60  # characters of a value
_PEOPLE = 50  # whom a list offers to choose
_RUNS = {"decision": "pages:admission", "placement": "pages:placement-run", "evacuation": "pages:evacuation"}
_WITH_FIELDS = frozenset({ChangeAction.CHANGED, ChangeAction.DECIDED})
_SPANS = (
    (timedelta(hours=1), "Last hours"),
    (timedelta(days=1), "Last day"),
    (timedelta(days=7), "Last week"),
    (timedelta(days=30), "Last 30 days"),
)


def kind_words(kind: str) -> str:
    """`alert rule` of the kind `alert-rule`."""
    return kind.replace("-", " ")


def changes_table(request: HttpRequest, slug: str, rows: QuerySet[ObjectChange], *, of_one: bool = False) -> Table:
    """Newest first; chips by what was done. The list of one object leaves its name out; without `slug`, of all."""
    can_change = "operate" in signed_in_user(request).scopes
    names = _ObjectNames()
    what = Column("what", "What", _what, sort="name", csv=lambda row: f"{kind_words(row.kind)} {row.name}", full=True)
    where = Column("cluster", "Cluster", lambda row: row.cluster or MISSING, csv=lambda row: row.cluster)
    kinds = rows.order_by("kind").values_list("kind", flat=True).distinct()
    people = rows.exclude(user="").order_by("user").values_list("user", flat=True).distinct()[:_PEOPLE]
    menus = (
        []
        if of_one
        else [
            _menu("kind", [Choice(kind, kind_words(kind).capitalize()) for kind in kinds], "Every kind"),
            _menu("user", [Choice(name, name) for name in people], "Everybody"),
        ]
    )
    return Table(
        request,
        [
            Column("at", "When", lambda row: time_tag(row.at), sort="at", csv=lambda row: row.at, high_first=True),
            *([] if of_one else [what]),
            *([] if slug else [where]),
            Column(
                "change",
                "Change",
                lambda row: _change(row, can_change, names),
                None,
                lambda row: _text(row, can_change, names),
                full=True,
            ),
            Column("by", "By", _by, sort="user"),
            Column("why", "Why", lambda row: row.why or MISSING),
            Column("undo", "", lambda row: _undo(row, can_change), full=True),
        ],
        rows,
        caption="Changes",
        default_sort="-at",
        filters=[
            Filter("action", [Choice(value, label) for value, label in ChangeAction.choices]),
            *menus,
            _menu("at__gte", _spans(), "All time"),
        ],
        filterset=ChangeFilter,
        search=["name", "user", "why", "token", "request_id"],
        search_label="Name, person, token, reason or request",
        page_size=25,
        file_name=f"changes-{slug}" if slug else "changes",
        empty={
            "icon": "log",
            "title": "No changes yet",
            "text": "What people, tokens and jobs change from now on is listed here, and can be taken back.",
        },
    )


def change_json(change: ObjectChange, can_change: bool) -> str:
    """An entry as the export in JSON has it: its columns, without values that are for others."""
    row = {field.attname: getattr(change, field.attname) for field in ObjectChange._meta.concrete_fields}
    for side in ("before", "after"):
        row[side] = shown_fields(change, row[side], may_change=can_change)
    return canonical(row)


@dataclass(frozen=True)
class DifferenceRow:
    """An object at two moments, as a page lists it: `lines` are its fields with both values."""

    what: str
    object: str
    became: str
    lines: list[tuple[str, str, str]]
    obstacle: str


def difference_rows(differences: Sequence[ObjectDifference], *, can_change: bool) -> list[DifferenceRow]:
    """Objects that differ between two moments, with their fields as readers know them."""
    names = _ObjectNames()
    rows = []
    for found in differences:
        change = found.changes[-1]
        before = shown_fields(change, found.before, may_change=can_change)
        after = shown_fields(change, found.after, may_change=can_change)
        became = "new" if before is None else "deleted" if after is None else "changed"
        lines = [
            (
                _label(found.kind, name),
                MISSING if before is None else names.text(found.kind, name, before.get(name)),
                MISSING if after is None else names.text(found.kind, name, after.get(name)),
            )
            for name in (after if before is None else before) or {}
        ]
        what = f"{kind_words(found.kind).capitalize()} {found.name}"
        rows.append(DifferenceRow(what, f"{found.kind}:{found.object_id}", became, lines, found.obstacle))
    return rows


def _menu(name: str, choices: list[Choice], every: str) -> Filter:
    return Filter(name, choices, all_label=every)


def _spans() -> list[Choice]:
    """Spans until now, by the hour, so that an address stays among the choices for a while."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    return [Choice((now - span).isoformat().replace("+00:00", "Z"), label) for span, label in _SPANS]


#: Of fields by the last part of their names, which is their unit.
_QUANTITIES: Mapping[str, Callable[[Any], object]] = {
    "s": seconds,
    "share": percent,
    "bytes": bytes_size,
    "cps": cps,
    "eps": rate,
}
#: Labels of values whose field of the model names no choices, by kind and field.
_CHOICES = {("source", "kind"): dict(COLLECTORS)}


def _column(kind: str, field: str) -> Any:
    """The field of a model; None where a change has one that no model has."""
    model = tracked_models().get(kind)
    try:
        return None if model is None else model._meta.get_field(field)
    except FieldDoesNotExist:
        return None


def _label(kind: str, field: str) -> str:
    """`Running version` of the field `running_version`, without the unit that its value has."""
    column = _column(kind, field)
    name = field.rpartition("_")[0] if field.rpartition("_")[2] in _QUANTITIES and "_" in field else ""
    words = name or str(getattr(column, "verbose_name", "") or field)
    return words.replace("_", " ").capitalize()


class _ObjectNames:
    """Names of the objects that changes refer to by key; each is looked up once, one that is gone in the ledger."""

    def __init__(self) -> None:
        self._names: dict[tuple[Any, Any], str] = {}

    def text(self, kind: str, field: str, value: Any) -> str:
        """A value of a field as a reader knows it: the name for a key, the label of a choice, a number in its unit."""
        if field == "placement":
            return _places(value)
        if value is None or isinstance(value, bool):
            return MISSING if value is None else "yes" if value else "no"
        column = _column(kind, field)
        if column is not None and column.related_model is not None:
            keys = value if isinstance(value, list) else [value]
            return _value(", ".join(self._name(column.related_model, key) for key in keys))
        if isinstance(value, str):
            labels = _CHOICES.get((kind, field)) or dict(getattr(column, "flatchoices", None) or ())
            moment = parse_datetime(value) if isinstance(column, DateTimeField) else None
            return exact(moment) if moment is not None else _value(labels.get(value, value))
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            return counted(len(value), "entry", "entries")
        if isinstance(value, dict):  # labels, as their form takes them
            return _value(" ".join(f"{name}={text}" for name, text in value.items()))
        quantity = _QUANTITIES.get(field.rpartition("_")[2]) if isinstance(value, int | float) else None
        return _value(value) if quantity is None else str(quantity(value))

    def _name(self, model: Any, key: Any) -> str:
        if (model, key) not in self._names:
            row = model._base_manager.filter(pk=key).first()
            self._names[model, key] = self._gone(model, key) if row is None else str(row)
        return self._names[model, key]

    def _gone(self, model: Any, key: Any) -> str:
        kind = getattr(model, "ledger_kind", "")
        newest = changes_of(kind, key).order_by("-pk").first() if kind else None
        return f"{newest.name if newest else key} (deleted)"


def _what(change: ObjectChange) -> Any:
    """The object of an entry; of a run with the way to it."""
    text = f"{kind_words(change.kind).capitalize()} {change.name}"
    page = _RUNS.get(change.kind)
    if page is None or not change.cluster:
        return text
    return format_html('<a href="{}">{}</a>', reverse(page, args=[change.cluster, change.object_id]), text)


def _differences(change: ObjectChange, can_change: bool, names: _ObjectNames) -> Iterator[tuple[str, str, str]]:
    before = shown_fields(change, change.before, may_change=can_change) or {}
    after = shown_fields(change, change.after, may_change=can_change) or {}
    for name, value in after.items():
        yield name, names.text(change.kind, name, before.get(name)), names.text(change.kind, name, value)


def _places(placement: Any) -> str:
    """`score on n03#1`: operators and their cores."""
    places = [
        f"{operator} on " + " and ".join(f"{part['node']}#{part['core']}" for part in parts)
        for operator, parts in (placement or {}).items()
    ]
    return _value(", ".join(places))


def _value(value: Any) -> str:
    text = MISSING if value is None or value in ("", [], {}) else str(value)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…"


def _refusal(change: ObjectChange) -> str:
    """Why an attempt was refused, and how many more there were."""
    after = change.after or {}
    left_out = after.get("left_out", 0)
    more = f" {counted(left_out, 'more attempt')} before it." if left_out else ""
    return f"Refused ({after.get('status')}): {after.get('message') or 'its page said why'}{more}"


def _change(change: ObjectChange, can_change: bool, names: _ObjectNames) -> Any:
    if change.action == ChangeAction.REFUSED:
        return _refusal(change)
    if change.action not in _WITH_FIELDS:
        return SafeString(change.get_action_display())
    lines = list(_differences(change, can_change, names))
    labelled = [(_label(change.kind, name), before, after) for name, before, after in lines[:_SHOWN]]
    shown = format_html_join("", '<div><span class="muted">{}:</span> {} → {}</div>', labelled)
    more = len(lines) - _SHOWN
    return format_html('{}<div class="muted">and {} more</div>', shown, more) if more > 0 else shown


def _text(change: ObjectChange, can_change: bool, names: _ObjectNames) -> str:
    if change.action == ChangeAction.REFUSED:
        return _refusal(change)
    if change.action not in _WITH_FIELDS:
        return change.get_action_display()
    return "; ".join(f"{name}: {before} → {after}" for name, before, after in _differences(change, can_change, names))


def _by(change: ObjectChange) -> str:
    who = change.user or ("a job" if change.job else "an agent" if change.request_id else "Sluice itself")
    if change.token:
        return f"{who}, by token {change.token}"
    return f"{who}, by a job" if change.user and change.job else who


def _undo(change: ObjectChange, can_change: bool) -> Any:
    """The button, or why there is none."""
    if hasattr(change, "undone"):
        return format_html('<span class="muted">taken back {}</span>', time_tag(change.undone.at))
    if change.action in {ChangeAction.DECIDED, ChangeAction.REFUSED}:
        return ""
    obstacle = undo_obstacle(change)
    if obstacle and can_change and change.kind == "query" and (change.before or {}).get("running_version"):
        ask = f"{reverse('pages:admission-new', args=[change.cluster])}?{urlencode({'query': change.name})}"
        return format_html('<span class="muted sm">{} <a href="{}">Preview admission</a></span>', obstacle, ask)
    if obstacle:
        return format_html('<span class="muted sm">{}</span>', obstacle)
    if not can_change:
        return ""
    url, label = reverse("pages:change-undo", args=[change.pk]), f" {change.action} {change.name}"
    return format_html(
        '<button class="btn tiny" form="{}" formaction="{}">Undo<span class="vh">{}</span></button>',
        UNDO_FORM,
        url,
        label,
    )
