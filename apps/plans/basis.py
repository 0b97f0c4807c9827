"""What a comparison rests on: the digest of each version, the samples behind its statistics, and their drift."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from apps.queries.bodies import body_of
from apps.queries.models import OperatorInput, QueryVersion
from engine.elements import Batch
from engine.plans.drift import drift

__all__ = ["drift_of", "samples_of", "version_digest"]

Samples = Sequence[Mapping[str, Any]]


def version_digest(version: QueryVersion) -> str:
    """SHA-256 of a version's operators with their statistics."""
    text = json.dumps(body_of(version), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def samples_of(version: QueryVersion) -> list[dict[str, Any]]:
    """The batches of every input of a version with fetched operators; a stream that is read twice is numbered."""
    return [
        {"operator": row.name, "input": name, "batches": entry.batches}
        for row in version.operators.all()
        for name, entry in _named(row.inputs.all())
    ]


def _named(entries: Iterable[OperatorInput]) -> Iterator[tuple[str, OperatorInput]]:
    seen: set[str] = set()
    for entry in entries:
        name = entry.upstream.name if entry.upstream else entry.source_id
        yield (f"{name} ({entry.position + 1})" if name in seen else name), entry
        seen.add(name)


def drift_of(old: Samples, new: Samples) -> dict[str, Any]:
    """Test the samples of a comparison against the present ones; the engine's answer as JSON."""
    found = drift(_batches(old), _batches(new))
    return {"significant": found.significant, **asdict(found)}


def _batches(samples: Samples) -> dict[tuple[str, str], list[Batch]]:
    return {(one["operator"], one["input"]): [Batch(**batch) for batch in one["batches"]] for one in samples}
