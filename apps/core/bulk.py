"""One change to many rows: each row is changed whole or not at all, and each refusal is kept with its reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db import transaction
from django.db.models import Model

from apps.core.errors import Malformed, Missing, SluiceError

__all__ = ["MAX_ROWS_CHANGED", "RowOutcome", "change_rows", "check_row_count"]

MAX_ROWS_CHANGED = 500  # by one request: a node costs about ten statements

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True)
class RowOutcome(Generic[Key]):
    """Outcome for one row: changed, or refused with `refusal`."""

    key: Key
    refusal: SluiceError | None = None


def check_row_count(count: int, path: str) -> None:
    """Refuse a change of no row, and of more than `MAX_ROWS_CHANGED`.

    Raises
    ------
    Malformed
        With the fault at `path`.
    """
    if not 1 <= count <= MAX_ROWS_CHANGED:
        message = f"{count} are named; allowed: 1 to {MAX_ROWS_CHANGED}"
        raise Malformed(f"{path}: {message}.", [(path, message)])


def change_rows(keys: Sequence[Key], rows: Mapping[Key, Row], change: Callable[[Row], object]) -> list[RowOutcome[Key]]:
    """Change rows one by one, each in a transaction of its own, in the order of `keys`.

    Parameters
    ----------
    keys : sequence
        The rows that were asked for; one that `rows` lacks is refused as missing.
    rows : mapping
        {key: row}
    change : callable
        A service; its `SluiceError` is that row's refusal and touches no other row.
    """
    return [RowOutcome(key, _refusal(rows.get(key), key, change)) for key in dict.fromkeys(keys)]


def _refusal(row: Row | None, key: object, change: Callable[[Row], object]) -> SluiceError | None:
    if row is None:
        return Missing(f"There is no {key!r}, or no longer.")
    try:
        with transaction.atomic():
            change(row)
    except SluiceError as refusal:
        return refusal
    return None
