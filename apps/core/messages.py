"""Messages that leave the installation: signed webhooks and mail, with the addresses they may go to."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.validators import validate_email

from apps.core.addresses import IPAddress, PrivateAddress, UnknownHost, is_public, resolve_host, split_url
from apps.core.errors import Fault
from apps.core.limits import MAX_RECIPIENTS

__all__ = [
    "AddressRule",
    "Gone",
    "Undelivered",
    "address_faults",
    "email_faults",
    "fetch",
    "post_signed",
    "post_webhook",
    "send_mail",
    "signature",
]


TIMEOUT_S = 10.0
#: A server that answers a byte at a time is cut off after so long.
MAX_DURATION_S = 30.0


class Undelivered(Exception):
    """It did not arrive; a later try may succeed."""


class Gone(Exception):
    """It did not arrive, and no later try will."""


@dataclass(frozen=True)
class AddressRule:
    """Which addresses of a host may be sent to, and what would allow others."""

    allows: Callable[[str], Callable[[IPAddress], bool]]
    remedy: str


def address_faults(url: object, path: str = "url", rule: AddressRule | None = None) -> list[Fault]:
    """Fault of an address as it is written; where its name leads is looked at when something is sent."""
    rule = rule or _WEBHOOKS
    parts = split_url(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        return [Fault(path, f"{url!r} cannot be used; allowed is an address that begins with http:// or https://")]
    if parts.username or parts.password:
        return [Fault(path, "It holds a name or password; messages are signed instead.")]
    try:
        host = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return []
    if not rule.allows(parts.hostname)(host):
        return [Fault(path, f"{parts.hostname} is in a private network; {rule.remedy} would allow it")]
    return []


def post_webhook(url: str, body: bytes, headers: Mapping[str, str], rule: AddressRule | None = None) -> int:
    """POST `body` and return the status, which is 2xx.

    Raises
    ------
    Undelivered
        No answer, or one that is not 2xx.
    Gone
        The address cannot be used, or its owner says that it is gone (410).
    """
    parts = _checked(url, rule)
    status, _ = _exchange(parts, "POST", body, headers, rule=rule)
    if status == 410:
        raise Gone(f"{parts.hostname} answered 410: it is gone for good")
    return status


def fetch(url: str, max_bytes: int) -> bytes:
    """GET a document of at most so many bytes.

    Raises
    ------
    Undelivered
        No answer, one that is not 2xx, or one that is larger.
    Gone
        The address cannot be used.
    """
    parts = _checked(url)
    status, body = _exchange(parts, "GET", None, {"Accept": "application/json", "User-Agent": "Sluice"}, max_bytes)
    if status == 410:
        raise Undelivered(f"{parts.hostname} answered 410")
    if len(body) > max_bytes:
        raise Undelivered(f"{parts.hostname} answered with more than {max_bytes / 2**20:g} MiB")
    return body


def _checked(url: str, rule: AddressRule | None = None) -> SplitResult:
    parts, faults = split_url(url), address_faults(url, rule=rule)
    if parts is None or faults:
        raise Gone(faults[0].message)
    return parts


def _exchange(
    parts: SplitResult,
    method: str,
    body: bytes | None,
    headers: Mapping[str, str],
    max_bytes: int = 0,
    rule: AddressRule | None = None,
) -> tuple[int, bytes]:
    """Status, which is 2xx or 410, and up to one byte more than `max_bytes` of the answer."""
    connection = _Pinned(parts, _resolved(parts, rule or _WEBHOOKS))
    watch = threading.Timer(MAX_DURATION_S, connection.cut)
    watch.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        status, content = answer.status, answer.read(max_bytes + 1) if max_bytes else b""
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Undelivered(f"{parts.hostname} did not answer: {error or type(error).__name__}") from None
    finally:
        watch.cancel()
        connection.close()
    if 300 <= status < 400:
        raise Undelivered(f"{parts.hostname} answered {status}: redirects are not followed")
    if status != 410 and not 200 <= status < 300:
        raise Undelivered(f"{parts.hostname} answered {status}")
    return status, content


def post_signed(url: str, message: Mapping[str, object], *, number: str, secret: str) -> None:
    """POST a message as JSON under the number of its delivery, signed. Raises as `post_webhook` does."""
    body = json.dumps(message, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Sluice",
        "Sluice-Delivery": number,
        "Sluice-Signature": signature(secret, int(time.time()), body),
    }
    post_webhook(url, body, headers)


def signature(secret: str, moment: int, body: bytes) -> str:
    """`t=1790000000,v1=…`: HMAC-SHA256 of the time, a dot, and the body. The time keeps old messages from counting."""
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class _Pinned(http.client.HTTPConnection):
    """A connection to the address that was checked: the name is not looked up a second time."""

    def __init__(self, parts: SplitResult, address: str) -> None:
        self._secure = parts.scheme == "https"
        port = parts.port or (443 if self._secure else 80)
        super().__init__(parts.hostname or "", port, timeout=TIMEOUT_S)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._secure:
            context = ssl.create_default_context()
            # The handshake comes after the socket is known here, so that one that drags on can be cut too.
            secured = context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = secured
            secured.do_handshake()

    def cut(self) -> None:
        if self.sock is not None:
            with suppress(OSError):  # it has ended by itself
                self.sock.shutdown(socket.SHUT_RDWR)


def _resolved(parts: SplitResult, rule: AddressRule) -> str:
    """The first address of the host; refused if any of its addresses is not allowed."""
    host = parts.hostname or ""
    try:
        return resolve_host(host, parts.port or 0, rule.allows(host))
    except UnknownHost as error:
        raise Undelivered(str(error)) from None
    except PrivateAddress as error:
        raise Gone(f"{error}; {rule.remedy} would allow it") from None


def _is_allowed(address: IPAddress) -> bool:
    return settings.WEBHOOK_PRIVATE or is_public(address)


_WEBHOOKS = AddressRule(lambda host: _is_allowed, "SLUICE_WEBHOOK_PRIVATE=1")


_NO_SERVER = "No mail server is configured: set SLUICE_EMAIL_URL (Operations)."
_TIMEOUT_S = 20


def email_faults(emails: Any) -> list[Fault]:
    """Every entry has to be an address; line breaks in one would write other people's headers."""
    if not isinstance(emails, list) or len(emails) > MAX_RECIPIENTS:
        return [Fault("emails", f"allowed is a list of at most {MAX_RECIPIENTS} mail addresses")]
    faults = []
    for index, email in enumerate(emails):
        try:
            validate_email(email)
        except (ValidationError, TypeError):
            faults.append(Fault(f"emails[{index}]", f"{email!r} is not a mail address"))
    if len({str(email).lower() for email in emails}) < len(emails):
        faults.append(Fault("emails", "an address is there twice"))
    return faults


def send_mail(make_mail: Callable[[Any], EmailMultiAlternatives]) -> None:
    """Send the message that `made` makes for a connection.

    Raises
    ------
    Undelivered
        The server is away or puts it off.
    Gone
        There is no server, or it refuses the address or the message for good.
    """
    if not settings.EMAIL_CONFIGURED:
        raise Gone(_NO_SERVER)
    try:
        with get_connection(timeout=_TIMEOUT_S) as connection:
            make_mail(connection).send()
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        raise (Gone if code >= 550 else Undelivered)(
            f"The mail server refuses the address: {code} {_refusal_text(text)}"
        ) from None
    except smtplib.SMTPDataError as error:
        kind = Gone if error.smtp_code >= 550 else Undelivered
        raise kind(
            f"The mail server refuses the message: {error.smtp_code} {_refusal_text(error.smtp_error)}"
        ) from None
    except (smtplib.SMTPException, OSError) as error:
        where = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
        raise Undelivered(f"The mail server {where} does not take it: {error or type(error).__name__}") from None


def _refusal_text(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
