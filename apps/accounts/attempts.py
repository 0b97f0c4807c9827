"""Failed sign-ins are slowed down."""

from __future__ import annotations

import hashlib
import unicodedata

from django.core.cache import cache

from apps.core.errors import TooMany

__all__ = ["ALLOWED", "PER_ADDRESS", "WINDOW_S", "attempts_check", "attempts_clear", "attempts_count"]

# Counted in the memory of each web process, like the API's rate: n processes allow n times as many.
ALLOWED = 5  # per name and address
PER_ADDRESS = 50  # over all names: guessing one password for many names
WINDOW_S = 300


def attempts_check(username: str, address: str) -> None:
    """Raise TooMany when this address has failed too often lately."""
    counts = cache.get_many(_keys(username, address))
    for key, limit in zip(_keys(username, address), (ALLOWED, PER_ADDRESS), strict=True):
        if counts.get(key, 0) >= limit:
            minutes = WINDOW_S // 60
            raise TooMany(f"Too many failed sign-ins. Wait {minutes} minutes and try again.", retry_after_s=WINDOW_S)


def attempts_count(username: str, address: str) -> None:
    """Note a failure."""
    for key in _keys(username, address):
        if not cache.add(key, 1, WINDOW_S):
            try:
                cache.incr(key)
            except ValueError:  # it expired in between
                cache.set(key, 1, WINDOW_S)


def attempts_clear(username: str, address: str) -> None:
    """After a success the name starts anew; the address keeps its count."""
    cache.delete(_keys(username, address)[0])


def _keys(username: str, address: str) -> tuple[str, str]:
    # as the login form reads it: blanks around a name or full-width letters must not buy further attempts
    told = unicodedata.normalize("NFKC", username).strip().casefold()
    name = hashlib.sha256(f"{told}\n{address}".encode()).hexdigest()[:32]
    return f"signin:{name}", f"signin-from:{hashlib.sha256(address.encode()).hexdigest()[:32]}"
