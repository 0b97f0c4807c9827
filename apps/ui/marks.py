"""Marks: a shape, a colour and a word for every state, verdict and kind of evidence."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.ui.icons import icon

__all__ = [
    "EVIDENCE",
    "STATES",
    "VERDICTS",
    "Mark",
    "evidence_mark",
    "state_badge",
    "state_icon",
    "state_mark",
    "tone",
    "verdict_badge",
    "verdict_icon",
]


class Mark(NamedTuple):
    """`drawing` names an icon, `tone` a colour class ("" is neutral), `label` what it says."""

    drawing: str
    tone: str
    label: str


STATES: dict[str, Mark] = {
    # how an estimate stands against its objective
    "holds": Mark("ok", "ok", "Holds"),
    "at_risk": Mark("watch", "watch", "At risk"),
    "breached": Mark("bad", "bad", "Breached"),
    "none": Mark("unknown", "", "No objective"),
    "no_estimate": Mark("unknown", "", "No estimate yet"),
    # machines
    "active": Mark("ok", "ok", "Active"),
    "draining": Mark("watch", "watch", "Draining"),
    "offline": Mark("unknown", "", "Offline"),
    "planned": Mark("assumed", "", "Planned"),
    # work in the background
    "running": Mark("jobs", "", "Running"),
    "succeeded": Mark("ok", "ok", "Succeeded"),
    "failed": Mark("bad", "bad", "Failed"),
    "cancelled": Mark("close", "", "Cancelled"),
    # the life of a query and of a request
    "draft": Mark("assumed", "", "Draft"),
    "queued": Mark("queue", "queue", "Queued"),
    "stopped": Mark("pause", "", "Stopped"),
    "estimating": Mark("jobs", "", "Estimating"),
    "preview": Mark("review", "", "Preview"),
    "applied": Mark("admit", "ok", "Applied"),
    "awaiting": Mark("review", "review", "Awaiting review"),
    "declined": Mark("reject", "bad", "Declined"),
    "withdrawn": Mark("undo", "", "Withdrawn"),
    "superseded": Mark("undo", "", "Superseded"),
    # the life of a placement run
    "searching": Mark("search", "", "Searching"),
    "proposed": Mark("review", "", "Proposed"),
    "applying": Mark("jobs", "", "Applying"),
    "undoing": Mark("jobs", "", "Undoing"),
    "undone": Mark("undo", "", "Undone"),
    "aborted": Mark("pause", "watch", "Aborted"),
    "stale": Mark("watch", "watch", "Stale"),
}

VERDICTS: dict[str, Mark] = {
    "admit": Mark("admit", "ok", "Admit"),
    "admit_with_changes": Mark("changes", "ok", "Admit with changes"),
    "queue": Mark("queue", "queue", "Queue"),
    "review": Mark("review", "review", "Review"),
    "reject": Mark("reject", "bad", "Reject"),
}

EVIDENCE: dict[str, Mark] = {
    "assumed": Mark("assumed", "", "Assumed"),
    "predicted": Mark("predicted", "", "Predicted"),
    "measured": Mark("measured", "", "Measured"),
}

_UNKNOWN = Mark("unknown", "", "Unknown")


def tone(kind: str) -> str:
    """The colour class of a state or verdict; "" if it has none."""
    return (STATES.get(kind) or VERDICTS.get(kind) or _UNKNOWN).tone


def state_mark(state: str, label: str = "") -> SafeString:
    """`<span class="st …">` with icon and word; `label` replaces the word."""
    mark = STATES.get(state, _UNKNOWN)
    return format_html('<span class="st {}">{}{}</span>', mark.tone, icon(mark.drawing), label or mark.label)


def state_badge(state: str, label: str = "") -> SafeString:
    """A badge on the state's soft ground, for titles."""
    mark = STATES.get(state, _UNKNOWN)
    return format_html('<span class="badge {}">{}{}</span>', mark.tone, icon(mark.drawing), label or mark.label)


def state_icon(state: str) -> SafeString:
    """The state's shape alone, where the word stands beside it."""
    mark = STATES.get(state, _UNKNOWN)
    return icon(mark.drawing, mark.tone or "muted")


def verdict_badge(verdict: str, label: str = "") -> SafeString:
    """A badge on the verdict's soft ground."""
    mark = VERDICTS.get(verdict, _UNKNOWN)
    return format_html('<span class="badge {}">{}{}</span>', mark.tone, icon(mark.drawing), label or mark.label)


def verdict_icon(verdict: str) -> SafeString:
    """The verdict's shape alone, where the word stands beside it."""
    mark = VERDICTS.get(verdict, _UNKNOWN)
    return icon(mark.drawing, mark.tone)


def evidence_mark(kind: str, *, short: bool = False) -> SafeString:
    """How a number is known. `short` shows the shape alone; its word is still read aloud."""
    mark = EVIDENCE.get(kind, _UNKNOWN)
    word = format_html('<span class="vh">{}</span>', mark.label) if short else mark.label
    return format_html('<span class="ev" title="{}">{}{}</span>', mark.label, icon(mark.drawing), word)
