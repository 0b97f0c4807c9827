"""Policies of clusters as text for people, and as an exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from client.report import OPEN, PASSED
from engine.listing import column_lines
from engine.words import counted

__all__ = ["POLICY_EXIT_TEXT", "applied_text", "differences_text", "policy_status", "policy_text", "preview_text"]

POLICY_EXIT_TEXT = """exit status:
  0  shown, without a fault, applied, or nothing differs
  1  not told: the console was not reached, or refused it; every fault of the file is listed
  2  wrong usage
  4  something differs (diff), or would be decided otherwise (preview)"""


def policy_status(count: Any) -> int:
    """0 where nothing differs, 4 where something does."""
    return OPEN if count else PASSED


def policy_text(shown: Mapping[str, Any]) -> str:
    """The policy in force, as a file that `apply` takes."""
    return json.dumps(shown["policy"], indent=2)


def applied_text(applied: Mapping[str, Any]) -> str:
    if applied["is_new"]:
        return f"Version {applied['version']} is in force."
    return f"Nothing differs from version {applied['version']}; it stays in force."


def differences_text(checked: Mapping[str, Any], *, listed: bool) -> str:
    """Whether a policy without faults differs from the one in force, and in what where that is asked for."""
    rows, base = checked["differences"], f"version {checked['base']}"
    if not rows:
        return f"The policy says the same as {base}."
    told = f"The policy has no fault; it differs from {base} in {counted(len(rows), 'field')}."
    if not listed:
        return told
    table = [[row["path"], _value(row["before"]), _value(row["after"])] for row in rows]
    return "\n".join([told, "", *column_lines([["field", "in force", "in the file"], *table])])


def preview_text(preview: Mapping[str, Any]) -> str:
    """Decisions that would be otherwise, each with both verdicts, and what could not be replayed."""
    replayed, otherwise = preview["replayed"], preview["otherwise"]
    lines = [f"{otherwise} of {counted(replayed, 'decision')} of the last 30 days would be otherwise."]
    lines += [f"Not replayed: {text}." for text in preview["lacking"]]
    if preview["left_out"]:
        lines.append(f"Left out: {counted(preview['left_out'], 'older decision')}.")
    rows = [
        [row["decided_at"][:16], f"{row['query']} v{row['version']}", row["then"], row["now"], row["because"]]
        for row in preview["listed"]
    ]
    return "\n".join(
        [*lines, "", *column_lines([["decided", "query", "then", "now", "because"], *rows])] if rows else lines
    )


def _value(value: Any) -> str:
    return "none" if value is None else json.dumps(value)
