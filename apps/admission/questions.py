"""What a request asks: the digest of a question, and the snapshot it is asked of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.admission.models import AdmissionRequest
from apps.core.errors import Fault, Malformed, fault_count, from_engine
from apps.fleet.choices import NodeState
from apps.queries.snapshots import candidate_document, cluster_snapshot, snapshot_changes
from engine.admission.candidate import read_candidate
from engine.admission.changes import read_changes
from engine.deployment import Deployment
from engine.errors import EngineError

__all__ = ["Question", "candidate_of", "fingerprint", "question_changes", "question_check", "question_of"]

CANDIDATE = "candidate"


@dataclass(frozen=True)
class Question:
    """What the engine is asked: what runs, what wants to join, and a digest of both.

    `parts` are the snapshot's parts and the candidate's own, so that a change of the candidate's statistics or of the
    arrivals only it reads makes a preview stale as well. `closed_nodes` take nothing new.
    """

    running: Deployment
    candidate: dict[str, Any]
    parts: dict[str, str]
    digest: str
    closed_nodes: tuple[str, ...]


def question_of(request: AdmissionRequest) -> Question:
    """Take a snapshot of the request's cluster as it is now. An earlier version of the query is left out of it."""
    snapshot = cluster_snapshot(request.cluster)
    running = snapshot.deployment
    if request.query.name in running.queries:
        running = running.without_query(request.query.name)
    candidate = candidate_of(request)
    parts = {**snapshot.parts, f"{CANDIDATE}:{request.query.name}": fingerprint(candidate)}
    return Question(running, candidate, parts, fingerprint(parts), snapshot.closed_nodes)


def candidate_of(request: AdmissionRequest) -> dict[str, Any]:
    """The request's query as the engine takes a candidate: where it was asked for, with the objective asked for."""
    wanted = {operator: _replica(where) for operator, where in request.placement.items()}
    candidate = candidate_document(request.version, placement=wanted)
    if request.objective:
        candidate["objective"] = dict(request.objective)
    candidate["may_wait_s"] = request.may_wait_s
    return candidate


def question_check(request: AdmissionRequest, *, path: str) -> None:
    """Refuse a question the engine could not read; `path` is where the query stood in what was sent."""
    faults = _placement_faults(request)
    try:
        question = question_of(request)
        candidate = read_candidate(question.candidate, question.running, path=path)
        read_changes(request.changes, question.running, candidate, closed_nodes=question.closed_nodes)
    except EngineError as error:
        faults += from_engine(error).faults
    if faults:
        faults = list({(fault.path, fault.message): fault for fault in faults}.values())
        raise Malformed(f"The request has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def _placement_faults(request: AdmissionRequest) -> list[Fault]:
    """Operators that do not exist, and nodes that do not or take nothing new."""
    operators = set(request.version.operators.values_list("name", flat=True))
    active = dict(request.cluster.nodes.filter(state=NodeState.ACTIVE).values_list("name", "cores"))
    faults = []
    for name, where in request.placement.items():
        node, _, core = where.partition("#")
        if name.removeprefix(f"{request.query.name}/") not in operators:
            faults.append(Fault(f"placement.{name}", f"{name!r} is not an operator of {request.query.name}"))
        if node not in active:
            faults.append(Fault(f"placement.{name}", f"{node!r} is not an active node of {request.cluster.slug}"))
        elif core and not (core.isascii() and core.isdigit() and int(core) < active[node]):
            faults.append(Fault(f"placement.{name}", f"{core!r} is not a core of {node}, which has {active[node]}"))
    return faults


def _replica(where: str) -> dict[str, Any]:
    """`n04` or `n04#1`, as servers are named, as a replica of the engine."""
    node, _, core = where.partition("#")
    return {"node": node, "core": int(core) if core.isdigit() else 0}


def question_changes(request: AdmissionRequest, question: Question) -> list[str]:
    """What has moved since the request was previewed, in words; empty if nothing has."""
    if request.snapshot == question.digest:
        return []
    own = f"{CANDIDATE}:{request.query.name}"
    before, after = dict(request.snapshot_parts), dict(question.parts)
    is_other = before.pop(own, None) != after.pop(own, None)
    changes = list(snapshot_changes(before, after))
    if is_other:
        changes.append(f"the plan, the statistics or the sources of {request.query.name} itself")
    return changes


def fingerprint(value: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON-like value; arrays count by their bytes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    return hashlib.sha256(value.tobytes()).hexdigest() if hasattr(value, "tobytes") else str(value)
