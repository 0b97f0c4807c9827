"""What agents say of the configuration that they were given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.refinement.choices import GIVEN, MemberState
from apps.refinement.choosing import is_heard, takers_of
from apps.refinement.models import Rollout, RolloutMember
from apps.telemetry.configs import EPOCH_S

__all__ = ["members_hear"]

_KNOWS_NONE = ["it reports nothing of a schedule; agents of older versions know of none"]


def members_hear(row: Rollout, now: datetime) -> bool:
    """Note who has applied, refused or says nothing; returns whether everybody who was given it has answered, or has
    been waited for long enough."""
    reports, unable = _reports(row)
    members = list(row.members.filter(state__in=GIVEN, agent__in=reports).select_related("agent"))
    if not any(is_heard(agent, now) for agent in row.config.cluster.agents.filter(enabled=True)):
        row.heard_at = now  # the console was away, or all agents are: nobody in particular is silent
        row.save(update_fields=["heard_at", "updated_at"])
    for member in members:
        _hear(row, member, reports[member.agent_id], now, _KNOWS_NONE if member.agent_id in unable else [])
    return not any(member.state == MemberState.SENT for member in members)


def _reports(row: Rollout) -> tuple[dict[Any, list[Mapping[str, Any]]], set[Any]]:
    """What agents that take part said last of the queries, and of the schedule, that they are given something for; and
    those that are given a schedule, and report without a word of one."""
    found, unable = {}, set()
    for pk, taker in takers_of(row.given).items():
        schedule = taker.agent.heartbeat.get("schedule") or {}
        found[pk] = [one.report for one in taker.parts] + ([schedule] if taker.schedules else [])
        if taker.schedules and taker.agent.heartbeat and not schedule:
            unable.add(pk)
    return found, unable


def _hear(
    row: Rollout, member: RolloutMember, reports: list[Mapping[str, Any]], now: datetime, otherwise: list[str]
) -> None:
    """`otherwise`: why it may say nothing of a configuration, where it does not."""
    state, reasons = _said(row.given.number, reports)
    reasons = reasons if state else otherwise
    had = MemberState.APPLIED in (state, member.state)
    since = member.agent.last_seen if had else member.at
    times = [time for time in (since, row.heard_at) if time is not None]
    if state != MemberState.REFUSED and now - max(times) > timedelta(seconds=row.policy["silent_epochs"] * EPOCH_S):
        state = MemberState.SILENT
    elif state is None and had:
        state = MemberState.SENT  # set by hand meanwhile, or begun anew: it has to take it once more
    state = state or member.state
    if (state, reasons) == (member.state, member.reasons):
        return
    member.at = now if state != member.state else member.at
    member.state, member.reasons = state, reasons
    if state == MemberState.APPLIED and member.applied_at is None:
        member.applied_at = now
    member.save(update_fields=["state", "reasons", "at", "applied_at"])


def _said(number: int, reports: list[Mapping[str, Any]]) -> tuple[MemberState | None, list[str]]:
    """What an agent made of a configuration, with its reasons; None while it has said nothing of it."""
    refused = [report["refused"] for report in reports if (report.get("refused") or {}).get("version") == number]
    if refused:
        return MemberState.REFUSED, [str(reason) for one in refused for reason in one.get("reasons", ())]
    taken = [((report.get("refined") or {}).get("version") or 0) >= number for report in reports]
    return (MemberState.APPLIED if taken and all(taken) else None), []
