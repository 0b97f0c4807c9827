"""Words for the evidence behind a state and for the causes of lateness, for pages, REST, reports and mails alike."""

from __future__ import annotations

from django.utils import timezone

from apps.estimates.choices import Certainty, DecidedBy, MeasurementLack
from apps.estimates.models import ObjectiveStatus
from apps.ui.numbers import count, ratio, seconds, seconds_range, significant
from engine.measurement import causes
from engine.measurement.causes import LatenessCause
from engine.words import counted, duration_words, server_words

__all__ = ["cause_sentence", "cause_title", "evidence_words", "lacking_words", "measured_words"]


def evidence_words(status: ObjectiveStatus) -> str:
    """`measured 78.7 s over the last 10 min against 15 s; estimate 12 s, 9 to 16 s`: what decided comes first."""
    against = f" against {seconds(status.bound_s)}" if status.bound_s else ""
    measured, estimate = measured_words(status), _estimate_words(status)
    if status.decided_by == DecidedBy.NOTHING and status.lateness:
        reason = cause_title(status.lateness[0])
        return f"not known: {reason[:4].replace('The ', 'the ')}{reason[4:]}; {estimate}{against}"
    if not measured:
        lacking = lacking_words(status)
        return f"{estimate}{against}; {lacking}" if lacking else f"{estimate}{against}"
    return f"{measured}{against}; {estimate}" if estimate else f"{measured}{against}"


def measured_words(status: ObjectiveStatus) -> str:
    """`measured 78.7 s over the last 10 min`; empty where the measurement does not count."""
    if status.lacking or status.measured_s is None:
        return ""
    value = seconds(status.measured_s, apart_from=status.bound_s)
    return f"measured {value} over the last {duration_words(status.span_s)}"


def lacking_words(status: ObjectiveStatus) -> str:
    """Why a measurement does not count; empty where it does, or where nothing measures the query."""
    if status.lacking == MeasurementLack.STALE and status.measured_at is not None:
        age_s = (timezone.now() - status.measured_at).total_seconds()
        return f"the measurement does not count: the newest result came {duration_words(age_s)} ago"
    if status.lacking == MeasurementLack.FEW:
        have, need = counted(status.results, "result"), count(status.results_needed)
        return f"the measurement does not count yet: {have} of the {need} it takes"
    if status.lacking == MeasurementLack.DISTURBED:
        left_out = counted(status.left_out, "result")
        return f"the measurement does not count: the stream processor was not at work for {left_out}"
    return ""


def _estimate_words(status: ObjectiveStatus) -> str:
    row = status.estimate
    if row is None:
        return ""
    if row.certainty == Certainty.UNKNOWN:
        return f"the latency is not known: by what is, an event takes {seconds(row.estimate_s)}"
    if row.certainty == Certainty.ENDLESS:
        return f"it never catches up: {seconds(row.estimate_s)} within the horizon"
    text = f"estimate {seconds(row.estimate_s, apart_from=status.bound_s)}"
    if row.low_s is None or row.high_s is None:
        return text
    return f"{text}, {seconds_range(row.low_s, row.high_s, apart_from=status.bound_s)}"


_STREAM = {
    "away": "does not report",
    "failed": "has failed",
    "starting": "is starting",
    "stopping": "is stopping",
    "warming": "is warming up",
    "unknown": "cannot be asked",
}


def cause_title(cause: LatenessCause) -> str:
    """A cause in a few words: the title of an incident."""
    subject = cause.subject
    return {
        causes.STREAM_AWAY: f"The stream processor {_STREAM.get(cause.state, 'is away')}",
        causes.STREAM_BEHIND: "The stream processor is behind",
        causes.AGENT_SILENT: f"{subject} does not report",
        causes.FRAMES_WAITING: f"Frames wait at {subject}",
        causes.AGENT_STARVED: f"{subject} has used up its CPU budget",
        causes.SOURCE_SILENT: f"Source {subject} is silent",
        causes.WATERMARK_HELD: f"The watermark waits for {subject}",
        causes.NODE_BUSY: f"{server_words(subject, begins=True)} is busy",
        causes.MAIN_WAIT: f"Events wait for {subject}",
        causes.ENGINE_AWAY: f"{subject} {'cannot be read' if cause.state == 'refused' else 'does not answer'}",
        causes.AGENT_SHEDS: f"{subject} sheds records of {cause.state}",
        causes.LIVE_ENDED: "The query is no longer live",
        causes.UNEXPLAINED: "No report explains it",
    }[cause.kind]


def cause_sentence(cause: LatenessCause) -> str:
    """A cause with its figures."""
    subject, kind, lasts_s = cause.subject, cause.kind, cause.seconds or 0.0
    if kind == causes.STREAM_BEHIND:
        return f"The stream processor is {seconds(lasts_s)} behind: {_frames(cause)} for it."
    if kind == causes.AGENT_SILENT and cause.seconds is not None:
        return f"{subject} has not reported for {duration_words(lasts_s)}."
    if kind == causes.FRAMES_WAITING and cause.seconds is not None:
        return f"Frames of {cause.state or 'agent'} {subject} took {seconds(lasts_s)} to be taken."
    if kind == causes.FRAMES_WAITING:
        return f"The spool of {cause.state or 'agent'} {subject} fills: {_frames(cause)} there."
    if kind == causes.AGENT_STARVED:
        used, budget = significant(cause.amount or 0.0), significant(cause.limit or 0.0)
        return f"{subject} uses {used} of the {budget} cores it may: its budget is used up."
    if kind == causes.SOURCE_SILENT:
        return f"Nothing is collected of source {subject}: {cause.state}."
    if kind == causes.WATERMARK_HELD:
        return f"{subject} holds the watermark back: it is {seconds(lasts_s)} behind."
    if kind == causes.NODE_BUSY:
        return f"{server_words(subject, begins=True)} runs at {ratio(cause.amount)} of capacity at its peak."
    if kind == causes.MAIN_WAIT:
        return f"Events wait for {subject}, up to {seconds(lasts_s)}."
    if kind == causes.LIVE_ENDED:
        return f"The query is no longer live: {cause.state}"
    if kind == causes.ENGINE_AWAY and cause.seconds is not None:
        what = "with nothing that can be read" if cause.state == "refused" else "nothing"
        queries = counted(int(cause.amount or 0), "query", "queries")
        return f"{subject} has answered {what} for {duration_words(lasts_s)}: statistics of {queries} age."
    if kind == causes.UNEXPLAINED:
        return "No stage reports a delay that explains it, and no node is busy enough."
    return f"{cause_title(cause)}."


def _frames(cause: LatenessCause) -> str:
    number = int(cause.amount or 0)
    return "1 frame waits" if number == 1 else f"{count(number)} frames wait"
