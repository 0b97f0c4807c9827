"""Toasts: confirm an action on the next page, or at once for an htmx request, and offer to take it back."""

from __future__ import annotations

import json

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

__all__ = ["refresh", "toast"]


def toast(request: HttpRequest, text: str, response: HttpResponse | None = None) -> None:
    """Confirm something done. With `response` (an htmx answer) the toast appears without a new page."""
    undo = getattr(request, "undoable_group", str)()  # of what the request has changed
    if response is None:
        messages.success(request, text, extra_tags=undo)
        return
    events = json.loads(response.headers.get("HX-Trigger", "{}"))
    response.headers["HX-Trigger"] = json.dumps({**events, "toast": {"text": text, "kind": "ok", "undo": undo}})


def refresh(response: HttpResponse, *topics: str) -> HttpResponse:
    """Make the page that sent this htmx request fetch what shows these topics, without waiting for the socket."""
    events = json.loads(response.headers.get("HX-Trigger", "{}"))
    events.update({f"changed:{topic}": {} for topic in topics})
    response.headers["HX-Trigger"] = json.dumps(events)
    return response
