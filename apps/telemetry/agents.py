"""Changes to agents by people."""

from __future__ import annotations

import math
from typing import Any

from django.db import transaction

from apps.core.errors import Fault
from apps.core.events import announce
from apps.fleet.validation import check_free, check_row
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import configs_renew
from apps.telemetry.directory import forget_facts_on_commit
from apps.telemetry.models import Agent, TelemetrySource
from apps.telemetry.pushing import push
from apps.telemetry.sources import options_faults

__all__ = ["agent_delete", "agent_update"]


@transaction.atomic
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


@transaction.atomic
def agent_delete(*, agent: Agent) -> None:
    """Forget an agent: its secret is worth nothing from now on, and no query waits for it."""
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
    """Of an agent that told of its host; what it was allowed before, it may keep."""
    wanted, most = agent.budget_cores, max(float(agent.cores), had_cores)
    if not agent.host or not isinstance(wanted, (int, float)) or not most < wanted < math.inf:
        return []
    return [Fault("budget_cores", f"budget_cores is {wanted:g}; allowed: 0.01 to {most:g} cores")]


def _option_faults(agent: Agent) -> list[Fault]:
    """Options of a source as this agent would have them are judged as a whole."""
    given = agent.source_options
    if not isinstance(given, dict) or not all(isinstance(options, dict) for options in given.values()):
        return [Fault("source_options", 'allowed: options by source, such as {"probes": {"listen": "10.0.0.1:9101"}}')]
    sources = TelemetrySource.objects.filter(cluster=agent.cluster_id, source_id__in=given)
    by_name = {source.source_id: source for source in sources}
    faults = [
        Fault(f"source_options.{name}", f"the cluster has no source {name!r}") for name in given if name not in by_name
    ]
    for name, source in by_name.items():
        merged = {**source.options, **given[name]}
        faults += options_faults(source, merged, f"source_options.{name}")
    return faults
