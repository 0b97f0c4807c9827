"""Guard of a rollout: the verdict on its present stage, by acknowledgements and by recorded epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from apps.rollouts.choices import GIVEN, MemberState
from apps.rollouts.models import Rollout, RolloutMember
from apps.rollouts.rollout.members import Recipient
from apps.telemetry.ingest.epochs import RecordedEpochs, by_console_clock, recorded_epochs, window_times_us
from apps.telemetry.models import LiveQuery
from engine.rollouts.epochs import EPOCH_US, EpochRow
from engine.rollouts.guard import MIN_RECORDS, SETTLE_EPOCHS, CaseVerdict, GuardCase, GuardHealth, judge_case
from engine.rollouts.measures import IN_SECONDS, MEASURES, WINDOW_MEASURES, Limits, Measure, queries_summed

__all__ = ["MIN_SWEEPS", "members_note", "stage_epochs", "stage_judge"]

_MAX_LOOKBACK_S = 900.0  # of epochs are looked at; more are not kept
_MARGIN_S = 240.0
_MAX_AGENTS = 100  # of either side are looked at
_MAX_NOTES = 20
_HALF = 0.5
MIN_SWEEPS = 10  #: windows that have to close before a schedule is judged by them
_MAX_WINDOW_US = 120_000_000  # windows that are longer are not waited for to be whole: one more or less tells little
_MAX_AWAITED_EPOCHS = (
    300  # epochs that are waited for windows to close, before what is judged otherwise is known long since
)


def stage_judge(row: Rollout, present: Mapping[Any, Recipient], now: datetime) -> dict[str, Any]:
    """What the guard says of the present stage: {"health", "reasons", "notes", "figures", …}, as JSON.

    `present` are those who take part now, by agent's id.
    """
    members = [one for one in row.members.select_related("agent") if one.agent_id in present]
    stage = [one for one in members if one.stage == row.stage and one.state in GIVEN]
    notes = members_note(members)
    if found := _verdict_by_acknowledgements(stage, row, now):
        return _verdict(*found, notes, row)
    watched = [one for one in stage if one.state == MemberState.APPLIED][:_MAX_AGENTS]
    others = [one for one in members if one.state == MemberState.PENDING][:_MAX_AGENTS]
    recorded = recorded_epochs([one.agent for one in (*watched, *others)], now, _lookback_s(row, now))
    cases = list(_cases(row, present, watched, others, recorded))
    return _stage_verdict(row, [judge_case(case) for case in cases], cases, notes, now)


def _lookback_s(row: Rollout, now: datetime) -> float:
    """As long before the stage began as has passed since, and some minutes for windows to be whole."""
    since = (now - (row.stage_at or now)).total_seconds()
    return min(_MAX_LOOKBACK_S, 2 * since + _MARGIN_S)


def _verdict_by_acknowledgements(
    stage: Sequence[RolloutMember], row: Rollout, now: datetime
) -> tuple[GuardHealth, list[str]] | None:
    """A verdict that needs no epochs, where there is one."""
    refused = [one for one in stage if one.state == MemberState.REFUSED]
    if refused and len(refused) >= _HALF * len(stage):
        return GuardHealth.WORSE, [f"{len(refused)} of {len(stage)} refuse it", *(_note(one) for one in refused[:3])]
    lost = [one for one in stage if one.state == MemberState.SILENT and one.applied_at is not None]
    taken = [one for one in stage if one.applied_at is not None]
    if lost and len(lost) >= _HALF * len(taken):
        names = ", ".join(one.agent.name for one in lost[:5])
        return GuardHealth.WORSE, [f"{len(lost)} of {len(taken)} agents that applied it report no more: {names}"]
    sent = [one for one in stage if one.state == MemberState.SENT]
    if sent:
        names = ", ".join(one.agent.name for one in sent[:5])
        return GuardHealth.WAITING, [f"{len(sent)} of {len(stage)} agents have not answered yet: {names}"]
    if not any(one.state == MemberState.APPLIED for one in stage):
        # canaries are replaced; after them nobody that is away is waited for
        return GuardHealth.HEALTHY if row.stage else GuardHealth.WAITING, ["no agent of this stage reports"]
    return None


def members_note(members: Iterable[RolloutMember]) -> list[str]:
    """Who refuses a configuration, and who does not answer."""
    return [_note(one) for one in members if one.state in (MemberState.SILENT, MemberState.REFUSED)][:_MAX_NOTES]


def _note(member: RolloutMember) -> str:
    name = member.agent.name
    if member.state == MemberState.REFUSED:
        return f"{name} refuses it: {'; '.join(member.reasons) or 'no reason given'}"
    why = f": {'; '.join(member.reasons)}" if member.reasons else ""
    return f"{name} has not answered since {member.at:%H:%M:%S}{why}"


def _cases(
    row: Rollout,
    present: Mapping[Any, Recipient],
    watched: Sequence[RolloutMember],
    others: Sequence[RolloutMember],
    recorded: RecordedEpochs,
) -> Iterable[GuardCase]:
    """One for each query that these agents run; where they are told how to schedule, one of all of them together."""
    takers = [present[member.agent_id] for member in watched]
    lives = {part.live_id: part.live for taker in takers for part in taker.runs}
    for live in lives.values():
        case = _case(row.policy, row.stage, row.config.number, live.query.name, _times(live))
        yield _fitting(
            replace(
                case,
                watched=_epochs(live, watched, present, recorded, case.window_us),
                others=_epochs(live, others, present, recorded, case.window_us),
                schedules=any(taker.schedules for taker in takers),
                schedule_only=frozenset(
                    str(taker.agent.pk) for taker in takers if all(part.live_id != live.pk for part in taker.parts)
                ),
            )
        )
    scheduling = [taker for taker in takers if taker.schedules]
    if scheduling and lives:
        case = _windows_case(row.policy, row.stage, row.config.number, scheduling)
        yield _fitting(
            replace(
                case,
                watched=_all_epochs(watched, present, recorded, case.window_us),
                others=_all_epochs(others, present, recorded, case.window_us),
            )
        )


def _case(policy: Mapping[str, Any], stage: int, version: int, name: str, times: tuple[int, int, int]) -> GuardCase:
    window, size, phase = times
    return GuardCase(
        query=name,
        version=version,
        window_us=window,
        size_us=size,
        phase_us=phase,
        watched={},
        others={},
        least_epochs=policy["wave_epochs" if stage else "canary_epochs"],
        limits=Limits(**{name: policy[name] for name in Limits.__slots__}),
    )


def _times(live: LiveQuery) -> tuple[int, int, int]:
    """From one window to the next, how long each is, and when after its end nothing of it is on its way any more."""
    window, size = window_times_us(live)
    late = round(live.source.lateness_s * 1e6) + EPOCH_US
    return window, size, (late + window // 2) if window > EPOCH_US else 0


def _fitting(case: GuardCase) -> GuardCase:
    """Of windows that are too long for what is kept no two can be compared: then it is epoch by epoch."""
    return case if case.needed <= case.most else replace(case, window_us=EPOCH_US, size_us=EPOCH_US, phase_us=0)


def stage_epochs(policy: Mapping[str, Any], stage: int, takers: Sequence[Recipient]) -> int:
    """How many epochs a stage with these agents is watched at least, from when they have what they are given."""
    lives = {part.live_id: part.live for taker in takers for part in taker.runs}
    cases = [_case(policy, stage, 0, live.query.name, _times(live)) for live in lives.values()]
    if any(taker.schedules for taker in takers):
        cases.append(_windows_case(policy, stage, 0, takers))
    fitting = [_fitting(case) for case in cases]
    return max((SETTLE_EPOCHS + case.size_us // EPOCH_US + case.needed for case in fitting), default=0)


def _windows_case(policy: Mapping[str, Any], stage: int, version: int, takers: Sequence[Recipient]) -> GuardCase:
    """All queries of each agent together, over as many epochs as it takes for enough windows to close."""
    periods = [times for taker in takers for part in taker.runs if (times := _times(part.live))[0] > EPOCH_US]
    whole = [times for times in periods if times[0] <= _MAX_WINDOW_US]
    case = _case(policy, stage, version, "scheduling", max(whole, default=(EPOCH_US, EPOCH_US, 0)))
    epochs_a_window = 1 / sum(EPOCH_US / window for window, _, _ in periods) if periods else 0.0
    enough = min(math.ceil(MIN_SWEEPS * epochs_a_window), _MAX_AWAITED_EPOCHS)
    return replace(
        case,
        least_epochs=max(case.least_epochs, enough),
        schedules=True,
        schedule_only=frozenset(str(taker.agent.pk) for taker in takers),
        of_windows=True,
        least_sweeps=MIN_SWEEPS if periods else 0,
    )


def _epochs(
    live: LiveQuery,
    members: Sequence[RolloutMember],
    present: Mapping[Any, Recipient],
    recorded: RecordedEpochs,
    window: int,
) -> dict[str, list[EpochRow]]:
    found = {}
    for one in members:
        rows = recorded.get(str(one.agent_id), {}).get(live.key)
        if rows and any(part.live_id == live.pk for part in present[one.agent_id].runs):
            found[str(one.agent_id)] = by_console_clock(rows, one.agent, window)
    return found


def _all_epochs(
    members: Sequence[RolloutMember], present: Mapping[Any, Recipient], recorded: RecordedEpochs, window: int
) -> dict[str, list[EpochRow]]:
    found = {}
    for one in members:
        runs = {part.live.key for part in present[one.agent_id].runs}
        rows = queries_summed({key: own for key, own in recorded.get(str(one.agent_id), {}).items() if key in runs})
        if rows:
            found[str(one.agent_id)] = by_console_clock(rows, one.agent, window)
    return found


def _stage_verdict(
    row: Rollout, verdicts: Sequence[CaseVerdict], cases: Sequence[GuardCase], notes: list[str], now: datetime
) -> dict[str, Any]:
    by_health = {health: [one for one in verdicts if one.health == health] for health in GuardHealth}
    figures = _figures(verdicts)
    health = GuardHealth.HEALTHY if any(one.records >= MIN_RECORDS for one in verdicts) else GuardHealth.WAITING
    for worst in (GuardHealth.WORSE, GuardHealth.WAITING):
        if by_health[worst]:
            health = worst
            break
    telling = by_health[health] or verdicts
    reasons = [reason for one in telling for reason in one.reasons]
    return {
        **_verdict(health, reasons, notes, row),
        "figures": figures,
        "epochs": min((one.epochs for one in verdicts), default=0),
        "needed": max((one.needed for one in verdicts), default=0),
        "others": max((one.others for one in verdicts), default=0),
        "windows": max((one.windows for one in verdicts), default=0),
        "doubtful": any(figure["worse"] or figure["unsure"] for figure in figures.values()),
        "measured_us": max((rows[-1].epoch_us for case in cases for rows in case.watched.values()), default=None),
    }


def _verdict(health: GuardHealth, reasons: Sequence[str], notes: list[str], row: Rollout) -> dict[str, Any]:
    return {"health": health.value, "reasons": list(reasons)[:_MAX_NOTES], "notes": notes, "stage": row.stage}


def _figures(verdicts: Sequence[CaseVerdict]) -> dict[str, dict[str, Any]]:
    """Every measure over all queries together; of delays the one that grew most."""
    found = {}
    for key in (*MEASURES, *WINDOW_MEASURES):
        telling = [one for one in verdicts if key in one.measures and one.of_windows == (key in WINDOW_MEASURES)]
        weighed = [(one.measures[key], one.records) for one in telling]
        if weighed:
            found[key] = _weighed_figure(key, weighed)
    return found


def _weighed_figure(key: str, weighed: Sequence[tuple[Measure, int]]) -> dict[str, Any]:
    """Queries weigh by what each would have come to: a change of many bytes counts for more than one of few."""
    worst = max((measure for measure, _ in weighed), key=lambda one: one.change)
    change, uncertainty = worst.change, worst.uncertainty
    weights = [measure.base * records for measure, records in weighed]
    if key not in IN_SECONDS and sum(weights) > 0:
        shares = [(measure, weight / sum(weights)) for (measure, _), weight in zip(weighed, weights, strict=True)]
        change = sum(share * measure.change for measure, share in shares)
        uncertainty = math.hypot(*(share * measure.uncertainty for measure, share in shares))
    return {
        "change": change,
        "uncertainty": uncertainty,
        "limit": None if math.isinf(worst.limit) else worst.limit,
        "worse": any(measure.worse for measure, _ in weighed),
        "unsure": any(measure.unsure for measure, _ in weighed),
    }
