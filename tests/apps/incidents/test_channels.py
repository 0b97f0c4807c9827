"""Channels tell real servers of incidents: each in its form, once, gathered, silenced, and tried again."""

from __future__ import annotations

import json
import socket
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.addresses import PrivateAddress
from apps.core.deliveries import DeliveryState
from apps.core.errors import Malformed
from apps.core.sockets import connections_checked
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, cluster_update
from apps.incidents.models import Incident, IncidentChannel, IncidentDelivery
from apps.incidents.notices import alerts_renew, channel_try, incident_deliveries_send_due
from apps.incidents.refresh import CLEAR_S
from apps.incidents.services import channel_create, channel_delete, channel_update, silence_create, silence_end
from tests.apps.incidents.states import BEGIN, STARVED, STREAM, after, late, well

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

SECRET = "3ccdd113474722377935511fc85d3dd4"


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Any) -> None:
    settings.CONNECT_HOSTS = ["127.0.0.0/8"]


def base_of(hook: Any) -> str:
    return hook.url.removesuffix("/told?by=sluice")


def channel_of(cluster: Cluster, kind: str, address: str, **values: Any) -> IncidentChannel:
    return channel_create(cluster=cluster, kind=kind, name=kind, address=address, **values)


def told(hook: Any) -> list[Any]:
    return [json.loads(body) for _, body in hook.requests]


def test_alertmanager_gets_an_alert_with_a_lease_that_is_renewed_and_ended(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "alertmanager", base_of(hook), token="bearer-of-the-proxy")
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    assert incident_deliveries_send_due() == 1
    ((alert,),) = told(hook)
    assert alert["labels"] == {
        "alertname": "SluiceIncident", "source": "sluice", "cluster": cluster.slug, "cause": "stream_behind",
        "severity": "critical", "incident": str(incident.pk),
    }  # fmt: skip
    assert alert["annotations"]["description"].replace("\xa0", " ").startswith("The stream processor is 71 s behind")
    assert datetime.fromisoformat(alert["endsAt"]) > timezone.now() + timedelta(minutes=4)
    assert hook.requests[0][0]["Authorization"] == "Bearer bearer-of-the-proxy"
    assert alerts_renew() == 1
    assert told(hook)[1][0]["labels"] == alert["labels"], "the same alert again"
    well(cluster, "one")
    after(cluster, CLEAR_S + 15)
    assert incident_deliveries_send_due() == 1
    ended = told(hook)[2][0]
    assert ended["labels"] == alert["labels"] and datetime.fromisoformat(ended["endsAt"]) <= timezone.now()
    assert alerts_renew() == 0, "nothing is open"


def test_pagerduty_and_opsgenie_open_and_close_the_alert_of_an_incident(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "pagerduty", base_of(hook), token="routing-key-1")
    channel_of(cluster, "opsgenie", base_of(hook), token="genie-key-1")
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    assert incident_deliveries_send_due() == 2
    by_kind = {"routing_key" in body: body for body in told(hook)}
    event, alert = by_kind[True], by_kind[False]
    assert (event["event_action"], event["routing_key"]) == ("trigger", "routing-key-1")
    assert event["payload"]["severity"] == "critical" and event["payload"]["custom_details"]["id"] == incident.pk
    assert alert["alias"] == event["dedup_key"] and alert["priority"] == "P1"
    hook.requests.clear()
    well(cluster, "one")
    after(cluster, CLEAR_S + 15)
    assert incident_deliveries_send_due() == 2
    assert [body["event_action"] for body in told(hook) if "dedup_key" in body] == ["resolve"]
    assert [headers["Authorization"] for headers, body in hook.requests if b"dedup_key" not in body] == [
        "GenieKey genie-key-1"
    ]


def test_late_message_of_an_incident_that_is_over_opens_no_alert(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "pagerduty", base_of(hook), token="routing-key-1")
    hook.status = 503
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert incident_deliveries_send_due() == 0
    well(cluster, "one")
    after(cluster, CLEAR_S + 15)
    hook.status = 200
    hook.requests.clear()
    IncidentDelivery.objects.update(next_try_at=timezone.now())
    assert incident_deliveries_send_due() == 2
    assert {body["event_action"] for body in told(hook)} == {"resolve"}


def test_cloudevent_is_structured_json_with_an_id_that_a_repeat_keeps(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "cloudevents", hook.url)
    hook.status = 500
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    incident_deliveries_send_due()
    hook.status = 202
    IncidentDelivery.objects.update(next_try_at=timezone.now())
    assert incident_deliveries_send_due() == 1
    first, event = told(hook)
    assert first == event, "a receiver can tell that it is a repeat"
    assert hook.requests[1][0]["Content-Type"] == "application/cloudevents+json"
    assert (event["specversion"], event["type"]) == ("1.0", "io.sluice.incident.opened")
    assert event["subject"] == f"incidents/{incident.pk}" and event["source"] == f"/c/{cluster.slug}"
    assert event["data"]["incident"]["queries"][0]["query"] == "one"


def test_chat_is_told_by_apprise_with_what_was_gathered_in_one_message(cluster: Cluster, hook: Any) -> None:
    address = base_of(hook).replace("http://", "mmost://") + f"/{SECRET}"
    channel = channel_of(cluster, "service", address, group_s=30)
    assert channel.shown_address == "Mattermost at 127.0.0.1" and SECRET not in channel.sealed_address
    late(cluster, "one", STREAM)
    after(cluster, 0)
    late(cluster, "two", STARVED)
    after(cluster, 15)
    assert IncidentDelivery.objects.count() == 1
    assert incident_deliveries_send_due() == 1
    ((_, body),) = hook.requests
    assert b"2 incidents of" in body and b"The stream processor is behind" in body and b"agent-3" in body
    late(cluster, "three", None)
    after(cluster, 30)
    assert IncidentDelivery.objects.count() == 2, "what comes after it was sent is another message"


def test_service_that_is_down_is_said_and_tried_again_without_its_secret(
    cluster: Cluster, closed_port: int, caplog: Any
) -> None:
    channel = channel_of(cluster, "service", f"mmost://127.0.0.1:{closed_port}/{SECRET}")
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert incident_deliveries_send_due() == 0
    delivery = IncidentDelivery.objects.get()
    channel.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (DeliveryState.WAITING, 1)
    assert delivery.last_error.startswith("Mattermost did not take it.") and channel.error == delivery.last_error
    assert delivery.next_try_at is not None
    assert SECRET not in delivery.last_error and delivery.shown_target == "service"


def test_silence_holds_messages_back_until_it_ends_and_lets_the_end_through(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "cloudevents", hook.url)
    silence = silence_create(
        cluster=cluster, starts_at=BEGIN, ends_at=timezone.now() + timedelta(hours=1), reason="upgrade", subject="one"
    )
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert IncidentDelivery.objects.count() == 0
    late(cluster, "two", STARVED)
    after(cluster, 15)
    assert IncidentDelivery.objects.count() == 1, "another subject is told"
    silence_end(silence=silence)
    refresh_at = (timezone.now() - BEGIN).total_seconds() + 1
    after(cluster, refresh_at)
    assert IncidentDelivery.objects.count() == 2, "what is open when it ends is told then"
    silence_create(cluster=cluster, starts_at=BEGIN, ends_at=timezone.now() + timedelta(days=2), reason="all")
    for name in ("one", "two"):
        well(cluster, name)
    after(cluster, refresh_at + CLEAR_S + 15)
    assert set(Incident.objects.values_list("state", flat=True)) == {"resolved"}
    assert IncidentDelivery.objects.count() == 4, "who was told of a beginning is told of the end"


def test_query_beside_a_silenced_one_breaks_the_silence_of_their_incident(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "cloudevents", hook.url)
    ends_at = timezone.now() + timedelta(hours=1)
    silence_create(cluster=cluster, starts_at=BEGIN, ends_at=ends_at, reason="upgrade", subject="one")
    late(cluster, "one", STREAM)
    after(cluster, 0)
    assert IncidentDelivery.objects.count() == 0
    late(cluster, "two", STREAM)
    after(cluster, 15)
    assert IncidentDelivery.objects.count() == 1


def test_warning_is_told_to_those_who_want_warnings_and_its_end_to_no_other(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "cloudevents", hook.url, severity="warning")
    channel_of(cluster, "alertmanager", base_of(hook))
    late(cluster, "one", STREAM, "at_risk")
    after(cluster, 0)
    well(cluster, "one")
    after(cluster, CLEAR_S + 15)
    assert set(IncidentDelivery.objects.values_list("target", flat=True)) == {"cloudevents"}
    assert IncidentDelivery.objects.count() == 2


@pytest.mark.parametrize(
    ("kind", "address", "token", "words"),
    [
        ("alertmanager", "http://10.0.0.7:9093", "", "SLUICE_CONNECT_HOSTS would allow it"),
        ("alertmanager", "", "", "address is empty"),
        ("alertmanager", "ftp://x", "", "http:// or https://"),
        ("pagerduty", "", "", "needed: the integration key"),
        ("opsgenie", "http://169.254.169.254", "k", "private network"),
        ("opsgenie", "", "key\r\nX-Other: 1", "a character that none has"),
        ("slack", "https://example.org/services/T0/B0/x", "", "hooks.slack.com"),
        ("slack", "mmost://example.org/token", "", "hooks.slack.com"),
        ("service", "json://10.0.0.7/x", "", "allowed: a URL of Apprise of one of Discord"),
        ("service", "file:///etc/passwd", "", "allowed: a URL of Apprise"),
        ("service", "mmost://10.0.0.7/3ccdd113474722377935511fc85d3dd4", "", "private network"),
        ("service", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=/etc/passwd", "", "names a file"),
        ("service", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?a=b;template=/etc/passwd", "", "a file"),
        ("service", "mailto://me:word@example.org?pgpprv=/etc/ssl/private/key.pem", "", "names a file"),
        ("teams", "x" * 2001, "", "2,001 characters"),
    ],
)
def test_address_that_cannot_be_used_is_refused_and_not_stored(
    cluster: Cluster, kind: str, address: str, token: str, words: str
) -> None:
    with pytest.raises(Malformed) as refused:
        channel_create(cluster=cluster, kind=kind, name="x", address=address, token=token)
    assert words in refused.value.faults[0].message
    assert not IncidentChannel.objects.exists()


@pytest.mark.parametrize(
    ("kind", "address", "shown"),
    [
        ("slack", "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "hooks.slack.com"),
        (
            "teams",
            f"https://prod-12.westus.logic.azure.com:443/workflows/{SECRET}/triggers/manual/paths/invoke"
            "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdEFGH",
            "prod-12.westus.logic.azure.com",
        ),
        ("slack", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "Slack"),
        ("service", "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "Discord"),
    ],
)
def test_services_of_the_internet_are_accepted_and_shown_by_host_alone(
    cluster: Cluster, kind: str, address: str, shown: str
) -> None:
    assert channel_of(cluster, kind, address).shown_address == shown


def test_address_that_leads_into_a_private_network_later_is_not_asked(
    cluster: Cluster, hook: Any, settings: Any
) -> None:
    channel = channel_of(cluster, "service", base_of(hook).replace("http://", "mmost://") + f"/{SECRET}")
    settings.CONNECT_HOSTS = []
    trial = channel_try(channel)
    assert not trial["arrived"] and hook.requests == []


def test_connections_of_libraries_are_checked_as_they_are_made(hook: Any) -> None:
    host, port = base_of(hook).removeprefix("http://").split(":")
    seen: list[str] = []

    def outside() -> None:
        socket.create_connection((host, int(port)), 5).close()
        seen.append("open")

    def inside() -> None:
        with connections_checked(lambda address: False):
            with pytest.raises(PermissionError):
                socket.create_connection((host, int(port)), 5)
            thread = threading.Thread(target=outside)
            thread.start()
            thread.join()

    with pytest.raises(PrivateAddress):
        inside()
    socket.create_connection((host, int(port)), 5).close()
    assert seen == ["open"], "other threads are not concerned"


def test_test_message_arrives_or_says_why_over_rest(cluster: Cluster, hook: Any, api: APIClient) -> None:
    body = {"cluster": cluster.slug, "kind": "alertmanager", "name": "alerts", "address": base_of(hook)}
    made = api.post("/api/v1/incident-channels", body, format="json")
    assert made.status_code == 201 and "address" not in made.json() and made.json()["shown_address"] == "127.0.0.1"
    path = f"/api/v1/incident-channels/{made.json()['id']}"
    assert api.post(f"{path}/test").json() == {"arrived": True, "error": ""}
    opened, ended = told(hook)
    assert opened[0]["endsAt"] > ended[0]["endsAt"] and opened[0]["labels"] == ended[0]["labels"]
    hook.status = 401
    assert api.post(f"{path}/test").json() == {"arrived": False, "error": "127.0.0.1 answered 401"}
    assert api.get(path).json()["error"] == "127.0.0.1 answered 401"
    renamed = api.patch(path, {"name": "pager", "address": ""}, format="json")
    assert renamed.status_code == 200 and renamed.json()["shown_address"] == "127.0.0.1", "the address stays"


def test_deleted_channel_ends_what_waits_for_it(cluster: Cluster, hook: Any) -> None:
    channel = channel_of(cluster, "cloudevents", hook.url)
    late(cluster, "one", STREAM)
    after(cluster, 0)
    channel_delete(channel=channel)
    assert incident_deliveries_send_due() == 0
    assert IncidentDelivery.objects.get().last_error == "The channel was deleted."


def test_channel_keeps_its_kind_and_its_cluster(cluster: Cluster, hook: Any) -> None:
    channel = channel_of(cluster, "cloudevents", hook.url)
    with pytest.raises(Malformed, match="keeps its kind"):
        channel_update(channel=channel, kind="slack")
    with pytest.raises(Malformed, match="keeps its cluster"):
        channel_update(channel=channel, cluster=cluster_create(slug="other", name="Other"))


def test_token_is_not_sent_to_another_address_by_whom_it_was_not_told(cluster: Cluster, hook: Any) -> None:
    channel = channel_of(cluster, "alertmanager", "http://127.0.0.1:9", token="bearer-of-the-proxy")
    with pytest.raises(Malformed, match="token is missing"):
        channel_update(channel=channel, address=base_of(hook))
    channel.refresh_from_db()
    assert not channel_try(channel)["arrived"] and not hook.requests
    channel_update(channel=channel, address=base_of(hook), token="another")
    channel.refresh_from_db()
    assert channel_try(channel)["arrived"]
    assert {headers["Authorization"] for headers, _ in hook.requests} == {"Bearer another"}


def test_incident_has_one_key_whatever_its_cluster_is_called_by_then(cluster: Cluster, hook: Any) -> None:
    channel_of(cluster, "pagerduty", base_of(hook), token="key")
    late(cluster, "one", STREAM)
    after(cluster, 0)
    incident_deliveries_send_due()
    cluster_update(cluster=cluster, slug="renamed")
    well(cluster, "one")
    after(cluster, CLEAR_S + 5)
    incident_deliveries_send_due()
    opened, resolved = told(hook)
    assert opened["dedup_key"] == resolved["dedup_key"] and resolved["event_action"] == "resolve"


def test_silence_that_ends_before_it_begins_is_refused(cluster: Cluster) -> None:
    now = timezone.now()
    for ends_at in (now - timedelta(hours=1), now + timedelta(days=31)):
        with pytest.raises(Malformed):
            silence_create(cluster=cluster, ends_at=ends_at, reason="x")
    with pytest.raises(Malformed, match="ends_at"):
        silence_create(
            cluster=cluster, starts_at=now + timedelta(hours=2), ends_at=now + timedelta(hours=1), reason="x"
        )
