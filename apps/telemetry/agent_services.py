"""Changes to agents: enrolment by tokens, secrets (only hashes are stored), settings, deletion."""

from __future__ import annotations

import hmac
import ipaddress
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from apps.accounts.models import User
from apps.accounts.services import token_digest
from apps.core.addresses import is_within
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault, Forbidden, NotAuthenticated
from apps.core.events import announce
from apps.core.limits import MAX_ENROLMENT_USES
from apps.fleet.models import Cluster, Node
from apps.fleet.validation import check_free, check_row
from apps.ledger.recorder import recorded
from apps.telemetry.configs import configs_renew, push
from apps.telemetry.directory import SECRET_PREFIX, forget_facts_on_commit
from apps.telemetry.models import Agent, AgentKind, EnrolmentToken, TelemetrySource
from apps.telemetry.sources import options_faults

__all__ = ["Enrolled", "agent_delete", "agent_enrol", "agent_update", "enrolment_create", "enrolment_revoke"]


@recorded()
def agent_update(*, agent: Agent, **fields: Any) -> Agent:
    """Change an agent: name, `budget_cores`, `enabled`, `node`, `kind`, `parent`, `listen`, `source_options`.

    Raises
    ------
    Malformed
        A node or parent of another cluster, a parent that is no relay, options that its sources do not have, a budget
        of more cores than its host has.
    Conflict
        The name is taken.
    """
    above, had_cores = agent.parent_id, agent.budget_cores
    for name, value in fields.items():
        setattr(agent, name, value)
    faults = [*_place_faults(agent), *_option_faults(agent)]
    check_row(agent, [*faults, *(_budget_faults(agent, had_cores) if "budget_cores" in fields else [])])
    check_free(Agent.objects.filter(cluster=agent.cluster_id), agent, name=agent.name)
    agent.save(update_fields=[*fields, "updated_at"])
    configs_renew([agent.pk, *([above] if above else []), *agent.children.values_list("pk", flat=True)])
    push([agent.pk])
    agent.refresh_from_db(fields=["config_version", "config_digest"])
    forget_facts_on_commit()
    announce(f"telemetry:{agent.cluster.slug}")
    return agent


@recorded()
def agent_delete(*, agent: Agent) -> None:
    """Delete an agent: its secret is void from now on, and no query waits for it."""
    touched = [*agent.children.values_list("pk", flat=True), *([agent.parent_id] if agent.parent_id else [])]
    announce(f"telemetry:{agent.cluster.slug}")
    agent.delete()
    configs_renew(touched)
    forget_facts_on_commit()


def _place_faults(agent: Agent) -> list[Fault]:
    faults = []
    if agent.node is not None and agent.node.cluster_id != agent.cluster_id:
        faults.append(Fault("node", f"node is {agent.node.name!r}, which is of another cluster"))
    parent = agent.parent
    if parent is not None and (parent.cluster_id != agent.cluster_id or parent.kind != AgentKind.RELAY):
        faults.append(Fault("parent", f"parent is {parent.name!r}; allowed: a relay of the same cluster"))
    if parent is not None and agent.kind == AgentKind.RELAY:
        faults.append(Fault("parent", "a relay sends to the console; allowed: no parent"))
    if agent.kind != AgentKind.RELAY and agent.pk and agent.children.exists():
        faults.append(Fault("kind", f"kind is {agent.kind!r}; allowed: relay, for agents send to it"))
    return faults


def _budget_faults(agent: Agent, had_cores: float) -> list[Fault]:
    """Budgets above the cores of the host; a budget from before may stay."""
    budget, limit = agent.budget_cores, max(float(agent.cores), had_cores)
    if not agent.host or not isinstance(budget, (int, float)) or not limit < budget < math.inf:
        return []
    return [Fault("budget_cores", f"budget_cores is {budget:g}; allowed: 0.01 to {limit:g} cores")]


def _option_faults(agent: Agent) -> list[Fault]:
    """Faults of source options at this agent, together with those of the source."""
    source_options = agent.source_options
    if not isinstance(source_options, dict) or not all(
        isinstance(options, dict) for options in source_options.values()
    ):
        return [Fault("source_options", 'allowed: options by source, such as {"probes": {"listen": "10.0.0.1:9101"}}')]
    sources = TelemetrySource.objects.filter(cluster=agent.cluster_id, source_id__in=source_options)
    by_name = {source.source_id: source for source in sources}
    faults = [
        Fault(f"source_options.{name}", f"the cluster has no source {name!r}")
        for name in source_options
        if name not in by_name
    ]
    for name, source in by_name.items():
        merged = {**source.options, **source_options[name]}
        faults += options_faults(source, merged, f"source_options.{name}")
    return faults


TOKEN_PREFIX = "sle_"
MAX_LIFETIME = timedelta(days=366)
_ALIVE_WITHIN = timedelta(seconds=30)  # an agent heard of within that is alive on its host


@dataclass(frozen=True)
class Enrolled:
    """An enrolled agent and its secret, shown this once."""

    agent: Agent
    secret: str


@recorded()
def enrolment_create(
    *,
    cluster: Cluster,
    user: User | None,
    uses: int = 1,
    expires_at: datetime | None = None,
    note: str = "",
    networks: Sequence[str] = (),
    agent_name: str = "",
) -> tuple[EnrolmentToken, str]:
    """Let agents join a cluster; returns the token and its secret (`sle_…`), which is shown once and stored nowhere.

    Parameters
    ----------
    uses : int
        How many agents may join with it.
    expires_at : datetime, optional
        In 24 hours unless given.
    agent_name : str
        The one agent that may join with it. Only such a token lets an agent of a known name join without its secret.
    """
    now = shared_now()
    expires_at = expires_at or now + timedelta(hours=24)
    faults = []
    if not 1 <= uses <= MAX_ENROLMENT_USES:
        faults.append(Fault("uses", f"uses is {uses}; allowed: 1 to {MAX_ENROLMENT_USES}"))
    if not now < expires_at <= now + MAX_LIFETIME:
        faults.append(
            Fault(
                "expires_at",
                f"expires_at is {expires_at.isoformat()}; allowed: in the future, within {MAX_LIFETIME.days} days",
            )
        )
    networks_read = []
    for index, network in enumerate(networks):
        try:
            networks_read.append(str(ipaddress.ip_network(network, strict=False)))
        except ValueError:
            faults.append(Fault(f"networks[{index}]", f"{network!r} is not a network such as 10.0.0.0/8 or fd00::/8"))
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = EnrolmentToken(
        cluster=cluster,
        note=note.strip(),
        prefix=secret[:10],
        digest=token_digest(secret),
        networks=networks_read,
        agent_name=agent_name.strip(),
        uses_left=max(0, uses),
        created_by=user,
        expires_at=expires_at,
    )
    check_row(token, faults)
    token.save()
    announce(f"telemetry:{cluster.slug}")
    return token, secret


@recorded()
def enrolment_revoke(*, token: EnrolmentToken) -> EnrolmentToken:
    """Revoke a token: no agent enrols with it any more; enrolled ones stay. Revoking twice changes nothing."""
    if token.revoked_at is None:
        token.revoked_at = shared_now()
        token.save(update_fields=["revoked_at"])
        announce(f"telemetry:{token.cluster.slug}")
    return token


@recorded()
def agent_enrol(*, token: str, name: str, address: str = "", old_secret: str = "", **facts: Any) -> Enrolled:
    """Enrol an agent in the token's cluster. A known name is the same agent, with a new secret.

    It has to show that it is: by the secret it has, or by a token that is bound to its name. Any other token with
    uses left would let whoever holds it speak for every agent of the cluster.

    Parameters
    ----------
    address : str
        Where it asks from, for tokens that are bound to networks.
    old_secret : str
        Of an agent that is known: the secret it has had so far.
    facts
        `host`, `version`, `cores`, `capacity_cps`, `kind`, as it says.

    Raises
    ------
    NotAuthenticated
        The token is unknown, used up, expired or revoked.
    Forbidden
        It may not be used from this address or for this name; or the name is known, and neither secret nor token are
        this agent's.
    Conflict
        An agent of this name is alive on another host.
    """
    used = _use(token, address)
    if used.agent_name and used.agent_name != name:
        message = f"The enrolment token {used} is of the agent {used.agent_name!r}."
        raise Forbidden(message, [("name", f"name is {name!r}; allowed: {used.agent_name!r}")], code="token_name")
    agent = Agent.objects.select_for_update(of=("self",)).filter(cluster=used.cluster, name=name).first()
    if agent is not None and not used.agent_name and not _is_secret_of(agent, old_secret):
        raise Forbidden(
            f"There is an agent {name!r} already. To join again it sends its present secret as old_secret, or uses a "
            "token that is bound to its name. A new agent takes another name.",
            [("name", f"{name!r} is the name of an agent")],
            code="agent_known",
        )
    if agent is not None and _alive_elsewhere(agent, facts.get("host", "")):
        raise Conflict(
            f"The agent {name!r} reports from the host {agent.host!r}. Give this one another name.",
            [("name", f"{name!r} is in use on {agent.host!r}")],
        )
    agent = agent or Agent(cluster=used.cluster, name=name, node=_node_named(used.cluster, name))
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    agent.secret_hash, agent.enrolled_at = token_digest(secret), shared_now()
    for field, value in facts.items():
        setattr(agent, field, value)
    check_row(agent)
    agent.save()
    configs_renew([agent.pk])
    push([agent.pk])  # who is connected with the secret before is sent away
    forget_facts_on_commit()
    announce(f"telemetry:{used.cluster.slug}")
    return Enrolled(agent, secret)


def _use(secret: str, address: str) -> EnrolmentToken:
    """Use the token once; of concurrent uses only as many succeed as are left."""
    token = EnrolmentToken.objects.select_related("cluster").filter(digest=token_digest(secret.strip())).first()
    if token is None:
        raise NotAuthenticated("The enrolment token is not known.")
    now = shared_now()
    if token.revoked_at is not None:
        raise NotAuthenticated(f"The enrolment token {token} was revoked.", code="token_revoked")
    if token.expires_at <= now:
        message = f"The enrolment token {token} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC."
        raise NotAuthenticated(message, code="token_expired")
    if token.networks and not is_within(address, token.networks):
        message = f"The enrolment token {token} cannot be used from {address or 'an unknown address'}."
        raise Forbidden(message, code="token_network")
    left = EnrolmentToken.objects.filter(pk=token.pk, uses_left__gt=0, revoked_at=None)
    if not left.update(uses_left=F("uses_left") - 1, used=F("used") + 1, last_used_at=now):
        raise NotAuthenticated(f"The enrolment token {token} is used up.", code="token_used_up")
    return token


def _is_secret_of(agent: Agent, secret: str) -> bool:
    return bool(secret and agent.secret_hash) and hmac.compare_digest(agent.secret_hash, token_digest(secret.strip()))


def _alive_elsewhere(agent: Agent, host: str) -> bool:
    heard = agent.last_seen is not None and shared_now() - agent.last_seen < _ALIVE_WITHIN
    return heard and agent.enabled and agent.host != host


def _node_named(cluster: Cluster, name: str) -> Node | None:
    """The node of the same name, if there is one."""
    return cluster.nodes.filter(name=name).first()
