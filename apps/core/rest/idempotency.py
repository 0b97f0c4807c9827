"""POSTs that may be sent again: with the same `Idempotency-Key` the first answer is replayed."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any, cast

from django.db import IntegrityError, transaction
from django.http import QueryDict
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.errors import Conflict, Impossible, Malformed
from apps.core.models import IdempotencyRecord
from apps.core.problem_details import PROBLEM_JSON

__all__ = ["KEPT", "IdempotentMixin", "ReplayedResponse", "idempotency_purge"]

KEPT = timedelta(hours=24)
# A request that got no answer by then was cut off by the end of its process; its key may be used again.
ABANDONED = timedelta(minutes=5)
_HEADERS = ("Location", "Content-Location", "Preference-Applied", "ETag")
_PURGE_EVERY = 100


class ReplayedResponse(Exception):
    """Not an error: it carries a remembered answer past the handler."""

    def __init__(self, response: Response) -> None:
        self.response = response


class IdempotentMixin:
    """Views whose POSTs honour `Idempotency-Key`.

    The key belongs to its sender (user) for 24 hours. The same key with the same request replays the first answer with
    `Idempotency-Replayed: true`; with another request it is refused (422); while the first is still at work, 409.
    Server errors and refusals of the caller (401, 403, 429) are not remembered.
    """

    _record: IdempotencyRecord | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        key = request.headers.get("Idempotency-Key")
        if request.method == "POST" and key is not None:
            self._record = _reserve(request, key)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        record, self._record = self._record, None
        if record is not None:
            _remember(record, response)
        return response


def idempotency_purge() -> int:
    """Forget answers older than `KEPT`; returns how many."""
    return IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT).delete()[0]


def _reserve(request: Request, key: str) -> IdempotencyRecord:
    if not 1 <= len(key) <= 255 or not key.isprintable():
        message = "1 to 255 printable characters are allowed"
        raise Malformed(f"Idempotency-Key: {message}.", [("Idempotency-Key", message)])
    owner, fingerprint = f"user:{request.user.pk}", _fingerprint(request)
    try:
        with transaction.atomic():
            record = IdempotencyRecord.objects.create(
                owner=owner, key=key, path=request.get_full_path()[:500], fingerprint=fingerprint
            )
    except IntegrityError:
        return _known(owner, key, fingerprint, request)
    if record.pk % _PURGE_EVERY == 0:
        idempotency_purge()
    return record


def _known(owner: str, key: str, fingerprint: str, request: Request) -> IdempotencyRecord:
    record = IdempotencyRecord.objects.filter(owner=owner, key=key).first()
    if record is None:  # its first request failed in this very moment
        raise Conflict("A request with this Idempotency-Key has just failed. Send it again.", retry_after_s=1)
    age = timezone.now() - record.created_at
    if age > KEPT or (record.status is None and age > ABANDONED):
        IdempotencyRecord.objects.filter(pk=record.pk, created_at=record.created_at).delete()
        return _reserve(request, key)
    if record.fingerprint != fingerprint:
        raise Impossible(
            "This Idempotency-Key was used for another request. Use a new key for a new request.",
            [("Idempotency-Key", f"was used for POST {record.path} with other content")],
            code="key_reused",
        )
    if record.status is None:
        raise Conflict("The first request with this Idempotency-Key is still at work.", retry_after_s=1)
    headers = {**record.headers, "Idempotency-Replayed": "true"}
    kind = PROBLEM_JSON if record.status >= 400 else None
    raise ReplayedResponse(Response(record.body, status=record.status, headers=headers, content_type=kind))


def _remember(record: IdempotencyRecord, response: Response) -> None:
    if response.status_code >= 500 or response.status_code in {401, 403, 429}:
        record.delete()
        return
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
