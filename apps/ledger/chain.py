"""Chain of the ledger: each change gets a number and a hash over itself and the one before, so that a cut is found.

A minute or so after a change, not in its transaction: changes of different objects would wait for each other there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.ledger.models import KeptRows, LedgerMark, ObjectChange
from apps.ledger.recorder import canonical

__all__ = ["CUT", "chain_faults", "ledger_purge", "ledger_reach", "ledger_seal"]

_BATCH = 2000
CUT = "cut"  #: name of the mark of the last change that retention has removed
_CHAINED = ("number", "prev_hash", "hash")


@transaction.atomic
def ledger_seal() -> int:
    """Chain the changes that are not yet, in the order of their keys; returns how many.

    Two at once cannot both succeed: a number is given once.
    """
    last = ObjectChange.objects.filter(number__isnull=False).order_by("-number").select_for_update().first()
    number, prev_hash = (last.number or 0, last.hash) if last else _cut()
    rows = list(ObjectChange.objects.filter(number=None).order_by("pk")[:_BATCH])
    for row in rows:
        number += 1
        row.number, row.prev_hash = number, prev_hash
        row.hash = prev_hash = change_hash(row)
    ObjectChange.objects.bulk_update(rows, _CHAINED, batch_size=200)
    return len(rows)


def change_hash(change: ObjectChange) -> str:
    """SHA-256 of a change and the hash before it, in hexadecimal digits: of its columns as canonical JSON."""
    columns = {field.attname: getattr(change, field.attname) for field in ObjectChange._meta.concrete_fields}
    del columns["hash"]
    return hashlib.sha256(canonical(columns).encode()).hexdigest()


def chain_faults() -> Iterator[str]:
    """Faults of the chain, in words: numbers that are missing, changes that are not as they were written.

    It begins after the change that retention removed last, and ends where the chain has come to.
    """
    number, prev_hash = _cut()
    for row in ObjectChange.objects.filter(number__isnull=False).order_by("number").iterator():
        assert row.number is not None
        if row.number != number + 1:
            yield f"between {number} and {row.number} changes are missing"
        elif row.prev_hash != prev_hash:
            yield f"{row.number} does not follow {number}"
        if change_hash(row) != row.hash:
            yield f"{row.number} ({row}, key {row.pk}) is not as it was written"
        number, prev_hash = row.number, row.hash


def _cut() -> tuple[int, str]:
    """Number and hash of the last change that retention has removed; 0 where it has removed none."""
    mark = LedgerMark.objects.filter(name=CUT).first()
    return (mark.number, mark.hash) if mark else (0, "")


def ledger_reach() -> datetime | None:
    """Moment from which on the ledger has every change; None where it has all since the installation was made."""
    if not LedgerMark.objects.filter(name=CUT).exists():
        return None
    first = ObjectChange.objects.filter(number__isnull=False).order_by("number").first()
    return first.at if first else timezone.now()


@transaction.atomic
def ledger_purge() -> int:
    """Delete changes and kept rows that are older than they are kept; returns how many.

    The last change that goes leaves its number and hash, which the first of those that stay has to follow.
    """
    now = timezone.now()
    kept = KeptRows.objects.filter(kept_at__lt=now - timedelta(days=settings.UNDO_DAYS))
    old = ObjectChange.objects.filter(at__lt=now - timedelta(days=settings.LEDGER_DAYS), number__isnull=False)
    first_kept = ObjectChange.objects.filter(at__gte=now - timedelta(days=settings.LEDGER_DAYS)).order_by("number")
    edge = first_kept.values_list("number", flat=True).exclude(number=None).first()
    if edge is not None:
        old = old.filter(number__lt=edge)  # from its beginning alone: a hole would look like a cut
    last = old.order_by("-number").first()
    if last is None:
        return kept.delete()[0]
    LedgerMark.objects.update_or_create(name=CUT, defaults={"number": last.number, "hash": last.hash, "at": now})
    gone = ObjectChange.objects.filter(number__lte=last.number)
    return kept.delete()[0] + gone._raw_delete(gone.db)
