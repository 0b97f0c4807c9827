"""Refined documents in common: version, checksum, the agent they are for, and their time to live."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import Fault, value_words
from engine.fields import Enumeration, Field, Number, String

__all__ = [
    "DIGEST",
    "FIRST_FIELDS",
    "LAST_FIELDS",
    "SCHEMA",
    "RefinedDocument",
    "check_checksum",
    "checksum",
    "refusal_reasons",
    "seal",
]

SCHEMA = 1
DIGEST = String(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")

#: Fields with which each begins and ends; what lies between is its own.
FIRST_FIELDS = (
    Field("schema", Enumeration((SCHEMA,)), required=True),
    Field("config", String(r"c-\d+", "c- and a number"), required=True),
    Field("version", Number(least=1, whole=True), required=True),
    Field("parent", Number(least=1, whole=True), nullable=True),
    Field("agent", String(), required=True, help="id of the agent, or * for all"),
)
LAST_FIELDS = (
    Field("valid_from_us", Number(least=0, whole=True), required=True),
    Field("ttl_s", Number(above=0), required=True),
    Field("checksum", DIGEST, required=True, help="SHA-256 of everything else"),
)


@dataclass(frozen=True)
class RefinedDocument:
    """A refined configuration at one source, whole and of its checksum."""

    config: str
    version: int
    parent: int | None
    agent: str
    valid_from_us: int
    ttl_s: float
    fallback: str

    def stale(self, now_us: int) -> bool:
        """Whether its time to live is over."""
        return now_us > self.valid_from_us + self.ttl_s * 1e6


def refusal_reasons(refined: RefinedDocument, *, current: int, agent: str, now_us: int) -> list[str]:
    """Reasons why a source refuses a refined document by its version, agent or age; empty where it accepts.

    `current` is the version in force, 0 while there is none; `now_us` microseconds since 1970.
    """
    reasons = []
    if refined.version <= current:
        reasons.append(f"version {refined.version} is not above {current}, which is in force")
    if refined.agent not in ("*", agent):
        reasons.append(f"it is for agent {refined.agent}; this one is {agent}")
    if refined.stale(now_us):
        reasons.append(f"it was valid for {refined.ttl_s:g} s and is older")
    return reasons


def check_checksum(document: Mapping[str, Any], faults: list[Fault]) -> None:
    """Check that the checksum, which was read without fault, is that of everything else."""
    if document["checksum"] != checksum(document):
        faults.append(
            Fault("checksum", f"checksum is {value_words(document['checksum'])}; allowed: that of the document")
        )


def checksum(document: Mapping[str, Any]) -> str:
    """SHA-256 of the document without its checksum, as compact JSON with sorted keys."""
    rest = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its checksum."""
    return {**document, "checksum": checksum(document)}
