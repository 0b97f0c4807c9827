"""Entries of the ledger that are no change of a tracked row: decisions, acts on runs, and refused attempts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import DatabaseError, transaction
from django.db.models import Model
from django.http import HttpRequest

from apps.core.counters import CountedWindow, count_of
from apps.core.errors import SluiceError
from apps.core.limits import MAX_OPERATOR_PATH, MAX_REASON, MAX_SLUG
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.origin import Origin, origin_now
from apps.ledger.recorder import tracked_models

__all__ = ["DECIDED_MODELS", "decision_recorded", "refusal_noted", "refusal_recorded", "sign_in_recorded"]

_EACH = 20  # refused attempts of one caller in a window that have an entry each
_WINDOW_S = 3600.0
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger(__name__)

#: Models whose columns the fields of decisions are, by kind: for their words. Each app adds its own when it is loaded.
DECIDED_MODELS: dict[str, type[Model]] = {}


def decision_recorded(
    *,
    kind: str,
    key: object,
    name: str,
    cluster: Any,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    why: str = "",
) -> ObjectChange:
    """Record what was decided of a run, in the transaction that decides; the run is the object of the entry."""
    columns = (origin_now() or Origin()).columns()
    columns["why"] = why[:MAX_REASON] or columns["why"]
    return ObjectChange.objects.create(
        kind=kind,
        object_id=str(key),
        name=name[:MAX_OPERATOR_PATH],
        cluster=cluster.slug,
        cluster_key=cluster.pk,
        action=ChangeAction.DECIDED,
        before=dict(before),
        after=dict(after),
        **columns,
    )


def refusal_noted(refusal: SluiceError) -> None:
    """Note for the ledger why the present request is refused, where its page goes on to show that."""
    origin = origin_now()
    if origin is not None and origin.request is not None:
        origin.request.refusal = refusal  # type: ignore[attr-defined]


def refusal_recorded(request: HttpRequest, status: int) -> None:
    """Record a refused attempt of a person or token: who, what, why it was refused. Agents have states of their own.

    Of one caller in an hour the first 20 have an entry each, then the 40th, the 80th and so on: each tells how many
    were left out since the entry before, so that nobody fills the ledger by asking.
    """
    user = getattr(request, "user", None)
    if not _counts(request, status) or not isinstance(user, AbstractBaseUser):
        return
    origin = Origin(request).columns()
    caller = hashlib.sha256(f"{user.pk}:{origin['token']}".encode()).hexdigest()[:32]
    count = count_of(CountedWindow(f"refused:{caller}", _EACH, _WINDOW_S))
    if count > _EACH and not _is_doubled(count):
        return
    left_out = count // 2 - 1 if count > _EACH else 0
    refusal: SluiceError | None = getattr(request, "refusal", None)
    after: dict[str, Any] = {"status": status}
    if refusal is not None:
        after |= {"code": refusal.code, "message": refusal.message[:MAX_REASON]}
    if left_out:
        after["left_out"] = left_out
    slug, key = _cluster(request)
    try:
        with transaction.atomic():
            ObjectChange.objects.create(
                kind="request",  # what was asked of an address
                object_id="",
                name=f"{request.method} {_path(request)}"[:MAX_OPERATOR_PATH],
                cluster=slug,
                cluster_key=key,
                action=ChangeAction.REFUSED,
                after=after,
                **origin,
            )
    except DatabaseError as error:  # the answer stands: it is no less refused
        _log.warning("a refused attempt is not in the ledger: %s", error)


def sign_in_recorded(request: HttpRequest, *, name: str, key: int | None, way: str = "", refusal: str = "") -> None:
    """Record that a session began, or with `refusal` that one was refused and why.

    `name` is the person's, with their `key`. Of what was typed as a name and is nobody's nothing is kept: it may be a
    password. Of one person in an hour the first 20 refusals have an entry each, then the 40th, the 80th and so on; of
    nobody likewise.
    """
    if refusal:
        account = hashlib.sha256(f"sign-in:{key}".encode()).hexdigest()[:32]
        count = count_of(CountedWindow(f"refused:{account}", _EACH, _WINDOW_S))
        if count > _EACH and not _is_doubled(count):
            return
    try:
        with transaction.atomic():
            ObjectChange.objects.create(
                kind="session",
                object_id="" if key is None else str(key),
                name=name if key is not None else "nobody's name",
                action=ChangeAction.REFUSED if refusal else ChangeAction.CREATED,
                after={"message": refusal} if refusal else {"way": way},
                **Origin(request).columns(),
            )
    except DatabaseError as error:  # who may sign in does, also where nothing more can be recorded
        _log.warning("a sign-in is not in the ledger: %s", error)


def _counts(request: HttpRequest, status: int) -> bool:
    """Whether an answer refuses what somebody may not do, or what cannot be done as things are."""
    return status == 403 or (status in {409, 422} and request.method not in _SAFE)


def _is_doubled(count: int) -> bool:
    """Whether it is 20 times a power of two."""
    times, rest = divmod(count, _EACH)
    return not rest and times & (times - 1) == 0


def _path(request: HttpRequest) -> str:
    """The path without a token that is a part of it."""
    token = request.resolver_match.kwargs.get("token") if request.resolver_match else None
    return request.path.replace(str(token), "...") if token else request.path


def _cluster(request: HttpRequest) -> tuple[str, int | None]:
    """Slug and key of the cluster whose page it was asked of."""
    slug = str(request.resolver_match.kwargs.get("slug", "")) if request.resolver_match else ""
    if not slug or len(slug) > MAX_SLUG:
        return "", None
    key = tracked_models()["cluster"]._base_manager.filter(slug=slug).values_list("pk", flat=True).first()
    return (slug, key) if key is not None else ("", None)
