"""The ledger goes out to a webhook as signed CloudEvents, each change once as long as the receiver takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.core.messages import signature
from apps.fleet.services import node_drain
from apps.ledger import destinations
from apps.ledger.chain import ledger_seal
from apps.ledger.destinations import ledger_forward
from apps.ledger.models import LedgerWebhook, ObjectChange
from apps.ledger.services import ledger_webhook_delete, ledger_webhook_update
from apps.ledger.webhook import WebhookAddress, webhook_sender
from tests.apps.pages.html import body
from tests.apps.receivers import hook
from tests.apps.small_cluster import small_cluster

__all__ = ["hook"]

pytestmark = pytest.mark.django_db


def test_changes_are_posted_in_order_and_again_from_where_a_receiver_failed(
    hook: Any, settings: Any, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of-the-receiver\n")
    settings.LEDGER_WEBHOOK, settings.LEDGER_WEBHOOK_SECRET_FILE = hook.url, str(tmp_path / "secret")
    cluster = small_cluster()
    count = ledger_seal()
    hook.status = 503
    assert ledger_forward() == 0
    hook.status = 200
    hook.requests.clear()
    assert (ledger_forward(), ledger_forward()) == (count, 0)
    (headers, body), events = hook.requests[0], json.loads(hook.requests[0][1])
    assert headers["Content-Type"] == "application/cloudevents-batch+json"
    moment = headers["Sluice-Signature"].removeprefix("t=").partition(",")[0]
    assert headers["Sluice-Signature"] == signature("of-the-receiver", int(moment), body)
    assert [event["id"] for event in events] == [str(number) for number in range(1, count + 1)]
    node_drain(node=cluster.nodes.get(name="a"))
    ledger_seal()
    assert ledger_forward() == 1
    (event,) = json.loads(hook.requests[-1][1])
    assert (event["type"], event["data"]["after"]) == ("io.sluice.ledger.changed", {"state": "draining"})
    assert event["data"]["hash"] == ObjectChange.objects.get(number=count + 1).hash


def test_webhook_of_the_settings_comes_before_that_of_the_environment(hook: Any, settings: Any) -> None:
    settings.LEDGER_WEBHOOK = "https://preset.invalid/"
    small_cluster()
    ledger_webhook_update(address=f"{hook.url}?key=of-the-address", secret="of-the-new-receiver")
    count = ledger_seal()
    hook.status = 503
    assert (ledger_forward(), ledger_forward()) == (0, 0)
    row = LedgerWebhook.objects.get()
    assert row.failures == 2 and "503" in row.error and row.sent_at is None
    hook.status, hook.requests[:] = 200, []
    assert ledger_forward() == count
    row.refresh_from_db()
    assert (row.failures, row.error) == (0, "") and row.sent_at is not None
    headers, content = hook.requests[0]
    moment = headers["Sluice-Signature"].removeprefix("t=").partition(",")[0]
    assert headers["Sluice-Signature"] == signature("of-the-new-receiver", int(moment), content)
    ledger_webhook_update(address=hook.url)
    ledger_seal()
    assert ledger_forward() == count + 1, "another address gets all that is kept"
    ledger_webhook_delete()
    entries = ObjectChange.objects.filter(kind="ledger-webhook").order_by("pk")
    assert [entry.action for entry in entries] == ["created", "changed", "deleted"]
    written = json.dumps([[entry.before, entry.after, entry.name] for entry in entries])
    assert "of-the" not in written and "127.0.0.1" in written


ADDRESSES = {"preset to own": ("", "a"), "own to other": ("a", "b"), "own to preset": ("a", "")}


@pytest.mark.parametrize("change", ADDRESSES)
def test_address_that_changes_while_a_batch_is_sent_gets_all_that_is_kept(
    hook: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (tmp_path / "secret").write_text("of-the-receiver\n")
    settings.LEDGER_WEBHOOK, settings.LEDGER_WEBHOOK_SECRET_FILE = hook.url, str(tmp_path / "secret")

    def point_to(part: str) -> None:
        if part:
            ledger_webhook_update(address=f"{hook.url}&of={part}", secret="of-the-new-receiver")
        else:
            ledger_webhook_delete()

    before, after = ADDRESSES[change]
    point_to(before)
    small_cluster()
    count = ledger_seal()

    @contextmanager
    def changed_meanwhile(webhook: WebhookAddress) -> Iterator[Any]:
        with webhook_sender(webhook) as send:
            yield lambda rows: (send(rows), point_to(after))

    with monkeypatch.context() as patched:
        patched.setattr(destinations, "webhook_sender", changed_meanwhile)
        assert ledger_forward() == count
    assert ledger_forward() == count, "the mark was that of another address"
    assert ledger_forward() == 0


def test_page_saves_tests_retries_and_shows_no_secret(hook: Any, user_of: Any) -> None:
    client, path = Client(), "/changes/webhook/"
    client.force_login(user_of("admin"))
    refused = client.post(path, {"address": "ftp://x", "secret": "short"})
    assert refused.status_code == 422 and not LedgerWebhook.objects.exists()
    assert "https://" in body(refused) and "16 to" in body(refused)
    address, secret = f"{hook.url}?key=of-the-address", "of-the-new-receiver"
    assert client.post(path, {"address": address, "secret": secret}).status_code == 302
    hook.status = 500
    assert "did not arrive" in body(client.post(f"{path}test/", follow=True))
    assert "1 failure in a row" in body(client.get(path))
    hook.status = 200
    assert "The test arrived" in body(client.post(f"{path}test/", follow=True))
    assert json.loads(hook.requests[-1][1])[0]["type"] == "io.sluice.ledger.test"
    count = ledger_seal()
    assert f"{count} changes sent" in body(client.post(f"{path}retry/", follow=True))
    page = body(client.get(path))
    assert "of-the" not in page and "127.0.0.1" in page
    assert client.post(f"{path}remove/").status_code == 302 and not LedgerWebhook.objects.exists()


def test_webhook_is_set_and_tried_over_rest_by_admins_alone(hook: Any, api_of: Any) -> None:
    path, asked = "/api/v1/ledger-webhook", {"address": hook.url, "secret": "of-the-new-receiver"}
    assert api_of("operator").patch(path, asked, format="json").status_code == 403
    admin = api_of("admin")
    refused = admin.patch(path, {"address": hook.url}, format="json")
    assert refused.status_code == 400 and refused.json()["faults"][0]["path"] == "secret"
    shown = admin.patch(path, asked, format="json").json()
    assert (shown["address"], shown["origin"], shown["failures"]) == ("127.0.0.1", "settings", 0)
    assert admin.post(f"{path}/test").json() == {"sent": 0, "error": ""}
    count = ledger_seal()
    assert (count, admin.post(f"{path}/retry").json()) == (count, {"sent": count, "error": ""})
    assert admin.get(path).json()["unsent"] == 0
    assert admin.delete(path).status_code == 204 and admin.get(path).json()["origin"] == "none"
