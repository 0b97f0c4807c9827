"""Replays: recorded arrivals of an agent under other scheduling policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import fmean
from typing import Annotated, Any

from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, fault_count
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.rollouts.scheduled_queries import ScheduledQuery, scheduled_queries
from apps.telemetry.epochs import MAX_ROWS
from apps.telemetry.models import Agent
from engine.klink.replay import PolicyFigures, ReplayAnswer, ReplayFigures, ReplayQuery, ReplayQuestion, replay
from engine.klink.settings import POLICIES, ScheduleSettings
from engine.records import Record, Words
from engine.rollouts.measures import EPOCH_S

__all__ = ["Replay", "ReplayedQuery", "recording_of", "replay_latest", "replay_of", "replay_request", "replay_work"]

MIN_EPOCHS = 30  #: of any query
MIN_WINDOWS = 3  #: of any query, that were swept in them
MAX_EPOCHS = MAX_ROWS + 60  #: from the oldest to the newest: queries do not all begin at once
_EPOCH_US = round(EPOCH_S * 1e6)
_BIN_MS = 1e3 * EPOCH_S
_MIN_CORES = 0.001
_MAX_MISSING = 0.1  # of the epochs of a query, without a note


@dataclass(frozen=True)
class Recording:
    """Recorded arrivals, costs and watermark delays of the queries at an agent."""

    queries: tuple[ReplayQuery, ...]
    cores: float  #: CPU seconds a second that operators could have had
    since_us: int  #: by the agent's clock
    until_us: int
    windows: int
    notes: tuple[str, ...]

    def question(self, settings: ScheduleSettings, policies: Sequence[str]) -> ReplayQuestion:
        """The question of a replay."""
        return ReplayQuestion(self.queries, _BIN_MS, tuple(policies), settings, self.cores)


def recording_of(agent: str, lines: Sequence[ScheduledQuery]) -> Recording:
    """The recording of an agent's queries; `agent` is its name.

    Raises
    ------
    Impossible
        Too little was: each reason by the query that it is of.
    """
    reported = [line for line in lines if line.rows]
    faults = [Fault(line.name, "no epoch is recorded") for line in lines if not line.rows]
    if not reported:
        raise _refused(agent, faults or [Fault("agent", f"{agent} runs no live query")])
    since_us = min(line.rows[0].epoch_us for line in reported)
    bins = (max(line.rows[-1].epoch_us for line in reported) - since_us) // _EPOCH_US + 1
    faults += [Fault(line.name, "no record came") for line in reported if not _records(line)]
    busy = [line for line in reported if _records(line)]
    windows = sum(len(line.sweeps) for line in busy)
    if bins < MIN_EPOCHS:
        faults.append(Fault("epochs", f"{bins} epochs are recorded; at least {MIN_EPOCHS} are needed"))
    elif bins > MAX_EPOCHS:
        message = f"they span {bins:,} epochs; at most {MAX_EPOCHS:,} are possible, so its clock was adjusted meanwhile"
        faults.append(Fault("epochs", message))
    elif windows < MIN_WINDOWS:
        faults.append(
            Fault("windows", f"{windows} windows were swept in {bins} epochs; at least {MIN_WINDOWS} are needed")
        )
    elif busy:
        return Recording(
            queries=tuple(_query(line, since_us, bins) for line in busy),
            cores=max(_MIN_CORES, _cores(busy)),
            since_us=since_us,
            until_us=since_us + bins * _EPOCH_US,
            windows=windows,
            notes=(*(f"{fault.path}: {fault.message}" for fault in faults), *_notes(busy, bins)),
        )
    raise _refused(agent, faults)


def _refused(agent: str, faults: Sequence[Fault]) -> Impossible:
    message = f"Too little is recorded of {agent} to be replayed: {faults[0].path}: {faults[0].message}."
    return Impossible(message, faults, code="too_little_recorded")


def _records(line: ScheduledQuery) -> int:
    return sum(row.records_in for row in line.rows)


def _notes(lines: Sequence[ScheduledQuery], bins: int) -> list[str]:
    missing = {line.name: 1 - len(line.rows) / bins for line in lines}
    notes = [
        f"{name}: {100 * share:.0f} % of the epochs are missing; they count as empty"
        for name, share in missing.items()
        if share > _MAX_MISSING
    ]
    silent = [line.name for line in lines if line.period_s is not None and not line.sweeps]
    return notes + [f"{name}: no window was swept; its records count, its windows do not" for name in silent]


def _query(line: ScheduledQuery, since_us: int, bins: int) -> ReplayQuery:
    arrivals = [0.0] * bins
    for row in line.rows:
        # epochs of a new generation begin at any moment
        arrivals[(row.epoch_us - since_us) // _EPOCH_US] += row.records_in
    records = _records(line)
    worked = max(1, records - sum(row.overflow for row in line.rows))
    query = ReplayQuery(
        id=line.name,
        cost_ms=1e3 * sum(row.used_s for row in line.rows) / worked,
        arrivals=tuple(arrivals),
        record_bytes=max(1.0, sum(row.bytes_in for row in line.rows) / records),
    )
    return _with_windows(query, line, since_us) if line.period_s is not None and line.sweeps else query


def _with_windows(query: ReplayQuery, line: ScheduledQuery, since_us: int) -> ReplayQuery:
    """Deadlines in these epochs, and the delay of each watermark; unreported ones between have the mean delay.
    Windows far ahead, ended by records with times far ahead, are left out."""
    period_us = round(1e6 * (line.period_s or 0.0))
    first_us = math.ceil(since_us / period_us) * period_us
    delays: dict[int, float] = {}
    for sweep in line.sweeps:
        if first_us <= sweep.deadline_us <= since_us + len(query.arrivals) * _EPOCH_US:
            delays.setdefault((sweep.deadline_us - first_us) // period_us, sweep.delay_s)
    mean_s = fmean(delays.values()) if delays else 0.0
    count = max(delays, default=-1) + 1
    return replace(
        query,
        period_ms=period_us / 1e3,
        first_ms=(first_us - since_us) / 1e3,
        delays_ms=tuple(1e3 * delays.get(place, mean_s) for place in range(count)),
    )


def _cores(lines: Sequence[ScheduledQuery]) -> float:
    """CPU seconds a second for operators. The budget of a query is what no other used, or its fair share."""
    used: dict[int, float] = {}
    available: dict[int, float] = {}
    for row in (row for line in lines for row in line.rows):
        used[row.epoch_us] = used.get(row.epoch_us, 0.0) + row.used_s
        available[row.epoch_us] = max(available.get(row.epoch_us, 0.0), row.budget_s - row.used_s)
    return fmean(used[epoch_us] + free_s for epoch_us, free_s in available.items()) / EPOCH_S


_MAX_S = 900.0
_MIN_S = 30.0


@dataclass(frozen=True)
class ReplayedQuery(Record):
    """Figures under one policy, of all queries together or of one. Seconds are None without windows."""

    windows: int
    mean_s: float | None
    p99_s: float | None
    most_s: float | None
    unswept: Annotated[int, Words("Windows that were not swept by the end.")]
    records: float
    overflow: float
    overflow_share: float
    memory_peak_bytes: float
    busy_share: Annotated[float | None, Words("Of the core; null of a single query.")]


@dataclass(frozen=True)
class ReplayedPolicy(ReplayedQuery):
    """Figures under one policy, and those of each query."""

    queries: Mapping[str, ReplayedQuery]


@dataclass(frozen=True)
class Replay(Record):
    """Result of a replay: the same arrivals under several policies."""

    agent: str
    in_force: Annotated[str, Words("The policy that the agent reported, empty if it reported none.")]
    since_us: Annotated[int, Words("By the agent's clock.")]
    until_us: int
    epochs: int
    windows: Annotated[int, Words("That were recorded.")]
    policies: Mapping[str, ReplayedPolicy]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _ReplayJob(Record):
    """Parameters of a replay's job."""

    agent: str
    name: str
    in_force: str
    since_us: int
    until_us: int
    windows: int
    notes: tuple[str, ...]
    document: Any  #: the engine's question, which only the work reads


def replay_request(
    *,
    agent: Agent,
    policies: Sequence[str] = (),
    schedule: Mapping[str, object] | None = None,
    last_s: float = 300.0,
    user: User | None = None,
) -> Job:
    """Request a replay of an agent's recording of the last seconds under other policies.

    `policies` are those that agents know unless given; `schedule` the settings beside the policy, the defaults unless
    given.

    Raises
    ------
    Malformed
        With every fault: policies that there are none, settings out of their range, a span that is not kept.
    Impossible
        Too little is recorded.
    """
    settings = _checked(policies, schedule, last_s)
    ahead = timedelta(seconds=agent.clock_offset_s or 0.0)
    since = timezone.now() + ahead - timedelta(seconds=last_s)
    key = str(agent.pk)
    recording = recording_of(
        agent.name, scheduled_queries([agent], {key: round(since.timestamp() * 1e6)}, {key: settings})[key]
    )
    return job_submit(
        kind=JobKind.REPLAY,
        title=f"Replay {agent.name} under other policies",
        params=_ReplayJob(
            agent=key,
            name=agent.name,
            in_force=(agent.heartbeat.get("schedule") or {}).get("policy") or "",
            since_us=recording.since_us,
            until_us=recording.until_us,
            windows=recording.windows,
            notes=recording.notes,
            document=recording.question(settings, list(dict.fromkeys(policies)) or POLICIES).to_dict(),
        ).to_dict(),
        cluster=agent.cluster,
        user=user,
    )


def _checked(policies: Sequence[str], schedule: Mapping[str, object] | None, last_s: float) -> ScheduleSettings:
    faults = [
        Fault(f"policies[{index}]", f"{name!r} is no policy; allowed: {', '.join(POLICIES)}")
        for index, name in enumerate(policies)
        if name not in POLICIES
    ]
    if not _MIN_S <= last_s <= _MAX_S:
        faults.append(Fault("last_s", f"last_s is {last_s:g}; allowed: {_MIN_S:g} to {_MAX_S:g}"))
    settings = ScheduleSettings.read(schedule or {}, "", "schedule", faults)
    if faults or settings is None:
        raise Malformed(f"The replay has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}.", faults)
    return settings


def replay_work(report: JobReporter) -> JobOutcome:
    """Run the job: replay the arrivals under each policy."""
    report(0.0, "Replaying the recording")
    params = _ReplayJob.parse(report.job.params)
    answer = replay(ReplayQuestion.parse(params.document))
    page = f"/c/{report.job.cluster.slug}/sources/schedule/?agent={params.name}#replay"
    return JobOutcome(answer.to_dict(), page, f"/api/v1/jobs/{report.job.pk}")


def replay_of(job: Job) -> Replay | None:
    """The result of a replay; None before it has succeeded."""
    if job.state != JobState.SUCCEEDED or job.result is None:
        return None
    params, answer = _ReplayJob.parse(job.params), ReplayAnswer.parse(job.result)
    return Replay(
        agent=params.name,
        in_force=params.in_force,
        since_us=params.since_us,
        until_us=params.until_us,
        epochs=answer.bins,
        windows=params.windows,
        policies={name: _policy(figures) for name, figures in answer.policies.items()},
        notes=params.notes,
    )


def replay_latest(agent: Agent) -> Job | None:
    """The newest replay job of an agent."""
    rows = Job.objects.filter(kind=JobKind.REPLAY, cluster=agent.cluster_id, params__agent=str(agent.pk))
    return rows.order_by("-created_at").first()


def _policy(figures: PolicyFigures) -> ReplayedPolicy:
    queries = {name: ReplayedQuery(*_figures(query), None) for name, query in figures.queries.items()}
    return ReplayedPolicy(*_figures(figures), figures.busy_share, queries)


def _figures(
    figures: ReplayFigures,
) -> tuple[int, float | None, float | None, float | None, int, float, float, float, float]:
    """Those of `ReplayedQuery` up to the peak of memory."""
    times = (figures.mean_ms, figures.p99_ms, figures.most_ms)
    mean_s, p99_s, most_s = (None if time is None else time / 1e3 for time in times)
    amounts = (figures.records, figures.overflow, figures.overflow_share, figures.memory_peak_bytes)
    return (figures.windows, mean_s, p99_s, most_s, figures.unswept, *amounts)
