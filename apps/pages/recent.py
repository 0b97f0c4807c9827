"""Visits: the things somebody looked at last, kept in the session for the search."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

__all__ = ["recent_of", "remember_visit"]

_SESSION_KEY = "recent"
_KEPT = 12
#: Pages of one thing: {name of the page: (kind, parameter of the address)}.
_KINDS = {
    "query": ("query", "name"),
    "query-live": ("query", "name"),
    "node": ("node", "name"),
    "agent": ("agent", "name"),
    "arrivals-detail": ("source", "pk"),
    "connection": ("connection", "pk"),
    "admission": ("decision", "pk"),
}


def remember_visit(request: HttpRequest) -> None:
    """Put the thing that a page is about first. The session is stored only where that changes the order."""
    match = request.resolver_match
    kind, parameter = _KINDS.get(match.url_name or "", ("", "")) if match else ("", "")
    if not match or not kind:
        return
    visit = [match.kwargs["slug"], kind, str(match.kwargs[parameter])]
    kept: list[Any] = request.session.get(_SESSION_KEY, [])
    if kept[:1] != [visit]:
        request.session[_SESSION_KEY] = [visit, *(other for other in kept if other != visit)][:_KEPT]


def recent_of(request: HttpRequest, slug: str) -> list[tuple[str, str]]:
    """(kind, key) of what was looked at in a cluster, the last first."""
    return [(kind, key) for cluster, kind, key in request.session.get(_SESSION_KEY, []) if cluster == slug]
