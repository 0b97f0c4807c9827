"""States of the stream processor over time, and the timing of its micro-batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from agent.wire.broker import StreamProcessorReport
from apps.measurements.models import StreamStretch, StreamWork
from apps.microbatch.models import MicroBatch, SparkQueryOrigin
from apps.telemetry.selectors import stream_state, stream_trigger_s
from engine.measurement.microbatch import StageTiming
from engine.rollouts.measures import EPOCH_S

__all__ = [
    "CATCH_UP",
    "MAX_TRIGGERS",
    "STRETCHES_KEPT",
    "stream_disturbances",
    "stream_observe",
    "stretches_purge",
    "timing_now",
]


MAX_TRIGGERS = 2.0  # the oldest frame of a steady stream processor came within the last two triggers
CATCH_UP = timedelta(minutes=10)  # a backlog that lasts longer is no longer of the start, it is an overload
STRETCHES_KEPT = timedelta(days=30)
_WARMING = {"starting", "warming"}


@transaction.atomic
def stream_observe(now: datetime | None = None, state: StreamProcessorReport | None = None) -> StreamWork:
    """Note what the stream processor does now; looks that find the same lengthen one row.

    Once it has caught up it is steady until it starts anew: a later backlog is an overload, of which an estimate should
    have told.
    """
    present = now or timezone.now()
    said = stream_state() if state is None else state
    last = StreamStretch.objects.select_for_update().first()
    since = _since(said)
    work = _work(said, since, last, present)
    if last is not None and (last.work, last.ready_since) == (work, since):
        _lengthen(last, present)
        return work
    if work != StreamWork.STEADY:
        begins_at = last.ends_at if last else present
        StreamStretch.objects.create(work=work, ready_since=since, begins_at=begins_at, ends_at=present)
        return work
    _until_steady(last, since, present)
    StreamStretch.objects.create(work=work, ready_since=since, begins_at=present, ends_at=present)
    return work


def stream_disturbances(since: datetime, until: datetime) -> list[StreamStretch]:
    """Stretches within some time in which the stream processor was not steady, oldest first."""
    rows = StreamStretch.objects.filter(ends_at__gte=since, begins_at__lt=until).exclude(work=StreamWork.STEADY)
    return list(rows.order_by("begins_at", "pk"))


def stretches_purge(now: datetime | None = None) -> int:
    """Purge states that ended more than 30 days ago; returns how many."""
    return StreamStretch.objects.filter(ends_at__lt=(now or timezone.now()) - STRETCHES_KEPT).delete()[0]


def _since(said: StreamProcessorReport) -> datetime | None:
    since = said.get("since")
    if said.get("state") != "ready" or not isinstance(since, (int, float)) or isinstance(since, bool):
        return None
    return datetime.fromtimestamp(since, UTC)


def _work(said: StreamProcessorReport, since: datetime | None, last: StreamStretch | None, now: datetime) -> StreamWork:
    if since is None:
        return StreamWork.WARMING if said.get("state") in _WARMING else StreamWork.AWAY
    if last is not None and (last.work, last.ready_since) == (StreamWork.STEADY, since):
        return StreamWork.STEADY
    behind_s, trigger_s = said.get("behind_s"), said.get("trigger_s")
    has_caught_up = (
        isinstance(behind_s, (int, float))
        and isinstance(trigger_s, (int, float))
        and behind_s <= MAX_TRIGGERS * trigger_s
    )
    return StreamWork.STEADY if has_caught_up or now - since > CATCH_UP else StreamWork.CATCHING_UP


def _lengthen(row: StreamStretch, until: datetime) -> None:
    if until > row.ends_at:
        row.ends_at = until
        row.save(update_fields=["ends_at"])


def _until_steady(last: StreamStretch | None, since: datetime | None, now: datetime) -> None:
    """The time before the first steady finding counts as steady: its start was not observed."""
    if last is not None and last.work != StreamWork.STEADY:
        _lengthen(last, now)
        return
    work = StreamWork.AWAY if last else StreamWork.WARMING
    begins_at = last.ends_at if last else since or now
    StreamStretch.objects.create(work=work, ready_since=None, begins_at=begins_at, ends_at=max(begins_at, now))


_RECENT = 30  # batches; five minutes at one every ten seconds


def timing_now() -> StageTiming:
    """Timing used by estimates. Until a batch was timed, its duration is not part of it (`Timing.is_assumed`), and
    the trigger is the one that the stream processor reports while it starts, or else the usual one.

    The first batches of a run load and compile what later ones find, and do not count.
    """
    batches = MicroBatch.objects.filter(query__origin=SparkQueryOrigin.OWN, is_warm_up=False)
    recent = list(batches.values_list("trigger_s", "duration_s")[:_RECENT])
    if not recent:
        return StageTiming(EPOCH_S, stream_trigger_s())
    return StageTiming(EPOCH_S, recent[0][0], tuple(duration_s for _, duration_s in recent))
