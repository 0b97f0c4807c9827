"""Lists of changes: of a cluster, and of one object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import tracked_models
from apps.ledger.selectors import ChangeFilter, shown_fields
from apps.ledger.undo import undo_obstacle
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["UNDO_FORM", "changes_table", "kind_words"]

UNDO_FORM = "undo-form"  #: id of the form that the list's buttons send
_SHOWN = 4  # fields of a change that a list names
_LENGTH = 60  # characters of a value


def kind_words(kind: str) -> str:
    """`alert rule` of the kind `alert-rule`."""
    return kind.replace("-", " ")


def changes_table(request: HttpRequest, slug: str, rows: QuerySet[ObjectChange], *, of_one: bool = False) -> Table:
    """Newest first; chips by what was done. The list of one object leaves its name out."""
    can_change = "operate" in signed_in_user(request).scopes
    what = Column("what", "What", lambda row: f"{kind_words(row.kind).capitalize()} {row.name}", sort="name")
    kinds = [] if of_one else [Choice(kind, kind_words(kind).capitalize()) for kind in tracked_models()]
    return Table(
        request,
        [
            Column("at", "When", lambda row: time_tag(row.at), sort="at", csv=lambda row: row.at, high_first=True),
            *([] if of_one else [what]),
            Column(
                "change",
                "Change",
                lambda row: _change(row, can_change),
                None,
                lambda row: _text(row, can_change),
                full=True,
            ),
            Column("by", "By", _by, sort="user"),
            Column("why", "Why", lambda row: row.why or MISSING),
            Column("undo", "", lambda row: _undo(row, slug, can_change), full=True),
        ],
        rows,
        caption="Changes",
        default_sort="-at",
        filters=[
            Filter("action", [Choice(value, label) for value, label in ChangeAction.choices]),
            *([Filter("kind", kinds, all_label="Every kind")] if kinds else []),
        ],
        filterset=ChangeFilter,
        search=["name", "user", "why", "token"],
        search_label="Name, person, token or reason",
        page_size=25,
        file_name=f"changes-{slug}",
        empty={
            "icon": "log",
            "title": "No changes yet",
            "text": "What people, tokens and jobs change from now on is listed here, and can be taken back.",
        },
    )


def _differences(change: ObjectChange, can_change: bool) -> Iterator[tuple[str, str, str]]:
    before = shown_fields(change, change.before, may_change=can_change) or {}
    after = shown_fields(change, change.after, may_change=can_change) or {}
    for name, value in after.items():
        write = _places if name == "placement" else _value
        yield name, write(before.get(name)), write(value)


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


def _change(change: ObjectChange, can_change: bool) -> SafeString:
    if change.action != ChangeAction.CHANGED:
        return SafeString(change.get_action_display())
    lines = list(_differences(change, can_change))
    shown = format_html_join("", "<div><code>{}</code> {} → {}</div>", lines[:_SHOWN])
    more = len(lines) - _SHOWN
    return format_html('{}<div class="muted">and {} more</div>', shown, more) if more > 0 else shown


def _text(change: ObjectChange, can_change: bool) -> str:
    if change.action != ChangeAction.CHANGED:
        return change.get_action_display()
    return "; ".join(f"{name}: {before} → {after}" for name, before, after in _differences(change, can_change))


def _by(change: ObjectChange) -> str:
    who = change.user or ("a job" if change.job else "an agent" if change.request_id else "Sluice itself")
    if change.token:
        return f"{who}, by token {change.token}"
    return f"{who}, by a job" if change.user and change.job else who


def _undo(change: ObjectChange, slug: str, can_change: bool) -> Any:
    """The button, or why there is none."""
    if hasattr(change, "undone"):
        return format_html('<span class="muted">taken back {}</span>', time_tag(change.undone.at))
    obstacle = undo_obstacle(change)
    if obstacle:
        return format_html('<span class="muted sm">{}</span>', obstacle)
    if not can_change:
        return ""
    url, label = reverse("pages:change-undo", args=[slug, change.pk]), f" {change.action} {change.name}"
    return format_html(
        '<button class="btn tiny" form="{}" formaction="{}">Undo<span class="vh">{}</span></button>',
        UNDO_FORM,
        url,
        label,
    )
