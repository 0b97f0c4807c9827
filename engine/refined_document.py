"""Refined documents in common: version, checksum, the agent they are for, and their time to live."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from engine.errors import DocumentError, Fault, value_words
from engine.kinds import Enumeration, Number, String
from engine.records import Record, Words

__all__ = [
    "DIGEST",
    "SCHEMA",
    "RefinedDocument",
    "checksum",
    "refusal_reasons",
    "seal",
]

SCHEMA = 1
DIGEST = String(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")


@dataclass(frozen=True, kw_only=True)
class RefinedDocument(Record):
    """A refined configuration at one source: what all have beside their own fields."""

    schema: Annotated[int, Enumeration((SCHEMA,))]
    config: Annotated[str, String(r"c-\d+", "c- and a number")]
    version: Annotated[int, Number(least=1, whole=True)]
    parent: Annotated[int, Number(least=1, whole=True)] | None = None
    agent: Annotated[str, String(), Words("id of the agent, or * for all")]
    valid_from_us: Annotated[int, Number(least=0, whole=True)]
    ttl_s: Annotated[float, Number(above=0)]
    checksum: Annotated[str, DIGEST, Words("SHA-256 of everything else")]

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Read a refined document.

        Raises
        ------
        DocumentError
            With every fault: fields, ranges, a checksum that is not the document's.
        """
        refined = super().parse(document)
        if refined.checksum != checksum(document):
            words = f"checksum is {value_words(refined.checksum)}; allowed: that of the document"
            raise DocumentError([Fault("checksum", words)], cls.TITLE)
        return refined

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


def checksum(document: Mapping[str, object]) -> str:
    """SHA-256 of the document without its checksum, as compact JSON with sorted keys."""
    rest = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def seal(document: Mapping[str, object]) -> dict[str, object]:
    """The document with its checksum."""
    return {**document, "checksum": checksum(document)}
