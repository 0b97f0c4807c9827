"""Candidates of requests: the documents that the engine is asked about."""

from __future__ import annotations

from collections.abc import Mapping

from apps.admission.models import AdmissionRequest
from apps.queries.snapshots.cluster import candidate_document

__all__ = ["candidate_of", "candidate_placed"]


def candidate_of(request: AdmissionRequest) -> dict[str, object]:
    """The request's query as the engine takes a candidate: where it was asked for, with the objective asked for."""
    return candidate_placed(request, {operator: _replica(where) for operator, where in request.placement.items()})


def candidate_placed(request: AdmissionRequest, placement: Mapping[str, object]) -> dict[str, object]:
    """The request's query as the engine takes a candidate, with nodes or replicas of its operators by their names."""
    candidate = candidate_document(request.version, placement=placement)
    if request.objective:
        candidate["objective"] = dict(request.objective)
    candidate["may_wait_s"] = request.may_wait_s
    return candidate


def _replica(where: str) -> dict[str, object]:
    """`n04` or `n04#1`, as servers are named, as a replica of the engine."""
    node, _, core = where.partition("#")
    return {"node": node, "core": int(core) if core.isdigit() else 0}
