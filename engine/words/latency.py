"""Sentences of latencies: what their figures rest on, and when a query has caught up."""

from __future__ import annotations

from engine.words import duration_words
from engine.words.templates import Template

__all__ = ["SENTENCES"]


def _catch_up_words(state: str, at_s: float | None, low_s: float | None, high_s: float | None, horizon_s: float) -> str:
    """Clause on when a query has caught up."""
    horizon = duration_words(horizon_s)
    if state == "never":
        return "never catches up at this load"
    if state == "unknown":
        return "may catch up or not, for what bounds its rate is not known"
    if state == "later":
        about = "" if at_s is None else f"; at the mean load after about {duration_words(at_s)}"
        return f"does not catch up within {horizon}{about}"
    words = f"catches up after {duration_words(at_s or 0.0)}"
    if low_s is None:
        return words
    high = f"more than {horizon}" if high_s is None else duration_words(high_s)
    return f"{words} ({duration_words(low_s)} to {high})"


SENTENCES: dict[str, Template] = {
    "catch_up": _catch_up_words,
    "no_events": "No event comes to its end in the horizon: its latency is not known.",
    "plan_unread": "The plan is not understood in full: {parts:listed}. What that makes results wait for is in no "
    "figure.",
    "waits_outside": "Events of {names:listed} wait for answers from outside, which is in no figure.",
    "cost_unknown": "What an event costs at {names:listed 5} is not known in full: the figures leave out what is not "
    "told, and are the least that it can be. A step of load beside CPU counters of the TaskManagers tells it.",
    "still_measuring": "Measured over {span_s:seconds}: measuring, {rest_s:duration} to go before anything is known by "
    "it.",
    "bounded": "None of {count:counted sampled event} came through {names:listed}: at most 3 in {events:.0f} do (95 "
    "%), which is what the figures rest on.",
    "silent": "No event comes to its end: {names:listed} {names:either has|have} no events in the horizon. Its "
    "latency is not known; the figures are what one event would meet.",
    "read_by": "what {0} reads",
    "guessed": "No event comes to its end: {names:listed} {names:either lets|let} nothing through. Its latency is not "
    "known; the figures are what one event would meet.",
    "endless": "It never catches up: {server:server} gets {load:load} times its capacity, and its backlog grows by "
    "{growth:seconds} every second.",
    "endless_bound": "It never catches up: {server:server} gets {load:load} times its capacity, and its backlog grows "
    "by {growth:seconds} every second; its {statistic:statistic} passes {bound_s:seconds} after {after_s:duration}.",
}
