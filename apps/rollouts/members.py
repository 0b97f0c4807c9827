"""Members of a rollout: who gets a configuration and when, and what its guard judges."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from agent.wire.heartbeat import AcknowledgingReport
from apps.rollouts.models import GIVEN, MemberState, RefinedConfig, Rollout, RolloutMember, RolloutPolicy
from apps.rollouts.versions import agents_to_schedule
from apps.telemetry.epochs import RecordedEpochs, by_console_clock, recorded_epochs, window_times_us
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.selectors import SILENT_S, assignments_adapting, parts_running
from engine.records import Record
from engine.rollouts.cases import GuardCase, StageTerms, WindowTimes, query_case, schedule_case
from engine.rollouts.guard import GuardHealth, StageVerdict, judge_stage
from engine.rollouts.measures import EPOCH_S, EPOCH_US, EpochRow, Limits, queries_summed

__all__ = [
    "Recipient",
    "acknowledgements_note",
    "canaries_replace",
    "members_create",
    "members_notes",
    "members_sync",
    "recipients_of",
    "stage_epochs",
    "stage_judge",
]


@dataclass
class Recipient:
    """Recipient of a configuration: an agent with parts in it."""

    agent: Agent
    parts: list[Assignment] = field(default_factory=list)  #: assignments with a part in the configuration
    runs: list[Assignment] = field(default_factory=list)  #: assignments whose epochs show its effect
    schedules: bool = False  #: it gets a schedule


def recipients_of(config: RefinedConfig) -> dict[Any, Recipient]:
    """Recipients of a configuration by agent's id. A schedule affects everything that an agent runs."""
    recipients: dict[Any, Recipient] = {}
    for assignment in assignments_of(config):
        recipients.setdefault(assignment.agent_id, Recipient(assignment.agent)).parts.append(assignment)
    scheduling = agents_to_schedule(config)
    runs: dict[Any, list[Assignment]] = {}
    for part in parts_running(config.cluster_id) if scheduling else ():
        runs.setdefault(part.agent_id, []).append(part)
    for agent in scheduling:
        recipient = recipients.setdefault(agent.pk, Recipient(agent))
        recipient.schedules, recipient.runs = True, runs.get(agent.pk, [])
    for recipient in recipients.values():
        recipient.runs = recipient.runs or recipient.parts
    return recipients


def assignments_of(config: RefinedConfig) -> list[Assignment]:
    """Assignments with a part in a configuration, at agents that adapt."""
    parts = {(part.live_id, part.agent_id): part.plan for part in config.parts.all()}
    assignments = []
    for assignment in assignments_adapting(config.cluster_id) if parts else ():
        plan = parts.get((assignment.live_id, assignment.agent_id), parts.get((assignment.live_id, None)))
        if plan == assignment.live.plan:
            assignments.append(assignment)
    return assignments


def is_reporting(agent: Agent, now: datetime, within_s: float = SILENT_S) -> bool:
    """Whether an agent reports."""
    return agent.last_seen is not None and now - agent.last_seen <= timedelta(seconds=within_s)


def members_create(rollout: Rollout, now: datetime, canary_ids: Collection[str] = ()) -> list[RolloutMember]:
    """Create the members of a rollout that begins. Canaries are agents that report, those in `canary_ids` first."""
    agents = {pk: recipient.agent for pk, recipient in recipients_of(rollout.config).items()}
    ordered = sorted(agents.values(), key=lambda agent: _rank(agent, rollout, now, canary_ids))
    stages = stage_sizes(len(ordered), rollout.terms, len(set(canary_ids) & {str(pk) for pk in agents}))
    rollout.policy = {**rollout.policy, "last_stage": len(stages) - 1}
    rollout.save(update_fields=["policy"])
    numbers = [stage for stage, count in enumerate(stages) for _ in range(count)]
    rows = [
        RolloutMember(rollout=rollout, agent=agent, stage=stage, at=now)
        for agent, stage in zip(ordered, numbers, strict=True)
    ]
    return RolloutMember.objects.bulk_create(rows)


def stage_sizes(agents: int, policy: RolloutPolicy, chosen: int = 0) -> list[int]:
    """Sizes of the stages: agents that each adds; empty stages are left out.

    Examples
    --------
    >>> policy = RolloutPolicy(canary_count=1, canary_share=0.1, waves=[0.3, 1.0])
    >>> stage_sizes(46, policy), stage_sizes(3, policy), stage_sizes(1, policy)
    ([5, 9, 32], [1, 2], [1])
    """
    canaries = max(policy.canary_count, math.ceil(policy.canary_share * agents), chosen)
    stages = [min(canaries, max(1, agents - 1))] if agents else [0]
    for share in policy.waves:
        more = min(agents, math.ceil(share * agents)) - sum(stages)
        stages += [more] if more > 0 else []
    return stages


def _rank(agent: Agent, rollout: Rollout, now: datetime, chosen: Collection[str]) -> tuple[Any, ...]:
    """Random order, the same for the same rollout, so that canaries are not always the same agents."""
    chance = hashlib.sha256(f"{rollout.config.number} {agent.pk}".encode()).hexdigest()
    return (not is_reporting(agent, now), str(agent.pk) not in chosen, chance)


def members_sync(rollout: Rollout, now: datetime) -> dict[Any, Recipient]:
    """Add new agents to the last wave and drop those that left; returns the recipients by agent's id.

    Agents that were sent the configuration stay members, and count no more.
    """
    present = recipients_of(rollout.config)
    known = set(rollout.members.values_list("agent_id", flat=True))
    rollout.members.filter(state=MemberState.PENDING).exclude(agent_id__in=present).delete()
    fresh = [agent for agent in present if agent not in known]
    if fresh:
        last = max(rollout.last_stage, 1)
        rollout.policy = {**rollout.policy, "last_stage": last}
        rollout.save(update_fields=["policy"])
        RolloutMember.objects.bulk_create(
            RolloutMember(rollout=rollout, agent_id=agent, stage=last, at=now) for agent in fresh
        )
    return present


def canaries_replace(rollout: Rollout, present: Collection[Any], now: datetime) -> list[str]:
    """Replace canaries where all have left, or are silent and never applied it; returns the names of the new ones.

    `present` are ids of the agents that take part.
    """
    canaries = rollout.members.filter(stage=0)
    left = canaries.filter(agent__in=present)
    if left.exclude(state=MemberState.SILENT).exists() or left.filter(applied_at__isnull=False).exists():
        return []
    waiting = rollout.members.filter(state=MemberState.PENDING, agent__in=present).select_related("agent")
    ready = [member for member in waiting if is_reporting(member.agent, now)]
    chosen = ready[: max(1, min(canaries.count(), len(ready) - 1))]
    rollout.members.filter(pk__in=[member.pk for member in chosen]).update(stage=0)
    return [member.agent.name for member in chosen]


_NO_SCHEDULE_REPORT = ["it reports no schedule"]


def acknowledgements_note(row: Rollout, recipients: Mapping[Any, Recipient], now: datetime) -> bool:
    """Note which members applied, refused or are silent; returns whether every member that was sent the configuration
    has acknowledged it, or was waited for long enough.

    `recipients` are those of the configuration that members are given now, by agent's id.
    """
    reports, unable = _reports(recipients)
    members = list(row.members.filter(state__in=GIVEN, agent__in=reports).select_related("agent"))
    if not any(is_reporting(agent, now) for agent in row.config.cluster.agents.filter(enabled=True)):
        row.heard_at = now  # the console was down, or all agents are: no agent in particular is silent
        row.save(update_fields=["heard_at", "updated_at"])
    for member in members:
        _acknowledgement_note(
            row, member, reports[member.agent_id], now, _NO_SCHEDULE_REPORT if member.agent_id in unable else []
        )
    return not any(member.state == MemberState.SENT for member in members)


def _reports(recipients: Mapping[Any, Recipient]) -> tuple[dict[Any, list[AcknowledgingReport]], set[Any]]:
    """The last reports of recipients on their parts, by agent's id; and the ids of recipients of a schedule whose
    heartbeats report none."""
    reports: dict[Any, list[AcknowledgingReport]] = {}
    unable: set[Any] = set()
    for pk, recipient in recipients.items():
        schedule: AcknowledgingReport = recipient.agent.heartbeat.get("schedule") or AcknowledgingReport()
        reports[pk] = [part.report for part in recipient.parts]
        if recipient.schedules:
            reports[pk].append(schedule)
        if recipient.schedules and recipient.agent.heartbeat and not schedule:
            unable.add(pk)
    return reports, unable


def _acknowledgement_note(
    row: Rollout, member: RolloutMember, reports: list[AcknowledgingReport], now: datetime, otherwise: list[str]
) -> None:
    """`otherwise`: possible reasons of a missing acknowledgement."""
    state, reasons = _acknowledged_state(row.given.number, reports)
    reasons = reasons if state else otherwise
    had = MemberState.APPLIED in (state, member.state)
    since = member.agent.last_seen if had else member.at
    times = [time for time in (since, row.heard_at) if time is not None]
    if state != MemberState.REFUSED and now - max(times) > timedelta(seconds=row.terms.silent_epochs * EPOCH_S):
        state = MemberState.SILENT
    elif state is None and had:
        state = MemberState.SENT  # set by hand meanwhile, or restarted: it has to apply it once more
    state = state or member.state
    if (state, reasons) == (member.state, member.reasons):
        return
    member.at = now if state != member.state else member.at
    member.state, member.reasons = state, reasons
    if state == MemberState.APPLIED and member.applied_at is None:
        member.applied_at = now
    member.save(update_fields=["state", "reasons", "at", "applied_at"])


def _acknowledged_state(number: int, reports: list[AcknowledgingReport]) -> tuple[MemberState | None, list[str]]:
    """The acknowledged state of a configuration with its reasons; None while there is no acknowledgement."""
    refused = [report["refused"] for report in reports if (report.get("refused") or {}).get("version") == number]
    if refused:
        return MemberState.REFUSED, [str(reason) for refusal in refused for reason in refusal.get("reasons", ())]
    taken = [((report.get("refined") or {}).get("version") or 0) >= number for report in reports]
    return (MemberState.APPLIED if taken and all(taken) else None), []


_MAX_LOOKBACK_S = 900.0  # of epochs; more are not kept
_MARGIN_S = 240.0
_MAX_AGENTS = 100  # of canary and of control
_MAX_NOTES = 20
_HALF = 0.5


@dataclass(frozen=True)
class JudgedMeasure(Record):
    """One measure of a stage, all queries together."""

    change: float
    limit: float | None
    worse: bool
    uncertainty: float = 0.0
    unsure: bool = False


@dataclass(frozen=True)
class StageHealth(Record):
    """Verdict on a stage by its acknowledgements alone."""

    TITLE: ClassVar[str] = "verdict"

    health: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stage: int = 0


@dataclass(frozen=True)
class StageJudgement(StageHealth):
    """Verdict on a stage by its epochs, too; those of a stage without any have their defaults."""

    figures: Mapping[str, JudgedMeasure] = field(default_factory=dict)
    epochs: int = 0
    needed: int = 0
    others: int = 0
    windows: int = 0
    doubtful: bool = False
    measured_us: int | None = None


def stage_judge(row: Rollout, present: Mapping[Any, Recipient], now: datetime) -> StageHealth:
    """The guard's verdict on the present stage.

    `present` are the recipients that take part now, by agent's id.
    """
    members = [member for member in row.members.select_related("agent") if member.agent_id in present]
    stage = [member for member in members if member.stage == row.stage and member.state in GIVEN]
    notes = members_notes(members)
    if verdict := _verdict_by_acknowledgements(stage, row, now):
        return _health(*verdict, notes, row)
    canary = [member for member in stage if member.state == MemberState.APPLIED][:_MAX_AGENTS]
    control = [member for member in members if member.state == MemberState.PENDING][:_MAX_AGENTS]
    recorded = recorded_epochs([member.agent for member in (*canary, *control)], now, _lookback_s(row, now))
    verdict_by_epochs = judge_stage(list(_cases(row, present, canary, control, recorded)))
    return _judgement(verdict_by_epochs, notes, row)


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
    terms = _terms(row.terms, row.stage, row.config.number)
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


def _terms(policy: RolloutPolicy, stage: int, version: int) -> StageTerms:
    limits = Limits(**{name: getattr(policy, name) for name in Limits.__slots__})
    return StageTerms(version, policy.wave_epochs if stage else policy.canary_epochs, limits)


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


def stage_epochs(policy: RolloutPolicy, stage: int, recipients: Sequence[Recipient]) -> int:
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


def _judgement(verdict: StageVerdict, notes: list[str], row: Rollout) -> StageJudgement:
    return StageJudgement(
        **vars(_health(verdict.health, verdict.reasons, notes, row)),
        figures={
            key: JudgedMeasure(
                change=figure.change,
                uncertainty=figure.uncertainty,
                limit=figure.limit,
                worse=figure.is_worse,
                unsure=figure.is_doubtful,
            )
            for key, figure in verdict.figures.items()
        },
        epochs=verdict.epochs,
        needed=verdict.needed,
        others=verdict.control_agents,
        windows=verdict.windows,
        doubtful=verdict.is_doubtful,
        measured_us=verdict.measured_us,
    )


def _health(health: GuardHealth, reasons: Sequence[str], notes: list[str], row: Rollout) -> StageHealth:
    return StageHealth(health.value, tuple(reasons)[:_MAX_NOTES], tuple(notes), row.stage)
