"""Numbers with their nouns, and lists of names, as every message writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["counted", "duration_words", "listed", "mix_text", "step_words"]


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "gap"), counted(2, "gap"), counted(2, "query", "queries")
    ('1 gap', '2 gaps', '2 queries')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a row, `most` of them at the most, the last being the number of those left out.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a', 'a and b', 'a, b and 4 more')
    """
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join((", ".join(shown[:-1]), shown[-1]) if len(shown) > 1 else shown)


def mix_text(counts: Mapping[str, int]) -> str:
    """New nodes by type.

    Examples
    --------
    >>> mix_text({"small": 2, "medium": 0, "large": 1}), mix_text({})
    ('2 small and 1 large', 'no new node')
    """
    return listed([f"{count} {name}" for name, count in counts.items() if count], len(counts)) or "no new node"


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


def step_words(step_s: float) -> str:
    """Width of counts in words.

    Examples
    --------
    >>> [step_words(step_s).replace("\u00a0", " ") for step_s in (300.0, 7200.0, 2.5)]
    ['5 min', '2 h', '2.5 s']
    """
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if step_s >= unit_s and step_s % unit_s == 0.0:
            return f"{step_s / unit_s:g}\u00a0{unit}"
    return f"{step_s:.3g}\u00a0s"
