"""A real worker, a real broker: killed in mid-estimate, the work is done again and counts once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.databases import copy_sqlite_template
from tests.e2e.installation import Installation
from tests.servers import RedisServer, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def installation(tmp_path: Path, redis_server: RedisServer) -> Iterator[Installation]:
    installed = Installation(tmp_path, redis_server)
    copy_sqlite_template(tmp_path / "sluice.sqlite3")
    yield installed
    installed.stop()


def _rows(installation: Installation, sql: str, *params: str) -> list[Any]:
    with closing(sqlite3.connect(installation.var_dir / "sluice.sqlite3", timeout=20)) as connection:
        return connection.execute(sql, params).fetchall()


def _state(installation: Installation, job: str) -> tuple[str, float, int]:
    """State, progress and attempt."""
    (row,) = _rows(
        installation, "SELECT state, progress, attempt FROM jobs_job WHERE id = ?", job.strip().replace("-", "")
    )
    return row


def _wait_for(installation: Installation, job: str, what: str) -> None:
    def has_succeeded() -> bool:
        state = _state(installation, job)[0]
        assert state in ("queued", "running", "succeeded"), _rows(installation, "SELECT state, error FROM jobs_job")
        return state == "succeeded"

    wait_until(has_succeeded, what=what)


def _is_kept(installation: Installation, job: str) -> bool:
    """Whether the broker has written a job's message to its file."""
    files = (path for path in installation.redis.folder.rglob("*aof*") if path.is_file())
    return any(job.strip().encode() in path.read_bytes() for path in files)


def _lose(installation: Installation) -> None:
    """The worker dies, and the time has passed after which the broker takes its messages for lost.

    That time bounds the work as well, so a short one would make a slow machine's work too long.
    """
    installation.kill("worker")
    broker = redis.Redis.from_url(installation.redis.url)
    taken = broker.zrange("unacked_index", 0, -1)
    assert taken, "the worker had acknowledged what it was doing"
    broker.zadd("unacked_index", dict.fromkeys(taken, 1.0))


def _moves(installation: Installation) -> list[tuple[str, str]]:
    return _rows(installation, "SELECT state, applied_at FROM planning_placementmove ORDER BY number")


LONG = """
from apps.estimates.services import DOCUMENT_ESTIMATE
batches = [{"events": 100 + k, "outputs": 100, "cycles": 100 * (1 + k % 3)} for k in range(40)]
operators = [
    {"id": f"o{i}", "query": "long", "node": "n", "core": i % 4,
     "inputs": [{"from": f"o{i - 1}" if i else "s", "selectivity": 1, "cycles_per_event": 2, "batches": batches}]}
    for i in range(24)
]
document = {
    "subinterval_s": 1.0,
    "sources": [{"id": "s", "arrivals": [float(100 + p % 50) for p in range(30000)]}],
    "nodes": [{"id": "n", "capacity_cps": 1000, "cores": 4}],
    "operators": operators,
}
print(DOCUMENT_ESTIMATE.request(document=document)[1].pk)
"""


def test_jobs_of_a_killed_worker_are_resent(installation: Installation) -> None:
    job = installation.script(LONG)
    installation.start_worker()
    wait_until(lambda: _state(installation, job)[1] > 0.15, what="the first worker's progress")
    assert _state(installation, job)[0] == "running"
    _lose(installation)
    assert _state(installation, job)[0] == "running", "nobody was left to say that it is lost"
    installation.start_worker()
    _wait_for(installation, job, "the second worker's success")
    assert _state(installation, job)[2] == 2, installation.log("worker")
    stored = installation.script(
        "import json\n"
        "from apps.estimates.models import DocumentEstimate as D\n"
        "rows = list(D.objects.all())\n"
        "print(json.dumps([len(rows), rows[0].result['mace_wc'] > 0]))"
    )
    assert stored == "[1, true]\n"


def test_queued_jobs_run_after_a_broker_restart(installation: Installation) -> None:
    """Redis dies and returns, full at first: what was queued is done, what is asked meanwhile leaves nothing."""
    short = LONG.replace("range(30000)", "range(200)").replace("range(40)", "range(2)")
    job = installation.script(short)
    # a reply may be up to two seconds ahead of the append-only file: a kill in between loses what was promised
    wait_until(lambda: _is_kept(installation, job), what="a job in the append-only file")
    installation.redis.kill()
    refused = installation.script(
        "import json\n"
        "from apps.core.errors import SluiceError\n"
        "from apps.estimates.models import DocumentEstimate as D\n"
        "from apps.estimates.services import DOCUMENT_ESTIMATE\n"
        "document = {'subinterval_s': 1.0, 'subintervals': 1}\n"
        "try:\n    DOCUMENT_ESTIMATE.request(document=document)[1]\nexcept SluiceError as error:\n"
        "    print(json.dumps([error.status, D.objects.count()]))"
    )
    assert refused == "[503, 1]\n"
    installation.redis.start()
    broker = redis.Redis.from_url(installation.redis.url)
    broker.config_set("maxmemory", 1)
    worker = installation.start_worker()
    wait_until(lambda: "maxmemory" in installation.log("worker"), what="a worker that met a full Redis")
    broker.config_set("maxmemory", 0)
    _wait_for(installation, job, "the job's success")
    assert worker.poll() is None


@pytest.mark.night
def test_what_somebody_waits_for_has_a_worker_of_its_own(installation: Installation) -> None:
    short = LONG.replace("range(30000)", "range(200)").replace("range(40)", "range(2)")
    asked = installation.script(
        "from apps.accounts.models import User\nuser = User.objects.create(username='ada')"
        + short.replace("document=document", "document=document, user=user")
    )
    by_itself = installation.script(short)
    installation.start_worker("-Q", "background", "-n", "background@%h", name="background")
    _wait_for(installation, by_itself, "what runs by itself")
    assert _state(installation, asked)[0] == "queued", "it was sent first"
    installation.start_worker("-Q", "interactive", "-n", "worker@%h", name="interactive")
    _wait_for(installation, asked, "the answer")


MOVES = """
from apps.jobs.runner import run_job
from apps.planning.placement_moves import placement_apply
from apps.planning.placement_search import PLACEMENT
from tests.apps.small_cluster import small_cluster, start_query
cluster = small_cluster(nodes=("a", "b", "c"))
for i in range(6):
    start_query(cluster, f"q{i}", 0.35, "a")
run, job = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.5)
run_job(job.pk, PLACEMENT.work)
run.moves.update(duration_s=2.0)
run.refresh_from_db()
run, job = placement_apply(run=run, user=None, batch_size=1)
print(job.pk)
"""


@pytest.mark.night
def test_moves_resume_after_a_killed_worker(installation: Installation) -> None:
    job = installation.script(MOVES)
    installation.start_worker()
    wait_until(lambda: _state(installation, job)[1] > 0, what="the first batch")
    _lose(installation)
    before = _moves(installation)
    done = sum(state == "done" for state, _ in before)
    assert 0 < done < len(before)
    installation.start_worker()
    _wait_for(installation, job, "the rest of the moves")
    after = _moves(installation)
    assert {state for state, _ in after} == {"done"}
    assert after[:done] == before[:done], "a batch was made twice"
    assert _state(installation, job)[2] == 2
