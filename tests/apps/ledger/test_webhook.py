"""The ledger goes out to a webhook as signed CloudEvents, each change once as long as the receiver takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.core.messages import signature
from apps.fleet.services import node_drain
from apps.ledger.chain import ledger_seal
from apps.ledger.destinations import ledger_forward
from apps.ledger.models import ObjectChange
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
