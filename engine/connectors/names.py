"""Names of imported nodes, queries, operators and sources: legal, short, and the same after each restart."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

__all__ = ["MAX_NAME", "distinct_names", "slug"]

#: The most that a name of the console has: it stands in addresses.
MAX_NAME = 64
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ILLEGAL = re.compile(r"[^a-z0-9._-]+")
_DIGEST = 6


def slug(text: str, *, dots: bool = True, longest: int = MAX_NAME) -> str:
    """A text as a name: a-z, 0-9, dash, underscore and dots; what is too long ends in a digest of the whole.

    Examples
    --------
    >>> slug("Global WindowAggregate"), slug("Zürich / 10.0.0.1:41"), slug("Größe.x", dots=False), slug("任务")[:4]
    ('global-window-aggregate', 'zurich-10.0.0.1-41', 'groe-x', 'job-')
    """
    plain = unicodedata.normalize("NFKD", _WORDS.sub("-", text)).encode("ascii", "ignore").decode().lower()
    name = _ILLEGAL.sub("-", plain if dots else plain.replace(".", "-"))
    name = re.sub(r"-{2,}", "-", name).strip("-._")
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    if not name:
        return f"job-{digest}"
    return name if len(name) <= longest else f"{name[: longest - _DIGEST - 1].rstrip('-._')}-{digest}"


def distinct_names(wanted: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> Mapping[str, str]:
    """Names by key, numbered from 2 on where several keys want the same, in order.

    Examples
    --------
    >>> dict(distinct_names([("v1", "map"), ("v2", "map"), ("v3", "sink")]))
    {'v1': 'map', 'v2': 'map-2', 'v3': 'sink'}
    """
    used = set(taken)
    names: dict[str, str] = {}
    for key, name in wanted:
        number, chosen = 1, name
        while chosen in used:
            number += 1
            chosen = f"{name[: MAX_NAME - len(str(number)) - 1]}-{number}"
        used.add(chosen)
        names[key] = chosen
    return names
