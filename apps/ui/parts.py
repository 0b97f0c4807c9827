"""Live parts of pages: a request for a part is answered with the part alone, and with 304 where it is as it was.

A browser names the parts in `Sluice-Part` (ids, separated by blanks), what it has in `If-None-Match`. Templates
leave out the frame around the page (`request.part_ids`). An ETag stands for a part but for what the browser keeps up to
date itself. A whole page says the ETags of its own parts in `data-parts` of its body, so that the first request for an
unchanged part costs no bytes either.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Sequence

from django.http import HttpRequest, HttpResponse

__all__ = [
    "POLICY",
    "ContentSecurityPolicyMiddleware",
    "LivePartMiddleware",
    "etag_of_part",
    "part_named",
    "parts_etags",
]

PARTS_PLACE = 'data-parts=""'  # in the body tag of a whole page
MAX_PARTS = 5
_ID = re.compile(r"[A-Za-z][\w-]{0,80}")
# Differs in every answer, or is kept up to date in the browser.
_VOLATILE = re.compile(r'(?<=name="csrfmiddlewaretoken" value=")[^"]*|(?<= data-rel>)[^<]*|"X-CSRFToken": "[^"]*"')
_LIVE_TAG = re.compile(r'<[a-z][^>]*\bhx-trigger="changed:[^>]*>')
_SELECT = re.compile(r'\bhx-select(?:-oob)?="([^"]*)"')


class LivePartMiddleware:
    """Sets `request.part_ids`, cuts the parts out of the answer, and says their ETag."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        names = request.headers.get("Sluice-Part", "").split()
        is_asked = request.method == "GET" and 0 < len(names) <= MAX_PARTS and all(map(_ID.fullmatch, names))
        request.part_ids = names if is_asked else []  # type: ignore[attr-defined]
        response = self.get_response(request)
        if response.status_code != 200 or response.streaming or not _is_html(response):
            return response
        text = response.content.decode()
        if is_asked:
            return _answer(request, response, [part_named(text, name) for name in names])
        if PARTS_PLACE in text:
            told = html.escape(json.dumps(parts_etags(text), separators=(",", ":")))
            response.content = text.replace(PARTS_PLACE, f'data-parts="{told}"', 1).encode()
        return response


def part_named(text: str, name: str) -> str:
    """The element with an id, as it stands in a page of ours, whose tags are closed; empty where there is none."""
    opening = re.search(rf'<([a-z][a-z0-9]*)\b[^>]*\bid="{re.escape(name)}"[^>]*>', text)
    if opening is None:
        return ""
    depth = 0
    for tag in re.compile(rf"<(/?){opening[1]}\b").finditer(text, opening.start()):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return text[opening.start() : text.index(">", tag.end()) + 1]
    return ""


def etag_of_part(text: str) -> str:
    """A weak ETag: times that the browser keeps up to date, and tokens of forms, may differ."""
    return f'W/"{hashlib.sha256(_VOLATILE.sub("", text).encode()).hexdigest()[:24]}"'


def parts_etags(text: str) -> dict[str, str]:
    """{ids as a browser names them: ETag} of the live parts of a whole page."""
    etags = {}
    for tag in _LIVE_TAG.findall(text):
        names = [name.strip().removeprefix("#") for group in _SELECT.findall(tag) for name in group.split(",")]
        parts = [part_named(text, name) for name in names]
        if names and all(parts):
            etags[" ".join(names)] = etag_of_part("".join(parts))
    return etags


def _is_html(response: HttpResponse) -> bool:
    return response.headers.get("Content-Type", "").startswith("text/html")


def _answer(request: HttpRequest, response: HttpResponse, parts: Sequence[str]) -> HttpResponse:
    """The parts that there are, or 304; without the first of them the answer stays as it is."""
    # the address is that of a page: what is kept of this answer must never be shown for it
    response.headers["Cache-Control"] = "no-store"
    if not parts[0]:
        return response
    text = "".join(parts)
    etag = etag_of_part(text)
    response.headers["ETag"] = etag
    if request.headers.get("If-None-Match") == etag:
        response.status_code, response.content = 304, b""
    else:
        response.content = text.encode()
    return response


#: Inline styles are allowed: the widths of bars need them.
POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class ContentSecurityPolicyMiddleware:
    """Sets the policy on every answer that does not bring its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
