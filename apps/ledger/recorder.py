"""Models whose changes are recorded: every write that goes through Django writes the ledger in the same transaction.

A write opens a recording, or joins the one that is open: that of the service which makes it. A recording reads the rows
that are written before their first change and after the last, and stores what differs. So what a service changes by
several statements is one change, what it changes and changes back is none, and what a savepoint rolled back is none
either. What writes past Django (SQL, a migration) is not seen.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, TypeVar, overload

from django.core import serializers
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction
from django.db.models.deletion import Collector

from apps.ledger.choices import ChangeAction
from apps.ledger.models import KeptRows, ObjectChange
from apps.ledger.origin import Origin, origin_now

__all__ = [
    "ChangeRecorder",
    "Tracked",
    "TrackedPart",
    "TrackedQuerySet",
    "add_related",
    "canonical",
    "recorded",
    "row_image",
    "tracked_models",
]

SECRET, SECRET_ANEW = "secret", "another secret"  #: in the place of a value that nobody reads
_BATCH = 500  # rows of one statement
Row = TypeVar("Row", bound=models.Model)
Key = tuple[type["Tracked"], Any]


class _ExactEncoder(DjangoJSONEncoder):
    """Times to the microsecond, as the database has them; Django's own encoder cuts them to milliseconds."""

    def default(self, o: Any) -> Any:
        return o.isoformat() if isinstance(o, datetime) else super().default(o)


@dataclass(frozen=True)
class _Image:
    """A row at one moment: its fields as JSON has them, its name, and its cluster's slug and key."""

    fields: Mapping[str, Any]
    name: str
    cluster: str
    cluster_key: int | None


@dataclass
class ChangeRecorder:
    """Rows that are written, as they were before: None where there was none."""

    before: dict[Key, _Image | None] = field(default_factory=dict)
    kept: dict[Key, list[Any]] = field(default_factory=dict)  # rows that the fields do not tell
    causes: dict[Key, Key] = field(default_factory=dict)
    undoes: dict[Key, int] = field(default_factory=dict)
    stored: list[ObjectChange] = field(default_factory=list)

    def touch(self, model: type[Tracked], keys: Iterable[Any]) -> None:
        """Read rows that are about to be written, unless they were read already."""
        new = [key for key in dict.fromkeys(keys) if (model, key) not in self.before]
        if not new:
            return
        if transaction.get_connection().features.has_select_for_update:  # else their values may move before the write
            rows = model._base_manager.filter(pk__in=new).order_by("pk").values_list("pk", flat=True)
            list(rows.select_for_update(no_key=True))
        images = _images(model, new)
        self.before |= {(model, key): images.get(key) for key in new}
        if model.ledger_kept_with:
            for row in model._base_manager.filter(pk__in=new):
                self.kept[model, row.pk] = _serialized([row])

    def touch_new(self, model: type[Tracked], keys: Iterable[Any]) -> None:
        """Note rows that did not exist."""
        for key in keys:
            self.before.setdefault((model, key), None)

    def touch_deleted(self, rows: Sequence[Tracked], *, keeps: bool) -> None:
        """Read rows that are about to be deleted and those that go along; of a single one, keep what comes back."""
        collector = Collector(using=transaction.get_connection().alias)
        collector.collect(rows)
        gone: dict[type[models.Model], list[models.Model]] = {
            model: list(instances) for model, instances in collector.data.items()
        }
        for few in collector.fast_deletes:
            if _comes_back(few.model):
                gone[few.model] = [*gone.get(few.model, ()), *few]
        roots = {(type(row), row.pk) for row in rows}
        loosened: dict[type[models.Model], list[models.Model]] = defaultdict(list)  # they stay, without their link
        for (column, _), sets in collector.field_updates.items():
            if issubclass(column.model, Tracked) and column.name in _fields(column.model):
                loosened[column.model] += [row for few in sets for row in few]
        for model, instances in [*gone.items(), *loosened.items()]:
            if issubclass(model, Tracked):
                self.touch(model, [row.pk for row in instances])
                if len(rows) == 1:
                    keys = [(model, row.pk) for row in instances]
                    self.causes |= {key: next(iter(roots)) for key in keys if key not in roots}
        if keeps and len(rows) == 1 and rows[0].ledger_kept:
            own = [row for some in gone.values() for row in some if _comes_back(type(row))]
            self.kept[type(rows[0]), rows[0].pk] = _serialized(own)

    def flush(self) -> None:
        """Store what has changed since rows were read first, and begin anew."""
        by_model: dict[type[Tracked], list[Any]] = defaultdict(list)
        for model, key in self.before:
            by_model[model].append(key)
        columns = (origin_now() or Origin()).columns()
        changes: dict[Key, ObjectChange] = {}
        for model, keys in by_model.items():
            images = _images(model, keys)
            for key in keys:
                change = _change(model, key, self.before[model, key], images.get(key))
                if change is not None:
                    changes[model, key] = change
        if changes:
            self._store(changes, columns)
        self.before, self.kept, self.causes, self.undoes = {}, {}, {}, {}

    def _store(self, changes: Mapping[Key, ObjectChange], columns: Mapping[str, Any]) -> None:
        contents = {}
        for key, change in changes.items():
            for name, value in columns.items():
                setattr(change, name, value)
            change.undoes_id = self.undoes.get(key)
            rows = self.kept.get(key)
            if rows and change.action != ChangeAction.CREATED and _is_kept(key[0], change):
                change.kept = hashlib.sha256(canonical(rows).encode()).hexdigest()
                contents[change.kept] = KeptRows(digest=change.kept, rows=rows)
        if contents:
            KeptRows.objects.bulk_create(
                contents.values(),
                batch_size=_BATCH,
                update_conflicts=True,
                unique_fields=["digest"],
                update_fields=["kept_at"],
            )
        first = [change for key, change in changes.items() if self.causes.get(key) not in changes]
        ObjectChange.objects.bulk_create(first, batch_size=_BATCH)
        later = [change for key, change in changes.items() if self.causes.get(key) in changes]
        for key, change in changes.items():
            if (cause := changes.get(self.causes.get(key, key))) is not change:
                change.cause_id = cause.pk if cause else None
        ObjectChange.objects.bulk_create(later, batch_size=_BATCH)
        self.stored += [*first, *later]
        origin = origin_now()
        if origin is not None:
            origin.has_changed = True


_recording: ContextVar[ChangeRecorder | None] = ContextVar("recording of changes", default=None)


@contextmanager
def recorded() -> Iterator[ChangeRecorder]:
    """A transaction whose changes of tracked rows are recorded at its end; inside of another recording it joins that.

    As a decorator of a service, `@recorded()` stands for `@transaction.atomic`.
    """
    with transaction.atomic(), _joined() as recording:
        yield recording


@contextmanager
def _joined() -> Iterator[ChangeRecorder]:
    """The open recording, or one of its own for a single write."""
    present = _recording.get()
    if present is not None:
        yield present
        return
    recording = ChangeRecorder()
    with transaction.atomic(savepoint=False):
        token = _recording.set(recording)
        try:
            yield recording
        finally:
            _recording.reset(token)
        recording.flush()


class TrackedQuerySet(models.QuerySet[Row]):
    """Rows whose changes in bulk are recorded as well."""

    def update(self, **values: Any) -> int:
        model = _tracked(self.model)
        if not _tells(model, values):
            return super().update(**values)
        with _joined() as recording:
            recording.touch(model, list(self.order_by().values_list("pk", flat=True)))
            return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined] # so that no template calls it

    def delete(self) -> tuple[int, dict[str, int]]:
        with _joined() as recording:
            rows = list(self.order_by())
            if rows:
                recording.touch_deleted(rows, keeps=False)  # type: ignore[arg-type]
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Row], *args: Any, **options: Any) -> list[Row]:
        model, rows = _tracked(self.model), list(objs)
        with _joined() as recording:
            unique = options.get("unique_fields") or ()
            same = {f"{name}__in": {getattr(row, name) for row in rows} for name in unique}
            if same:
                recording.touch(model, list(self.filter(**same).values_list("pk", flat=True)))
            stored = super().bulk_create(rows, *args, **options)
            keys = self.filter(**same).values_list("pk", flat=True) if same else [row.pk for row in stored]
            recording.touch_new(model, [key for key in keys if key is not None])
            return stored


class Tracked(models.Model):
    """Base of a model whose changes are recorded, whoever makes them.

    Attributes
    ----------
    ledger_kind
        Kind of the object, in a word.
    ledger_ignored
        Fields that are measured, computed or bookkeeping: a change of them alone is not recorded.
    ledger_name
        Path of its name, or an expression.
    ledger_cluster
        Path of its cluster; "" of a cluster itself, None of what is of no cluster.
    ledger_kept_with
        Fields whose change makes the ledger keep the row as it was: they stand for large ones, as a digest does.
    ledger_kept
        Whether it comes back when what it belongs to is deleted and that is undone.
    ledger_guarded
        Fields whose values are for those who may change them: addresses that hold a secret.
    ledger_labels
        Labels of a field's values, where the field itself names no choices.
    ledger_secret
        Fields that hold a secret, its hash or its seal: the ledger says that they changed, and never their values.
    """

    ledger_kind: ClassVar[str]
    ledger_ignored: ClassVar[frozenset[str]] = frozenset()
    ledger_name: ClassVar[Any] = "name"
    ledger_cluster: ClassVar[str | None] = "cluster"
    ledger_kept_with: ClassVar[frozenset[str]] = frozenset()
    ledger_kept: ClassVar[bool] = True
    ledger_guarded: ClassVar[frozenset[str]] = frozenset()
    ledger_labels: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    ledger_secret: ClassVar[frozenset[str]] = frozenset()

    objects = models.Manager.from_queryset(TrackedQuerySet)()

    class Meta:
        abstract = True

    @classmethod
    def ledger_expressions(cls) -> Mapping[str, Any]:
        """Fields that are read with the row's own, by name."""
        return {}

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add what belongs to the objects' fields but stands in other tables, to {key: fields}."""

    @classmethod
    def ledger_is_routine(cls, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
        """Whether a change is one of measurements alone, which is not recorded."""
        return False

    @classmethod
    def ledger_touch(cls, *keys: Any) -> None:
        """Read rows before what belongs to them in other tables is changed; of an open recording."""
        recording = _recording.get()
        if recording is not None:
            recording.touch(cls, keys)

    def save(self, *args: Any, **options: Any) -> None:
        model = type(self)
        named = options.get("update_fields")
        if named is not None and not _tells(model, named):
            super().save(*args, **options)
            return
        with _joined() as recording:
            if self.pk is not None:
                recording.touch(model, [self.pk])
            super().save(*args, **options)
            recording.touch_new(model, [self.pk])

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        with _joined() as recording:
            recording.touch_deleted([self], keeps=True)
            return super().delete(*args, **options)


class _PartQuerySet(models.QuerySet[Row]):
    """Rows whose changes are changes of what they belong to."""

    def update(self, **values: Any) -> int:
        with _joined() as recording:
            _part(self.model).touch_roots(recording, self.order_by())
            return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        with _joined() as recording:
            _part(self.model).touch_roots(recording, self.order_by())
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Row], *args: Any, **options: Any) -> list[Row]:
        rows = list(objs)
        with _joined() as recording:
            _part(self.model).touch_roots_of(recording, rows)
            return super().bulk_create(rows, *args, **options)


class TrackedPart(models.Model):
    """Base of a model whose rows are told as a field of the tracked object that they belong to (`ledger_more`).

    `ledger_root` is the path to it. A service that has touched an object of that kind (`ledger_touch`) changes the
    parts of those that it has touched: nothing is read to find them.
    """

    ledger_root: ClassVar[tuple[str, ...]]
    ledger_kept: ClassVar[bool] = True

    objects = models.Manager.from_queryset(_PartQuerySet)()

    class Meta:
        abstract = True

    @classmethod
    def touch_roots(cls, recording: ChangeRecorder, rows: models.QuerySet[Any]) -> None:
        """Read the objects that rows belong to, before they are changed."""
        root = cls._root()
        if not any(model is root for model, _ in recording.before):
            recording.touch(root, rows.values_list("__".join(cls.ledger_root), flat=True).distinct())

    @classmethod
    def touch_roots_of(cls, recording: ChangeRecorder, rows: Sequence[Any]) -> None:
        """Read the objects that rows belong to, which may not be stored yet."""
        first, *others = cls.ledger_root
        parent: type[models.Model] = cls._meta.get_field(first).related_model  # type: ignore[assignment]
        keys = {getattr(row, f"{first}_id") for row in rows}
        found = parent._base_manager.filter(pk__in=keys)
        root = cls._root()
        if not any(model is root for model, _ in recording.before):
            recording.touch(root, found.values_list("__".join(others) or "pk", flat=True).distinct())

    @classmethod
    def _root(cls) -> type[Tracked]:
        model: Any = cls
        for name in cls.ledger_root:
            model = model._meta.get_field(name).related_model
        return _tracked(model)

    def save(self, *args: Any, **options: Any) -> None:
        with _joined() as recording:
            self.touch_roots_of(recording, [self])
            super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        with _joined() as recording:
            self.touch_roots_of(recording, [self])
            return super().delete(*args, **options)


def tracked_models() -> dict[str, type[Tracked]]:
    """Tracked models by kind."""
    from django.apps import apps

    return {model.ledger_kind: model for model in apps.get_models() if issubclass(model, Tracked)}


def add_related(images: Mapping[Any, dict[str, Any]], through: Any, own: str, other: str) -> None:
    """Add the keys of a many-to-many relation to {key: fields}, for `ledger_more`; the field is `other` with an s."""
    rows = through.objects.filter(**{f"{own}__in": list(images)}).order_by(other)
    related: dict[Any, list[Any]] = defaultdict(list)
    for key, value in rows.values_list(own, other):
        related[key].append(value)
    for key, image in images.items():
        image[f"{other}s"] = related.get(key, [])


def row_image(model: type[Tracked], key: Any) -> Mapping[str, Any] | None:
    """The recorded fields of a row as they are now; None where there is none."""
    image = _images(model, [key]).get(key)
    return None if image is None else _unread(model, image.fields)


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys in order, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), cls=_ExactEncoder)


def _images(model: type[Tracked], keys: Sequence[Any]) -> dict[Any, _Image]:
    path = model.ledger_cluster
    name = model.ledger_name
    more: dict[str, Any] = {"ledger_name": models.F(name) if isinstance(name, str) else name}
    more |= model.ledger_expressions()
    if path:
        more |= {"ledger_slug": models.F(f"{path}__slug"), "ledger_key": models.F(f"{path}__pk")}
    images: dict[Any, dict[str, Any]] = {}
    for i in range(0, len(keys), _BATCH):
        rows = model._base_manager.filter(pk__in=keys[i : i + _BATCH]).values("pk", *_fields(model), **more)
        images |= {row.pop("pk"): row for row in rows}
    facts = {
        key: (
            str(row.pop("ledger_name")),
            row.pop("ledger_slug", row.get("slug", "") if path == "" else "") or "",
            row.pop("ledger_key", key if path == "" else None),
        )
        for key, row in images.items()
    }
    model.ledger_more(images)
    return {
        key: _Image(json.loads(canonical(row)), *facts[key])  # as JSON has them: times are texts
        for key, row in images.items()
    }


@cache
def _fields(model: type[Tracked]) -> tuple[str, ...]:
    """Fields that are recorded, by name."""
    return tuple(
        column.name
        for column in model._meta.concrete_fields
        if not column.primary_key
        and column.name not in model.ledger_ignored
        and not isinstance(column, models.BinaryField)
        and column.name not in {"created_at", "updated_at"}
    )


def _tells(model: type[Tracked], names: Collection[str]) -> bool:
    """Whether a write of these fields may be a change that is recorded."""
    attributes = {model._meta.get_field(name).name for name in names}
    return not attributes.isdisjoint({*_fields(model), *model.ledger_kept_with})


def _comes_back(model: type[models.Model]) -> bool:
    """Whether its rows come back with the object that they belong to; rows between two others do."""
    return bool(getattr(model, "ledger_kept", False) or model._meta.auto_created)


def _tracked(model: type[models.Model]) -> type[Tracked]:
    assert issubclass(model, Tracked)
    return model


def _part(model: type[models.Model]) -> type[TrackedPart]:
    assert issubclass(model, TrackedPart)
    return model


def _change(model: type[Tracked], key: Any, before: _Image | None, after: _Image | None) -> ObjectChange | None:
    image = after or before
    if image is None:
        return None
    old, new = (None if side is None else dict(side.fields) for side in (before, after))
    if model.ledger_is_routine(old, new):
        return None
    action = ChangeAction.CHANGED
    if old is None or new is None:
        action = ChangeAction.CREATED if old is None else ChangeAction.DELETED
    else:
        moved = [name for name in new if old.get(name) != new[name]]
        if not moved:
            return None
        old, new = {name: old.get(name) for name in moved}, {name: new[name] for name in moved}
    old, new = _unread(model, old), _unread(model, new)
    if old and new:
        new |= {name: SECRET_ANEW for name in model.ledger_secret if new.get(name) == old.get(name) == SECRET}
    return ObjectChange(
        kind=model.ledger_kind,
        object_id=str(key),
        name=image.name,
        cluster=image.cluster,
        cluster_key=image.cluster_key,
        action=action,
        before=old,
        after=new,
    )


@overload
def _unread(model: type[Tracked], fields: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
def _unread(model: type[Tracked], fields: None) -> None: ...
def _unread(model: type[Tracked], fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Fields without their secrets: of these only whether there is one."""
    if fields is None:
        return None
    return {name: SECRET if value and name in model.ledger_secret else value for name, value in fields.items()}


def _is_kept(model: type[Tracked], change: ObjectChange) -> bool:
    return change.action == ChangeAction.DELETED or not model.ledger_kept_with.isdisjoint(change.after)


def _serialized(rows: Sequence[models.Model]) -> list[Any]:
    listed: list[Any] = json.loads(serializers.serialize("json", rows, cls=_ExactEncoder))
    return listed
