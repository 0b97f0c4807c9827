"""Origin of changes: the request or job in which they are made."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest

from apps.core.limits import MAX_NAME, MAX_REASON

__all__ = ["Origin", "change_reason", "changes_from", "origin_now"]

REASON_HEADER = "X-Change-Reason"


@dataclass
class Origin:
    """A request, or a job with the person who asked for it; without either a command or a schedule."""

    request: HttpRequest | None = None
    job: Any = None
    why: str = ""
    group: str = field(default_factory=lambda: str(uuid.uuid4()))
    has_changed: bool = False  # something, which may have been rolled back

    def columns(self) -> dict[str, Any]:
        """Who, where from and why, as columns of a change."""
        columns: dict[str, Any] = {"group": self.group, "why": self.why[:MAX_REASON]}
        user = (
            getattr(self.request, "user", None) if self.request is not None else getattr(self.job, "requested_by", None)
        )
        if isinstance(user, AbstractBaseUser):
            columns |= {"user_key": user.pk, "user": user.get_username()}
        elif isinstance(name := getattr(user, "name", None), str):  # an agent
            columns["user"] = name[:MAX_NAME]
        if self.job is not None:
            columns["job"] = str(self.job.pk)
        if self.request is not None:
            token = getattr(self.request, "auth", None)
            columns["token"] = "" if token is None else str(token)
            columns["address"] = self.request.META.get("REMOTE_ADDR", "")[:45]
            columns["request_id"] = getattr(self.request, "request_id", "")
            columns["why"] = (self.why or self.request.headers.get(REASON_HEADER, ""))[:MAX_REASON]
        return columns


_origin: ContextVar[Origin | None] = ContextVar("origin of changes", default=None)


def origin_now() -> Origin | None:
    """Origin of what is changed now; None outside of requests and jobs."""
    return _origin.get()


@contextmanager
def changes_from(origin: Origin) -> Iterator[Origin]:
    """Changes made inside have this origin."""
    token = _origin.set(origin)
    try:
        yield origin
    finally:
        _origin.reset(token)


@contextmanager
def change_reason(why: str) -> Iterator[None]:
    """Changes made inside have this reason, and otherwise the origin that they would have."""
    present = origin_now()
    if present is None:
        with changes_from(Origin(why=why)):
            yield
        return
    before, present.why = present.why, why or present.why
    try:
        yield
    finally:
        present.why = before
