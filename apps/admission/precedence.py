"""Precedence in the queue: who comes before a request, with what each of them waits for, and who has come since."""

from __future__ import annotations

from dataclasses import asdict, replace

from apps.admission.candidates import candidate_placed
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.queue import cluster_queue
from apps.policies.selectors import team_of
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.admission.changes import LaterStart
from engine.policies.candidate_policy import WaitingRequest
from engine.policies.quotas import TeamDemand
from engine.words import listed

__all__ = ["queue_changes", "waiting_ahead"]

MAX_WEIGHED = 50  # requests ahead whose room is weighed; behind the others is who shares their nodes


def waiting_ahead(request: AdmissionRequest) -> tuple[WaitingRequest, ...]:
    """Requests that come before one in the queue, each with what it waits for; of the first fifty with their room."""
    rows, relatives = cluster_queue(request.cluster).ahead_of(request), StoppedRelatives(request.cluster)
    return tuple(_waiting(row, relatives if i < MAX_WEIGHED else None) for i, row in enumerate(rows))


def _waiting(request: AdmissionRequest, relatives: StoppedRelatives | None) -> WaitingRequest:
    """A request of the queue as its last decision has it."""
    decision, query = request.decision, request.query
    facts = decision.policy_facts if decision is not None else None
    demand = TeamDemand(facts.wanted, frozenset(facts.unknown)) if facts is not None else TeamDemand()
    entry = WaitingRequest(str(request.version), query.name, team_of(query), demand)
    if decision is None or not decision.placement:
        return entry
    placed = decision.placement_of(query.name)
    nodes = frozenset(replica.node for replicas in placed.values() for replica in replicas)
    later = [LaterStart(decision.start_p, decision.start_s)] if decision.start_p is not None else []
    changes = tuple(change.to_dict() for change in (*decision.changes, *later))
    replicas = {operator: [asdict(replica) for replica in own] for operator, own in placed.items()}
    candidate = relatives.beside(candidate_placed(request, replicas)) if relatives is not None else None
    return replace(entry, nodes=nodes, candidate=candidate, changes=changes)


def queue_changes(request: AdmissionRequest) -> list[str]:
    """The queue, where requests come before one by now that its decision does not know of; one that waits may wait."""
    others = AdmissionRequest.objects.filter(cluster=request.cluster_id, state=AdmissionState.QUEUED)
    decision = request.decision
    if decision is None or request.verdict == Verdict.QUEUE or not others.exclude(query=request.query_id).exists():
        return []
    known = decision.policy_facts.ahead if decision.policy_facts is not None else ()
    ahead = [str(row.version) for row in cluster_queue(request.cluster).ahead_of(request)]
    new = [name for name in ahead if name not in known]
    return [f"the queue, where {listed(new, 5)} {'comes' if len(new) == 1 else 'come'} before it"] if new else []
