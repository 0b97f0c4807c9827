"""Sessions of a person: where they began, and their end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY
from django.core import signing
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Missing
from apps.core.events import announce_session_end
from apps.signin.models import ProviderSession, Session
from apps.signin.session_store import SessionStore

__all__ = [
    "BrowserSession",
    "SignInWay",
    "browser_label",
    "session_end",
    "session_note",
    "session_of_request",
    "sessions_end",
    "sessions_of",
    "sessions_purge",
    "sessions_resign",
]

_NOTE = "sign_in"
_MAX_AGENT = 300


class SignInWay(StrEnum):
    """Way in which a session began."""

    PASSWORD = "password"
    CODE = "password and code"
    PROVIDER = "provider"
    INVITATION = "invitation"


@dataclass(frozen=True)
class BrowserSession:
    """A session as its person sees it. `id` names it, and nobody gets into it by that."""

    id: str
    is_current: bool
    way: str
    address: str
    browser: str
    began_at: datetime | None
    seen_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class SessionNote:
    """Beginning of a session, as it remembers it."""

    way: str = ""
    address: str = ""
    agent: str = ""
    began_at: str = ""

    @classmethod
    def of(cls, session: Any) -> SessionNote:
        noted = session.get(_NOTE)
        return cls(**noted) if isinstance(noted, dict) else cls()


def session_note(request: HttpRequest, way: str) -> None:
    """Remember how, when and where from a session began."""
    request.session[_NOTE] = vars(
        SessionNote(
            way=way,
            address=request.META.get("REMOTE_ADDR", ""),
            agent=request.headers.get("User-Agent", "")[:_MAX_AGENT],
            began_at=timezone.now().isoformat(),
        )
    )


def session_of_request(request: HttpRequest) -> SessionNote:
    """Beginning of the session of a request; all empty where that is not known."""
    return SessionNote.of(request.session)


def sessions_of(user: User, current_key: str | None = None) -> list[BrowserSession]:
    """The open sessions of a person, the present one first, then those that were seen last."""
    sessions = [_shown(row, current_key) for row in _open(user)]
    return sorted(sessions, key=lambda session: (session.is_current, session.seen_at), reverse=True)


@transaction.atomic
def session_end(*, user: User, session_id: str) -> None:
    """End one session of a person, and the pages that are open in it.

    Raises
    ------
    Missing
        There is none of this name, or it has ended.
    """
    keys = [row.session_key for row in _open(user) if _public_id(row.session_key) == session_id]
    if not keys:
        raise Missing(f"There is no open session {session_id}.")
    _delete(user, keys)


@transaction.atomic
def sessions_end(*, user: User, but: str | None = None) -> int:
    """End all sessions of a person, `but` the one with this key; returns how many."""
    keys = [row.session_key for row in _open(user) if row.session_key != but]
    _delete(user, keys)
    return len(keys)


def sessions_purge() -> int:
    """Remove sessions that have expired, and what the provider gave for them; returns how many."""
    purged, _ = Session.objects.filter(expire_date__lt=shared_now()).delete()
    unused = ProviderSession.objects.filter(browser_sessions__isnull=True)
    unused.filter(renewed_at__lt=shared_now() - timedelta(hours=1)).delete()  # not of a sign-in that is under way
    return purged


def sessions_resign() -> tuple[int, int]:
    """Sign open sessions with the key in force, as those of before will not be accepted for ever.

    Returns how many there are, and how many were signed anew. One that its browser writes meanwhile is signed by that.
    """
    total = resigned = 0
    for row in Session.objects.filter(expire_date__gt=shared_now()).select_related("user").order_by("pk").iterator():
        data, store = row.get_decoded(), SessionStore()
        user, mark = row.user, str(data.get(HASH_SESSION_KEY, ""))
        if not data:  # nobody's, or signed with a key that is not accepted
            continue
        total += 1
        if user is not None and any(constant_time_compare(mark, old) for old in user.get_session_auth_fallback_hash()):
            data[HASH_SESSION_KEY] = user.get_session_auth_hash()
        elif _is_signed_anew(row, store):
            continue
        same = Session.objects.filter(pk=row.pk, session_data=row.session_data)
        resigned += same.update(session_data=store.encode(data))
    return total, resigned


def _is_signed_anew(row: Session, store: SessionStore) -> bool:
    try:
        signing.loads(row.session_data, salt=store.key_salt, serializer=store.serializer, fallback_keys=[])
    except signing.BadSignature:
        return False
    return True


def browser_label(agent: str) -> str:
    """Browser and system of a `User-Agent`, in words; the beginning of what is neither.

    >>> browser_label("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
    'Firefox on Linux'
    """
    browser = next((name for pattern, name in _BROWSERS if re.search(pattern, agent)), "")
    system = next((name for pattern, name in _SYSTEMS if re.search(pattern, agent)), "")
    return f"{browser} on {system}" if browser and system else browser or agent[:40] or "unknown browser"


_BROWSERS = (
    (r"\bEdg[A-Za-z]*/", "Edge"),
    (r"\bOPR/", "Opera"),
    (r"\b(?:Firefox|FxiOS)/", "Firefox"),
    (r"\b(?:Headless)?(?:Chrome|Chromium|CriOS)/", "Chrome"),
    (r"\bSafari/", "Safari"),
)
_SYSTEMS = (
    (r"\bAndroid\b", "Android"),
    (r"\biPhone|\biPad", "iOS"),
    (r"\bWindows\b", "Windows"),
    (r"\bMac OS X\b", "macOS"),
    (r"\bCrOS\b", "ChromeOS"),
    (r"\bLinux\b", "Linux"),
)


def _open(user: User) -> Sequence[Session]:
    """Sessions that still let somebody in: another password has ended those before it."""
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    rows = Session.objects.filter(user=user, expire_date__gt=timezone.now())
    return [row for row in rows if any(constant_time_compare(_hash_of(row), value) for value in hashes)]


def _hash_of(row: Session) -> str:
    return str(row.get_decoded().get(HASH_SESSION_KEY, ""))


def _delete(user: User, keys: Sequence[str]) -> None:
    ProviderSession.objects.filter(browser_sessions__in=keys).delete()
    Session.objects.filter(session_key__in=keys).delete()
    announce_session_end(user.pk)


def _shown(row: Session, current_key: str | None) -> BrowserSession:
    note = SessionNote.of(row.get_decoded())
    return BrowserSession(
        id=_public_id(row.session_key),
        is_current=row.session_key == current_key,
        way=note.way,
        address=note.address,
        browser=browser_label(note.agent),
        began_at=datetime.fromisoformat(note.began_at) if note.began_at else None,
        seen_at=row.seen_at,
        expires_at=row.expire_date,
    )


def _public_id(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
