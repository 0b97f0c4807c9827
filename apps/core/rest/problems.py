"""Errors of the REST API: whatever a view raises becomes the problem details of one refusal."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import redis.exceptions
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation, ValidationError
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.db.models import ProtectedError
from django.http import Http404
from django.http.multipartparser import MultiPartParserError
from kombu.exceptions import OperationalError as BrokerError
from rest_framework import exceptions as rest
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.core import errors
from apps.core.errors import Fault, SluiceError, field_faults
from apps.core.problem_details import PROBLEM_JSON, problem_details, problem_of_job
from apps.core.rest.idempotency import ReplayedResponse
from engine.errors import EngineError
from engine.words import listed

__all__ = [
    "DISK_FULL",
    "MISSING",
    "NO_ROOM",
    "ProblemDetailsSerializer",
    "StoredProblemSerializer",
    "as_sluice_error",
    "exception_handler",
    "reword_message",
    "value_at",
]


class _FaultSerializer(serializers.Serializer):
    path = serializers.CharField(help_text="Where, such as operators[1].inputs[0].from; empty for the whole.")
    message = serializers.CharField()


class StoredProblemSerializer(serializers.Serializer):
    """Error of work that failed on its own, as problem details (RFC 9457)."""

    type = serializers.CharField(help_text="Address of the type's description, one for each code.")
    title = serializers.CharField(help_text="Summary of the type, the same words every time.")
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="Explanation of this error, for people.")
    code = serializers.CharField(help_text="For programs, such as malformed, stale or unavailable.")
    faults = _FaultSerializer(many=True, help_text="Every fault of the input at once.")

    def to_representation(self, instance: Mapping[str, object]) -> dict[str, object]:
        return problem_of_job(instance)


class ProblemDetailsSerializer(StoredProblemSerializer):
    """Every error of the API: problem details (RFC 9457). Some codes add members, such as what has moved."""

    instance = serializers.CharField(help_text="Path of the request.")
    request_id = serializers.CharField(help_text="Id of the request in the log.")


#: Stands for a value that was not given at all.
MISSING = object()

_STOCK = (
    (re.compile(r"Ensure this value is greater than or equal to (\S+)\."), "at least {}"),
    (re.compile(r"Ensure this value is less than or equal to (\S+)\."), "at most {}"),
    (
        re.compile(r"Ensure this (?:field|value) has (?:no more than|at most) (\d+) characters?.*"),
        "at most {} characters",
    ),
    (re.compile(r"A valid number is required\."), "a number"),
    (re.compile(r"A valid integer is required\."), "a whole number"),
    (re.compile(r"Must be a valid boolean\."), "true or false"),
)
_REQUIRED = {"This field is required.", "This field cannot be blank.", "This field may not be blank."}
_SHOWN = 60


def reword_message(fault: Fault, value: Any = MISSING) -> Fault:
    """The fault with the value it is about and what is allowed, where its message is a stock one.

    Examples
    --------
    >>> reword_message(Fault("cores", "Ensure this value is greater than or equal to 1."), 0).message
    'cores is 0; allowed: at least 1'
    """
    name = fault.path.rpartition(".")[2]
    if fault.message in _REQUIRED:
        return Fault(fault.path, f"{name} is missing")
    for pattern, allowed in _STOCK:
        if match := pattern.fullmatch(fault.message):
            lead = "" if value is MISSING else f"{name} is {_shown(value)}; "
            return Fault(fault.path, f"{lead}allowed: {allowed.format(*match.groups())}")
    return fault


def value_at(data: Any, path: str) -> Any:
    """Value at a path such as `objective.bound_s` or `nodes[2].cores`; MISSING where there is none."""
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, Mapping) and step in data:
            data = data[step]
        elif isinstance(data, Sequence) and not isinstance(data, str) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return MISSING
    return data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_log = logging.getLogger(__name__)
_NO_ROW = re.compile(r"No (\w+) matches the given query\.")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

_BY_STATUS: dict[int, type[SluiceError]] = {
    kind.status: kind
    for kind in (
        errors.Malformed,
        errors.NotAuthenticated,
        errors.Forbidden,
        errors.Missing,
        errors.Conflict,
        errors.PreconditionFailed,
        errors.TooLarge,
        errors.Impossible,
        errors.TooMany,
        errors.Unavailable,
    )
}


def exception_handler(error: Exception, context: dict[str, object]) -> Response:
    """REST framework's EXCEPTION_HANDLER: unexpected errors become 500 with a request id, never a stack trace."""
    if isinstance(error, ReplayedResponse):
        return error.response
    set_rollback()
    request = context.get("request")
    refusal = _from_rest(error, request) if isinstance(error, rest.APIException) else as_sluice_error(error)
    if refusal is None:
        _log.exception("unexpected error in the API")
        refusal = errors.Internal("Something went wrong inside Sluice. The log has it by the request id.")
    if isinstance(request, Request):
        request._request.refusal = refusal  # type: ignore[attr-defined] # for the ledger
    headers = dict(refusal.headers)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="sluice"'
    status = error.status_code if isinstance(error, rest.APIException) else refusal.status
    body = problem_details(
        refusal,
        instance=getattr(request, "path", ""),
        request_id=getattr(request, "request_id", ""),
        status=status,
    )
    return Response(body, status=status, headers=headers, content_type=PROBLEM_JSON)


def as_sluice_error(error: Exception) -> SluiceError | None:
    """The refusal that a Django, database, Redis or engine error amounts to; None for an unexpected one."""
    match error:
        case SluiceError():
            return error
        case Http404():
            return errors.Missing(_missing_message(str(error)))
        case PermissionDenied():
            return errors.Forbidden(str(error) or "You may not do this.")
        case RequestDataTooBig():
            return errors.TooLarge("The request is larger than what is taken.")
        case ValidationError():
            return _invalid(field_faults(error))
        case ProtectedError():
            return _protected(error)
        case IntegrityError():
            return errors.Conflict(_integrity_message(error))
        case OperationalError() | InterfaceError():
            return _database(error)
        case DataError():
            return errors.Malformed(f"A value does not fit where it is stored: {_first_line(error)}.")
        case UnicodeEncodeError():
            return errors.Malformed("A text holds half of a character, which cannot be stored.")
        case SuspiciousOperation() | MultiPartParserError():
            return errors.Malformed(f"The request cannot be read: {_first_line(error)}.")
        case OSError() if error.errno in NO_ROOM:
            return errors.Unavailable(DISK_FULL, retry_after_s=60)
        case redis.exceptions.ResponseError() if _takes_no_writes(error):
            return errors.Unavailable("Redis takes no writes: its memory or its disk is full, or it is a replica.")
        case redis.exceptions.ConnectionError() | redis.exceptions.TimeoutError() | BrokerError():
            return errors.Unavailable("Redis does not answer. What needs no worker goes on; try again later.")
        case EngineError():
            return errors.from_engine(error)
    return None


#: Numbers of the system's errors where a disk, or what one may use of it, is full.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL = "The disk is full: nothing more can be stored. Make room on it, then try again."


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _takes_no_writes(error: Exception) -> bool:
    """Whether its memory or disk is full, or it follows another; the client cuts the code off the ones it knows."""
    known = (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError)
    return isinstance(error, known) or str(error).startswith(("OOM", "MISCONF", "READONLY"))


def _missing_message(text: str) -> str:
    """Django says "No NodePool matches the given query.", which here would be about another kind of query."""
    model = _NO_ROW.fullmatch(text)
    if model is None:
        return text or "There is nothing at this address."
    return f"There is no {_WORD.sub(r' ', model[1]).lower()} at this address."


def _database(error: Exception) -> SluiceError | None:
    text = str(error).lower()
    if "no such" in text or "syntax error" in text:
        return None  # a fault of ours (a migration not applied), which waiting does not mend
    if "disk is full" in text or "no space left" in text or "disk full" in text:
        return errors.Unavailable(DISK_FULL, retry_after_s=60)
    if "readonly database" in text or "read-only" in text:
        return errors.Unavailable("The database takes no writes: it is read-only.", retry_after_s=60)
    if any(words in text for words in ("locked", "deadlock", "couldn't get a connection")):
        return errors.Unavailable("The database is busy. Try again in a moment.", retry_after_s=2)
    return errors.Unavailable("The database does not answer. Try again later.")


def _protected(error: ProtectedError) -> SluiceError:
    users = sorted({f"{held._meta.verbose_name} {held}" for held in error.protected_objects})
    return errors.Conflict(f"It is still used by {listed(users, 6)}.")


def _integrity_message(error: IntegrityError) -> str:
    """Databases name the constraint or the columns; that much is safe to show and says what collided."""
    text = str(error).splitlines()[0] if str(error) else ""
    if "unique" in text.lower():
        return f"Something with the same identity exists already ({text.rpartition(': ')[2].strip()})."
    return f"It contradicts a rule of the stored data ({text.rpartition(': ')[2].strip()})."


def _invalid(faults: tuple[errors.Fault, ...]) -> SluiceError:
    if len(faults) == 1:
        only = faults[0]
        return errors.Malformed(f"{only.path}: {only.message}" if only.path else only.message, faults)
    return errors.Malformed(f"{len(faults)} fields are not right.", faults)


def _from_rest(error: rest.APIException, request: Any) -> SluiceError:
    if isinstance(error, rest.ValidationError):
        data = getattr(request, "data", None)
        return _invalid(
            tuple(reword_message(fault, value_at(data, fault.path)) for fault in field_faults(error.detail))
        )
    if isinstance(error, rest.NotAuthenticated):
        return errors.NotAuthenticated("Send a token as `Authorization: Bearer slu_…`. Settings, Tokens makes one.")
    if isinstance(error, rest.Throttled):
        return errors.TooMany("Too many requests. Slow down.", retry_after_s=getattr(error, "wait", None) or 1)
    kind = _BY_STATUS.get(error.status_code, errors.Malformed if error.status_code < 500 else errors.Unavailable)
    codes = error.get_codes()
    code = codes if isinstance(codes, str) and error.status_code in {405, 406, 415} else None
    return kind(str(error.detail), code=code)
