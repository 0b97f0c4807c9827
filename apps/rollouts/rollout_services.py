"""Changes to rollouts: start, advance, pause, resume, roll back. Every step is idempotent and under one lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.dispatch import receiver
from django.forms.models import model_to_dict

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault
from apps.fleet.models import Cluster
from apps.rollouts.members import (
    Recipient,
    StageJudgement,
    acknowledgements_note,
    canaries_replace,
    members_create,
    members_notes,
    members_sync,
    recipients_of,
    stage_judge,
)
from apps.rollouts.models import (
    ENDED,
    GIVEN,
    UNDER_WAY,
    ConfigOrigin,
    ConfigState,
    MemberState,
    RefinedConfig,
    RefinedPart,
    Rollout,
    RolloutEvent,
    RolloutMember,
    RolloutPolicy,
    RolloutState,
    SchedulePart,
)
from apps.rollouts.predictions import config_check_of
from apps.rollouts.versions import (
    agents_of,
    config_reissue,
    config_store,
    configs_announce,
    configs_supersede,
    document_plain,
    document_stamp,
    part_of,
    parts_stamp,
    policy_locked,
    schedule_make,
    schedule_part_of,
)
from apps.telemetry.configs import config_acknowledged, configs_renew
from apps.telemetry.models import Agent, Assignment
from engine.klink.settings import ScheduleSettings
from engine.rollouts.guard import GuardHealth

__all__ = [
    "canaries_add",
    "rollout_advance",
    "rollout_pause",
    "rollout_resume",
    "rollout_roll_back",
    "rollout_start",
    "rollouts_advance",
]

_JUDGED_STATES = (RolloutState.CANARY, RolloutState.WAVE)
_log = logging.getLogger(__name__)


@transaction.atomic
def rollout_start(
    *,
    config: RefinedConfig,
    user: User | None = None,
    force: bool = False,
    canaries: Iterable[Agent] = (),
    now: datetime | None = None,
) -> Rollout:
    """Start the rollout of a configuration: at once, or when those before it have ended.

    `force` starts one that its check refused; the guard still judges its canaries. `canaries` come
    first.

    Raises
    ------
    Conflict
        It has been started before, or its check refused it and `force` is not set.
    """
    now = now or shared_now()
    policy = policy_locked(config.cluster)
    config.refresh_from_db(fields=["state"])
    if config.state == ConfigState.REFUSED and not force:
        checked = config_check_of(config)
        reasons = checked.reasons if checked else ()
        message = f"The check of {config.name} refused it: {'; '.join(reasons)}. It can be forced."
        raise Conflict(message, [Fault("force", reason) for reason in reasons], code="check_refused")
    if config.state not in (ConfigState.DRAFT, ConfigState.REFUSED) or Rollout.objects.filter(config=config).exists():
        raise Conflict(f"{config.name} has been started already; a configuration goes out once.")
    canary_ids = [str(agent.pk) for agent in canaries]
    rollout = Rollout.objects.create(config=config, by=user, created_at=now, policy={"canaries": canary_ids})
    event_add(rollout, now, "started by force" if force and config.state == ConfigState.REFUSED else "started", user)
    rollout_begin_next(policy, now)
    rollout.refresh_from_db()
    return rollout


@transaction.atomic
def rollout_pause(*, rollout: Rollout, user: User | None = None, now: datetime | None = None) -> Rollout:
    """Pause a rollout: members keep what they have until it is resumed. Pausing twice changes nothing."""
    row, now = _locked(rollout), now or shared_now()
    if row.state == RolloutState.PAUSED:
        return row
    _require_state(row, _JUDGED_STATES, "paused")
    return rollout_transition(row, RolloutState.PAUSED, now, "paused", user)


@transaction.atomic
def rollout_resume(*, rollout: Rollout, user: User | None = None, now: datetime | None = None) -> Rollout:
    """Resume a paused rollout; one found worse is rolled back at once."""
    row, now = _locked(rollout), now or shared_now()
    if row.state in _JUDGED_STATES:
        return row
    _require_state(row, (RolloutState.PAUSED,), "resumed")
    rollout_transition(row, RolloutState.WAVE if row.stage else RolloutState.CANARY, now, "resumed", user)
    if StageJudgement.parse(row.verdict).health == GuardHealth.WORSE:
        _apply_verdict(row, now)
    return row


@transaction.atomic
def rollout_roll_back(
    *, rollout: Rollout, user: User | None = None, reason: str = "", now: datetime | None = None
) -> Rollout:
    """Roll a configuration back at every agent that was sent it: they get the one before, under a higher number.

    A waiting one just stops. Rolling back twice changes nothing.

    Raises
    ------
    Conflict
        Another rollout is under way: it would reach agents under a lower number than this rollback.
    """
    row, now = _locked(rollout), now or shared_now()
    if row.state in (RolloutState.ROLLING_BACK, RolloutState.ROLLED_BACK, RolloutState.STOPPED):
        return row
    reasons = [reason] if reason else []
    if row.state == RolloutState.WAITING:
        return rollout_stop(row, now, reasons, user)
    other = rollouts_under_way(row.config.cluster).exclude(pk=row.pk).first()
    if other is not None:
        raise Conflict(f"{other.config.name} is on its way; wait for it, or roll it back first.", code="under_way")
    return _begin_rollback(row, now, reasons, user)


@transaction.atomic
def canaries_add(
    *, rollout: Rollout, agents: Sequence[Agent], user: User | None = None, now: datetime | None = None
) -> Rollout:
    """Add canaries to a rollout that waits or is at its canaries.

    Raises
    ------
    Conflict
        It is past its canaries.
    """
    row, now = _locked(rollout), now or shared_now()
    ids = [str(agent.pk) for agent in agents]
    _require_state(row, (RolloutState.WAITING, RolloutState.CANARY), "given more canaries")
    if row.state == RolloutState.WAITING:
        row.policy = {**row.policy, "canaries": sorted({*row.policy.get("canaries", ()), *ids})}
        row.save(update_fields=["policy", "updated_at"])
    else:
        members_sync(row, now)
        row.members.filter(agent__in=ids, state=MemberState.PENDING).update(stage=0)
        stage_send(row, now)
    event_add(row, now, f"canaries added by hand: {', '.join(agent.name for agent in agents)}", user)
    configs_announce(row.config.cluster)
    return row


def rollouts_advance(now: datetime | None = None) -> int:
    """Advance the rollouts of every cluster; returns how many took a step. A failing one does not hold up others."""
    steps = 0
    for cluster in Cluster.objects.filter(refined_configs__rollout__in=_open_rollouts()).distinct():
        try:
            steps += rollout_advance(cluster=cluster, now=now)
        except Exception:
            _log.exception("rollouts of %s cannot be advanced", cluster.slug)
    return steps


@dataclass(frozen=True)
class _Stage:
    """A stage that is to be judged: its rollout, the recipients that take part, and what both are like."""

    row: Rollout
    present: Mapping[Any, Recipient]
    seen: tuple[Any, ...]


def rollout_advance(*, cluster: Cluster, now: datetime | None = None) -> bool:
    """Advance a cluster's rollout by what is known now; returns whether it took a step.

    Epochs are compared without a transaction. A verdict on what has changed meanwhile is dropped: the next round has
    another.
    """
    now = now or shared_now()
    with transaction.atomic():
        policy = policy_locked(cluster)
        row = rollouts_under_way(cluster).first()
        if row is None:
            return rollout_begin_next(policy, now)
        stage = _prepare(row, now)
        if not isinstance(stage, _Stage):
            return _stepped(row, policy, stage, now)
    verdict = stage_judge(stage.row, stage.present, now).to_dict()
    with transaction.atomic():
        policy = policy_locked(cluster)
        row = rollouts_under_way(cluster).first()
        if row is None or _seen(row) != stage.seen:
            return False
        return _stepped(row, policy, _judged(row, verdict, now), now)


def _stepped(row: Rollout, policy: RolloutPolicy, step: bool, now: datetime) -> bool:
    """Begin what waits for a rollout that has ended; returns whether it took a step."""
    if row.state in ENDED:
        configs_supersede(policy.cluster)
        rollout_begin_next(policy, now)
    return step


def _seen(row: Rollout) -> tuple[Any, ...]:
    """State of a rollout and its members, on which a verdict rests besides epochs."""
    members = row.members.order_by("pk").values_list("pk", "agent", "stage", "state", "applied_at")
    return (row.pk, row.state, row.stage, row.stage_at, *members)


def _prepare(row: Rollout, now: datetime) -> _Stage | bool:
    """Bring members up to date. Returns the stage to judge, or else whether a step was taken."""
    if row.state == RolloutState.ROLLING_BACK:
        answered = acknowledgements_note(row, recipients_of(row.given), now)
        return _finish_rollback(row, now) if answered else False
    present = members_sync(row, now)
    if not present:
        return _end_without_members(row, now)
    acknowledgements_note(row, present, now)
    if row.state == RolloutState.CANARY and (names := canaries_replace(row, present, now)):
        event_add(row, now, f"canaries that left or are silent are replaced by {', '.join(names)}")
    if row.state in _JUDGED_STATES:
        stage_send(row, now)  # to agents that came meanwhile
    if row.state == RolloutState.PAUSED and StageJudgement.parse(row.verdict).health == GuardHealth.WORSE:
        return False  # the verdict stands: epochs to compare with are kept for some minutes only
    return _Stage(row, present, _seen(row))


def _judged(row: Rollout, verdict: dict[str, Any], now: datetime) -> bool:
    """Keep a verdict and act on it; returns whether a step was taken."""
    if verdict != row.verdict:
        row.verdict = verdict
        row.save(update_fields=["verdict", "updated_at"])
        configs_announce(row.config.cluster)
    if row.state == RolloutState.PAUSED:
        return False
    return _apply_verdict(row, now)


def _end_without_members(row: Rollout, now: datetime) -> bool:
    """End a rollout without members to judge it by: agents that were sent it and may come back must not have it."""
    reasons = ["none of its agents takes part any more"]
    if assignments_holding(row.config) or agents_holding(row.config):
        _begin_rollback(row, now, reasons, None)
    else:
        rollout_stop(row, now, reasons, None)
    return True


def _apply_verdict(row: Rollout, now: datetime) -> bool:
    """Act on the verdict: roll back, wait, or go on to the next stage."""
    judgement = StageJudgement.parse(row.verdict)
    health, reasons = judgement.health, judgement.reasons
    if health == GuardHealth.WORSE:
        _begin_rollback(row, now, reasons, None)
        return True
    if health != GuardHealth.HEALTHY:
        return False
    row.stage = _next_stage(row)
    if row.stage > row.last_stage:
        row.stage = row.last_stage
        row.config.state = ConfigState.CURRENT
        row.config.save(update_fields=["state", "updated_at"])
        rollout_transition(row, RolloutState.DONE, now, "done")
        return True
    row.stage_at, row.verdict = now, {}
    rollout_transition(row, RolloutState.WAVE, now, f"wave {row.stage} begins")
    stage_send(row, now)
    return True


def _next_stage(row: Rollout) -> int:
    """The next stage with a pending member."""
    later = row.members.filter(state=MemberState.PENDING, stage__gt=row.stage).order_by("stage").first()
    return later.stage if later else row.last_stage + 1


def _begin_rollback(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> Rollout:
    agents = rollback_create(row, now, reasons, user)
    row.config.state, row.reasons = ConfigState.ROLLED_BACK, list(reasons)
    row.config.save(update_fields=["state", "updated_at"])
    why = "; ".join(reasons) or "no reason given"
    words = f"rolled back by its guard: {why}" if user is None else f"rolled back: {why}"
    rollout_transition(row, RolloutState.ROLLING_BACK, now, words, user)
    configs_renew(agents)
    return row


def _finish_rollback(row: Rollout, now: datetime) -> bool:
    assert row.back is not None
    row.back.state = ConfigState.CURRENT
    row.back.save(update_fields=["state", "updated_at"])
    row.verdict = {**row.verdict, "notes": members_notes(row.members.select_related("agent"))}
    rollout_transition(row, RolloutState.ROLLED_BACK, now, f"rolled back with {row.back.name}")
    return True


def _locked(rollout: Rollout) -> Rollout:
    policy_locked(rollout.config.cluster)
    return Rollout.objects.select_related("config__cluster", "back").get(pk=rollout.pk)


def _require_state(row: Rollout, states: Collection[str], what: str) -> None:
    if row.state not in states:
        raise Conflict(f"The rollout of {row.config.name} is {row.get_state_display().lower()}: it cannot be {what}.")


def _open_rollouts() -> Any:
    return Rollout.objects.filter(state__in=(*UNDER_WAY, RolloutState.WAITING))


def rollout_begin_next(policy: RolloutPolicy, now: datetime) -> bool:
    """Begin the first waiting rollout, if none is under way."""
    if rollouts_under_way(policy.cluster).exists():
        return False
    waiting = Rollout.objects.filter(config__cluster=policy.cluster, state=RolloutState.WAITING)
    row = waiting.select_related("config__cluster").order_by("created_at", "pk").first()
    if row is None:
        return False
    _begin(row, policy, now)
    return True


def _begin(row: Rollout, policy: RolloutPolicy, now: datetime) -> None:
    canary_ids: Sequence[str] = row.policy.get("canaries", ())
    row.config = config_reissue(row.config, now)
    row.policy = {**model_to_dict(policy, exclude=["id", "cluster"]), "canaries": list(canary_ids)}
    row.started_at = row.stage_at = now
    row.save()
    if not members_create(row, now, canary_ids):
        rollout_stop(row, now, ["none of its agents takes part"], None)
        return
    rollout_transition(row, RolloutState.CANARY, now, "canaries begin")
    stage_send(row, now)


def stage_send(row: Rollout, now: datetime) -> None:
    """Send the configuration to pending members of the stages reached so far."""
    members = row.members.filter(stage__lte=row.stage, state=MemberState.PENDING)
    agents = list(members.values_list("agent", flat=True))
    if agents:
        row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now)
        # the TTL of parts stamped at the beginning may be half over
        stamped = [part for parts in row.config.all_parts for part in parts_stamp(parts, now)]
        configs_renew({*agents, *agents_of(stamped)})
        configs_announce(row.config.cluster)


def rollout_stop(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> Rollout:
    """End a rollout before its configuration was current."""
    row.config.state, row.reasons = ConfigState.STOPPED, list(reasons)
    row.config.save(update_fields=["state", "updated_at"])
    return rollout_transition(
        row, RolloutState.STOPPED, now, f"stopped: {'; '.join(reasons) or 'no reason given'}", user
    )


def rollout_transition(
    row: Rollout, state: RolloutState, now: datetime, words: str, user: User | None = None
) -> Rollout:
    """Change the state of a rollout, with an event."""
    row.state = state
    row.ended_at = now if state in ENDED else None
    row.save()
    event_add(row, now, words, user)
    configs_announce(row.config.cluster)
    return row


def event_add(row: Rollout, now: datetime, words: str, user: User | None = None) -> None:
    """Add an event to the rollout's history."""
    RolloutEvent.objects.create(rollout=row, at=now, by=user, words=words[:400])


def rollouts_under_way(cluster: Cluster) -> Any:
    """The rollout of a cluster that holds up the others; there is one at most."""
    rows = Rollout.objects.filter(config__cluster=cluster, state__in=UNDER_WAY)
    return rows.select_related("config__cluster", "back").order_by("pk")


def rollback_create(row: Rollout, now: datetime, reasons: Sequence[str], user: User | None) -> list[Any]:
    """Create the configuration that undoes a rollout's, for every agent that is to have it; returns their ids.

    Raises
    ------
    Conflict
        It was done, and no agent has it any more.
    """
    bad = row.config
    holders, scheduling = assignments_holding(bad), agents_holding(bad)
    if not holders and not scheduling and row.state == RolloutState.DONE:
        raise Conflict(f"{bad.name} is in force nowhere any more; there is nothing to roll back.")
    words = f"Rolls back {bad.name}: {'; '.join(reasons)}"[:200] if reasons else f"Rolls back {bad.name}"
    row.back = config_store(
        cluster=bad.cluster, origin=ConfigOrigin.ROLLBACK, drafts=(), now=now, words=words, author=user
    )
    row.back.parent, row.back.state = bad, ConfigState.ROLLING
    row.back.save(update_fields=["parent", "state", "updated_at"])
    RefinedPart.objects.bulk_create(_restored_part(row.back, bad, holder, now) for holder in holders)
    SchedulePart.objects.bulk_create(_restored_schedule(row.back, bad, agent, now) for agent in scheduling)
    agents = {holder.agent_id for holder in holders} | {agent.pk for agent in scheduling} | set(_agents_sent(row))
    RolloutMember.objects.bulk_create(
        [RolloutMember(rollout=row, agent_id=agent, stage=row.stage, at=now) for agent in agents],
        ignore_conflicts=True,  # most are members already
    )
    row.members.filter(agent__in=agents).update(state=MemberState.SENT, at=now, applied_at=None, reasons=[])
    return sorted(agents)


def _agents_sent(row: Rollout) -> list[Any]:
    return list(row.members.filter(state__in=GIVEN).values_list("agent", flat=True))


def assignments_holding(config: RefinedConfig) -> list[Assignment]:
    """Assignments whose agents are to have a configuration, also those disabled or set by hand now."""
    rows = Assignment.objects.filter(live__in=config.parts.values("live"))
    return [row for row in rows.select_related("agent", "live__query__cluster") if _is_held_by(row, config)]


def agents_holding(config: RefinedConfig) -> list[Agent]:
    """Agents that are to schedule by a configuration, also those disabled now."""
    agents = Agent.objects.filter(cluster=config.cluster_id) if config.schedule_parts.exists() else ()
    return [agent for agent in agents if _is_from(config, agent, schedule_part_of)]


def _is_held_by(assignment: Assignment, config: RefinedConfig) -> bool:
    return _is_from(config, assignment, part_of)


def _is_from(config: RefinedConfig, taker: Any, part_of_taker: Callable[..., Any]) -> bool:
    """Whether the recipient has this configuration, or a rollback to it."""
    part = part_of_taker(taker)
    while part is not None and part.config.origin == ConfigOrigin.ROLLBACK and part.config.parent is not None:
        part = part_of_taker(taker, below=part.config.parent.number)
    return part is not None and part.config_id == config.pk


def _restored_part(back: RefinedConfig, bad: RefinedConfig, assignment: Assignment, now: datetime) -> RefinedPart:
    before = part_of(assignment, below=bad.number)
    document = document_stamp(before.document, back, now) if before else document_plain(back, assignment, now)
    live = assignment.live
    return RefinedPart(config=back, live=live, agent=assignment.agent, plan=live.plan, document=document)


def _restored_schedule(back: RefinedConfig, bad: RefinedConfig, agent: Agent, now: datetime) -> SchedulePart:
    """The schedule an agent had before; without one the defaults, in full."""
    before = schedule_part_of(agent, below=bad.number)
    settings = before.document["schedule"] if before else ScheduleSettings().to_dict()
    return schedule_make(config=back, agent=agent, settings=settings, now=now)


_INTERVAL_S = 1.0
_advanced_at: dict[int, float] = {}


@receiver(config_acknowledged, dispatch_uid="refinement.heard")
def advance_acknowledged(sender: Any, agent: Agent, **_: Any) -> None:
    """An agent acknowledged another configuration than before: its rollout is advanced at once.

    For many acknowledgements at once, one step a second covers them all.
    """
    mine = RolloutMember.objects.filter(agent=agent, state=MemberState.SENT, rollout__state__in=UNDER_WAY)
    if not mine.exists():
        return
    now = time.monotonic()
    if now - _advanced_at.get(agent.cluster_id, -_INTERVAL_S) >= _INTERVAL_S:
        _advanced_at[agent.cluster_id] = now
        rollout_advance(cluster=agent.cluster)
