"""Configurations and policies that people make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.refinement.checking import WORSE, drafts_check
from apps.refinement.choices import ConfigOrigin, ConfigState
from apps.refinement.documents import document_of_learned, learned_in
from apps.refinement.giving import assignments_adapting
from apps.refinement.making import PartDraft, config_make, configs_announce, policy_locked
from apps.refinement.models import Learned, RefinedConfig, RolloutPolicy
from apps.telemetry.adapting import settings_read
from apps.telemetry.models import Assignment, LiveQuery
from engine.jarvis.refined import ENOUGH_RECORDS
from engine.jarvis.settings import Settings

__all__ = ["Wish", "config_check", "config_create", "policy_update"]

_MOST_WAVES = 10


@dataclass(frozen=True)
class Wish:
    """What somebody wants agents to do.

    `settings` are those of adapting (`engine.jarvis.settings`); what is left out has its default. Without `queries`
    (names) it is for every live query of the cluster, without `agents` (names) for all of their agents. `learned`:
    with what Spark knows of the operators, where it knows enough.
    """

    settings: Mapping[str, Any]
    queries: Sequence[str] = field(default=())
    agents: Sequence[str] = field(default=())
    learned: bool = True


@transaction.atomic
def config_create(
    *, cluster: Cluster, wish: Wish, words: str = "", user: User | None = None, now: datetime | None = None
) -> RefinedConfig:
    """Make a configuration and check it on recorded epochs; nobody has it before its rollout is started.

    One that is predicted to be worse than the policy allows is kept as refused.

    Raises
    ------
    Malformed
        With every fault: settings out of their safe range, queries that are not live, agents that take no part.
    """
    now = now or timezone.now()
    policy = policy_locked(cluster)
    faults = [Fault("words", f"words has {len(words)} characters; allowed: 200")] if len(words) > 200 else []
    drafts = _drafts(cluster, wish, faults)
    checked = drafts_check(cluster, drafts, policy, now)
    config = config_make(
        cluster=cluster, origin=ConfigOrigin.PERSON, drafts=drafts, now=now, author=user,
        words=words or _words(wish), settings=dict(wish.settings), checked=checked,
        scope={"queries": list(wish.queries), "agents": list(wish.agents), "learned": wish.learned},
    )  # fmt: skip
    if checked["health"] == WORSE:
        config.state = ConfigState.REFUSED
        config.save(update_fields=["state", "updated_at"])
    return config


def config_check(*, cluster: Cluster, wish: Wish, now: datetime | None = None) -> dict[str, Any]:
    """What a configuration would have done with the epochs recorded of late; nothing is stored."""
    policy = RolloutPolicy.objects.filter(cluster=cluster).first() or RolloutPolicy(cluster=cluster)
    return drafts_check(cluster, _drafts(cluster, wish, []), policy, now or timezone.now())


def _words(wish: Wish) -> str:
    said = ", ".join(f"{name} {value}" for name, value in wish.settings.items()) or "defaults"
    return f"Sets {said}"[:200]


def _drafts(cluster: Cluster, wish: Wish, faults: list[Fault]) -> list[PartDraft]:
    assignments = assignments_adapting(cluster)
    lives = {one.live.query.name: one.live for one in assignments}
    agents = {one.agent.name: one.agent for one in assignments}
    faults += _unknown("queries", wish.queries, lives, "no live query that an agent adapts")
    faults += _unknown("agents", wish.agents, agents, "no agent that adapts a live query")
    chosen = [live for name, live in lives.items() if not wish.queries or name in wish.queries]
    settings = _settings(wish, chosen, faults)
    if not assignments and not faults:
        faults.append(Fault("queries", f"no agent of {cluster.slug} adapts a live query"))
    drafts = [] if faults else _parts(chosen, assignments, wish, settings)
    if not drafts and not faults:
        faults.append(Fault("agents", "none of these agents takes part in one of these queries"))
    if faults:
        first = f"{faults[0].path}: {faults[0].message}"
        raise Malformed(f"The configuration has {fault_count(faults)}; first: {first}.", faults)
    return drafts


def _settings(wish: Wish, chosen: Sequence[LiveQuery], faults: list[Fault]) -> dict[str, Any]:
    """The settings as they are stored; load factors by hand have to fit every query that they are for."""
    before = len(faults)
    Settings.read(wish.settings, "", "settings", faults)
    if len(faults) > before:
        return {}
    settings: dict[str, Any] = {}
    for live in chosen:
        found: list[Fault] = []
        settings = settings_read(wish.settings, live.source_operators, found)
        faults += [Fault(one.path, f"{one.message} (query {live.query.name})") for one in found]
    return settings


def _parts(
    chosen: Sequence[LiveQuery], assignments: Sequence[Assignment], wish: Wish, settings: Mapping[str, Any]
) -> list[PartDraft]:
    """For all agents one part with settings alone, and one of their own for agents that are chosen or known of."""
    drafts = [] if wish.agents else [PartDraft(live, None, settings) for live in chosen]
    keys = {live.pk for live in chosen}
    known = learned_in(assignments[0].agent.cluster_id) if wish.learned and assignments else {}
    for one in assignments:
        if one.live_id in keys and (not wish.agents or one.agent.name in wish.agents):
            learned = _well_known(known.get((one.live_id, one.agent_id)))
            if wish.agents or learned:
                drafts.append(PartDraft(one.live, one.agent, settings, learned))
    return drafts


def _well_known(row: Learned | None) -> dict[str, Any] | None:
    """What Spark knows of a query's operators at an agent, where it knows enough."""
    if row is None or any(one["records"] < ENOUGH_RECORDS for one in row.document["operators"]):
        return None
    return document_of_learned(row)


def _unknown(path: str, wanted: Sequence[str], known: Mapping[str, Any], what: str) -> list[Fault]:
    listed = ", ".join(sorted(known)[:10]) or "none"
    return [
        Fault(f"{path}[{index}]", f"{name!r} is {what}; there are: {listed}")
        for index, name in enumerate(wanted)
        if name not in known
    ]


@transaction.atomic
def policy_update(*, cluster: Cluster, **values: Any) -> RolloutPolicy:
    """Change how rollouts go. Those under way keep the policy that they began with."""
    policy = policy_locked(cluster)
    for name, value in values.items():
        setattr(policy, name, value)
    check_row(policy, _wave_faults(policy.waves))
    policy.save()
    configs_announce(cluster)
    return policy


def _wave_faults(waves: Any) -> list[Fault]:
    allowed = f"1 to {_MOST_WAVES} shares above 0 that grow and end with 1"
    numbers = isinstance(waves, list) and all(type(share) in (int, float) and 0 < share <= 1 for share in waves)
    if not numbers or not 1 <= len(waves) <= _MOST_WAVES or waves[-1] != 1 or sorted(set(waves)) != waves:
        return [Fault("waves", f"waves is {str(waves)[:60]}; allowed: {allowed}")]
    return []
