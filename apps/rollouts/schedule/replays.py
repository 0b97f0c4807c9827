"""Replays: recorded arrivals of an agent under other scheduling policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import fmean
from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, fault_count
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.rollouts.schedule.queries import ScheduledQuery, scheduled_queries
from apps.telemetry.ingest.epochs import MAX_ROWS
from apps.telemetry.models import Agent
from engine.klink.settings import POLICIES, ScheduleSettings
from engine.rollouts.epochs import EPOCH_S

__all__ = [
    "MAX_EPOCHS",
    "MIN_EPOCHS",
    "MIN_WINDOWS",
    "Recording",
    "Replay",
    "ReplayFigures",
    "recording_of",
    "replay_latest",
    "replay_of",
    "replay_request",
    "replay_work",
]


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

    queries: list[dict[str, Any]]  #: of the document of a replay
    cores: float  #: CPU seconds a second that operators could have had
    since_us: int  #: by the agent's clock
    until_us: int
    windows: int
    notes: tuple[str, ...]

    def document(self, settings: ScheduleSettings, policies: Sequence[str]) -> dict[str, Any]:
        """The document of a replay."""
        return {
            "queries": self.queries,
            "bin_ms": _BIN_MS,
            "policies": list(policies),
            "schedule": dict(settings.to_dict()),
            "cores": self.cores,
        }


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
        said = f"they span {bins:,} epochs; at most {MAX_EPOCHS:,} are possible, so its clock was adjusted meanwhile"
        faults.append(Fault("epochs", said))
    elif windows < MIN_WINDOWS:
        faults.append(
            Fault("windows", f"{windows} windows were swept in {bins} epochs; at least {MIN_WINDOWS} are needed")
        )
    elif busy:
        return Recording(
            queries=[_query(line, since_us, bins) for line in busy],
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


def _query(line: ScheduledQuery, since_us: int, bins: int) -> dict[str, Any]:
    arrivals = [0] * bins
    for row in line.rows:
        arrivals[(row.epoch_us - since_us) // _EPOCH_US] += (
            row.records_in
        )  # epochs of a new generation begin at any moment
    records = _records(line)
    worked = max(1, records - sum(row.overflow for row in line.rows))
    said = {
        "id": line.name,
        "cost_ms": 1e3 * sum(row.used_s for row in line.rows) / worked,
        "arrivals": arrivals,
        "record_bytes": max(1.0, sum(row.bytes_in for row in line.rows) / records),
    }
    return said | (_windows(line, since_us, bins) if line.period_s is not None and line.sweeps else {})


def _windows(line: ScheduledQuery, since_us: int, bins: int) -> dict[str, Any]:
    """Deadlines in these epochs, and the delay of each watermark; unreported ones between have the mean delay.
    Windows far ahead, ended by records with times far ahead, are left out."""
    period_us = round(1e6 * (line.period_s or 0.0))
    first_us = math.ceil(since_us / period_us) * period_us
    delays: dict[int, float] = {}
    for sweep in line.sweeps:
        if first_us <= sweep.deadline_us <= since_us + bins * _EPOCH_US:
            delays.setdefault((sweep.deadline_us - first_us) // period_us, sweep.delay_s)
    mean_s = fmean(delays.values()) if delays else 0.0
    count = max(delays, default=-1) + 1
    return {
        "period_ms": period_us / 1e3,
        "first_ms": (first_us - since_us) / 1e3,
        "delays_ms": [1e3 * delays.get(place, mean_s) for place in range(count)],
    }


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
class ReplayFigures:
    """Figures under one policy, of all queries together or of one. Seconds are None without windows."""

    windows: int
    mean_s: float | None
    p99_s: float | None
    most_s: float | None
    unswept: int  #: windows that were not swept by the end
    records: int
    overflow: int
    overflow_share: float
    memory_peak_bytes: float
    busy_share: float | None = None  #: of the core; None of a single query
    queries: Mapping[str, ReplayFigures] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """The same arrivals under several policies."""

    agent: str
    in_force: str  #: the policy the agent reported, empty if it reported none
    since_us: int  #: by the agent's clock
    until_us: int
    epochs: int
    windows: int  #: that were recorded
    policies: Mapping[str, ReplayFigures]
    notes: tuple[str, ...]


def replay_request(
    *,
    agent: Agent,
    policies: Sequence[str] = (),
    schedule: Mapping[str, Any] | None = None,
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
        params={
            "agent": key,
            "name": agent.name,
            "in_force": (agent.heartbeat.get("schedule") or {}).get("policy") or "",
            "since_us": recording.since_us,
            "until_us": recording.until_us,
            "windows": recording.windows,
            "notes": list(recording.notes),
            "document": recording.document(settings, list(dict.fromkeys(policies)) or list(POLICIES)),
        },
        cluster=agent.cluster,
        user=user,
    )


def _checked(policies: Sequence[str], schedule: Mapping[str, Any] | None, last_s: float) -> ScheduleSettings:
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
    from engine.klink.replay import replay  # it loads numba, which only workers need

    report(0.0, "Replaying the recording")
    params = report.job.params
    result = replay(params["document"])
    page = f"/c/{report.job.cluster.slug}/sources/schedule/?agent={params['name']}#replay"
    return JobOutcome(result, page, f"/api/v1/jobs/{report.job.pk}")


def replay_of(job: Job) -> Replay | None:
    """The result of a replay; None before it has succeeded."""
    if job.state != JobState.SUCCEEDED or job.result is None:
        return None
    params = job.params
    return Replay(
        agent=params["name"],
        in_force=params["in_force"],
        since_us=params["since_us"],
        until_us=params["until_us"],
        epochs=job.result["bins"],
        windows=params["windows"],
        policies={name: _figures(row) for name, row in job.result["policies"].items()},
        notes=tuple(params["notes"]),
    )


def replay_latest(agent: Agent) -> Job | None:
    """The newest replay job of an agent."""
    rows = Job.objects.filter(kind=JobKind.REPLAY, cluster=agent.cluster_id, params__agent=str(agent.pk))
    return rows.order_by("-created_at").first()


def _figures(row: Mapping[str, Any]) -> ReplayFigures:
    return ReplayFigures(
        windows=row["windows"],
        mean_s=_seconds(row["mean_ms"]),
        p99_s=_seconds(row["p99_ms"]),
        most_s=_seconds(row["most_ms"]),
        unswept=row["unswept"],
        records=row["records"],
        overflow=row["overflow"],
        overflow_share=row["overflow_share"],
        memory_peak_bytes=row["memory_peak_bytes"],
        busy_share=row.get("busy_share"),
        queries={name: _figures(query) for name, query in row.get("queries", {}).items()},
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
