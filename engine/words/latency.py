"""Sentences of latencies: what their figures rest on, and when a query has caught up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.words import duration_words, seconds_words
from engine.words.templates import fill

if TYPE_CHECKING:
    from engine.latency_state import CatchUp

__all__ = ["catch_up_words", "standing_words"]

_MINUTES_FROM_S = 600.0


def standing_words(kind: str, values: Mapping[str, object]) -> str:
    """The sentence about a latency that is not known, has no end, or rests on a sample that let nothing through."""
    return fill(_STANDINGS[kind], **values)


_STANDINGS = {
    "no_events": "No event comes to its end in the horizon: its latency is not known.",
    "plan_unread": "The plan is not understood in full: {parts:listed}. What that makes results wait for is in no "
    "figure.",
    "bounded": "None of {count:counted sampled event} came through {names:listed}: at most 3 in {events:.0f} do (95 "
    "%), which is what the figures rest on.",
    "silent": "No event comes to its end: {names:listed} {count:either has|have} no events in the horizon. Its "
    "latency is not known; the figures are what one event would meet.",
    "guessed": "No event comes to its end: {names:listed} {count:either lets|let} nothing through. Its latency is not "
    "known; the figures are what one event would meet.",
    "endless": "It never catches up: {server:server} gets {load:load} times its capacity, and its backlog grows by "
    "{growth:seconds} every second.",
    "endless_bound": "It never catches up: {server:server} gets {load:load} times its capacity, and its backlog grows "
    "by {growth:seconds} every second; its {statistic:statistic} passes {bound_s:seconds} after {after_s:duration}.",
}


def catch_up_words(catch_up: CatchUp) -> str:
    """Clause about it."""
    horizon = _time_words(catch_up.horizon_s)
    if catch_up.state == "never":
        return "never catches up at this load"
    if catch_up.state == "later":
        about = "" if catch_up.at_s is None else f"; at the mean load after about {_time_words(catch_up.at_s)}"
        return f"does not catch up within {horizon}{about}"
    words = f"catches up after {_time_words(catch_up.at_s or 0.0)}"
    if catch_up.low_s is None:
        return words
    high = f"more than {horizon}" if catch_up.high_s is None else _time_words(catch_up.high_s)
    return f"{words} ({_time_words(catch_up.low_s)} to {high})"


def _time_words(seconds: float) -> str:
    return seconds_words(float(f"{seconds:.3g}"))[0] if seconds < _MINUTES_FROM_S else duration_words(seconds)
