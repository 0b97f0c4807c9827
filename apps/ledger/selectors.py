"""Reading the ledger: changes of a cluster or an object, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.reach import row_visible
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import tracked_models

__all__ = ["ChangeFilter", "change_sent", "changes_check", "changes_listed", "changes_of", "shown_fields"]

HIDDEN = "…"  #: in the place of a value that is for those who may change it


def changes_listed(*, of_people: bool = False) -> QuerySet[ObjectChange]:
    """Changes with the one that took each back; those of no cluster, people and tokens among them, for admins."""
    rows = ObjectChange.objects.select_related("undone", "undoes")
    return rows if of_people else rows.exclude(cluster="")


def changes_of(kind: str, key: object) -> QuerySet[ObjectChange]:
    """Changes of one object."""
    return changes_listed().filter(kind=kind, object_id=str(key))


def changes_check(group: str) -> None:
    """Refuse what one request changed, unless the caller may change each of it. Raises Missing and Forbidden."""
    for change in ObjectChange.objects.filter(group=group, cause=None):
        row_visible(ObjectChange.objects.all(), "change", pk=change.pk)


def shown_fields(change: ObjectChange, fields: Mapping[str, Any] | None, *, may_change: bool) -> dict[str, Any] | None:
    """Fields of a change for a reader: addresses that hold a secret are for those who may change them."""
    model = tracked_models().get(change.kind)
    if fields is None or may_change or model is None:
        return None if fields is None else dict(fields)
    return {name: HIDDEN if name in model.ledger_guarded else value for name, value in fields.items()}


def change_sent(change: ObjectChange) -> dict[str, Any]:
    """A change as it is sent elsewhere: every column, without values that are for those who may change them."""
    row = {field.attname: getattr(change, field.attname) for field in ObjectChange._meta.concrete_fields}
    return row | {side: shown_fields(change, row[side], may_change=False) for side in ("before", "after")}


class ChangeFilter(ListFilter):
    """`?cluster=eu-1&kind=query&object_id=7&user=ann&action=deleted&at__gte=2026-11-01T00:00:00Z`."""

    cluster = TextFilter(label="Slug of the cluster at the time of the change")
    kind = TextFilter(label="Kind of the object, such as node")
    object_id = TextFilter(label="Key of the object")
    name = TextFilter(label="Name of the object after the change")
    user = TextFilter(label="Who made it")
    action = ChoiceFilter(choices=ChangeAction.choices)
    group = TextFilter(label="Request or job that made it")
    at = TimeFilter()
    sorts = sort_paths("at", "kind", "name", "user", id="pk")
