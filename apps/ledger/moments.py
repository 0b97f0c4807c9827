"""Objects of a cluster at two moments, as the ledger tells: what differs, and the way back to the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from apps.core.reach import visible
from apps.ledger.chain import ledger_reach
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.selectors import changes_listed
from apps.ledger.undo import undo_obstacle

__all__ = ["MAX_COMPARED", "ClusterComparison", "ObjectDifference", "changes_back_to", "cluster_compare"]

MAX_COMPARED = 5000  # changes between the two moments
_ACTIONS = (ChangeAction.CREATED, ChangeAction.CHANGED, ChangeAction.DELETED)


@dataclass
class ObjectDifference:
    """An object that is not at the later moment as it was at the earlier one.

    Attributes
    ----------
    before, after
        Fields that differ, at the earlier and the later moment; None where it did not exist.
    changes
        The changes between, the oldest first.
    """

    kind: str
    object_id: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    changes: list[ObjectChange] = field(default_factory=list)

    @property
    def obstacle(self) -> str:
        """Why it cannot be taken back to the earlier moment, by the ledger alone; empty where it may be tried."""
        return next(filter(None, map(undo_obstacle, _standing(self.changes))), "")


@dataclass(frozen=True)
class ClusterComparison:
    """A cluster at two moments.

    Attributes
    ----------
    reaches_back
        Whether the ledger reaches back to the earlier moment; otherwise nothing is known of what lies before.
    left_out
        Changes beyond the newest that are compared, 0 where all were.
    """

    differences: list[ObjectDifference]
    reaches_back: bool
    left_out: int


def cluster_compare(cluster_key: int, since: datetime, until: datetime) -> ClusterComparison:
    """Differences of a cluster between two moments; what was changed and changed back is none."""
    rows = visible(changes_listed()).filter(cluster_key=cluster_key, at__gt=since, at__lte=until, action__in=_ACTIONS)
    newest = list(rows.order_by("-pk")[: MAX_COMPARED + 1])
    left_out = rows.count() - MAX_COMPARED if len(newest) > MAX_COMPARED else 0
    by_object: dict[tuple[str, str], list[ObjectChange]] = {}
    for change in reversed(newest[:MAX_COMPARED]):
        by_object.setdefault((change.kind, change.object_id), []).append(change)
    differences = [found for changes in by_object.values() if (found := _difference(changes)) is not None]
    differences.sort(key=lambda found: (found.kind, found.name))
    edge = ledger_reach()
    return ClusterComparison(differences, edge is None or since >= edge, left_out)


def changes_back_to(cluster_key: int, kind: str, object_id: str, since: datetime) -> list[ObjectChange]:
    """Changes of an object since a moment that still stand, the newest first: those to take back."""
    rows = changes_listed().filter(cluster_key=cluster_key, kind=kind, object_id=object_id, at__gt=since)
    return _standing(rows.filter(action__in=_ACTIONS).order_by("pk"))[::-1]


def _difference(changes: list[ObjectChange]) -> ObjectDifference | None:
    """Changes of one object, the oldest first, as one; None where nothing is left of them."""
    first, last = changes[0], changes[-1]
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for change in changes:
        for name, value in (change.before or {}).items():
            before.setdefault(name, value)
        after |= change.after or {}
    was, is_there = first.action != ChangeAction.CREATED, last.action != ChangeAction.DELETED
    if was and is_there:
        names = [name for name in after if name not in before or before[name] != after[name]]
        before, after = _named(before, names), _named(after, names)
        if not names:
            return None
    elif not was and not is_there:
        return None
    found = ObjectDifference(last.kind, last.object_id, last.name, before if was else None, after if is_there else None)
    found.changes = changes
    return found


def _named(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: fields.get(name) for name in names}


def _standing(changes: Iterable[ObjectChange]) -> list[ObjectChange]:
    """Changes without those that were taken back among them, and what took those back."""
    rows = list(changes)
    keys = {change.pk for change in rows}
    gone = {key for change in rows if change.undoes_id in keys for key in (change.pk, change.undoes_id)}
    return [change for change in rows if change.pk not in gone]
