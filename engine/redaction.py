"""Secrets taken out of texts before these are written to a log, whichever process writes it, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["LOG_FORMATS", "JsonFormatter", "RedactingFormatter", "note_secret", "redact_text"]

#: How processes write their lines (`SLUICE_LOG_FORMAT`), the default first.
LOG_FORMATS = ("text", "json")

_MAX_NOTED = 1000
_MIN_LENGTH = 8  # shorter ones stand in too many other words
_noted: OrderedDict[str, None] = OrderedDict()  # of this process: what it was given lately, the newest last

_NAMES = (
    r"[\w-]*(?:passw(?:or)?d|secret|token|credential|authorization|api[_-]?key|private[_-]?key|cookie|session_?id"
    r"|sluice_device)[\w-]*"
)
# of each match the group "secret" is taken out
_RULES = (
    # tokens of people, of enrolment, of agents and of links that are mailed; the first characters are no secret
    re.compile(r"\bsl[ueair]_[\w-]{2,6}(?P<secret>[\w-]{10,})"),
    re.compile(r"\b(?:bearer|basic)\s+(?P<secret>[\w.~+/=-]{6,})", re.IGNORECASE),
    # a name and password in an address
    re.compile(r"\b[a-z][a-z0-9+.-]*://(?P<secret>[^/\s@\"'<>]*)@", re.IGNORECASE),
    # of an address of the web the host: path and query are where webhooks have their secret
    re.compile(r"\b(?:https?|wss?)://[^/\s?#\"'<>)\]},]+[/?#](?P<secret>[^\s\"'<>]*)", re.IGNORECASE),
    re.compile(r"/webhooks/kubernetes/admission/[^/\s\"'?]+/(?P<secret>[^\s\"'?]+)"),
    # the query of a request
    re.compile(r"/[^\s\"'?]*\?(?P<secret>[^\s\"'<>]+)"),
    # "password": "…", ('authorization', b'…'), password=…
    re.compile(rf"[\"']{_NAMES}[\"']\s*[:,]\s*b?(?P<secret>\"[^\"]*\"|'[^']*'|[^\s,)\]}}]+)", re.IGNORECASE),
    re.compile(rf"\b{_NAMES}=(?P<secret>\"[^\"]*\"|'[^']*'|[^\s,;&\"')\]}}]+)", re.IGNORECASE),
)


def note_secret(secret: str | None) -> None:
    """Remember a secret that this process was given, so that no text that repeats it shows it.

    Only by somebody who is known: what a stranger sends as a password would blot out any word of the log.
    """
    if secret and len(secret) >= _MIN_LENGTH:
        _noted[secret] = None
        _noted.move_to_end(secret)
        while len(_noted) > _MAX_NOTED:
            _noted.popitem(last=False)


def redact_text(text: str) -> str:
    """The text without secrets: those that were noted, and all that looks like one.

    >>> redact_text('GET /webhooks/kubernetes/admission/lab/abc?timeout=10s HTTP/1.1')
    'GET /webhooks/kubernetes/admission/lab/…?… HTTP/1.1'
    >>> redact_text('https://user:pw@hooks.example/T0/B0/x: refused; {"password": "p"}')
    'https://…@hooks.example/… refused; {"password": …}'
    """
    # all are looked for in the text as it came: a secret taken out must not hide the name before another one
    spans = [match.span("secret") for rule in _RULES for match in rule.finditer(text)]
    for secret in list(_noted):
        at = text.find(secret)
        while at >= 0:
            spans.append((at, at + len(secret)))
            at = text.find(secret, at + 1)
    shown: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= stop or stop <= end:
            continue
        if start > end or not shown:
            shown += [text[end:start], "…"]
        end = stop
    return "".join([*shown, text[end:]])


class RedactingFormatter(logging.Formatter):
    """Another formatter's lines without secrets, tracebacks included."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(self.inner.format(record))


class JsonFormatter(logging.Formatter):
    """A JSON object on one line for each record: `time` (UTC), `level`, `logger`, `message`, `exception` if any.

    Beside them stand the values that `bound` finds for a record, and those that the record brings as `facts`. Secrets
    are taken out of each text before it is written as JSON: afterwards the line might be none any more.

    Parameters
    ----------
    bound
        What is known of a record besides, such as the request in which it was made.
    """

    def __init__(self, bound: Callable[[logging.LogRecord], Mapping[str, Any]] = lambda _: {}) -> None:
        super().__init__()
        self._bound = bound

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._bound(record),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        shown = {name: redact_text(value) if isinstance(value, str) else value for name, value in line.items()}
        return json.dumps(shown, ensure_ascii=False, default=lambda value: redact_text(str(value)))
