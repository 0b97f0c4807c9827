"""Tasks: measured statistics to the models, estimates against what was measured."""

from __future__ import annotations

from celery import shared_task

from apps.estimates.accuracy import accuracy_observe_all
from apps.estimates.refresh import live_estimates_refresh, refresh_by_telemetry, telemetry_pace
from apps.measurements.services import refine_all
from apps.measurements.stream_processor import stream_observe, timing_note

__all__ = ["observe_accuracy", "refine_measurements"]


@shared_task(name="workers.refine_measurements")
def refine_measurements() -> int:
    """Learn from what live queries measured; returns how many inputs, sources and placements were changed."""
    timing_note()
    stream_observe()
    with refresh_by_telemetry():
        found = refine_all(pace_of=telemetry_pace)
    return found.inputs + found.sources + found.placements


@shared_task(name="workers.observe_accuracy")
def observe_accuracy() -> int:
    """Hold estimates against the latency that was measured since; returns how many intervals were judged."""
    stream_observe()  # so that what is said of it reaches to the end of every interval that is judged
    found = accuracy_observe_all()
    live_estimates_refresh()
    return found
