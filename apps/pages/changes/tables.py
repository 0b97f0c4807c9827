"""Lists of changes: of a cluster, and of one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.moments import ObjectDifference
from apps.ledger.recorder import canonical
from apps.ledger.selectors import ChangeFilter, shown_fields
from apps.ledger.undo import undo_obstacle
from apps.ledger.words import CHANGES_OF_FIELDS, ObjectNames, change_words, differing_entries, field_label, kind_words
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.words import counted

__all__ = ["UNDO_FORM", "DifferenceRow", "change_json", "changes_table", "difference_rows"]

UNDO_FORM = "undo-form"  #: id of the form that the list's buttons send
_SHOWN = 4  # fields of a change that a list names
_PEOPLE = 50  # whom a list offers to choose
_RUNS = {"decision": "pages:admission", "placement": "pages:placement-run", "evacuation": "pages:evacuation"}
_SPANS = (
    (timedelta(hours=1), "Last hours"),
    (timedelta(days=1), "Last day"),
    (timedelta(days=7), "Last week"),
    (timedelta(days=30), "Last 30 days"),
)


def changes_table(request: HttpRequest, slug: str, rows: QuerySet[ObjectChange], *, of_one: bool = False) -> Table:
    """Newest first; chips by what was done. The list of one object leaves its name out; without `slug`, of all."""
    can_change = "operate" in signed_in_user(request).scopes
    names = ObjectNames()
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
            Column("fields", "Fields", _fields, file_only=True),
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
    names = ObjectNames()
    rows = []
    for found in differences:
        change = found.changes[-1]
        before = shown_fields(change, found.before, may_change=can_change)
        after = shown_fields(change, found.after, may_change=can_change)
        became = "new" if before is None else "deleted" if after is None else "changed"
        lines = []
        for name in (after if before is None else before) or {}:
            was, now = differing_entries((before or {}).get(name), (after or {}).get(name))
            lines.append(
                (
                    field_label(found.kind, name),
                    MISSING if before is None else names.text(found.kind, name, was),
                    MISSING if after is None else names.text(found.kind, name, now),
                )
            )
        what = f"{kind_words(found.kind).capitalize()} {found.name}"
        rows.append(DifferenceRow(what, f"{found.kind}:{found.object_id}", became, lines, found.obstacle))
    return rows


def _menu(name: str, choices: list[Choice], every: str) -> Filter:
    return Filter(name, choices, all_label=every)


def _spans() -> list[Choice]:
    """Spans until now, by the hour, so that an address stays among the choices for a while."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    return [Choice((now - span).isoformat().replace("+00:00", "Z"), label) for span, label in _SPANS]


def _what(change: ObjectChange) -> Any:
    """The object of an entry; of a run with the way to it."""
    text = f"{kind_words(change.kind).capitalize()} {change.name}"
    page = _RUNS.get(change.kind)
    if page is None or not change.cluster:
        return text
    return format_html('<a href="{}">{}</a>', reverse(page, args=[change.cluster, change.object_id]), text)


def _refusal(change: ObjectChange) -> str:
    """Why an attempt was refused, and how many more there were."""
    after = change.after or {}
    left_out = after.get("left_out", 0)
    more = f" {counted(left_out, 'more attempt')} before it." if left_out else ""
    return f"Refused ({after.get('status')}): {after.get('message') or 'its page said why'}{more}"


def _change(change: ObjectChange, can_change: bool, names: ObjectNames) -> Any:
    if change.action == ChangeAction.REFUSED:
        return _refusal(change)
    if change.action not in CHANGES_OF_FIELDS:
        return SafeString(change.get_action_display())
    lines = change_words(change, names, may_change=can_change)
    labelled = [(line.label, line.before, line.after) for line in lines[:_SHOWN]]
    shown = format_html_join("", '<div><span class="muted">{}:</span> {} → {}</div>', labelled)
    more = len(lines) - _SHOWN
    return format_html('{}<div class="muted">and {} more</div>', shown, more) if more > 0 else shown


def _text(change: ObjectChange, can_change: bool, names: ObjectNames) -> str:
    if change.action == ChangeAction.REFUSED:
        return _refusal(change)
    if change.action not in CHANGES_OF_FIELDS:
        return change.get_action_display()
    lines = change_words(change, names, may_change=can_change)
    return "; ".join(f"{line.label}: {line.before} → {line.after}" for line in lines)


def _fields(change: ObjectChange) -> str:
    """Names of the fields that have changed, as the API has them, in the order of their words."""
    return " ".join(change.after or {}) if change.action in CHANGES_OF_FIELDS else ""


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
