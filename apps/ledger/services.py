"""Changes to where the ledger is sent; each is an entry of the ledger itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.db import transaction

from apps.core.addresses import host_of
from apps.core.errors import Fault, Malformed, fault_count
from apps.core.limits import MAX_URL
from apps.core.messages import address_faults
from apps.core.secrets import SecretLost, seal_secret, unseal_secret
from apps.ledger.choices import ChangeAction
from apps.ledger.destinations import webhook_forget
from apps.ledger.models import ADDRESS_PURPOSE, SECRET_PURPOSE, LedgerWebhook, ObjectChange
from apps.ledger.origin import Origin, origin_now
from apps.ledger.recorder import SECRET, SECRET_ANEW
from engine.words import counted

__all__ = ["MIN_SECRET", "ledger_webhook_delete", "ledger_webhook_update"]

MIN_SECRET = 16  #: characters
_KIND = "ledger-webhook"


@transaction.atomic
def ledger_webhook_update(*, address: str = "", secret: str = "") -> LedgerWebhook:
    """Say where the ledger is posted to. What is empty stays as it is; another address gets all that is kept.

    Raises
    ------
    Malformed
        With every fault of address and secret.
    """
    row = LedgerWebhook.objects.select_for_update().first()
    address, secret = address.strip(), secret.strip()
    kept_address, kept_secret = ("", "") if row is None else _kept(row)
    faults = _faults(address, secret, has_address=bool(kept_address), has_secret=bool(kept_secret))
    if faults:
        raise Malformed(f"The webhook has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    url, host = address or kept_address, host_of(address or kept_address)
    values: dict[str, Any] = {
        "sealed_address": seal_secret(url, ADDRESS_PURPOSE),
        "sealed_secret": seal_secret(secret or kept_secret, SECRET_PURPOSE),
        "shown_address": host,
    }
    if url != kept_address:
        webhook_forget()
        values |= {"sent_at": None, "tried_at": None, "failures": 0, "error": ""}
    stored, _ = LedgerWebhook.objects.update_or_create(pk=1, defaults=values)
    after = {"address": host, "secret": SECRET_ANEW if secret and row is not None else SECRET}
    if row is None:
        _recorded(ChangeAction.CREATED, host, None, after)
    elif url != kept_address or secret:
        _recorded(ChangeAction.CHANGED, host, {"address": row.shown_address, "secret": SECRET}, after)
    return stored


@transaction.atomic
def ledger_webhook_delete() -> None:
    """Post the ledger no more, or again to the webhook that the environment names."""
    row = LedgerWebhook.objects.select_for_update().first()
    if row is None:
        return
    webhook_forget()
    row.delete()
    _recorded(ChangeAction.DELETED, row.shown_address, {"address": row.shown_address, "secret": SECRET}, None)


def _kept(row: LedgerWebhook) -> tuple[str, str]:
    """Address and secret; empty where they were encrypted under another key of the installation."""
    with suppress(SecretLost):
        return unseal_secret(row.sealed_address, ADDRESS_PURPOSE), unseal_secret(row.sealed_secret, SECRET_PURPOSE)
    return "", ""


def _faults(address: str, secret: str, *, has_address: bool, has_secret: bool) -> list[Fault]:
    faults = []
    if len(address) > MAX_URL:
        faults.append(Fault("address", f"address has {len(address):,} characters; allowed: {MAX_URL:,}"))
    elif address:
        faults += address_faults(address, "address")
    elif not has_address:
        faults.append(Fault("address", "address is missing; needed: a URL that begins with https:// or http://"))
    if (secret and len(secret) < MIN_SECRET) or len(secret) > MAX_URL:
        allowed = f"allowed: {MIN_SECRET} to {MAX_URL:,}"
        faults.append(Fault("secret", f"secret has {counted(len(secret), 'character')}; {allowed}"))
    elif not secret and not has_secret:
        faults.append(Fault("secret", f"secret is missing; needed: at least {MIN_SECRET} characters"))
    return faults


def _recorded(
    action: ChangeAction, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> None:
    columns = (origin_now() or Origin()).columns()
    ObjectChange.objects.create(
        kind=_KIND, object_id="1", name=name, action=action, before=before, after=after, **columns
    )
