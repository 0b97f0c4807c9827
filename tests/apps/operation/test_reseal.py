"""Rotation of the signing key: nobody is signed out, no secret is lost, receivers of webhooks notice nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import models
from django.test import Client

from apps.accounts.models import User
from apps.accounts.services import user_create
from apps.connections.models import TOKEN_PURPOSE
from apps.connections.services import connection_create
from apps.core.errors import Conflict
from apps.core.secrets import SealedField, unseal_secret
from apps.ledger.models import ObjectChange
from apps.reports.deliveries import webhook_secret
from apps.reports.services import webhook_create
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db
OLD, NEW = "an old key, " + "o" * 50, "a new key, " + "n" * 50


def is_signed_in(client: Client) -> bool:
    return client.get("/settings/").status_code == 200


def reseal(**options: Any) -> str:
    out = io.StringIO()
    call_command("reseal", stdout=out, **options)
    return out.getvalue()


def test_rotation_signs_nobody_out_and_loses_no_secret(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []
    cluster = small_cluster.small_cluster()
    connection = connection_create(
        cluster=cluster, name="shop", engine="flink", url="https://flink.example", token="t0ken"
    )
    webhook = webhook_create(cluster=cluster, name="chat", url="https://example.org/in")
    reseal(forget_webhooks=True)  # the root of the tests' own key
    secret = webhook_secret(webhook)
    ann, bob = Client(), Client()
    for client, name in ((ann, "ann"), (bob, "bob")):
        client.force_login(user_create(username=name, password="a-long-password-1", role="viewer"))

    settings.SECRET_KEY_FALLBACKS = [NEW]  # first every process accepts the new key
    early = Client()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]  # then each signs with it, one after the other
    early.force_login(User.objects.get(username="ann"))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, [NEW]
    assert is_signed_in(early) and is_signed_in(ann)

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    assert is_signed_in(ann)
    changes = ObjectChange.objects.count()
    words = reseal()
    assert "connection (sealed_token): 1 of 1 encrypted anew" in words and "of before may go" in words
    assert ObjectChange.objects.count() == changes  # the secrets are the same

    settings.SECRET_KEY_FALLBACKS = []
    assert all(map(is_signed_in, (ann, bob, early)))
    connection.refresh_from_db()
    assert unseal_secret(connection.sealed_token, TOKEN_PURPOSE) == "t0ken"
    assert webhook_secret(webhook) == secret
    assert "0 of 1" in reseal()


def test_lost_key_is_told_and_webhooks_keep_their_secrets_until_a_person_says_otherwise(settings: Any) -> None:
    webhook = webhook_create(cluster=small_cluster.small_cluster(), name="chat", url="https://example.org/in")
    secret = webhook_secret(webhook)
    settings.SECRET_KEY, before = NEW, settings.SECRET_KEY
    with pytest.raises(Conflict, match="SLUICE_SECRET_KEY_FALLBACKS"):
        webhook_secret(webhook)
    with pytest.raises(CommandError, match=r"installation secret \(sealed\): 1"):
        reseal()
    settings.SECRET_KEY = before
    assert webhook_secret(webhook) == secret
    reseal(forget_webhooks=True)
    assert webhook_secret(webhook) != secret


def test_every_sealed_column_is_found_by_a_rotation() -> None:
    sealed = {
        f"{model._meta.label}.{column.name}"
        for model in apps.get_models()
        for column in model._meta.concrete_fields
        if isinstance(column, models.TextField) and "ealed" in f"{column.name} {column.help_text}"
        if not isinstance(column, SealedField)
    }
    assert sealed == set()
