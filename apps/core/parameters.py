"""Values of query parameters."""

from __future__ import annotations

from apps.core.errors import Malformed

__all__ = ["whole_number"]


def whole_number(text: str, name: str, least: int, most: int) -> int:
    """The number that a parameter's text says; `²` and digits of other scripts are none.

    Raises
    ------
    Malformed
        It is no whole number from `least` to `most` (below 10^9).
    """
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    message = f"{text[:40]!r} is not a whole number from {least} to {most}"
    raise Malformed(f"{name}: {message}.", [(name, message)])
