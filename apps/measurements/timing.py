"""The intervals at which records are passed on: epochs of agents, micro-batches of the stream processor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.measurements.models import BatchTiming
from apps.telemetry.configs import EPOCH_S
from apps.telemetry.selectors import stream_state
from engine.measurement.microbatch import Timing

__all__ = ["ASSUMED_TRIGGER_S", "KEEP_TIMINGS", "timing_note", "timing_now", "timings_purge"]

ASSUMED_TRIGGER_S = 2.0  # what SLUICE_STREAM_TRIGGER_S is unless it is set

KEEP_TIMINGS = timedelta(days=1)
_RECENT = 30  # batches told; at one every ten seconds, five minutes


def timing_note(now: datetime | None = None, state: Mapping[str, Any] | None = None) -> bool:
    """Remember how long the newest batch took; False if the stream processor says nothing new.

    A stream processor that starts anew without its state counts its batches from 0: what it says then comes instead.
    """
    said = stream_state() if state is None else state
    if said.get("state") != "ready":  # the first batches load and compile what later ones find
        return False
    batch, batch_s, trigger_s = (said.get(name) for name in ("batch", "batch_s", "trigger_s"))
    if not (isinstance(batch, int) and _is_time(batch_s) and _is_time(trigger_s)):
        return False
    fields = {"at": now or timezone.now(), "batch_s": batch_s, "trigger_s": trigger_s}
    newest = BatchTiming.objects.first()
    if newest is not None and newest.batch == batch and newest.batch_s == batch_s:
        return False
    BatchTiming.objects.update_or_create(batch=batch, defaults=fields)
    return True


def timing_now() -> Timing:
    """What estimates reckon with. Until a batch was timed, its duration is not part of it (`Timing.is_assumed`), and
    the trigger is the one that the stream processor says while it starts, or else the usual one.
    """
    recent = list(BatchTiming.objects.all()[:_RECENT])
    if not recent:
        said = stream_state().get("trigger_s")
        return Timing(EPOCH_S, said if _is_time(said) and said > 0.0 else ASSUMED_TRIGGER_S)
    return Timing(EPOCH_S, recent[0].trigger_s, tuple(one.batch_s for one in recent))


def timings_purge(now: datetime | None = None) -> int:
    """Forget what is older than a day; returns how many."""
    return BatchTiming.objects.filter(at__lt=(now or timezone.now()) - KEEP_TIMINGS).delete()[0]


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
