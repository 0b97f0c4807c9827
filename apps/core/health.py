"""Health of the installation: database, migrations, Redis and workers."""

from __future__ import annotations

import time
from collections.abc import Iterable

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse

__all__ = ["health_states", "healthz", "redis_client", "worker_beat"]

_BEAT_KEY = "sluice:worker:beat:{queue}"
_BEAT_LIFE_S = 15
_PROBE_KEY = "sluice:health:probe"


def redis_client(timeout_s: float = 0.5) -> redis.Redis:
    """A client that gives up soon: for checks, not for work."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=timeout_s, socket_timeout=timeout_s, retry=None
    )


def worker_beat(queues: Iterable[str]) -> None:
    """Called by each Celery worker every few seconds; a queue's key expires when all workers that serve it are gone."""
    try:
        with redis_client() as client:
            for queue in queues:
                client.set(_BEAT_KEY.format(queue=queue), f"{time.time():.0f}", ex=_BEAT_LIFE_S)
    except redis.RedisError:
        return  # the check then says that Redis is gone, which is the truth


def healthz(request: HttpRequest) -> JsonResponse:
    """`/healthz`: is this web process able to serve? For anyone, without a login; it says no more than states.

    200 when the database answers and its tables are up to date: pages can be read. Redis and workers are shown
    (`ok` or `gone`; `full` or `readonly` for a Redis that answers and takes no writes) without changing the status,
    since a web process must not be restarted because they are.
    `/healthz?full=1` is for dashboards and the launcher: 503 if anything is not `ok`.
    `/healthz?live=1` looks at nothing and answers 200: who gets no answer restarts this process. A database that is
    away is not mended by that.
    """
    if request.GET.get("live"):
        return JsonResponse({"status": "live"}, headers={"Cache-Control": "no-store"})
    parts = health_states()
    down = sorted(name for name, state in parts.items() if state != "ok")
    vital = {"database", "migrations"} & set(down)
    failed = bool(down) if request.GET.get("full") else bool(vital)
    status = "down" if vital else "degraded" if down else "ok"
    response = JsonResponse({"status": status, **parts, "down": down}, status=503 if failed else 200)
    response["Cache-Control"] = "no-store"
    return response


def health_states() -> dict[str, str]:
    """State of the database, its migrations, Redis and the workers of each queue: `ok`, or what is wrong."""
    parts = {"database": _database(), **_redis_and_workers()}
    if parts["database"] == "ok":
        parts["migrations"] = _migrations()
    return parts


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "gone"
    return "ok"


_migrated = False


def _migrations() -> str:
    """Checked until they are complete once; afterwards only a new process can bring new ones."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return "ok" if _migrated else "missing"


def _redis_and_workers() -> dict[str, str]:
    workers = {"worker": settings.INTERACTIVE_QUEUE, "background": settings.BACKGROUND_QUEUE}
    try:
        with redis_client() as client:
            state = _write_state(client)
            beats = client.mget([_BEAT_KEY.format(queue=queue) for queue in workers.values()])
    except redis.RedisError:
        return {"redis": "gone"} | dict.fromkeys(workers, "unknown")
    if state != "ok" and not all(beats):  # no worker could write that it lives
        return {"redis": state} | dict.fromkeys(workers, "unknown")
    return {"redis": state} | {name: "ok" if beat else "gone" for name, beat in zip(workers, beats, strict=True)}


def _write_state(client: redis.Redis) -> str:
    """Whether Redis takes writes: without them no job starts, no change is told and no telemetry comes in."""
    try:
        client.set(_PROBE_KEY, 1, ex=_BEAT_LIFE_S)
    except redis.exceptions.ReadOnlyError:
        return "readonly"
    except redis.exceptions.ResponseError:  # no memory left, or no disk to write it down
        return "full"
    return "ok"
