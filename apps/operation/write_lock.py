"""Read-only mode: everybody reads, and every change is refused until it ends.

It is a file in the data folder, so that it holds without database and Redis, over restarts, and for every process of
that folder. What runs by itself goes on: workers and beat are no callers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.permissions import SAFE_METHODS
from apps.core.errors import Unavailable
from apps.core.problem_details import error_response

__all__ = ["ReadOnlyMiddleware", "read_only_begin", "read_only_end", "read_only_reason"]

RETRY_AFTER_S = 60
_DEFAULT_REASON = "Sluice is being worked on."
_TAKEN = {"signin:login", "signin:code", "signin:link", "signin:logout"}  # who reads has to sign in


def read_only_begin(reason: str = "") -> None:
    """Refuse changes from now on, with a reason that people read."""
    path = _path()
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    fresh.write_text(json.dumps({"reason": reason.strip() or _DEFAULT_REASON, "since": timezone.now().isoformat()}))
    fresh.rename(path)


def read_only_end() -> bool:
    """Take changes again; whether they were refused."""
    try:
        _path().unlink()
    except FileNotFoundError:
        return False
    return True


def read_only_reason() -> tuple[str, datetime | None] | None:
    """Why changes are refused and since when; None while they are taken.

    A file that somebody else made refuses changes just the same: on the side of those who asked for quiet.
    """
    try:
        facts = json.loads(_path().read_text())
        return str(facts["reason"]), datetime.fromisoformat(facts["since"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return _DEFAULT_REASON, None


class ReadOnlyMiddleware:
    """Refuses what changes something with 503 and `Retry-After`, before its view reads a body.

    Agents and producers are refused in the same way: they keep what they have and send it again, as they do for every
    answer of 500 and above.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.read_only = read_only_reason  # type: ignore[attr-defined] # asked for by the frame of pages alone
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, *arguments: Any) -> HttpResponse | None:
        match = request.resolver_match
        if request.method in SAFE_METHODS or (match and match.view_name in _TAKEN):
            return None
        state = read_only_reason()
        if state is None:
            return None
        words = f"Sluice is read-only for now, and nothing was changed: {state[0]}"
        return error_response(request, Unavailable(words, code="read_only", retry_after_s=RETRY_AFTER_S))


def _path() -> Path:
    return Path(settings.VAR_DIR) / "read-only.json"
