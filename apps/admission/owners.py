"""Owners of what a decision touches: who holds the scope on the deciding team alone applies what leaves others be.

A start takes room that the verdict has found to be free. What a decision changes beside that is others': their
operators are moved, a node is added, or, against the verdict, their objectives are missed. That takes the scope on the
cluster, whichever way it is asked for, also by a job that does later what somebody has decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint
from apps.admission.models import AdmissionRequest
from apps.core.errors import Forbidden
from apps.core.reach import Reach, caller_now, is_seen_in_part, visible
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.admission.changes import moves_in, nodes_in
from engine.policies.demand import demands_by_team
from engine.policies.quotas import CORES
from engine.records import Record, Words
from engine.words import counted, listed

__all__ = ["OthersLoad", "changes_told", "load_of_others", "refusal_of_owners", "require_owners"]


def changes_told(request: AdmissionRequest, changes: Sequence[str]) -> list[str]:
    """Changes since a preview as they are told: each change names what others own, which a part does not show."""
    return ["what runs there"] if changes and is_seen_in_part(request.cluster_id) else list(changes)


@dataclass(frozen=True)
class OthersLoad(Record):
    """Running queries of other teams in a cluster, in sum: a part of it names none of them."""

    TITLE: ClassVar[str] = "a sum"

    queries: Annotated[int, Words("Number of them.")]
    cores: Annotated[float, Words("Cores that they keep busy on average over the horizon, by their statistics.")]
    is_more: Annotated[bool, Words("Whether costs of some are not known, so that they take more than that.")]


def load_of_others(cluster: Cluster) -> OthersLoad | None:
    """Load of other teams in a cluster that the caller sees in part; None for who sees it whole."""
    if not is_seen_in_part(cluster.pk):
        return None
    own = set(visible(Query.objects.filter(cluster=cluster)).values_list("name", flat=True))
    deployment = cluster_snapshot(cluster, with_waiting=False).deployment
    names = [query for query in deployment.queries if query not in own]
    demand = demands_by_team(deployment, dict.fromkeys(names, "others"), ["others"], {})["others"]
    return OthersLoad(len(names), demand.amounts[CORES], CORES in demand.unknown)


def require_owners(request: AdmissionRequest, user: User | None) -> None:
    """Refuse to apply a decision that touches what others own than the person's teams.

    Raises
    ------
    Forbidden
        `owners`: says what it touches, and the roles on the cluster that may.
    """
    caller = caller_now()
    reach = caller.reach if user is None or caller.person == user.pk else user.reach
    if words := _touching(request, reach, is_override=request.overridden):
        raise Forbidden(words, code="owners")


def refusal_of_owners(request: AdmissionRequest, *, is_override: bool) -> str:
    """Why the caller, who decides for the query's team alone, may not apply a decision; empty for everybody else.

    `is_override` asks it of a decision against its verdict.
    """
    reach = caller_now().reach
    held = reach.on_owned(request.cluster_id, request.query.team_id, request.query.labels)
    return _touching(request, reach, is_override=is_override) if Scope.ADMIT in held else ""


def _touching(request: AdmissionRequest, reach: Reach, *, is_override: bool) -> str:
    """A sentence on the queries and nodes beyond a reach that a decision touches, and on who may apply it; or empty."""
    if Scope.ADMIT in reach.on_cluster(request.cluster_id):
        return ""
    own = Query.objects.filter(reach.part_with(frozenset({Scope.ADMIT})).owning(), cluster=request.cluster_id)
    others = sorted(_touched(request, is_override=is_override) - set(own.values_list("name", flat=True)))
    adds = request.decision is not None and bool(nodes_in(request.decision.changes))
    if not others and not adds:
        return ""
    named = f" ({listed(others)})" if others and not is_seen_in_part(request.cluster_id) else ""
    touched = f"touches {counted(len(others), 'query', 'queries')} of other teams{named}" if others else ""
    what = " and ".join(filter(None, [touched, "adds a node" if adds else ""]))
    place = f"the scope 'admit' on the cluster {request.cluster.slug}"
    return f"This decision {what}. Applying it takes {place}. {role_hint(Scope.ADMIT)}"


def _touched(request: AdmissionRequest, *, is_override: bool) -> set[str]:
    """Names of queries beside the decided one that are moved, or against the verdict may miss their objectives."""
    decision = request.decision
    if decision is None:
        return set()
    moved = {operator.partition("/")[0] for operator in moves_in(decision.changes)}
    missed = {effect.query for effect in decision.effects if effect.bound_s and effect.after_state != "holds"}
    return (moved | (missed if is_override else set())) - {request.query.name}
