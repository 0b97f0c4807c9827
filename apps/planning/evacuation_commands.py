"""Evacuations as commands with their times, for whoever carries one out in a connected engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apps.connections.choices import ConnectionEngine
from apps.connections.models import ImportedJob
from apps.core.errors import Conflict
from apps.planning.choices import EvacuationOrder
from apps.planning.evacuations import stored_plan
from apps.planning.models import Evacuation
from engine.provisioning.answers.evacuations import EvacuationPlan, PlannedStep
from engine.words import counted, duration_words

__all__ = ["evacuation_commands"]


def evacuation_commands(run: Evacuation) -> str:
    """A shell script with the time of each step in its comments. What Sluice moves by itself is a comment.

    Raises
    ------
    Conflict
        There is no plan yet, or nodes cannot be emptied.
    """
    plan = stored_plan(run)
    if plan is None or not plan.is_possible:
        raise Conflict("There is no plan that can be carried out, and so there are no commands.", code="wrong_state")
    return "\n".join(_lines(run, plan)) + "\n"


def _lines(run: Evacuation, plan: EvacuationPlan) -> Iterator[str]:
    yield "#!/bin/sh"
    yield f"# Evacuation of {_plain(', '.join(run.nodes))} in {_plain(run.cluster.name)}"
    yield "# Times are estimates: each step begins when the one before has ended."
    yield "set -eu"
    moving = {move.query for step in plan.steps for move in step.moves if move.query}
    jobs = list(
        ImportedJob.objects.filter(query__cluster=run.cluster, query__name__in=moving).select_related(
            "connection", "query"
        )
    )
    at = run.starts_at
    for number, step in enumerate(plan.steps, 1):
        yield ""
        names = _plain(", ".join(step.nodes))
        yield f"# {_time(run, at, 'at the beginning')}: step {number} of {len(plan.steps)}, {names}"
        yield from _away(run, step, jobs)
        at = None if at is None else at + timedelta(seconds=step.lasts_s * (1.0 + run.pace))
        ends = run.ends_at if run.order == EvacuationOrder.TOGETHER else at and at + timedelta(seconds=run.hold_s)
        yield f"# {_time(run, ends, 'when the work on them is done')}: {names} come back"
        yield from _back(run, step, jobs)
        at = ends


def _away(run: Evacuation, step: PlannedStep, jobs: Sequence[ImportedJob]) -> Iterator[str]:
    if not step.moves:
        yield "# nothing runs there"
    by_query = {job.query.name: job for job in jobs}
    for move in step.moves:
        if move.query not in by_query:
            to = ", ".join(dict.fromkeys(replica.node for replica in move.after))
            yield f"# Sluice moves {_plain(move.operator)} to {_plain(to)}"
    for job in _jobs_of(step, jobs):
        count = counted(sum(move.query == job.query.name for move in step.moves), "operator")
        url = job.connection.url.rstrip("/") or "http://ENGINE"
        yield f"# {_plain(job.name)}: {count} on them"
        if job.connection.engine == ConnectionEngine.FLINK:
            path = shlex.quote(f"{url}/jobs/{job.engine_id}/stop")
            body = "-H 'Content-Type: application/json' -d '{\"drain\": false}'"
            yield f"curl -fsS -X POST {path} {body}  # a savepoint"
    for node in step.nodes:
        for job in _jobs_of(step, jobs):
            if node not in job.places:
                continue
            place = _plain(str(job.places[node]))
            if job.connection.engine == ConnectionEngine.FLINK:
                yield f"# stop TaskManager {place} ({node}) on its host: bin/taskmanager.sh stop"
            else:
                yield f"# decommission executor {place} ({node}) of {_plain(job.name)}"
    for job in _jobs_of(step, jobs):
        if job.connection.engine == ConnectionEngine.FLINK:
            yield f"# start {_plain(job.name)} again from its savepoint: bin/flink run -d -s SAVEPOINT ITS.jar"
    if step.lasts_s:
        yield f"# states travel for about {duration_words(step.lasts_s)}"


def _back(run: Evacuation, step: PlannedStep, jobs: Sequence[ImportedJob]) -> Iterator[str]:
    affected = [job for job in _jobs_of(step, jobs) if job.connection.engine == ConnectionEngine.FLINK]
    if affected:
        yield "# on their hosts: bin/taskmanager.sh start"
    for job in affected if run.back else ():
        yield f"# to have its operators there again, stop {_plain(job.name)} and start it from its savepoint as before"


def _jobs_of(step: PlannedStep, jobs: Sequence[ImportedJob]) -> list[ImportedJob]:
    moving = {move.query for move in step.moves}
    return [job for job in jobs if job.query.name in moving]


def _time(run: Evacuation, at: datetime | None, otherwise: str) -> str:
    return at.astimezone(ZoneInfo(run.cluster.time_zone)).strftime("%Y-%m-%d %H:%M:%S %Z") if at else otherwise


def _plain(text: str) -> str:
    """A text on one line of a comment."""
    return " ".join(text.split())
