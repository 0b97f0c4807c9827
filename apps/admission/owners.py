"""Owners of what a decision touches: who holds the scope on the deciding team alone applies what leaves others be.

A start takes room that the verdict has found to be free. What a decision changes beside that is others': their
operators are moved, a node is added, or, against the verdict, their objectives are missed. That takes the scope on the
cluster, whichever way it is asked for, also by a job that does later what somebody has decided.
"""

from __future__ import annotations

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint
from apps.admission.models import AdmissionRequest
from apps.core.errors import Forbidden
from apps.core.reach import Reach, caller_now, is_seen_in_part
from apps.queries.models import Query
from engine.admission.changes import moves_in, nodes_in
from engine.words import counted, listed

__all__ = ["refusal_of_owners", "require_owners"]


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
