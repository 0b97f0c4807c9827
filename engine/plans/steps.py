"""What a rule did, in words, and what it takes for granted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Step"]


@dataclass(frozen=True)
class Step:
    """One application of a rule; `assumed` is what the new statistics rest on until the plan is sampled."""

    rule: str
    words: str
    assumed: str = ""
