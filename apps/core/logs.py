"""Log lines that carry the id of the request or job they belong to, and no secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from celery import Task

from engine.redaction import JsonFormatter, RedactingFormatter

__all__ = [
    "BoundFormatter",
    "SparseFilter",
    "bare_formatter",
    "begin_task",
    "end_task",
    "line_formatter",
    "pass_request_on",
    "request_id",
    "within_request",
]

_REQUEST_ID = "request_id"


def _ids_of_request(record: logging.LogRecord | None) -> dict[str, str]:
    """Django reports refused requests after the middleware has ended, but with the request at hand."""
    request = getattr(record, "request", None)
    return {name: known for name in (_REQUEST_ID, "trace_id") if (known := getattr(request, name, None))}


def _of_request(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, known in _ids_of_request(event.get("_record")).items():
        event.setdefault(name, known)
    return event


def _bound(record: logging.LogRecord) -> dict[str, Any]:
    return {**_ids_of_request(record), **structlog.contextvars.get_contextvars()}


_SHARED = [
    _of_request,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def line_formatter(is_json: bool = False) -> logging.Formatter:
    """Formatter of a process's lines with bound values (request_id, job): readable, or an object of JSON each."""
    if is_json:
        return JsonFormatter(_bound)
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
    """The id of the request that is served, or that a task is done for; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get(_REQUEST_ID, ""))


@contextmanager
def within_request(asked: str) -> Iterator[None]:
    """Lines written and tasks sent inside belong to the request of this id; to the present one if it is empty."""
    if not asked:
        yield
        return
    with structlog.contextvars.bound_contextvars(**{_REQUEST_ID: asked}):
        yield


def pass_request_on(headers: dict[str, Any], **_: Any) -> None:
    """Write the present request's id into a task's headers (receiver of Celery's `before_task_publish`)."""
    if asked := request_id():
        headers[_REQUEST_ID] = asked


def begin_task(task: Task, **_: Any) -> None:
    """Lines of a worker's task name the request that it is done for (receiver of Celery's `task_prerun`)."""
    if asked := getattr(task.request, _REQUEST_ID, None):
        structlog.contextvars.bind_contextvars(**{_REQUEST_ID: asked})


def end_task(task: Task, **_: Any) -> None:
    """After Celery's last line of a task (receiver of its `task_postrun`)."""
    if getattr(task.request, _REQUEST_ID, None):
        structlog.contextvars.unbind_contextvars(_REQUEST_ID)
