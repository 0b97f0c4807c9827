"""Undo: a change taken back by another change, as long as the object is still as the first one left it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from apps.core.errors import Conflict, Fault, Missing
from apps.ledger.choices import ChangeAction
from apps.ledger.models import KeptRows, ObjectChange
from apps.ledger.origin import Origin, change_reason
from apps.ledger.recorder import ChangeRecorder, Tracked, recorded, row_image, tracked_models

__all__ = ["UndoWay", "change_undo", "changes_undo", "group_undo", "register_undo", "undo_obstacle", "undoable_group"]

_NAMED = 5  # fields in a sentence; faults name all of them


@dataclass(frozen=True)
class UndoWay:
    """Services by which changes of a kind of object are taken back: the same as those that people change it by.

    Attributes
    ----------
    update
        Takes the row and the fields as they were before, keys of rows as rows.
    remove
        Takes back that it was created.
    revived
        Checks a row that has just come back, and tells whoever watches; a refusal takes everything back.
    obstacle
        Why a change cannot be taken back in one step, in a sentence; empty where it can.
    """

    update: Callable[[Any, dict[str, Any]], object]
    remove: Callable[[Any], object] | None = None
    revived: Callable[[Any], object] | None = None
    obstacle: Callable[[ObjectChange], str] = lambda change: ""


_ways: dict[str, UndoWay] = {}


def undoable_group(origin: Origin) -> str:
    """Group of the changes that a request has made, as a text; empty where some of them cannot be taken back."""
    rows = list(ObjectChange.objects.filter(group=origin.group, cause=None)) if origin.has_changed else []
    return origin.group if rows and not any(undo_obstacle(row) for row in rows) else ""


def register_undo(model: type[Tracked], way: UndoWay) -> None:
    """Say how changes of a model's rows are taken back."""
    _ways[model.ledger_kind] = way


def undo_obstacle(change: ObjectChange) -> str:
    """Why a change cannot be taken back, by what the ledger alone says; empty where it may be tried."""
    if change.action == ChangeAction.REFUSED:
        return "It was refused: nothing was changed."
    way = _ways.get(change.kind)
    if change.action == ChangeAction.DECIDED:
        return "A decision stands; what it changed is taken back by itself."
    if way is None:
        return f"Changes of {change.kind} are recorded, but not taken back."
    if change.cause_id is not None:
        return "It came of another change, with which it is taken back."
    if change.action == ChangeAction.CREATED and way.remove is None:
        return f"A new {change.kind} is not taken back."
    if obstacle := way.obstacle(change):
        return obstacle
    if change.action == ChangeAction.DELETED and (not change.kept or way.revived is None):
        return f"Nothing is kept of a {change.kind} that was deleted this way."
    secret = tracked_models()[change.kind].ledger_secret
    if change.action == ChangeAction.CHANGED and not secret.isdisjoint(change.after or {}):
        return "Secrets are not kept: give the one of before again."
    if change.at < timezone.now() - timedelta(days=settings.UNDO_DAYS):
        return f"It is older than {settings.UNDO_DAYS} days."
    return ""


def change_undo(*, pk: int, why: str = "") -> ObjectChange:
    """Take a change back; returns the change that does it.

    Raises
    ------
    Missing
        There is no such change.
    Conflict
        `already_undone`; `changed_since`, with the fields that are not as the change left them; `not_undoable`, such as
        a start or stop, which admission decides on; or what the object's own services refuse, such as a name that was
        taken meanwhile. Nothing is changed then.
    """
    with change_reason(why), recorded() as recording:
        return _undo(recording, pk)


def group_undo(*, group: str, why: str = "") -> list[ObjectChange]:
    """Take back all changes of one request, the last first: all of them or none."""
    keys = list(ObjectChange.objects.filter(group=group, cause=None).values_list("pk", flat=True).order_by("-pk"))
    if not keys:
        raise Missing(f"There is no change of the request {group}.")
    return changes_undo(keys=keys, why=why)


def changes_undo(*, keys: Sequence[int], why: str = "") -> list[ObjectChange]:
    """Take changes back in this order: all of them or none."""
    with change_reason(why), recorded() as recording:
        return [_undo(recording, key) for key in keys]


def _undo(recording: ChangeRecorder, pk: int) -> ObjectChange:
    change = ObjectChange.objects.select_for_update().filter(pk=pk).first()
    if change is None:
        raise Missing(f"There is no change {pk}.")
    _refuse(change)
    model, way = tracked_models()[change.kind], _ways[change.kind]
    recording.flush()
    key = model._meta.pk.to_python(change.object_id)
    recording.undoes[model, key] = change.pk
    if change.action == ChangeAction.DELETED:
        _revive(recording, change, model, key, way)
    else:
        _check_present(change, model, key)
        row = model._default_manager.get(pk=key)
        if change.action == ChangeAction.CREATED:
            assert way.remove is not None
            way.remove(row)
        elif change.kept:
            _put_back(recording, change, way)
        else:
            way.update(row, _values(model, change.before))
    count = len(recording.stored)
    recording.flush()
    undoing = next((stored for stored in recording.stored[count:] if stored.undoes_id == change.pk), None)
    if undoing is None:
        raise Conflict("It is as it was before already.", code="changed_since")
    return undoing


def _refuse(change: ObjectChange) -> None:
    undone = ObjectChange.objects.filter(undoes=change).first()  # read after the lock, which its writer held
    if undone is not None:
        by = f" by {undone.user}" if undone.user else ""
        raise Conflict(
            f"It was taken back already, at {undone.at:%Y-%m-%d %H:%M:%S} UTC{by}.",
            code="already_undone",
            data={"undone_by": undone.pk},
        )
    obstacle = undo_obstacle(change)
    if obstacle:
        raise Conflict(obstacle, code="not_undoable")


def _check_present(change: ObjectChange, model: type[Tracked], key: Any) -> None:
    """Refuse where the object is not as the change left it, with both values of each field."""
    present = row_image(model, key)
    if present is None:
        raise Conflict(f"There is no {change.kind} {change.name!r} any more.", code="changed_since")
    after = change.after or {}
    faults = [
        Fault(name, f"{name} is {_shown(present.get(name))}; this change left {_shown(value)}")
        for name, value in after.items()
        if present.get(name) != value
    ]
    if faults:
        names = ", ".join(fault.path for fault in faults[:_NAMED])
        message = f"The {change.kind} {change.name!r} was changed since: {names}. {faults[0].message}."
        data = {"present": {name: present.get(name) for name in after}, "after": after, "before": change.before}
        raise Conflict(message, faults, code="changed_since", data=data)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _values(model: type[Tracked], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields as services take them: keys as rows, texts of times as times."""
    columns = {column.name: column for column in model._meta.concrete_fields}
    values: dict[str, Any] = {}
    for name, value in (before or {}).items():
        column = columns.get(name)
        if value is None or column is None:
            values[name] = value
        elif isinstance(column, models.ForeignKey):
            parent: Any = column.related_model
            values[name] = parent._default_manager.filter(pk=value).first()
            if values[name] is None:
                noun = parent._meta.verbose_name
                raise Conflict(f"{name}: the {noun} of before is gone.", [(name, f"{noun} {value} is gone")])
        else:
            values[name] = column.to_python(value)
    return values


def _kept(change: ObjectChange) -> list[models.Model]:
    content = KeptRows.objects.filter(pk=change.kept).first()
    if content is None:
        raise Conflict(f"The rows of before are kept for {settings.UNDO_DAYS} days, and gone.", code="not_undoable")
    try:
        return [entry.object for entry in serializers.deserialize("python", content.rows)]
    except (serializers.base.DeserializationError, ValidationError, ValueError) as error:
        raise Conflict(f"The rows of before are of another version: {error}", code="not_undoable") from None


def _put_back(recording: ChangeRecorder, change: ObjectChange, way: UndoWay) -> None:
    """Put the whole row back as it was before."""
    row = _kept(change)[0]
    _check_parents([row])
    row.save(force_update=True)
    if way.revived is not None:
        way.revived(row)


def _revive(recording: ChangeRecorder, change: ObjectChange, model: type[Tracked], key: Any, way: UndoWay) -> None:
    """Bring a deleted object back with all that went with it, or refuse."""
    if model._base_manager.filter(pk=key).exists():
        raise Conflict(f"The {change.kind} {change.name!r} is there.", code="changed_since")
    rows = _kept(change)
    _check_parents(rows)
    root = next(row for row in rows if type(row) is model and row.pk == key)
    try:
        root.validate_constraints()
        root.validate_unique()
    except ValidationError:
        message = f"there is another {change.kind} {change.name!r} by now; rename or delete that first"
        raise Conflict(f"name: {message}.", [("name", message)], code="changed_since") from None
    by_model: dict[type[models.Model], list[models.Model]] = {model: []}
    for row in rows:
        by_model.setdefault(type(row), []).append(row)
    try:
        with transaction.atomic():
            for kind, several in by_model.items():
                kind._default_manager.bulk_create(several, batch_size=500)
                if issubclass(kind, Tracked):
                    keys = [(kind, row.pk) for row in several]
                    recording.causes |= {part: (model, key) for part in keys if part != (model, key)}
    except IntegrityError as error:
        raise Conflict(f"A part of the {change.kind} {change.name!r} cannot come back: {error}") from None
    _relink(recording, change, (model, key))
    if way.revived is not None:
        way.revived(model._default_manager.get(pk=key))


def _relink(recording: ChangeRecorder, change: ObjectChange, root: tuple[Any, Any]) -> None:
    """Restore the links to a row that is back of those rows that have lost them by its deletion, and have no other."""
    for loosened in ObjectChange.objects.filter(cause=change, action=ChangeAction.CHANGED):
        model = tracked_models()[loosened.kind]
        key = model._meta.pk.to_python(loosened.object_id)
        for name, value in _values(model, loosened.before).items():
            rows = model._default_manager.filter(pk=key, **{name: None})
            if rows.update(**{name: value}):
                recording.causes[model, key] = root


def _check_parents(rows: Sequence[models.Model]) -> None:
    """Refuse where a row refers to one that is gone; where it may do without, it does."""
    own = {(type(row), row.pk) for row in rows}
    faults: list[Fault] = []
    for parent, uses in _references(rows, own).items():
        known = set(parent._base_manager.filter(pk__in={key for _, _, key in uses}).values_list("pk", flat=True))
        for row, column, key in uses:
            if key in known:
                continue
            if column.null and column.remote_field.on_delete is models.SET_NULL:
                setattr(row, column.attname, None)
            else:
                noun = parent._meta.verbose_name
                faults.append(
                    Fault(column.name, f"a {row._meta.verbose_name} of it refers to {noun} {key}, which is gone")
                )
    if faults:
        raise Conflict(f"It cannot come back: {faults[0].message}.", faults, code="changed_since")


def _references(
    rows: Iterable[models.Model], own: set[tuple[Any, Any]]
) -> dict[type[models.Model], list[tuple[models.Model, Any, Any]]]:
    """Rows that others refer to, by model: who refers, by which column, to which key."""
    references: dict[type[models.Model], list[tuple[models.Model, Any, Any]]] = {}
    for row in rows:
        for column in row._meta.concrete_fields:
            key = getattr(row, column.attname)
            if isinstance(column, models.ForeignKey) and key is not None and (column.related_model, key) not in own:
                parent: Any = column.related_model
                references.setdefault(parent, []).append((row, column, key))
    return references
