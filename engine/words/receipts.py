"""Clauses of receipts: what changed in the surroundings of a query since it was let in."""

from __future__ import annotations

from collections.abc import Sequence

from engine.words import listed, percent_words
from engine.words.capacity import rate_words
from engine.words.templates import Template

__all__ = ["SENTENCES"]


def _more(share: float) -> str:
    return f"{percent_words(abs(share))} {'more' if share > 0 else 'less'}"


def _node_words(node: str, share: float | None, was_cores: int, cores: int) -> str:
    parts = [] if share is None or not share else [f"a core does {_more(share)}"]
    parts += [f"{cores} cores in place of {was_cores}"] if cores != was_cores else []
    return f"{node}: {', '.join(parts) or 'another capacity'}"


def _cost_words(operator: str, share: float | None) -> str:
    return f"{operator} has a cost now" if share is None else f"{operator} costs {_more(share)}"


def _moved_words(operator: str, was: Sequence[str], now: Sequence[str]) -> str:
    return f"{operator} moved from {listed(list(was)) or 'nowhere'} to {listed(list(now)) or 'nowhere'}"


SENTENCES: dict[str, Template] = {
    "query_added": "{query} runs beside it",
    "query_removed": "{query} runs beside it no more",
    "moved": _moved_words,
    "node": _node_words,
    "arrivals": lambda source, was_eps, now_eps: (
        f"{source} brings {rate_words(now_eps)} on average, not {rate_words(was_eps)}"
    ),
    "cost": _cost_words,
}
