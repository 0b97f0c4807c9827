"""What differs between two versions of a query, operator by operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.queries.bodies import body_of
from apps.queries.models import QueryVersion
from apps.ui.numbers import MISSING, significant

__all__ = ["Change", "version_difference"]

_WORDS = {
    "cycles_per_event": "cycles per event",
    "bytes_per_event": "bytes per event",
    "state_bytes": "bytes of state",
    "from": "reads from",
}


@dataclass(frozen=True)
class Change:
    """One difference: of an operator, in one respect."""

    operator: str
    what: str
    before: str
    after: str


def version_difference(old: QueryVersion, new: QueryVersion) -> list[Change]:
    """Differences in the newer version's order; operators that are gone come last."""
    before, after = _operators(old), _operators(new)
    changes = []
    for name, body in after.items():
        if name not in before:
            changes.append(Change(name, "operator", MISSING, _summary(body)))
        else:
            changes += _between(name, before[name], body)
    return changes + [
        Change(name, "operator", _summary(before[name]), "removed") for name in before if name not in after
    ]


def _operators(version: QueryVersion) -> dict[str, dict[str, Any]]:
    return {body["id"]: body for body in body_of(version)["operators"]}


def _summary(body: Mapping[str, Any]) -> str:
    return f"{body['kind']}, reads {', '.join(entry['from'] for entry in body['inputs'])}"


def _between(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    before, after = _facts(old), _facts(new)
    keys = [*after, *(key for key in before if key not in after)]
    return [
        Change(name, key, before.get(key, MISSING), after.get(key, MISSING))
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _facts(body: Mapping[str, Any]) -> dict[str, str]:
    """An operator's fields as words; several inputs are told apart by what they read."""
    facts = {_WORDS.get(key, key): _told(value) for key, value in body.items() if key not in {"id", "inputs"}}
    inputs = body["inputs"]
    facts["reads from"] = ", ".join(entry["from"] for entry in inputs)
    for entry in inputs:
        suffix = f", from {entry['from']}" if len(inputs) > 1 else ""
        facts |= {f"{_WORDS.get(key, key)}{suffix}": _told(value) for key, value in entry.items() if key != "from"}
    return facts


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return significant(value)
    if isinstance(value, list):
        return f"{len(value)} entries"
    return value if isinstance(value, str) else json.dumps(value)
