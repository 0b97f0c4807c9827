"""One tree of errors: what went wrong, which fields are at fault, and the HTTP status it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

from django.core.exceptions import ValidationError

from engine.errors import DocumentError, EngineError, Fault, OptionError
from engine.words import counted

__all__ = [
    "Conflict",
    "Fault",
    "Forbidden",
    "Impossible",
    "Internal",
    "Malformed",
    "Missing",
    "NotAuthenticated",
    "PreconditionFailed",
    "SluiceError",
    "Stale",
    "TooLarge",
    "TooMany",
    "Unavailable",
    "fault_count",
    "field_faults",
    "from_engine",
    "join_path",
]


class SluiceError(Exception):
    """Base of every refusal. `message` is for people; `code` and `faults` are for programs.

    Faults may be given as `Fault` or as (path, message) pairs.
    """

    code = "error"
    status = 500

    def __init__(
        self,
        message: str,
        faults: Iterable[Fault | tuple[str, str]] = (),
        *,
        code: str | None = None,
        retry_after_s: float | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(fault if isinstance(fault, Fault) else Fault(*fault) for fault in faults)
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s
        self.data = dict(data or {})

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, round(self.retry_after_s)))}

    def as_dict(self) -> dict[str, object]:
        """The error as jobs store it; `data` adds facts such as what moved since a preview."""
        faults = [{"path": fault.path, "message": fault.message} for fault in self.faults]
        return {"code": self.code, "message": self.message, "faults": faults, **self.data}


class Malformed(SluiceError):
    """The input cannot be read as what it should be."""

    code, status = "malformed", 400


class NotAuthenticated(SluiceError):
    """Nobody known is asking."""

    code, status = "not_authenticated", 401


class Forbidden(SluiceError):
    """Somebody known asks for what they may not do."""

    code, status = "forbidden", 403


class Missing(SluiceError):
    """The requested object does not exist."""

    code, status = "missing", 404


class Conflict(SluiceError):
    """It would contradict something that exists."""

    code, status = "conflict", 409


class Stale(Conflict):
    """It rests on a state that has moved since."""

    code = "stale"


class PreconditionFailed(SluiceError):
    """`If-Match` names another state than the present one."""

    code, status = "precondition_failed", 412


class TooLarge(SluiceError):
    """More bytes or entries than are taken."""

    code, status = "too_large", 413


class Impossible(SluiceError):
    """Understood, but it cannot be done."""

    code, status = "impossible", 422


class TooMany(SluiceError):
    """Too many requests in too short a time."""

    code, status = "too_many", 429


class Unavailable(SluiceError):
    """A part of the installation does not answer; the same request may succeed later."""

    code, status = "unavailable", 503

    def __init__(self, message: str, faults: Iterable[Fault | tuple[str, str]] = (), **options: Any) -> None:
        options.setdefault("retry_after_s", 5)
        super().__init__(message, faults, **options)


class Internal(SluiceError):
    """A fault of ours, which says nothing of the request."""

    code, status = "internal", 500


def join_path(prefix: str, path: str) -> str:
    """`join_path("document", "nodes[0].id")` is `document.nodes[0].id`; either may be empty."""
    if not prefix or not path:
        return prefix or path
    return f"{prefix}{path}" if path.startswith("[") else f"{prefix}.{path}"


def field_faults(errors: Any, prefix: str = "") -> tuple[Fault, ...]:
    """Flatten nested messages (Django's or REST framework's) into faults, each with its path.

    Lists of mappings are indexed (`operators[1].id`); `non_field_errors` and `__all__` belong to what holds them.
    """
    if isinstance(errors, ValidationError):
        errors = errors.message_dict if hasattr(errors, "error_dict") else errors.messages
    if isinstance(errors, Mapping):
        return tuple(fault for key, value in errors.items() for fault in field_faults(value, _under(prefix, key)))
    if isinstance(errors, Sequence) and not isinstance(errors, str):
        return tuple(
            fault
            for index, value in enumerate(errors)
            for fault in field_faults(value, f"{prefix}[{index}]" if isinstance(value, (Mapping, list)) else prefix)
        )
    return (Fault(prefix, str(errors)),)


def fault_count(faults: Sized) -> str:
    """`1 fault` or `7 faults`."""
    return counted(len(faults), "fault")


def _under(prefix: str, key: Any) -> str:
    if key in {"non_field_errors", "__all__"}:
        return prefix
    return f"{prefix}[{key}]" if isinstance(key, int) else join_path(prefix, str(key))


def from_engine(error: EngineError, prefix: str = "") -> SluiceError:
    """The engine's refusal as ours: 400 for what it cannot read, 422 for what it cannot do.

    `prefix` is where the document stood in the request, such as `document`.
    """
    faults = [Fault(join_path(prefix, fault.path), fault.message) for fault in error.faults]
    kind = Malformed if isinstance(error, (DocumentError, OptionError)) else Impossible
    return kind(error.message, faults, code=error.code)
