"""Remedies of a query as text for people, and as an exit status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client.report import OPEN, PASSED, REFUSED
from engine.listing import column_lines
from engine.words import duration_words, seconds_words, state_words

__all__ = ["REMEDIES_EXIT_TEXT", "remedies_status", "remedies_text"]

REMEDIES_EXIT_TEXT = """exit status:
  0  none is needed, or one is known that keeps the objective and breaks nobody else's (with --preview: it is made)
  1  not told: the console was not reached, refused it, or the query does not run
  2  wrong usage
  3  nothing that was tried is enough
  4  not known: nobody knows its latency, or what the remedies rest on"""


def remedies_status(answer: Mapping[str, Any]) -> int:
    """0 where a remedy is known to be enough, or none is needed; 4 where nobody knows, 3 where none is."""
    if answer.get("state") in ("holds", "none"):
        return PASSED
    if answer.get("unknown") or answer.get("state") not in ("breached", "at_risk"):
        return OPEN
    return PASSED if any(_is_enough(remedy) for remedy in answer.get("remedies") or ()) else REFUSED


def _is_enough(remedy: Mapping[str, Any]) -> bool:
    return remedy.get("state") == "holds" and not remedy.get("breaks")


def remedies_text(found: Mapping[str, Any], address: str) -> str:
    """A sentence, the remedies with the best first, what each costs and risks, and what was tried in vain."""
    answer = found["answer"]
    at_load = f" At the load that is forecast for {found['at_load']}." if found.get("at_load") else ""
    stale = " The cluster has changed since." if found.get("is_stale") else ""
    lines = [f"{answer['words']}{at_load}{stale}", *(answer.get("unknown") or ())]
    remedies = answer.get("remedies") or ()
    if remedies:
        head = ["remedy", "estimate", "interval", "state", "wins", "helps after", "breaks"]
        lines += ["", *column_lines([head, *(_row(remedy) for remedy in remedies)], "")]
        lines += ["", *(f"{row['id']}: {row['title']}. {row['cost']} {row['risk']}" for row in remedies)]
    requests = [part["request"] for part in found.get("parts") or () if part["request"]]
    lines += ["", "To ask an operator of the cluster for:", *requests] if requests else []
    tried = [f"{row['kind'].replace('_', ' ').capitalize()}: {row['why']}" for row in answer.get("tried") or ()]
    return "\n".join([*lines, *([""] if tried else []), *tried, "", address])


def _row(remedy: Mapping[str, Any]) -> list[str]:
    low_s, high_s, won_s = remedy.get("low_s"), remedy.get("high_s"), remedy.get("won_s")
    interval = "-" if low_s is None or high_s is None else " to ".join(seconds_words(low_s, high_s))
    ready_s = remedy.get("ready_s")
    ready = "not known" if ready_s is None else duration_words(ready_s) if ready_s else "at once"
    return [
        str(remedy["id"]),
        seconds_words(remedy["estimate_s"])[0],
        interval,
        state_words(remedy["state"], is_measured=False),
        "-" if won_s is None else seconds_words(won_s)[0],
        ready,
        ", ".join(remedy.get("breaks") or ()) or "nobody",
    ]
