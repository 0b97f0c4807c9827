"""The documentation as pages, at the addresses its files have below `docs/`, so that its own links work here, too."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from apps.pages.base import Page

__all__ = ["GuidePage"]

_DOCS = Path(settings.BASE_DIR) / "docs"
_FILES = {".json": "application/json", ".csv": "text/csv; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png"}


class GuidePage(Page):
    """`/help/docs/user-guide.md`: a page of the documentation, or a file that one of them names."""

    template_name = "pages/guide.html"

    def get(self, request: HttpRequest, path: str) -> HttpResponse:
        found = _files().get(path)
        if found is None:
            raise Http404(f"There is no page {path} in the documentation.")
        if found.suffix in _FILES:
            return HttpResponse(found.read_bytes(), content_type=_FILES[found.suffix])
        title, html = _rendered(found)
        return self.page({"title": title, "html": html})


@cache
def _files() -> dict[str, Path]:
    """Every page and example by its path below `docs/`: what is not listed here cannot be asked for."""
    kinds = {".md", *_FILES}
    return {path.relative_to(_DOCS).as_posix(): path for path in _DOCS.rglob("*") if path.suffix in kinds}


@cache
def _rendered(path: Path) -> tuple[str, SafeString]:
    """Title and HTML of a page. HTML inside the Markdown stays text; the files are the product's own."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parsed = parser.parse(path.read_text())
    heading, tokens = parsed[1], parsed[3:]  # every page begins with its h1, which the frame shows
    for token, text in pairwise(tokens):
        _prepare(token, text)
    html = parser.renderer.render(tokens, parser.options, {})
    # wide tables and code scroll by themselves and can be reached by keyboard
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
    return heading.content, mark_safe(html.replace("<pre>", '<pre tabindex="0">'))


def _prepare(token: Token, text: Token) -> None:
    """Headings get the anchors that links between pages name."""
    if token.type == "heading_open":
        token.attrSet("id", re.sub(r"[^\w -]", "", text.content.lower()).replace(" ", "-"))
