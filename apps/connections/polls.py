"""Polls of imported jobs' counters that are kept: those that statistics are of, stored, and purged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from apps.connections.choices import ConnectionOrigin
from apps.connections.models import ImportedJob, KeptPoll
from engine.connectors.picture import CounterPoll

__all__ = ["KEEP_POLLS", "MAX_POLLS", "polls_known", "polls_purge", "polls_store"]

KEEP_POLLS = timedelta(hours=2)  # statistics are of the newest of them
MAX_POLLS = 400  # of one job


def polls_known(row: ImportedJob, fresh: Sequence[CounterPoll], now: datetime) -> list[CounterPoll]:
    """Polls of a job that count: those that are kept, and fresh ones. Ids of its vertices join its runs."""
    kept = row.polls.order_by("-at")
    if row.connection.origin == ConnectionOrigin.URL:
        kept = kept.filter(received_at__gte=now - KEEP_POLLS)
    stored = [CounterPoll.parse(poll.data) for poll in kept[:MAX_POLLS]]
    known = {poll.at_s for poll in stored}
    return [*stored, *(poll for poll in fresh if poll.at_s not in known)]


def polls_store(row: ImportedJob, polls: Sequence[CounterPoll], now: datetime) -> None:
    """Keep polls of a job; one of a moment that is known already is left out."""
    rows = [
        KeptPoll(
            job=row,
            at=datetime.fromtimestamp(poll.at_s, UTC),
            attempt=poll.attempt,
            version=row.version,
            data=poll.to_dict(),
            received_at=now,
        )
        for poll in polls
    ]
    KeptPoll.objects.bulk_create(rows, ignore_conflicts=True)


def polls_purge(now: datetime | None = None) -> int:
    """Purge polls older than `KEEP_POLLS`, except of uploads, and those beyond `MAX_POLLS`; returns how many."""
    before = (now or timezone.now()) - KEEP_POLLS
    old = KeptPoll.objects.filter(received_at__lt=before).exclude(job__connection__origin=ConnectionOrigin.UPLOAD)
    purged = old.delete()[0]
    for job in ImportedJob.objects.all():
        edge = job.polls.order_by("-at").values_list("at", flat=True)[MAX_POLLS:].first()
        if edge is not None:
            purged += job.polls.filter(at__lte=edge).delete()[0]
    return purged
