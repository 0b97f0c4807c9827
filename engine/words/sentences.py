"""Sentences and clauses by kind: those of every subject, each told by its name and a dot before its kinds."""

from __future__ import annotations

from collections.abc import Mapping

from engine.words import (
    capacity,
    connectors,
    costream,
    document,
    estimation,
    exports,
    forecasts,
    latency,
    parallelism,
    placement,
    plans,
    receipts,
    remedies,
    what_if,
)
from engine.words.templates import Template, fill

__all__ = ["SENTENCES", "sentence"]

#: Of each subject its kinds.
SENTENCES: Mapping[str, Mapping[str, Template]] = {
    "capacity": capacity.SENTENCES,
    "connectors": connectors.SENTENCES,
    "costream": costream.SENTENCES,
    "document": document.SENTENCES,
    "estimation": estimation.SENTENCES,
    "event": what_if.EVENTS,
    "exports": exports.SENTENCES,
    "backtests": forecasts.BACKTESTS,
    "forecasts": forecasts.SENTENCES,
    "latency": latency.SENTENCES,
    "parallelism": parallelism.SENTENCES,
    "placement": placement.SENTENCES,
    "plans": plans.SENTENCES,
    "receipts": receipts.SENTENCES,
    "remedies": remedies.SENTENCES,
    "what_if": what_if.SENTENCES,
}


def sentence(kind: str, /, *names: object, **values: object) -> str:
    """The sentence or clause of a kind, with names and numbers.

    Examples
    --------
    >>> sentence("plans.moved_below", "rules", "meet")
    'filter `rules` moved below join `meet`'
    """
    subject, _, own = kind.partition(".")
    words = SENTENCES[subject][own]
    return fill(words, *names, **values) if isinstance(words, str) else words(*names, **values)
