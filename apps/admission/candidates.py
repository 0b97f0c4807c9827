"""Candidates of requests: the documents that the engine is asked about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from apps.admission.models import AdmissionRequest
from apps.core.errors import Conflict
from apps.queries.snapshots.cluster import candidate_document

__all__ = ["candidate_costing", "candidate_of", "candidate_placed"]


def candidate_of(request: AdmissionRequest, *, rate_share: float = 1.0) -> dict[str, object]:
    """The request's query as the engine takes a candidate: where it was asked for, with the objective asked for.

    With a `rate_share` other than 1 it reads that many times the events of its sources.
    """
    placement = {operator: _replica(where) for operator, where in request.placement.items()}
    return candidate_placed(request, placement, rate_share=rate_share)


def candidate_placed(
    request: AdmissionRequest, placement: Mapping[str, object], *, rate_share: float = 1.0
) -> dict[str, object]:
    """The request's query as the engine takes a candidate, with nodes or replicas of its operators by their names."""
    candidate = candidate_document(request.version, placement=placement, rate_share=rate_share)
    if request.objective:
        candidate["objective"] = dict(request.objective)
    candidate["may_wait_s"] = request.may_wait_s
    return candidate


def candidate_costing(candidate: Mapping[str, object], factor: float) -> dict[str, object]:
    """A candidate each event of which costs `factor` times the cycles at every operator."""
    operators: list[Any] = copy.deepcopy(candidate["operators"])  # type: ignore[arg-type]
    for operator in operators:
        for entry in operator["inputs"]:
            if entry.get("model"):
                raise Conflict(
                    "Its cost is a function of its load, of which that of then was not kept.", code="wrong_state"
                )
            entry["cycles_per_event"] = entry.get("cycles_per_event", 0.0) * factor
            entry.pop("batches", None)  # samples of the cost of today
    return {**candidate, "operators": operators}


def _replica(where: str) -> dict[str, object]:
    """`n04` or `n04#1`, as servers are named, as a replica of the engine."""
    node, _, core = where.partition("#")
    return {"node": node, "core": int(core) if core.isdigit() else 0}
