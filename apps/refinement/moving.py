"""The moves that rollouts are made of: begun, given to a stage, stopped. The caller has locked the policy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.forms.models import model_to_dict

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.refinement.choices import ENDED, ON_ITS_WAY, ConfigState, MemberState, RolloutState
from apps.refinement.choosing import members_make
from apps.refinement.giving import agents_of, parts_stamp
from apps.refinement.making import config_reissue, configs_announce
from apps.refinement.models import Rollout, RolloutEvent, RolloutPolicy
from apps.telemetry.configs import configs_renew

__all__ = ["begin_next", "give", "moved", "note", "stop", "under_way"]


def begin_next(policy: RolloutPolicy, now: datetime) -> bool:
    """Begin what waits first, where nothing is under way."""
    if under_way(policy.cluster).exists():
        return False
    waiting = Rollout.objects.filter(config__cluster=policy.cluster, state=RolloutState.WAITING)
    row = waiting.select_related("config__cluster").order_by("created_at", "pk").first()
    if row is None:
        return False
    _begin(row, policy, now)
    return True


def _begin(row: Rollout, policy: RolloutPolicy, now: datetime) -> None:
    wanted: Sequence[str] = row.policy.get("canaries", ())
    row.config = config_reissue(row.config, now)
    row.policy = {**model_to_dict(policy, exclude=["id", "cluster"]), "canaries": list(wanted)}
    row.started_at = row.stage_at = now
    row.save()
    if not members_make(row, now, wanted):
        stop(row, now, ["no agent that it is for takes part"], None)
        return
    moved(row, RolloutState.CANARY, now, "canaries begin")
    give(row, now)


def give(row: Rollout, now: datetime) -> None:
    """Send the configuration to whoever is in a stage that has been reached and has not been sent it."""
    members = row.members.filter(stage__lte=row.stage, state=MemberState.PENDING)
    agents = list(members.values_list("agent", flat=True))
    if agents:
        row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now)
        # what was stamped when it began may be old by now
        stamped = [part for parts in row.config.all_parts for part in parts_stamp(parts, now)]
        configs_renew({*agents, *agents_of(stamped)})
        configs_announce(row.config.cluster)


def stop(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> Rollout:
    """End it before its configuration was current."""
    row.config.state, row.reasons = ConfigState.STOPPED, list(reasons)
    row.config.save(update_fields=["state", "updated_at"])
    return moved(row, RolloutState.STOPPED, now, f"stopped: {'; '.join(reasons) or 'no reason given'}", user)


def moved(row: Rollout, state: RolloutState, now: datetime, words: str, user: User | None = None) -> Rollout:
    """Into another state, with a word on it."""
    row.state = state
    row.ended_at = now if state in ENDED else None
    row.save()
    note(row, now, words, user)
    configs_announce(row.config.cluster)
    return row


def note(row: Rollout, now: datetime, words: str, user: User | None = None) -> None:
    """Remember a step."""
    RolloutEvent.objects.create(rollout=row, at=now, by=user, words=words[:400])


def under_way(cluster: Cluster) -> Any:
    """The rollout of a cluster that holds up the others; there is one at most."""
    rows = Rollout.objects.filter(config__cluster=cluster, state__in=ON_ITS_WAY)
    return rows.select_related("config__cluster", "back").order_by("pk")
