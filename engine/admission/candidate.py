"""The query that asks to be admitted, read against what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.document.candidate import Candidate, parse_candidate
from engine.document.deployment import Deployment, Source
from engine.errors import DocumentError, Fault
from engine.fields import BAD, NumberSeries

__all__ = ["Candidate", "read_candidate"]


def read_candidate(document: Any, running: Deployment, *, path: str = "candidate") -> Candidate:
    """Read a candidate; it may repeat a running source as long as the arrivals are the same.

    Raises
    ------
    DocumentError
        With every fault, each with its path under `path`.
    """
    repeated = _repeated_sources(document, running)
    faults = [
        Fault(
            f"{path}.sources[{i}].arrivals",
            f"arrivals of {source.id!r} are not those of the running source; allowed: the same, or a new id",
        )
        for i, source in repeated.items()
        if not _same_arrivals(document["sources"][i].get("arrivals"), source)
    ]
    names = {source.id for source in repeated.values()}
    others = replace(running, sources=tuple(source for source in running.sources if source.id not in names))
    try:
        candidate = parse_candidate(document, others, path=path)
    except DocumentError as error:
        raise DocumentError([*faults, *error.faults], "candidate") from None
    if faults:
        raise DocumentError(faults, "candidate")
    return replace(candidate, sources=tuple(source for source in candidate.sources if source.id not in names))


def _repeated_sources(document: Any, running: Deployment) -> dict[int, Source]:
    """Running sources that the candidate lists again (once each), by their position in its list."""
    listed = document.get("sources") if isinstance(document, Mapping) else None
    known = {source.id: source for source in running.sources}
    found: dict[int, Source] = {}
    for i, item in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
        name = item.get("id") if isinstance(item, Mapping) else None
        if isinstance(name, str) and name in known:
            found[i] = known[name]
    return found


def _same_arrivals(given: Any, source: Source) -> bool:
    """Whether `given` are the arrivals of `source`; what is no series at all is another fault's business."""
    read = NumberSeries().read(given, "", "arrivals", [])
    return read is BAD or np.array_equal(read, source.arrivals)
