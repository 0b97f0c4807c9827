"""Sizes of request bodies: how many bytes each endpoint takes, and how many values of JSON.

A view names them as it names its scopes: `body_sizes = {"POST": DOCUMENT}`, or by the action of a viewset. What it does
not name is `PLAIN`. Nobody sends more than `MAX_UNKNOWN_BYTES` before it is known who sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import Resolver404, resolve

from apps.core.errors import TooLarge
from apps.core.limits import MAX_UNKNOWN_BYTES

__all__ = [
    "DOCUMENT",
    "HEARTBEAT",
    "PLAIN",
    "REVIEW",
    "SMALL",
    "BodySize",
    "oversize",
    "size_of_path",
    "size_of_view",
]

# A form is a little larger than the file in it.
_ENVELOPE_BYTES = 1_000_000


@dataclass(frozen=True)
class BodySize:
    """Bounds of a body. Without `max_bytes`, and at most, it is as large as an upload (`SLUICE_UPLOAD_MAX_MB`)."""

    max_values: int
    max_bytes: int | None = None

    @property
    def text_bytes(self) -> int:
        """Bytes of a text, such as JSON."""
        upload = int(settings.UPLOAD_MAX_BYTES)
        return upload if self.max_bytes is None else min(self.max_bytes, upload)

    @property
    def wire_bytes(self) -> int:
        """Bytes of a whole body: that of a form with a file has the form around it."""
        return self.text_bytes + (_ENVELOPE_BYTES if self.max_bytes is None else 0)


#: What strangers send: a sign-in, an enrolment.
SMALL = BodySize(max_values=1_000, max_bytes=MAX_UNKNOWN_BYTES)
#: Forms, and descriptions of single things.
PLAIN = BodySize(max_values=50_000, max_bytes=1_000_000)
#: Health of an agent and of those behind it.
HEARTBEAT = BodySize(max_values=50_000, max_bytes=2**20)
#: An object of Kubernetes with its former state, each of which it stores up to 1.5 MB of.
REVIEW = BodySize(max_values=200_000, max_bytes=4 * 2**20)
#: Deployments, arrivals, tables and files.
DOCUMENT = BodySize(max_values=2_000_000)


def size_of_view(view: Any, method: str, action: str = "") -> BodySize:
    """The size that a view, or its class, names for an action or a method."""
    sizes: Mapping[str, BodySize] = getattr(view, "body_sizes", {})
    return sizes.get(action or getattr(view, "action", None) or "", sizes.get(method, PLAIN))


def size_of_path(path: str, method: str) -> BodySize:
    """The size of what is sent to an address; that of strangers where there is nothing."""
    try:
        view: Callable[..., Any] = resolve(path).func
    except Resolver404:
        return SMALL
    kind = getattr(view, "cls", None) or getattr(view, "view_class", None)
    return size_of_view(kind, method, getattr(view, "actions", {}).get(method.lower(), ""))


def oversize(length: int, limit: int) -> TooLarge | None:
    """The refusal of a body of `length` bytes, or None where it is within `limit`."""
    if length <= limit:
        return None
    return TooLarge(f"The body has {_size(length)}; at most {_size(limit)} are taken here.")


def _size(count: int) -> str:
    return f"{count / 1e6:.3g} MB" if count >= 1_000_000 else f"{count:,} bytes"
