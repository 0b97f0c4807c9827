"""Channels of incidents: services that are told, each in its own form, at addresses that are checked.

Alertmanager, PagerDuty and Opsgenie keep a state for each incident, by a key that stays the same: what is sent is the
state of now, so that messages which arrive late or twice do no harm. Chats get what happened, in order of arrival.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings

from apps.connections.transport import is_allowed
from apps.core.addresses import PrivateAddress, host_of
from apps.core.clock import shared_now
from apps.core.errors import Fault
from apps.core.limits import MAX_REASON
from apps.core.messages import AddressRule, Gone, Undelivered, address_faults, post_webhook
from apps.core.secrets import SecretLost, unseal_secret
from apps.core.sockets import connections_checked
from apps.incidents.choices import ChannelKind, IncidentSeverity, NoticeEvent
from apps.incidents.models import ADDRESS_PURPOSE, TOKEN_PURPOSE, IncidentChannel
from engine.redaction import note_secret, redact_text

__all__ = [
    "ALERT_LEASE",
    "DEFAULT_ADDRESSES",
    "MAX_ADDRESS",
    "STATEFUL",
    "ChannelMessage",
    "channel_faults",
    "channel_send",
    "public_part",
]

ALERT_LEASE = timedelta(minutes=5)  #: an alert ends by itself so long after it was last sent
MAX_ADDRESS = 2000  #: characters; those of Teams' workflows are long
DEFAULT_ADDRESSES: dict[str, str] = {
    ChannelKind.PAGERDUTY: "https://events.pagerduty.com",
    ChannelKind.OPSGENIE: "https://api.opsgenie.com",
}
#: Services that keep a state for each incident.
STATEFUL = frozenset({ChannelKind.ALERTMANAGER, ChannelKind.PAGERDUTY, ChannelKind.OPSGENIE})
_RULE = AddressRule(is_allowed, "SLUICE_CONNECT_HOSTS")
_CONNECT_S, _READ_S = 5.0, 10.0
_SUMMARY_LENGTH = {ChannelKind.PAGERDUTY: 1024, ChannelKind.OPSGENIE: 130}
#: Classes of Apprise that talk to their service and to nothing of this machine.
_SERVICES = {
    ChannelKind.SLACK: {"NotifySlack"},
    ChannelKind.TEAMS: {"NotifyWorkflows"},
    ChannelKind.SERVICE: {
        "NotifyDiscord", "NotifyEmail", "NotifyGoogleChat", "NotifyGotify", "NotifyMatrix", "NotifyMattermost",
        "NotifyNtfy", "NotifyPushover", "NotifyRocketChat", "NotifySlack", "NotifySplunk", "NotifySquadcast",
        "NotifyTelegram", "NotifyWebexTeams", "NotifyWorkflows", "NotifyZulip",
    },
}  # fmt: skip
_SHOWN_NAMES = {
    ChannelKind.SLACK: "the address of a Slack webhook, https://hooks.slack.com/services/…",
    ChannelKind.TEAMS: "the address of a workflow of Teams, https://….logic.azure.com/workflows/…",
    ChannelKind.SERVICE: "a URL of Apprise of one of Discord, Google Chat, Gotify, mail, Matrix, Mattermost, ntfy, "
    "Pushover, Rocket.Chat, Slack, Splunk, Squadcast, Teams, Telegram, Webex and Zulip",
}
_NEEDS_TOKEN = {ChannelKind.PAGERDUTY: "the integration key", ChannelKind.OPSGENIE: "the key of an API integration"}
#: Parameters of Apprise that name files of this machine.
_FILE_PARAMETERS = frozenset(
    {"template", "attach", "attachment", "config", "key", "keyfile", "pem", "pgpkey", "pgppub", "pgpprv"}
)
_HEADER = re.compile(r"[!-~]*")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChannelMessage:
    """Message of one incident to a channel."""

    id: str  #: of the message: a repeat has the same
    key: str  #: of the incident
    event: NoticeEvent
    is_resolved: bool  #: by now
    cluster: str
    subject: str  #: on one line
    text: str
    facts: Mapping[str, Any]
    at: datetime
    page: str


def channel_faults(kind: str, address: str, token: str) -> list[Fault]:
    """Faults of an address and a token as they are written."""
    faults = []
    if len(address) > MAX_ADDRESS:
        return [Fault("address", f"address has {len(address):,} characters; allowed: {MAX_ADDRESS:,}")]
    if kind in _NEEDS_TOKEN and not token:
        faults.append(Fault("token", f"token is empty; needed: {_NEEDS_TOKEN[ChannelKind(kind)]}"))
    if not _HEADER.fullmatch(token):  # it is one of a header, where others end the line or cannot be written
        faults.append(
            Fault("token", "token has a character that none has; allowed: letters, digits and signs of ASCII")
        )
    if kind in _SERVICES:
        return [*faults, *_service_faults(ChannelKind(kind), address)]
    if not address:
        return faults if kind in DEFAULT_ADDRESSES else [*faults, Fault("address", "address is empty; needed: a URL")]
    return [*faults, *address_faults(address, "address", _RULE)]


def _service_faults(kind: ChannelKind, address: str) -> list[Fault]:
    refused = Fault("address", f"it cannot be used; allowed: {_SHOWN_NAMES[kind]}")
    if files := _parameters(address) & _FILE_PARAMETERS:
        return [Fault("address", f"its parameter {min(files)} names a file; allowed: none that does")]
    service = _service(address)
    if service is None or type(service).__name__ not in _SERVICES[kind]:
        return [refused]
    host = _own_host(service)
    return address_faults(f"https://{host}", "address", _RULE) if host else []


def _parameters(address: str) -> set[str]:
    """Names of parameters, as Apprise takes them: a semicolon parts them as well, and every name is unquoted.

    >>> sorted(_parameters("mmost://host/token?icon=no;Template=/etc/hosts&%6Bey=x"))
    ['icon', 'key', 'template']
    """
    parts = re.split(r"[?&;]", address)[1:]
    return {unquote(part.partition("=")[0]).strip().lower() for part in parts}


def public_part(kind: str, address: str) -> str:
    """The part of an address that may be shown: host of a URL, or the name of the service."""
    if kind in _SERVICES and urlsplit(address).scheme not in {"http", "https"}:  # there the host may be a secret
        service = _service(address)
        host = _own_host(service) if service else ""
        return " at ".join(filter(None, [service.service_name, host])) if service else ""
    return host_of(address)


def channel_send(channel: IncidentChannel, messages: Sequence[ChannelMessage]) -> None:
    """Tell a channel, and keep at the channel what came of it.

    Raises
    ------
    Undelivered
        It did not arrive; a later try may.
    Gone
        It never will: the address may not be asked, or its secret is lost.
    """
    error = ""
    try:
        address = unseal_secret(channel.sealed_address, ADDRESS_PURPOSE)
        token = unseal_secret(channel.sealed_token, TOKEN_PURPOSE)
        _SENDERS[ChannelKind(channel.kind)](
            _Destination(ChannelKind(channel.kind), address or DEFAULT_ADDRESSES.get(channel.kind, ""), token), messages
        )
    except SecretLost as lost:
        error = f"Address and token have to be given again: {lost}."
        raise Gone(error) from None
    except (Undelivered, Gone) as failure:
        error = str(failure)
        raise
    finally:
        row = IncidentChannel.objects.filter(pk=channel.pk)
        row.update(error=redact_text(error)[:MAX_REASON], tried_at=shared_now())


@dataclass(frozen=True)
class _Destination:
    kind: ChannelKind
    address: str
    token: str

    def post(self, path: str, document: object, **headers: str) -> None:
        """POST JSON below the address."""
        own = {"Content-Type": "application/json", "User-Agent": "Sluice", **headers}
        url = self.address.rstrip("/") + path if path else self.address
        post_webhook(url, json.dumps(document, separators=(",", ":")).encode(), own, _RULE)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def _send_alerts(to: _Destination, messages: Sequence[ChannelMessage]) -> None:
    """POST /api/v2/alerts: `endsAt` is a lease while an incident is open, and lies in the past once it is resolved."""
    now = shared_now()
    alerts = []
    for message in messages:
        ends_at = now if message.is_resolved else now + ALERT_LEASE
        alerts.append(_alert(message, str(message.facts["severity"]), ends_at))
        if message.event == NoticeEvent.ESCALATED:  # it is another alert for Alertmanager, and the first one ends
            alerts.append(_alert(message, str(IncidentSeverity.WARNING), now))
    to.post("/api/v2/alerts", alerts, **to.bearer)


def _alert(message: ChannelMessage, severity: str, ends_at: datetime) -> dict[str, object]:
    cause = message.facts["cause"]
    labels = {
        "alertname": "SluiceIncident",
        "source": "sluice",
        "cluster": message.cluster,
        "cause": str(cause.get("kind") or ""),
        "subject": str(cause.get("subject") or ""),
        "severity": severity,
        "incident": str(message.facts["id"]),
    }
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {"summary": message.subject, "description": str(cause.get("words") or "")},
        "startsAt": message.facts["opened_at"],
        "endsAt": ends_at.isoformat(),
        **({"generatorURL": message.page} if message.page.startswith("http") else {}),
    }


def _send_pagerduty(to: _Destination, messages: Sequence[ChannelMessage]) -> None:
    """POST /v2/enqueue for each: `dedup_key` makes a repeat the same alert."""
    for message in messages:
        event: dict[str, object] = {
            "routing_key": to.token,
            "dedup_key": message.key,
            "event_action": "resolve" if message.is_resolved else "trigger",
            "client": "Sluice",
            "payload": {
                "summary": message.subject[: _SUMMARY_LENGTH[to.kind]],
                "source": message.cluster,
                "severity": str(message.facts["severity"]),
                "timestamp": message.facts["opened_at"],
                "class": message.facts["cause"].get("kind"),
                "custom_details": message.facts,
            },
        }
        if message.page.startswith("http"):
            event |= {"client_url": message.page, "links": [{"href": message.page, "text": "Incident in Sluice"}]}
        to.post("/v2/enqueue", event)


def _send_opsgenie(to: _Destination, messages: Sequence[ChannelMessage]) -> None:
    """POST /v2/alerts for each, and its close: `alias` makes a repeat the same alert."""
    key = {"Authorization": f"GenieKey {to.token}"}
    for message in messages:
        if message.is_resolved:
            path = f"/v2/alerts/{quote(message.key, safe='')}/close?identifierType=alias"
            to.post(path, {"source": "Sluice", "note": message.subject}, **key)
            continue
        is_critical = message.facts["severity"] == IncidentSeverity.CRITICAL
        alert = {
            "message": message.subject[: _SUMMARY_LENGTH[to.kind]],
            "alias": message.key,
            "description": message.text[:15_000],
            "priority": "P1" if is_critical else "P3",
            "source": "Sluice",
            "tags": ["sluice", message.cluster],
            "details": {"cluster": message.cluster, "page": message.page},
        }
        to.post("/v2/alerts", alert, **key)


def _send_cloudevents(to: _Destination, messages: Sequence[ChannelMessage]) -> None:
    """CloudEvents 1.0, structured JSON, one for each message (cloudevents.io, HTTP binding, section 3.2)."""
    for message in messages:
        event = {
            "specversion": "1.0",
            "id": message.id,
            "source": f"{settings.PUBLIC_URL}/c/{message.cluster}" if settings.PUBLIC_URL else f"/c/{message.cluster}",
            "type": f"io.sluice.incident.{message.event}",
            "subject": f"incidents/{message.facts['id']}",
            "time": message.at.isoformat(),
            "datacontenttype": "application/json",
            "data": {"incident": message.facts, "page": message.page},
        }
        to.post("", event, **{"Content-Type": "application/cloudevents+json", **to.bearer})


def _send_to_service(to: _Destination, messages: Sequence[ChannelMessage]) -> None:
    """By Apprise, one message for all of them. Each of its connections is checked, whatever a name leads to."""
    import apprise  # two hundred services: loaded where a channel has one

    service = _service(to.address)
    if service is None or _service_faults(to.kind, to.address):
        raise Gone("Its address cannot be used any more; give it again.")
    service.redirects = False
    service.socket_connect_timeout, service.socket_read_timeout = _CONNECT_S, _READ_S
    is_one = len(messages) == 1
    title = messages[0].subject if is_one else f"{len(messages)} incidents of {messages[0].cluster}"
    body = messages[0].text if is_one else "\n".join(f"- {row.subject} {row.page}".strip() for row in messages)
    open_ones = [row.facts["severity"] for row in messages if not row.is_resolved]
    kind = apprise.NotifyType.SUCCESS
    if open_ones:
        kind = apprise.NotifyType.FAILURE if IncidentSeverity.CRITICAL in open_ones else apprise.NotifyType.WARNING
    host = _own_host(service)
    try:
        with (
            connections_checked(is_allowed(host)),
            apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said,
        ):
            has_arrived = service.notify(title=title, body=body, notify_type=kind)
            words = said.getvalue()
    except PrivateAddress as refused:
        raise Gone(f"{refused}; {_RULE.remedy} would allow it") from None
    except Exception as error:
        _log.exception("a service of Apprise failed unexpectedly")
        raise Undelivered(f"{service.service_name} failed: {type(error).__name__}") from None
    if not has_arrived:
        for part in re.split(r"[/?&=:@;]", to.address):
            if part != host:
                note_secret(part)
                note_secret(unquote(part))
        line = next(filter(None, words.splitlines()), "")
        raise Undelivered(f"{service.service_name} did not take it. {redact_text(line)}".strip())


_SENDERS: Mapping[ChannelKind, Callable[[_Destination, Sequence[ChannelMessage]], None]] = {
    ChannelKind.ALERTMANAGER: _send_alerts,
    ChannelKind.PAGERDUTY: _send_pagerduty,
    ChannelKind.OPSGENIE: _send_opsgenie,
    ChannelKind.CLOUDEVENTS: _send_cloudevents,
    ChannelKind.SLACK: _send_to_service,
    ChannelKind.TEAMS: _send_to_service,
    ChannelKind.SERVICE: _send_to_service,
}


def _service(address: str) -> Any:
    """The service that Apprise knows an address as; None for what it cannot read."""
    import apprise

    asset = apprise.AppriseAsset(
        app_id="Sluice", app_desc="Sluice", app_url=settings.PUBLIC_URL, image_url_mask="", image_url_logo=""
    )
    with apprise.LogCapture(level=logging.CRITICAL):
        return apprise.Apprise.instantiate(address, asset=asset) if address else None


#: Of these the host is the person's own; the others know the address of their service.
_SELF_HOSTED = frozenset(
    f"Notify{name}" for name in ("Email", "Gotify", "Matrix", "Mattermost", "Ntfy", "RocketChat", "Workflows")
)


def _own_host(service: Any) -> str:
    is_own = type(service).__name__ in _SELF_HOSTED
    if type(service).__name__ == "NotifyEmail":
        return str(getattr(service, "smtp_host", "") or service.host or "")
    return str(service.host or "") if is_own else ""
