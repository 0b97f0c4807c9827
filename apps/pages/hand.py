"""One entry of the list of what needs a hand."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Hand"]


@dataclass(frozen=True)
class Hand:
    """Something a person should look at."""

    drawing: str
    tone: str
    title: str
    text: str
    url: str
    action: str = ""
