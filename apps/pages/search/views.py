"""Search: the page with every hit, and the suggestions of the box in the top bar."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.pages.base import ClusterPage
from apps.pages.recent import recent_of
from apps.pages.search.hits import SearchHit, hits_named, hits_of
from apps.pages.search.places import places_of

__all__ = ["SearchPage", "SearchSuggestions"]

_OF_EACH_KIND = 4
_RECENT = 6
_MAX_TEXT = 200  # beyond it no name is that long


class SearchPage(ClusterPage):
    """`/c/<slug>/search/?q=`; without a text what was looked at last."""

    template_name = "pages/search/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        text = request.GET.get("q", "").strip()[:_MAX_TEXT]
        if not text:
            recent = hits_named(self.cluster, recent_of(request, slug))
            return self.page({"text": text, "hits": [], "recent": recent})
        places = places_of(text, slug, signed_in_user(request).scopes, 20)
        return self.page({"text": text, "hits": [*hits_of(self.cluster, text), *places], "recent": []})


class SearchSuggestions(ClusterPage):
    """`/c/<slug>/search/suggestions/?q=`: the options of the search box, best first."""

    template_name = "pages/search/suggestions.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        text = request.GET.get("q", "").strip()[:_MAX_TEXT]
        places = places_of(text, slug, signed_in_user(request).scopes, _OF_EACH_KIND)
        if not text:
            hits = hits_named(self.cluster, recent_of(request, slug)[:_RECENT])
            return self.page({"text": text, "groups": _grouped([("Recent", hits), ("Actions", places)])})
        rows = sorted(hits_of(self.cluster, text, _OF_EACH_KIND), key=lambda hit: _rank(hit, text))
        pages = [place for place in places if place.kind == "Page"]
        actions = [place for place in places if place.kind == "Action"]
        named = [("In this cluster", rows), ("Pages", pages), ("Actions", actions)]
        return self.page({"text": text, "groups": _grouped(named)})


def _rank(hit: SearchHit, text: str) -> int:
    """Names that are the text first, then those that begin with it."""
    name, typed = hit.name.lower(), text.lower()
    return 0 if name == typed else 1 if name.startswith(typed) else 2


def _grouped(groups: list[tuple[str, list[SearchHit]]]) -> list[tuple[str, list[tuple[int, SearchHit]]]]:
    """Each group's hits with their numbers in the whole list; empty groups are left out."""
    numbered, number = [], 0
    for title, hits in groups:
        if hits:
            numbered.append((title, list(enumerate(hits, number))))
            number += len(hits)
    return numbered
