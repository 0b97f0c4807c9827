"""Guard of a rollout: the verdict on its present stage, by acknowledgements and by recorded epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from apps.rollouts.choices import GIVEN, MemberState
from apps.rollouts.models import Rollout, RolloutMember
from apps.rollouts.rollout.members import Recipient
from apps.telemetry.ingest.epochs import RecordedEpochs, by_console_clock, recorded_epochs, window_times_us
from apps.telemetry.models import LiveQuery
from engine.rollouts.cases import GuardCase, StageTerms, WindowTimes, query_case, schedule_case
from engine.rollouts.epochs import EPOCH_US, EpochRow
from engine.rollouts.guard import GuardHealth, StageVerdict, judge_stage
from engine.rollouts.measures import Limits, queries_summed

__all__ = ["members_notes", "stage_epochs", "stage_judge"]

_MAX_LOOKBACK_S = 900.0  # of epochs; more are not kept
_MARGIN_S = 240.0
_MAX_AGENTS = 100  # of canary and of control
_MAX_NOTES = 20
_HALF = 0.5


def stage_judge(row: Rollout, present: Mapping[Any, Recipient], now: datetime) -> dict[str, Any]:
    """The guard's verdict on the present stage: {"health", "reasons", "notes", "figures", …}, as JSON.

    `present` are the recipients that take part now, by agent's id.
    """
    members = [member for member in row.members.select_related("agent") if member.agent_id in present]
    stage = [member for member in members if member.stage == row.stage and member.state in GIVEN]
    notes = members_notes(members)
    if verdict := _verdict_by_acknowledgements(stage, row, now):
        return _health_document(*verdict, notes, row)
    canary = [member for member in stage if member.state == MemberState.APPLIED][:_MAX_AGENTS]
    control = [member for member in members if member.state == MemberState.PENDING][:_MAX_AGENTS]
    recorded = recorded_epochs([member.agent for member in (*canary, *control)], now, _lookback_s(row, now))
    verdict_by_epochs = judge_stage(list(_cases(row, present, canary, control, recorded)))
    return _verdict_document(verdict_by_epochs, notes, row)


def _lookback_s(row: Rollout, now: datetime) -> float:
    """Twice the time since the stage began, and some minutes for windows to be whole."""
    since = (now - (row.stage_at or now)).total_seconds()
    return min(_MAX_LOOKBACK_S, 2 * since + _MARGIN_S)


def _verdict_by_acknowledgements(
    stage: Sequence[RolloutMember], row: Rollout, now: datetime
) -> tuple[GuardHealth, list[str]] | None:
    """A verdict that needs no epochs, if there is one."""
    refused = [member for member in stage if member.state == MemberState.REFUSED]
    if refused and len(refused) >= _HALF * len(stage):
        return GuardHealth.WORSE, [
            f"{len(refused)} of {len(stage)} refuse it",
            *(_note(member) for member in refused[:3]),
        ]
    lost = [member for member in stage if member.state == MemberState.SILENT and member.applied_at is not None]
    taken = [member for member in stage if member.applied_at is not None]
    if lost and len(lost) >= _HALF * len(taken):
        names = ", ".join(member.agent.name for member in lost[:5])
        return GuardHealth.WORSE, [f"{len(lost)} of {len(taken)} agents that applied it stopped reporting: {names}"]
    sent = [member for member in stage if member.state == MemberState.SENT]
    if sent:
        names = ", ".join(member.agent.name for member in sent[:5])
        return GuardHealth.WAITING, [f"{len(sent)} of {len(stage)} agents have not acknowledged it yet: {names}"]
    if not any(member.state == MemberState.APPLIED for member in stage):
        # silent canaries are replaced; silent members of later waves are not waited for
        return GuardHealth.HEALTHY if row.stage else GuardHealth.WAITING, ["no agent of this stage reports"]
    return None


def members_notes(members: Iterable[RolloutMember]) -> list[str]:
    """Notes on members that refuse a configuration, or do not acknowledge it."""
    noted = [member for member in members if member.state in (MemberState.SILENT, MemberState.REFUSED)]
    return [_note(member) for member in noted[:_MAX_NOTES]]


def _note(member: RolloutMember) -> str:
    name = member.agent.name
    if member.state == MemberState.REFUSED:
        return f"{name} refuses it: {'; '.join(member.reasons) or 'no reason given'}"
    why = f": {'; '.join(member.reasons)}" if member.reasons else ""
    return f"{name} has not acknowledged it since {member.at:%H:%M:%S}{why}"


def _cases(
    row: Rollout,
    present: Mapping[Any, Recipient],
    canary: Sequence[RolloutMember],
    control: Sequence[RolloutMember],
    recorded: RecordedEpochs,
) -> Iterable[GuardCase]:
    """One case for each query that the canary runs; for a schedule, one more of all queries together."""
    terms = _terms(row.policy, row.stage, row.config.number)
    recipients = [present[member.agent_id] for member in canary]
    lives = {part.live_id: part.live for recipient in recipients for part in recipient.runs}
    for live in lives.values():
        case = query_case(terms, live.query.name, _window_times(live))
        yield replace(
            case,
            canary=_epochs(live, canary, present, recorded, case.window_us),
            control=_epochs(live, control, present, recorded, case.window_us),
            has_schedule=any(recipient.schedules for recipient in recipients),
            schedule_only=frozenset(
                str(recipient.agent.pk)
                for recipient in recipients
                if all(part.live_id != live.pk for part in recipient.parts)
            ),
        )
    if lives and (case_of_schedule := _schedule_case(terms, recipients)):
        yield replace(
            case_of_schedule,
            canary=_summed_epochs(canary, present, recorded, case_of_schedule.window_us),
            control=_summed_epochs(control, present, recorded, case_of_schedule.window_us),
        )


def _terms(policy: Mapping[str, Any], stage: int, version: int) -> StageTerms:
    limits = Limits(**{name: policy[name] for name in Limits.__slots__})
    return StageTerms(version, policy["wave_epochs" if stage else "canary_epochs"], limits)


def _window_times(live: LiveQuery) -> WindowTimes:
    window, size = window_times_us(live)
    late = round(live.source.lateness_s * 1e6) + EPOCH_US
    return WindowTimes(window, size, (late + window // 2) if window > EPOCH_US else 0)


def _schedule_case(terms: StageTerms, recipients: Sequence[Recipient]) -> GuardCase | None:
    scheduling = [recipient for recipient in recipients if recipient.schedules]
    if not scheduling:
        return None
    times = [_window_times(part.live) for recipient in scheduling for part in recipient.runs]
    return schedule_case(terms, [str(recipient.agent.pk) for recipient in scheduling], times)


def stage_epochs(policy: Mapping[str, Any], stage: int, recipients: Sequence[Recipient]) -> int:
    """The epochs a stage with these agents takes at least, from when they have applied the configuration."""
    terms = _terms(policy, stage, 0)
    lives = {part.live_id: part.live for recipient in recipients for part in recipient.runs}
    cases = [query_case(terms, live.query.name, _window_times(live)) for live in lives.values()]
    if case := _schedule_case(terms, recipients):
        cases.append(case)
    return max((case.duration_epochs for case in cases), default=0)


def _epochs(
    live: LiveQuery,
    members: Sequence[RolloutMember],
    present: Mapping[Any, Recipient],
    recorded: RecordedEpochs,
    window: int,
) -> dict[str, list[EpochRow]]:
    epochs = {}
    for member in members:
        rows = recorded.get(str(member.agent_id), {}).get(live.key)
        if rows and any(part.live_id == live.pk for part in present[member.agent_id].runs):
            epochs[str(member.agent_id)] = by_console_clock(rows, member.agent, window)
    return epochs


def _summed_epochs(
    members: Sequence[RolloutMember], present: Mapping[Any, Recipient], recorded: RecordedEpochs, window: int
) -> dict[str, list[EpochRow]]:
    """Epochs of each agent, all of its queries together."""
    epochs = {}
    for member in members:
        runs = {part.live.key for part in present[member.agent_id].runs}
        rows = queries_summed({key: own for key, own in recorded.get(str(member.agent_id), {}).items() if key in runs})
        if rows:
            epochs[str(member.agent_id)] = by_console_clock(rows, member.agent, window)
    return epochs


def _verdict_document(verdict: StageVerdict, notes: list[str], row: Rollout) -> dict[str, Any]:
    return {
        **_health_document(verdict.health, verdict.reasons, notes, row),
        "figures": {
            key: {
                "change": figure.change,
                "uncertainty": figure.uncertainty,
                "limit": figure.limit,
                "worse": figure.is_worse,
                "unsure": figure.is_doubtful,
            }
            for key, figure in verdict.figures.items()
        },
        "epochs": verdict.epochs,
        "needed": verdict.needed,
        "others": verdict.control_agents,
        "windows": verdict.windows,
        "doubtful": verdict.is_doubtful,
        "measured_us": verdict.measured_us,
    }


def _health_document(health: GuardHealth, reasons: Sequence[str], notes: list[str], row: Rollout) -> dict[str, Any]:
    return {"health": health.value, "reasons": list(reasons)[:_MAX_NOTES], "notes": notes, "stage": row.stage}
