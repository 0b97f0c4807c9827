"""Instants as text: the one form that is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["TIMESTAMP_PATTERN", "timestamp_us"]

#: What a text must look like to be converted to a timestamp, in UTC. RE2, Java and Python read this pattern alike.
TIMESTAMP_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?\z"
_PYTHON_PATTERN = re.compile(TIMESTAMP_PATTERN.replace(r"\z", r"\Z"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_us(text: str) -> int | None:
    """Microseconds since 1970, or None for what is no instant."""
    if not _PYTHON_PATTERN.match(text):
        return None
    try:
        instant = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (instant - _EPOCH) // timedelta(microseconds=1)
