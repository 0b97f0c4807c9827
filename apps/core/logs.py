"""Log lines that carry the id of the request or job they belong to, and no secret."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

from engine.redaction import RedactingFormatter

__all__ = ["BoundFormatter", "SparseFilter", "bare_formatter", "line_formatter", "request_id"]


def _of_request(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Django reports refused requests after the middleware has ended, but with the request at hand."""
    request = getattr(event.get("_record"), "request", None)
    for name in ("request_id", "trace_id"):
        if known := getattr(request, name, None):
            event.setdefault(name, known)
    return event


_SHARED = [
    _of_request,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def line_formatter() -> logging.Formatter:
    """Formatter for `settings.LOGGING`: one readable line, bound values (request_id, job) at its end."""
    lines = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            # plain tracebacks: the decorated ones print local variables, secrets among them
            structlog.dev.ConsoleRenderer(
                colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
    )
    return RedactingFormatter(lines)


def bare_formatter() -> logging.Formatter:
    """Formatter of the access log: messages as they are, without secrets."""
    return RedactingFormatter(logging.Formatter("%(message)s"))


class BoundFormatter(logging.Formatter):
    """Another formatter's lines with the bound values (job, attempt, trace_id) at the end of the first, no secrets."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = RedactingFormatter(inner)

    def format(self, record: logging.LogRecord) -> str:
        first, *more = self._inner.format(record).split("\n")
        bound = [f"{name}={value}" for name, value in structlog.contextvars.get_contextvars().items()]
        return "\n".join([" ".join([first, *bound]), *more])


class SparseFilter(logging.Filter):
    """Lets one line through in five minutes: for what says the same again as long as something is away."""

    _next_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self._next_s:
            return False
        self._next_s = record.created + 300.0
        return True


def request_id() -> str:
    """The id of the request being served; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))
