"""Standing of a request by its cluster's policy: what quotas count by, freezes, and who has waited longer."""

from __future__ import annotations

from datetime import datetime

from apps.admission.models import AdmissionRequest
from apps.admission.queue import cluster_queue
from apps.core.clock import shared_now
from apps.core.errors import Impossible
from apps.fleet.choices import ABSENT
from apps.policies.selectors import policy_numbered, policy_of, team_of
from apps.queries.choices import QueryState
from apps.queries.masks import mask_of
from apps.queries.models import Query
from engine.admission.policy_reasons import standing_reasons
from engine.policies.candidate_policy import PolicyStanding, WaitingRequest
from engine.policies.facts import PolicyFacts

__all__ = ["policy_standing", "require_permitted"]


def policy_standing(
    request: AdmissionRequest, facts: PolicyFacts | None = None, ahead: tuple[WaitingRequest, ...] = ()
) -> PolicyStanding:
    """The policy that a request is decided under, now, or as it was by the facts of its decision.

    `ahead` are the requests that come before it in the queue (`apps.admission.questions`).
    """
    cluster, query = request.cluster, request.query
    policy = policy_of(cluster) if facts is None else policy_numbered(cluster, facts.version)
    counts = policy.has_quotas or request.may_wait_s > 0
    names = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING, team__isnull=False)
    nodes = cluster.nodes.exclude(state__in=ABSENT).values_list("name", "pool__name", "cores")
    pools: dict[str, float] = {}
    for _, pool, cores in nodes if counts else ():
        pools[pool] = pools.get(pool, 0.0) + cores
    at: datetime = shared_now() if facts is None else facts.at
    teams = dict(names.values_list("name", "team__name")) if counts else {}
    for member in request.members if counts and request.group_id is not None else ():
        teams[member.query.name] = team_of(member.query)
    return PolicyStanding(
        policy,
        cluster.policy_version if facts is None else facts.version,
        team_of(query) if facts is None else facts.team,
        at,
        query.state == QueryState.RUNNING if facts is None else facts.is_version,
        teams,
        {node: pool for node, pool, _ in nodes},
        pools,
        cluster_queue(cluster).overdue_ahead(request) if facts is None else facts.overdue,
        ahead if facts is None else tuple(entry for entry in ahead if entry.name in facts.ahead),
        counts,
    )


def require_permitted(request: AdmissionRequest) -> None:
    """Refuse a start that the policy forbids by now, whatever the verdict said: time has passed since.

    Called with the cluster's lock, on a cluster that has not moved: what quotas count by is then as it was decided on.

    Raises
    ------
    Impossible
        A freeze holds, or a request that has waited longer comes first.
    """
    standing = policy_standing(request)
    reasons = list(standing_reasons(standing, request.query.name))
    if reasons:
        mask = mask_of(request.cluster)
        told = [reason.message if mask is None else mask.text(reason.message) for reason in reasons]
        raise Impossible(f"{told[0]}.", [("policy", message) for message in told], code=reasons[0].code)
