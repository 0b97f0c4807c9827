"""What another policy would change: asked for, worked out in a worker, shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, fault_count
from apps.jobs.choices import JobKind, JobState
from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter
from apps.jobs.services import job_submit
from apps.scheduling.recording import recorded
from apps.scheduling.selectors import lines_of
from apps.telemetry.models import Agent
from engine.klink.settings import POLICIES, ScheduleSettings

__all__ = ["Figures", "Replay", "replay_latest", "replay_of", "replay_request", "replay_work"]

_MOST_S = 900.0
_LEAST_S = 30.0


@dataclass(frozen=True)
class Figures:
    """What one policy would have come to, of all queries together or of one. Seconds are None without windows."""

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
    queries: Mapping[str, Figures] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """The same arrivals under several policies."""

    agent: str
    in_force: str  #: the policy by which the agent said it schedules, `` where it said none
    since_us: int  #: by the agent's clock
    until_us: int
    epochs: int
    windows: int  #: that were recorded
    policies: Mapping[str, Figures]
    notes: tuple[str, ...]


def replay_request(
    *,
    agent: Agent,
    policies: Sequence[str] = (),
    schedule: Mapping[str, Any] | None = None,
    last_s: float = 300.0,
    user: User | None = None,
) -> Job:
    """Ask what other policies would have made of what an agent recorded in the last seconds.

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
    found = recorded(agent.name, lines_of([agent], {key: round(since.timestamp() * 1e6)}, {key: settings})[key])
    return job_submit(
        kind=JobKind.REPLAY,
        title=f"Replay {agent.name} under other policies",
        params={
            "agent": key,
            "name": agent.name,
            "in_force": (agent.heartbeat.get("schedule") or {}).get("policy") or "",
            "since_us": found.since_us,
            "until_us": found.until_us,
            "windows": found.windows,
            "notes": list(found.notes),
            "document": found.document(settings, list(dict.fromkeys(policies)) or list(POLICIES)),
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
    if not _LEAST_S <= last_s <= _MOST_S:
        faults.append(Fault("last_s", f"last_s is {last_s:g}; allowed: {_LEAST_S:g} to {_MOST_S:g}"))
    settings = ScheduleSettings.read(schedule or {}, "", "schedule", faults)
    if faults or settings is None:
        raise Malformed(f"The replay has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}.", faults)
    return settings


def replay_work(report: Reporter) -> Outcome:
    """The work of the job: the same arrivals under each policy."""
    from engine.klink.replay import replay  # it loads numba, which only workers need

    report(0.0, "Replaying what was recorded")
    params = report.job.params
    found = replay(params["document"])
    page = f"/c/{report.job.cluster.slug}/sources/schedule/?agent={params['name']}#replay"
    return Outcome(found, page, f"/api/v1/jobs/{report.job.pk}")


def replay_of(job: Job) -> Replay | None:
    """What came of a replay; None while nothing has."""
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
    """The replay of an agent that was asked for last."""
    rows = Job.objects.filter(kind=JobKind.REPLAY, cluster=agent.cluster_id, params__agent=str(agent.pk))
    return rows.order_by("-created_at").first()


def _figures(row: Mapping[str, Any]) -> Figures:
    return Figures(
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
        queries={name: _figures(one) for name, one in row.get("queries", {}).items()},
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
