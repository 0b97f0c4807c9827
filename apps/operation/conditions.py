"""Conditions of Sluice itself: processes, queues, database, broker, agents, credentials, disk and slow requests.

Each with its state, what it was judged by, and what to do. What cannot be asked is unknown, and never in order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import redis
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, Max, Min
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from agent import VERSION
from apps.accounts.services import tokens_ending
from apps.core.durations import slowest_routes
from apps.core.errors import SluiceError
from apps.core.health import health_states, redis_client
from apps.incidents.models import KEEP_DAYS
from apps.jobs.models import Job, JobState
from apps.kubernetes.services import KEEP_DAYS as REVIEW_DAYS
from apps.microbatch.services import KEEP_BATCHES
from apps.operation.write_lock import read_only_reason
from apps.results.services import RESULTS_KEPT
from apps.signin.provider import Provider
from apps.telemetry.models import Agent
from apps.telemetry.streams import stream_state
from engine.records import Record
from engine.words import counted

__all__ = ["Condition", "OperationConditions", "operation_conditions"]

Standing = Literal["ok", "watch", "bad", "unknown"]

_BEAT_LATE_S = 600.0  # beat writes down its runs every three minutes
_JOB_LATE_S, _JOB_STUCK_S = 300.0, 3600.0
_MEMORY_WATCH, _MEMORY_BAD = 0.8, 0.95  # of the broker's limit
_DISK_WATCH, _DISK_BAD = 0.15, 0.05  # of the disk, free
_SLOW_S = 1.0
_TABLES, _ROUTES = 12, 8
_MEASURED_BYTES = 1 << 30  # SQLite reads every page to tell the size of each table: not beyond so much

_RESTART = "Start it again: Operations, Processes, has the command of each."
#: Who removes rows of a table, and after how long; tables are found by the beginning of their name.
_RETENTION = {
    "estimates_": "each cluster keeps a number of estimates; a new one removes the oldest",
    "admission_": "kept; parts to compare go a day after the preview",
    "jobs_job": "kept; those that telemetry asked for go after two hours",
    "kubernetes_": f"purge, after {REVIEW_DAYS} days",
    "ledger_objectchange": f"purge, after {settings.LEDGER_DAYS} days (SLUICE_LEDGER_DAYS)",
    "ledger_keptrows": f"purge, after {settings.UNDO_DAYS} days (SLUICE_UNDO_DAYS)",
    "incidents_": f"purge, after the days of a cluster's routing ({KEEP_DAYS} unless set)",
    "microbatch_": f"purge, batches after {KEEP_BATCHES.days} days",
    "queries_": "kept, with their query",
    "fleet_": "kept, with their cluster",
    "results_resultwindow": f"purge, after {RESULTS_KEPT.days} days",
    "signin_session": "purge, once they have expired",
}


@dataclass(frozen=True)
class Condition(Record):
    """One thing that is in order, is to be looked at, is out of order, or unknown.

    `value` is in `unit` (`s`, `bytes`, `ratio` or `count`), null where there is none or it is unknown.
    """

    group: str
    name: str
    standing: Standing
    detail: str
    advice: str
    value: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class OperationConditions(Record):
    """Everything that is known of Sluice itself; `standing` is the worst of its conditions, unknown ones aside."""

    version: str
    standing: Standing
    read_only: bool
    conditions: list[Condition]


def operation_conditions() -> OperationConditions:
    """Ask all parts; one that cannot be asked is unknown, and the others are told."""
    conditions = [condition for group, ask in _GROUPS for condition in _asked(group, ask)]
    states = {condition.standing for condition in conditions}
    worst: Standing = "bad" if "bad" in states else "watch" if "watch" in states else "ok"
    return OperationConditions(VERSION, worst, read_only_reason() is not None, conditions)


def _asked(group: str, ask: Callable[[], Iterator[Condition]]) -> list[Condition]:
    """All that a part tells, up to where it cannot be asked any more."""
    found: list[Condition] = []
    try:
        with transaction.atomic():  # a refused statement must not spoil what is asked next
            found.extend(ask())
    except redis.RedisError as error:
        found.append(Condition(group, "redis", "unknown", f"Redis does not answer: {error}", "Start Redis."))
    except (DatabaseError, OSError) as error:
        found.append(Condition(group, group.lower(), "unknown", f"It cannot be asked: {error}", "See the log of web."))
    return found


def _processes() -> Iterator[Condition]:
    for name, state in health_states().items():
        judged: Standing = "ok" if state == "ok" else "unknown" if state == "unknown" else "bad"
        advice = {"ok": "", "unknown": "It writes its heartbeat to Redis: start that."}.get(judged, _RESTART)
        yield Condition("Processes", name, judged, state, advice)
    last = PeriodicTask.objects.aggregate(last=Max("last_run_at"))["last"]
    age_s = None if last is None else (timezone.now() - last).total_seconds()
    late = age_s is not None and age_s > _BEAT_LATE_S
    detail = "no run is written down yet" if age_s is None else "since the last run that it wrote down"
    judged = "unknown" if age_s is None else "bad" if late else "ok"
    yield Condition("Processes", "beat", judged, detail, "" if judged == "ok" else _RESTART, age_s, "s")
    stream = str(stream_state().get("state", "unknown"))
    judged = "unknown" if stream == "unknown" else "watch" if stream == "away" else "ok"
    advice = "" if judged == "ok" else "Live queries have no results without it: start it, or see the page Sources."
    yield Condition("Processes", "stream processor", judged, stream, advice)


def _queues() -> Iterator[Condition]:
    waiting = Job.objects.filter(state=JobState.QUEUED).aggregate(n=Count("pk"), oldest=Min("created_at"))
    age_s = (timezone.now() - waiting["oldest"]).total_seconds() if waiting["oldest"] else 0.0
    judged: Standing = "bad" if age_s > _JOB_STUCK_S else "watch" if age_s > _JOB_LATE_S else "ok"
    advice = "" if judged == "ok" else "Is a worker gone? Else start more workers, or raise SLUICE_WORKER_CONCURRENCY."
    detail = f"{counted(waiting['n'], 'job')} wait; the oldest for so long"
    yield Condition("Queues", "jobs", judged, detail, advice, age_s, "s")
    with redis_client() as client:
        for queue in (settings.INTERACTIVE_QUEUE, settings.BACKGROUND_QUEUE):
            length = sum(int(client.llen(key)) for key in client.scan_iter(f"{queue}*", _type="list"))
            yield Condition("Queues", queue, "ok", "tasks in the broker", "", float(length), "count")


def _database() -> Iterator[Condition]:
    yield Condition("Database", connection.vendor, "ok", "size of the database", "", _database_bytes(), "bytes")
    sizes = _table_bytes()
    if sizes is None:
        detail = "sizes of tables are not told: this SQLite does not, or the database is too large to read for it"
        yield Condition(
            "Database", "tables", "unknown", detail, "Operations, Size of the database, has the arithmetic."
        )
        return
    for table, size_bytes in sizes:
        kept = next((words for start, words in _RETENTION.items() if table.startswith(start)), "retention not known")
        yield Condition("Database", table, "ok", kept, "", size_bytes, "bytes")


def _database_bytes() -> float:
    if connection.vendor == "sqlite":
        path = str(connection.settings_dict["NAME"])
        return float(sum(Path(name).stat().st_size for name in (path, f"{path}-wal") if Path(name).exists()))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return float(cursor.fetchone()[0])


def _table_bytes() -> list[tuple[str, float]] | None:
    """The largest tables with their indexes; None where their sizes are not told."""
    statement = (
        "SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY size DESC LIMIT %s"
    )
    if connection.vendor == "sqlite":
        if _database_bytes() > _MEASURED_BYTES:
            return None
        statement = (
            "SELECT m.tbl_name, sum(s.pgsize) AS size FROM dbstat s JOIN sqlite_master m ON m.name = s.name "
            "GROUP BY m.tbl_name ORDER BY size DESC LIMIT %s"
        )
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [_TABLES])
            return [(str(table), float(size)) for table, size in cursor.fetchall()]
    except DatabaseError:
        return None


def _broker() -> Iterator[Condition]:
    with redis_client() as client:
        memory: dict[str, Any] = client.info("memory")
    used, most = float(memory["used_memory"]), float(memory.get("maxmemory") or 0)
    share = used / most if most else 0.0
    judged: Standing = "bad" if share > _MEMORY_BAD else "watch" if share > _MEMORY_WATCH else "ok"
    advice = "" if judged == "ok" else "Raise maxmemory, or lower SLUICE_STREAM_MAX_MB; agents keep what is beyond."
    detail = f"of {most / 2**20:,.0f} MiB that it may use" if most else "used; it has no limit of its own"
    yield Condition("Broker", "memory", judged, detail, advice, used, "bytes")


def _agents() -> Iterator[Condition]:
    rows = Agent.objects.filter(enabled=True).values("version").annotate(n=Count("pk")).order_by("version")
    for row in rows:
        version, number = row["version"], float(row["n"])
        judged: Standing = "ok" if version == VERSION else "watch" if version else "unknown"
        advice = "" if judged == "ok" else f"Install {VERSION} on their hosts; the page Sources names them."
        yield Condition("Agents", version or "no version told", judged, "agents", advice, number, "count")


def _credentials() -> Iterator[Condition]:
    now = timezone.now()
    for token in tokens_ending().select_related("user__service_account__team")[:_TABLES]:
        left_s = None if token.expires_at is None else (token.expires_at - now).total_seconds()
        advice = "Its owner makes another one under Tokens, and revokes this one."
        if hasattr(token.user, "service_account"):
            team = token.user.service_account.team or "no team"
            advice = f"Make another one under Settings, Service accounts, and revoke this one. {team} answers for it."
        yield Condition("Credentials", str(token), "watch", f"token of {token.user}; ends in", advice, left_s, "s")
    advice = "Let your proxy's monitoring watch its certificate."
    yield Condition("Credentials", "certificate", "unknown", "TLS ends at your proxy, which Sluice cannot ask", advice)


def _sign_in() -> Iterator[Condition]:
    provider = Provider.configured()
    if provider is None:
        return
    name, advice = provider.options.name, "Operations, Sign-in, lists what to look at. Local accounts go on."
    try:
        provider.ask()
    except SluiceError as error:
        yield Condition("Sign-in", name, "bad", error.message, advice)
    else:
        yield Condition("Sign-in", name, "ok", f"the provider {provider.options.issuer} answers", "")


def _disk() -> Iterator[Condition]:
    usage = shutil.disk_usage(settings.VAR_DIR)
    share = usage.free / usage.total
    judged: Standing = "bad" if share < _DISK_BAD else "watch" if share < _DISK_WATCH else "ok"
    advice = "" if judged == "ok" else "Lower SLUICE_BASES_MAX_MB or SLUICE_HISTORY_DAYS, or give it a larger disk."
    detail = f"free of {usage.total / 2**30:,.0f} GiB, where the data folder lies"
    yield Condition("Disk", "data folder", judged, detail, advice, float(usage.free), "bytes")


def _requests() -> Iterator[Condition]:
    for row in slowest_routes(_ROUTES):
        slow = row.p95_s > _SLOW_S
        detail = f"95 % within, of {counted(row.requests, 'request')} that this web process answered lately"
        advice = "See the access log by its route; on SQLite, PostgreSQL may help." if slow else ""
        yield Condition("Requests", row.route, "watch" if slow else "ok", detail, advice, row.p95_s, "s")


_GROUPS: tuple[tuple[str, Callable[[], Iterator[Condition]]], ...] = (
    ("Processes", _processes),
    ("Queues", _queues),
    ("Database", _database),
    ("Broker", _broker),
    ("Agents", _agents),
    ("Credentials", _credentials),
    ("Sign-in", _sign_in),
    ("Disk", _disk),
    ("Requests", _requests),
)
