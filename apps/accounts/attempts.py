"""Attempts to sign in, counted by account, device and address, so that passwords cannot be guessed.

Over all addresses an account takes a few attempts an hour from devices that never signed in to it. Who attacks it can
use these up, and then nobody signs in from a new device; a device that has signed in before has attempts of its own,
by a signed cookie, so that its owner is not locked out (OWASP's device cookies).
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import unicodedata
from dataclasses import dataclass

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from apps.core.counters import CountedWindow, count_up, forget_counts, take_back
from apps.core.errors import TooMany

__all__ = [
    "ALLOWED",
    "DEVICE_COOKIE",
    "PER_ACCOUNT",
    "PER_ADDRESS",
    "SignInAttempt",
    "attempt_begin",
    "device_remember",
    "request_begin",
]

ALLOWED, WINDOW_S = 5, 300  # per account and address, or per known device
PER_ADDRESS = 50  # over all accounts: guessing one password for many names
PER_ACCOUNT, ACCOUNT_WINDOW_S = 30, 3600  # over all addresses, from devices that are not known
DEVICE_COOKIE = "sluice_device"
_SALT = "sluice.accounts.device"
_REMEMBERED_S = 365 * 86_400


@dataclass(frozen=True)
class SignInAttempt:
    """An attempt that was counted; `succeed` gives back what it took from others."""

    own: CountedWindow
    shared: tuple[CountedWindow, ...]

    def succeed(self) -> None:
        """Begin the account's own count anew; those over all accounts or addresses keep the failures before."""
        forget_counts([self.own])
        take_back(self.shared)


def attempt_begin(request: HttpRequest, username: str) -> SignInAttempt:
    """Count an attempt before the password is looked at, so that many at once are not more than one by one.

    Raises
    ------
    TooMany
        The account, the device or the address has failed too often lately.
    """
    account = _normalised(username)
    network = _network(request.META.get("REMOTE_ADDR", ""))
    by_address = CountedWindow(f"signin-from:{_digest(network)}", PER_ADDRESS, WINDOW_S)
    device = _known_device(request, account)
    if device:
        own = CountedWindow(f"signin-device:{_digest(device)}", ALLOWED, WINDOW_S)
        shared: tuple[CountedWindow, ...] = (by_address,)
    else:
        own = CountedWindow(f"signin:{_digest(account, network)}", ALLOWED, WINDOW_S)
        shared = (by_address, CountedWindow(f"signin-account:{_digest(account)}", PER_ACCOUNT, ACCOUNT_WINDOW_S))
    left_s = count_up([own, *shared])
    if left_s:
        minutes = max(1, round(left_s / 60))
        raise TooMany(
            f"Too many failed sign-ins. Wait {minutes} minute{'s' if minutes > 1 else ''} and try again, or use a "
            "browser that has signed in before.",
            retry_after_s=left_s,
        )
    return SignInAttempt(own, shared)


def request_begin(request: HttpRequest, kind: str, *, limit: int, window_s: float, name: str = "") -> None:
    """Count a request of somebody unknown by address, and with `name` by what it is about, known or not.

    Raises
    ------
    TooMany
        There were more than `limit` of them within `window_s`.
    """
    keys = [_network(request.META.get("REMOTE_ADDR", "")), *([_normalised(name)] if name else [])]
    left_s = count_up([CountedWindow(f"{kind}:{_digest(key)}", limit, window_s) for key in keys])
    if left_s:
        minutes = max(1, round(left_s / 60))
        words = f"Too many requests. Wait {minutes} minute{'s' if minutes > 1 else ''} and try again."
        raise TooMany(words, retry_after_s=left_s)


def device_remember(request: HttpRequest, response: HttpResponse, username: str) -> None:
    """Remember that this browser has signed in to the account."""
    account = _normalised(username)
    if _known_device(request, account):
        return
    value = signing.dumps([account, secrets.token_urlsafe(16)], salt=_SALT)
    response.set_cookie(
        DEVICE_COOKIE,
        value,
        max_age=_REMEMBERED_S,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def _known_device(request: HttpRequest, account: str) -> str:
    """Id of the browser if it has signed in to this account before; else empty."""
    try:
        known, device = signing.loads(request.COOKIES.get(DEVICE_COOKIE, ""), salt=_SALT, max_age=_REMEMBERED_S)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return f"{known}\n{device}" if known == account else ""


def _normalised(username: str) -> str:
    """As the login form reads it: blanks around a name or full-width letters must not buy further attempts."""
    return unicodedata.normalize("NFKC", username).strip().casefold()


def _network(address: str) -> str:
    """The address, of IPv6 the network that one customer has; what is none stands for itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
