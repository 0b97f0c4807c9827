"""Icons, and the marks made of them: a shape, a colour and a word for every state, verdict and kind of evidence."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from engine.words import STATE_WORDS

__all__ = [
    "EVIDENCE",
    "ICONS",
    "STATES",
    "VERDICTS",
    "Mark",
    "evidence_mark",
    "expected_icon",
    "expected_mark",
    "icon",
    "judged_state",
    "state_badge",
    "state_icon",
    "state_mark",
    "tone",
    "verdict_badge",
    "verdict_icon",
]


_OCTAGON = '<path d="M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4z" fill="currentColor"/>'
_TICK = '<path d="m5.3 8.2 1.9 1.9 3.5-3.9"{}/>'
_ON_FILL = ' stroke="var(--surface)" stroke-width="1.7"'
_WAVE = '<path d="M3 12c1.7-1 3.3 1 5 0s3.3-1 5 0"/>'

ICONS: dict[str, str] = {
    # states
    "ok": '<circle cx="8" cy="8" r="6"/>' + _TICK.format(""),
    "watch": '<path d="M8 2 14.5 13.5h-13z"/><path d="M8 6.5v3.2M8 11.6h.01"/>',
    "bad": _OCTAGON + f'<path d="m5.8 5.8 4.4 4.4M10.2 5.8l-4.4 4.4"{_ON_FILL}/>',
    "ok_expected": '<circle cx="8" cy="8" r="6" stroke-dasharray="2.4 2.3"/>' + _TICK.format(""),
    "bad_expected": '<path d="M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4z" stroke-dasharray="2.4 2"/>'
    '<path d="m5.8 5.8 4.4 4.4M10.2 5.8l-4.4 4.4"/>',
    "unknown": '<circle cx="8" cy="8" r="6" stroke-dasharray="2 2.2"/>'
    '<path d="M6.4 6.5a1.6 1.6 0 1 1 1.6 2v.6M8 11.3h.01"/>',
    "ring": '<circle cx="8" cy="8" r="6"/>',
    # verdicts
    "admit": '<circle cx="8" cy="8" r="6.3" fill="currentColor"/>' + _TICK.format(_ON_FILL),
    "changes": '<path d="m8 1.5 6.5 6.5L8 14.5 1.5 8z"/><path d="M6 6.8h4M8 4.8v4M6 10.7h4"/>',
    "queue": '<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.7"/>',
    "review": '<path d="M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8z"/><circle cx="8" cy="8" r="1.9"/>',
    "reject": _OCTAGON + '<path d="M5 8h6" stroke="var(--surface)" stroke-width="1.8"/>',
    # evidence
    "default": '<circle cx="8" cy="8" r="6" stroke-dasharray=".1 3.04" stroke-linecap="round"/>',
    "assumed": '<circle cx="8" cy="8" r="6" stroke-dasharray="2.4 2.3"/>',
    "predicted": '<circle cx="8" cy="8" r="6"/><path d="M8 2a6 6 0 0 0 0 12z" fill="currentColor"/>',
    "never_ran": '<circle cx="8" cy="8" r="6" stroke-dasharray="2.4 2.3"/>'
    '<path d="M8 2a6 6 0 0 0 0 12z" fill="currentColor"/>',
    "unmeasured": '<circle cx="8" cy="8" r="6" stroke-dasharray="2.4 2.3"/>'
    '<path d="M2 8a6 6 0 0 0 12 0z" fill="currentColor"/>',
    "measured": '<circle cx="8" cy="8" r="6" fill="currentColor"/>',
    # places
    "accuracy": '<circle cx="8" cy="8" r="6"/><circle cx="8" cy="8" r="2.5"/><path d="M8 .5v3m0 9v3M.5 8h3m9 0h3"/>',
    "overview": '<path d="M2.5 12.5a6 6 0 1 1 11 0"/><path d="M8 10.5 10.8 6"/><circle cx="8" cy="11" r="1"/>',
    "queries": '<rect x="1.5" y="2" width="4" height="4" rx="1"/><rect x="1.5" y="10" width="4" height="4" rx="1"/>'
    '<rect x="10.5" y="6" width="4" height="4" rx="1"/><path d="M5.5 4c3 0 2 4 5 4M5.5 12c3 0 2-4 5-4"/>',
    "admission": '<path d="M3 14V2M13 14V2M3 4h10M3 8.5h10M6.3 4v4.5M9.7 4v4.5"/>' + _WAVE,
    "arrivals": '<path d="M1.5 13.5h13"/><path d="M3 13.5V9M6 13.5V5M9 13.5V8M12 13.5V2.5"/>',
    "sources": '<rect x="1.5" y="3" width="5" height="10" rx="1"/>'
    '<path d="M9 5h2.5c1.5 0 1.5 3 3 3M9 11h2.5c1.5 0 1.5-3 3-3M4 6h.01M4 9h.01"/>',
    "nodes": '<rect x="2" y="2.5" width="12" height="4.5" rx="1"/><rect x="2" y="9" width="12" height="4.5" rx="1"/>'
    '<path d="M4.5 4.75h.01M4.5 11.25h.01M8 4.75h3.5M8 11.25h3.5"/>',
    "placement": '<path d="M1.5 2H7v12H1.5zM9 2h5.5v12H9z"/>'
    '<path d="M3.3 11.5h2M3.3 9h2M10.8 11.5h2M3.3 5.2h5.2M7 3.7l1.7 1.5L7 6.7"/>',
    "jobs": '<path d="M13.5 8A5.5 5.5 0 1 1 11.7 3.9"/><path d="M13.5 2v3h-3"/><path d="M8 5v3.2l2 1.3"/>',
    "log": '<path d="M3 2.5h10v11H3zM5.5 5.5h5M5.5 8h5M5.5 10.5h3"/>',
    "settings": '<circle cx="8" cy="8" r="2"/><path d="M8 1.5v2.2M8 12.3v2.2M1.5 8h2.2M12.3 8h2.2M3.4 3.4 5 5'
    'M11 11l1.6 1.6M12.6 3.4 11 5M5 11l-1.6 1.6"/>',
    "help": '<circle cx="8" cy="8" r="6"/><path d="M6.4 6.5a1.6 1.6 0 1 1 1.6 2v.6M8 11.3h.01"/>',
    "people": '<circle cx="6" cy="5.5" r="2.5"/><path d="M1.5 13.5c.3-2.7 2-4.2 4.5-4.2s4.2 1.5 4.5 4.2"/>'
    '<path d="M10.5 3.3a2.3 2.3 0 0 1 0 4.4M12 9.6c1.5.6 2.3 1.9 2.5 3.9"/>',
    "key": '<circle cx="5" cy="11" r="2.8"/><path d="m7 9 6.5-6.5M11 5l2 2M9.3 6.7l1.5 1.5"/>',
    "code": '<path d="m5.5 4-4 4 4 4M10.5 4l4 4-4 4"/>',
    "tune": '<path d="M3 2v5M3 10.5v3.5M8 2v2M8 7.5v6.5M13 2v6M13 11.5v2.5M1.5 7h3M6.5 7.5h3M11.5 11.5h3"/>',
    "link": '<path d="M2 5.5h10M9.5 3 12 5.5 9.5 8"/><path d="M14 10.5H4M6.5 8 4 10.5 6.5 13"/>',
    # things to press
    "left": '<path d="M10 3 5 8l5 5"/>',
    "right": '<path d="m6 3 5 5-5 5"/>',
    "down": '<path d="m4 6 4 4 4-4"/>',
    "up": '<path d="m4 10 4-4 4 4"/>',
    "search": '<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3.5 3.5"/>',
    "bell": '<path d="M4 11V7a4 4 0 0 1 8 0v4l1.2 1H2.8zM6.5 14h3"/>',
    "theme": '<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5v11a5.5 5.5 0 0 0 0-11z" fill="currentColor"/>',
    "user": '<circle cx="8" cy="5.5" r="2.8"/><path d="M2.5 14c.4-3 2.4-4.7 5.5-4.7s5.1 1.7 5.5 4.7"/>',
    "info": '<rect x="2" y="2" width="12" height="12" rx="2.5"/><path d="M8 7.5v3.5M8 5h.01"/>',
    "more": '<path d="M3.5 8h.01M8 8h.01M12.5 8h.01" stroke-width="2.5"/>',
    "close": '<path d="m4 4 8 8M12 4l-8 8"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "pause": '<path d="M5.5 3.5v9M10.5 3.5v9"/>',
    "undo": '<path d="M5.5 3 2.5 6l3 3"/><path d="M2.5 6h7a4 4 0 0 1 0 8H6"/>',
    "edit": '<path d="m2.5 13.5.7-3 7.3-7.3 2.3 2.3-7.3 7.3zM9 4.7 11.3 7"/>',
    "trash": '<path d="M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4"/>',
    "download": '<path d="M8 2v8.5M4.5 7.2 8 10.7l3.5-3.5M2.5 13.5h11"/>',
    "upload": '<path d="M8 10.7V2.2M4.5 5.5 8 2l3.5 3.5M2.5 13.5h11"/>',
}


def icon(name: str, css: str = "") -> SafeString:
    """The drawing `name` as an `<svg class="i …">` that screen readers skip. KeyError for an unknown name."""
    drawing = mark_safe(ICONS[name])
    classes = f"i {css}".strip()
    return format_html('<svg class="{}" viewBox="0 0 16 16" aria-hidden="true">{}</svg>', classes, drawing)


class Mark(NamedTuple):
    """`drawing` names an icon, `tone` a colour class ("" is neutral), `label` what it says."""

    drawing: str
    tone: str
    label: str


STATES: dict[str, Mark] = {
    # how an estimate stands against its objective
    "holds": Mark("ok", "ok", STATE_WORDS["holds"].capitalize()),
    "at_risk": Mark("watch", "watch", STATE_WORDS["at_risk"].capitalize()),
    "breached": Mark("bad", "bad", STATE_WORDS["breached"].capitalize()),
    "unknown": Mark("unknown", "watch", STATE_WORDS["unknown"].capitalize()),
    "none": Mark("unknown", "", STATE_WORDS["none"].capitalize()),
    "no_estimate": Mark("unknown", "", "No estimate yet"),
    # and where an estimate alone says so: no result was measured; at risk is always a word of estimates
    "expected_holds": Mark("ok_expected", "ok", STATE_WORDS["expected_holds"].capitalize()),
    "expected_breached": Mark("bad_expected", "bad", STATE_WORDS["expected_breached"].capitalize()),
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
    # what became of a promise
    "due": Mark("queue", "", "Not yet due"),
    "held": Mark("ok", "ok", "Held"),
    "outside": Mark("watch", "watch", "Outside its interval"),
    "missed": Mark("bad", "bad", "Objective missed"),
    "not_known": Mark("unknown", "", "Not known"),
    # the life of a placement run
    "searching": Mark("search", "", "Searching"),
    "proposed": Mark("review", "", "Proposed"),
    "applying": Mark("jobs", "", "Applying"),
    "undoing": Mark("jobs", "", "Undoing"),
    "undone": Mark("undo", "", "Undone"),
    "aborted": Mark("pause", "watch", "Aborted"),
    "stale": Mark("watch", "watch", "Stale"),
    # the life of an evacuation and of its steps
    "asked": Mark("jobs", "", "Asked"),
    "scheduled": Mark("queue", "queue", "Scheduled"),
    "stopping": Mark("undo", "watch", "Stopping"),
    "done": Mark("ok", "ok", "Done"),
    "waiting": Mark("queue", "", "Waiting"),
    "emptying": Mark("jobs", "", "Emptying"),
    "away": Mark("pause", "", "Away"),
    "returning": Mark("undo", "", "Returning"),
    "back": Mark("ok", "ok", "Back"),
    # a prediction model and its fine-tunings
    "in_force": Mark("ok", "ok", "In force"),
    "available": Mark("ring", "", "Available"),
    "accepted": Mark("ok", "ok", "Accepted"),
    "refused": Mark("reject", "", "Refused"),
    # progress of a Spark query
    "awaited": Mark("queue", "", "Awaited"),
    "reporting": Mark("ok", "ok", "Reporting"),
    "silent": Mark("unknown", "watch", "Silent"),
    "unreachable": Mark("bad", "bad", "Unreachable"),
    "recorded": Mark("log", "", "Recorded"),
    "drifting": Mark("watch", "watch", "Drifts"),
}

VERDICTS: dict[str, Mark] = {
    "admit": Mark("admit", "ok", "Admit"),
    "admit_with_changes": Mark("changes", "ok", "Admit with changes"),
    "queue": Mark("queue", "queue", "Queue"),
    "review": Mark("review", "review", "Review"),
    "reject": Mark("reject", "bad", "Reject"),
}

EVIDENCE: dict[str, Mark] = {
    "default": Mark("default", "", "Default"),
    "assumed": Mark("assumed", "", "Assumed"),
    "predicted": Mark("predicted", "", "Predicted"),
    "never_ran": Mark("never_ran", "", "Predicted, never ran"),
    "unmeasured": Mark("unmeasured", "", "Predicted, not measured yet"),
    "unknown": Mark("unknown", "watch", "Not known"),
    "measured": Mark("measured", "", "Measured"),
}

_UNKNOWN = Mark("unknown", "", "Unknown")


def judged_state(state: str, decided_by: str) -> str:
    """Key of an objective's state among `STATES` by the evidence that decides it: what an estimate alone says is drawn
    with a broken outline, and worded as what is expected.

    Examples
    --------
    >>> judged_state("breached", "measurement"), judged_state("breached", "estimate"), judged_state("none", "estimate")
    ('breached', 'expected_breached', 'none')
    """
    expected = f"expected_{state}"
    return expected if decided_by == "estimate" and expected in STATES else state


def tone(kind: str) -> str:
    """The colour class of a state or verdict; "" if it has none."""
    return (STATES.get(kind) or VERDICTS.get(kind) or _UNKNOWN).tone


def state_mark(state: str, label: str = "") -> SafeString:
    """`<span class="st …">` with icon and word; `label` replaces the word."""
    mark = STATES.get(state, _UNKNOWN)
    return format_html('<span class="st {}">{}{}</span>', mark.tone, icon(mark.drawing), label or mark.label)


def expected_mark(state: str, label: str = "") -> SafeString:
    """`state_mark` of an objective of which nothing was measured: what a model says of another placement or load."""
    return state_mark(judged_state(state, "estimate"), label)


def expected_icon(state: str) -> SafeString:
    """The shape of `expected_mark` alone."""
    return state_icon(judged_state(state, "estimate"))


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
    """Mark of a statistic's origin. `short` shows the shape alone; its word is still read aloud."""
    mark = EVIDENCE.get(kind, _UNKNOWN)
    word = format_html('<span class="vh">{}</span>', mark.label) if short else mark.label
    return format_html('<span class="ev" title="{}">{}{}</span>', mark.label, icon(mark.drawing), word)
