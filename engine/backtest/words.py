"""Durations in words. Pages use it too, so nothing that computes is imported here."""

from __future__ import annotations

__all__ = ["duration_words"]


def duration_words(seconds: float) -> str:
    """``45 s``, ``22 min``, ``3 h 20 min`` or ``2 days 4 h``.

    Examples
    --------
    >>> [duration_words(s).replace("\\u00a0", " ") for s in (0.0, 45.0, 1320.0, 12000.0, 187200.0)]
    ['0 s', '45 s', '22 min', '3 h 20 min', '2 days 4 h']
    """
    if seconds < 60.0:
        return f"{seconds:.0f}\u00a0s"
    minutes = round(seconds / 60.0)
    if minutes < 60:
        return f"{minutes}\u00a0min"
    if minutes < 48 * 60:
        return f"{minutes // 60}\u00a0h" + (f" {minutes % 60}\u00a0min" if minutes % 60 else "")
    hours = round(minutes / 60)
    return f"{hours // 24}\u00a0days" + (f" {hours % 24}\u00a0h" if hours % 24 else "")
