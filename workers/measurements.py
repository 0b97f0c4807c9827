"""Tasks: measured statistics to the models, estimates against what was measured."""

from __future__ import annotations

from celery import shared_task

from apps.estimates.accuracy import accuracy_observe_all
from apps.estimates.live_refresh import live_estimates_refresh, telemetry_pace
from apps.estimates.refresh import refresh_by_telemetry
from apps.measurements.refining import refine_all
from apps.measurements.stream_looks import stream_look
from apps.measurements.timing import timing_note

__all__ = ["observe_accuracy", "refine_measurements"]


@shared_task(name="workers.refine_measurements")
def refine_measurements() -> int:
    """Learn from what live queries measured; returns how many inputs, sources and placements were changed."""
    timing_note()
    stream_look()
    with refresh_by_telemetry():
        found = refine_all(pace_of=telemetry_pace)
    return found.inputs + found.sources + found.placements


@shared_task(name="workers.observe_accuracy")
def observe_accuracy() -> int:
    """Hold estimates against the latency that was measured since; returns how many intervals were judged."""
    stream_look()  # so that what is said of it reaches to the end of every interval that is judged
    found = accuracy_observe_all()
    live_estimates_refresh()
    return found
