"""POSTs that may be sent again: with the same `Idempotency-Key` the first answer is replayed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

from django.db import IntegrityError, transaction
from django.http import QueryDict
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.clock import shared_now
from apps.core.errors import Conflict, Impossible, Malformed
from apps.core.models import IdempotencyRecord
from apps.core.problem_details import PROBLEM_JSON

__all__ = ["KEPT", "IdempotentMixin", "PromisedResponse", "ReplayedResponse", "idempotency_purge"]

KEPT = timedelta(hours=24)
_HEADERS = ("Location", "Content-Location", "Preference-Applied", "ETag")
_NOT_REMEMBERED = frozenset({401, 403, 429})
_PURGE_EVERY = 100


class ReplayedResponse(Exception):
    """Not an error: it carries a remembered answer past the handler."""

    def __init__(self, response: Response) -> None:
        self.response = response


class PromisedResponse(Response):
    """An answer that may become a better one: `finish()` waits for it, once the handler's effect is committed."""

    def __init__(self, *args: Any, finish: Callable[[], Response], **options: Any) -> None:
        super().__init__(*args, **options)
        self.finish = finish


class IdempotentMixin:
    """Views whose POSTs honour `Idempotency-Key`.

    The key belongs to its sender (user) for 24 hours. The same key with the same request replays the first answer with
    `Idempotency-Replayed: true`; with another request it is refused (422). Server errors and refusals of the caller
    (401, 403, 429) are not remembered.

    What the handler writes and the answer that is remembered are one transaction, so that a process which is killed
    leaves both or neither. The key's row is its first statement: whoever sends the same key meanwhile waits for its end
    at the unique constraint (on SQLite at the write lock), and replays. What a handler only waits for it leaves to a
    `PromisedResponse`. Effects outside of the database belong behind `transaction.on_commit`.

    Attributes
    ----------
    secret_actions
        Actions whose answers hold a secret. They take no key, since a remembered answer would store the secret, and
        nothing on the way may store them either.
    keeps_own_answers
        The handler keeps answers itself, found by `Idempotency-Key`: it cannot be one transaction.
    """

    secret_actions: frozenset[str] = frozenset()
    keeps_own_answers = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        key = request.headers.get("Idempotency-Key") if request.method == "POST" else None
        if key is not None:
            self._check_key(key)
        handler = getattr(self, "post", None) if request.method == "POST" else None
        if handler is not None:
            self.post = partial(self._answer_post, handler, None if self.keeps_own_answers else key)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        if self.shows_secret():
            response["Cache-Control"] = "no-store"
        return response

    def shows_secret(self) -> bool:
        """Whether the answer of the present action holds a secret."""
        return getattr(self, "action", None) in self.secret_actions

    def _check_key(self, key: str) -> None:
        if self.shows_secret():
            message = "is not taken here: remembering the answer would store the secret"
            raise Malformed(f"Idempotency-Key {message}.", [("Idempotency-Key", message)])
        if not 1 <= len(key) <= 255 or not key.isprintable():
            message = "1 to 255 printable characters are allowed"
            raise Malformed(f"Idempotency-Key: {message}.", [("Idempotency-Key", message)])

    def _answer_post(
        self, handler: Callable[..., Response], key: str | None, request: Request, *args: Any, **kwargs: Any
    ) -> Response:
        if key is None:
            response = handler(request, *args, **kwargs)
            return response.finish() if isinstance(response, PromisedResponse) else response
        fingerprint = _fingerprint(request)  # before the transaction: it reads the body
        with transaction.atomic():
            record = _reserve(request, key, fingerprint)
            response = self._attempt(transaction.atomic(handler), request, *args, **kwargs)
            if _is_remembered(response):
                _remember(record, response)
            else:
                transaction.set_rollback(True)
        if isinstance(response, PromisedResponse):
            response = self._attempt(response.finish)
            if _is_remembered(response):
                _remember(record, response)
        if record.pk % _PURGE_EVERY == 0:
            idempotency_purge()
        return response

    def _attempt(self, handler: Callable[..., Response], *args: Any, **kwargs: Any) -> Response:
        """The answer of a handler, or the refusal that its error amounts to."""
        try:
            return handler(*args, **kwargs)
        except Exception as error:
            return self.handle_exception(error)  # type: ignore[attr-defined, no-any-return]


def idempotency_purge() -> int:
    """Forget answers older than `KEPT`; returns how many."""
    return IdempotencyRecord.objects.filter(created_at__lt=shared_now() - KEPT).delete()[0]


def _reserve(request: Request, key: str, fingerprint: str) -> IdempotencyRecord:
    """The key's row, written now. ReplayedResponse or a refusal where the key has one already."""
    owner = f"user:{request.user.pk}"
    IdempotencyRecord.objects.filter(owner=owner, key=key, created_at__lt=shared_now() - KEPT).delete()
    try:
        with transaction.atomic():
            # without the query string: it may hold what is not to be stored
            return IdempotencyRecord.objects.create(
                owner=owner, key=key, path=request.path[:500], fingerprint=fingerprint
            )
    except IntegrityError:
        record = IdempotencyRecord.objects.filter(owner=owner, key=key).first()
    if record is None:  # its first request was undone in this very moment
        raise Conflict("A request with this Idempotency-Key has just failed. Send it again.", retry_after_s=1)
    if record.fingerprint != fingerprint:
        raise Impossible(
            "This Idempotency-Key was used for another request. Use a new key for a new request.",
            [("Idempotency-Key", f"was used for POST {record.path} with other content")],
            code="key_reused",
        )
    if record.status is None:  # of a version that kept the key before the effect
        raise Conflict(
            "The first request with this Idempotency-Key was cut off, and whether it took effect is not known. "
            "Look, and use a new key."
        )
    headers = {**record.headers, "Idempotency-Replayed": "true"}
    kind = PROBLEM_JSON if record.status >= 400 else None
    raise ReplayedResponse(Response(record.body, status=record.status, headers=headers, content_type=kind))


def _is_remembered(response: Response) -> bool:
    return response.status_code < 500 and response.status_code not in _NOT_REMEMBERED


def _remember(record: IdempotencyRecord, response: Response) -> None:
    record.status = response.status_code
    record.body = json.loads(JSONRenderer().render(response.data)) if response.data is not None else None
    record.headers = {name: response[name] for name in _HEADERS if response.has_header(name)}
    record.save(update_fields=["status", "body", "headers"])


def _fingerprint(request: Request) -> str:
    """Same request, same value. Multipart is hashed by its parts, for its boundary differs each time it is sent."""
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    if (request.content_type or "").startswith("multipart/"):
        for name in sorted(request.data):
            for value in cast(QueryDict, request.data).getlist(name):
                digest.update(f"\n{name}=".encode())
                for chunk in value.chunks() if hasattr(value, "chunks") else [str(value).encode()]:
                    digest.update(chunk)
        for file in request.FILES.values():
            file.seek(0)
    else:
        digest.update(request._request.body)
    return digest.hexdigest()
