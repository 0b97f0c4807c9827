"""A real worker, a real broker: killed in mid-estimate, the work is done again and counts once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.databases import copy_sqlite_template
from tests.servers import RedisServer, wait_until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
_LONG_S = 300.0  # of work that takes some seconds where nothing else runs


class Installation:
    """A var directory, its database and processes of Sluice that use it."""

    def __init__(self, var_dir: Path, redis: RedisServer) -> None:
        self.var_dir, self.redis = var_dir, redis
        self.processes: list[subprocess.Popen[bytes]] = []
        self.env = os.environ | {
            "SLUICE_VAR_DIR": str(var_dir),
            "REDIS_URL": redis.url,
            "DATABASE_URL": "",
            "DJANGO_SETTINGS_MODULE": "console.settings",
            # a lost message is delivered again after so long; a sweep would do it as well
            "SLUICE_TASK_VISIBILITY_S": "10",
        }

    def python(self, code: str) -> Any:
        """Run code beside the installation, as a command would; what it prints as JSON is returned."""
        prelude = "import django, json; django.setup()\n"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code], cwd=ROOT, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "console", "worker", "--loglevel", "INFO", "-c", "1"]
        command += ["--without-gossip", "--without-mingle", *options]
        with (self.var_dir / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self.env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.processes.append(process)
        return process

    def rows(self, sql: str, *params: str) -> list[Any]:
        with closing(sqlite3.connect(self.var_dir / "sluice.sqlite3", timeout=20)) as connection:
            return connection.execute(sql, params).fetchall()

    def row(self, job: str) -> tuple[str, float, int]:
        (record,) = self.rows("SELECT state, progress, attempt FROM jobs_job WHERE id = ?", job.replace("-", ""))
        return record

    def moves(self) -> list[tuple[str, str]]:
        return self.rows("SELECT state, applied_at FROM planning_placementmove ORDER BY number")

    def log(self) -> str:
        return (self.var_dir / "worker.log").read_text()


@pytest.fixture
def installation(tmp_path: Path, redis_server: RedisServer) -> Iterator[Installation]:
    installed = Installation(tmp_path, redis_server)
    copy_sqlite_template(tmp_path / "sluice.sqlite3")
    yield installed
    for process in installed.processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """The worker and its child at once, as when a machine loses power."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


LONG = """
from apps.estimates.services import document_estimate_request
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
print(json.dumps(str(document_estimate_request(document=document).pk)))
"""


def test_jobs_of_a_killed_worker_are_resent(installation: Installation) -> None:
    job = installation.python(LONG)
    first = installation.worker()
    wait_until(lambda: installation.row(job)[1] > 0.15, _LONG_S, "the first worker's progress")
    assert installation.row(job)[0] == "running"
    kill(first)
    assert installation.row(job)[0] == "running", "nobody was left to say that it is lost"
    installation.worker()
    wait_until(lambda: installation.row(job)[0] == "succeeded", _LONG_S, "the second worker's success")
    assert installation.row(job)[2] == 2, installation.log()
    stored = installation.python(
        "from apps.estimates.models import DocumentEstimate as D\n"
        "from apps.estimates.services import document_estimate_result as result\n"
        "rows = list(D.objects.all())\n"
        "print(json.dumps([len(rows), result(rows[0])['mace_wc'] > 0]))"
    )
    assert stored == [1, True]


def test_queued_jobs_run_after_a_broker_restart(installation: Installation) -> None:
    """Redis dies and returns: what was queued is done, what is asked meanwhile is refused and leaves nothing."""
    short = LONG.replace("range(30000)", "range(200)").replace("range(40)", "range(2)")
    job = installation.python(short)
    installation.redis.kill()
    refused = installation.python(
        "from apps.core.errors import SluiceError\n"
        "from apps.estimates.models import DocumentEstimate as D\n"
        "from apps.estimates.services import document_estimate_request\n"
        "document = {'subinterval_s': 1.0, 'subintervals': 1}\n"
        "try:\n    document_estimate_request(document=document)\nexcept SluiceError as error:\n"
        "    print(json.dumps([error.status, D.objects.count()]))"
    )
    assert refused == [503, 1]
    installation.redis.start()
    installation.worker()
    wait_until(lambda: installation.row(job)[0] == "succeeded", _LONG_S, "the job's success")


def test_what_somebody_waits_for_has_a_worker_of_its_own(installation: Installation) -> None:
    short = LONG.replace("range(30000)", "range(200)").replace("range(40)", "range(2)")
    asked = installation.python(
        "from apps.accounts.models import User\nuser = User.objects.create(username='ada')"
        + short.replace("document=document", "document=document, user=user")
    )
    by_itself = installation.python(short)
    installation.worker("-Q", "background", "-n", "background@%h")
    wait_until(lambda: installation.row(by_itself)[0] == "succeeded", _LONG_S, "what runs by itself")
    assert installation.row(asked)[0] == "queued", "it was sent first"
    installation.worker("-Q", "interactive", "-n", "worker@%h")
    wait_until(lambda: installation.row(asked)[0] == "succeeded", _LONG_S, "the answer")


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
print(json.dumps(str(job.pk)))
"""


def test_moves_resume_after_a_killed_worker(installation: Installation) -> None:
    job = installation.python(MOVES)
    first = installation.worker()
    wait_until(lambda: installation.row(job)[1] > 0, _LONG_S, "the first batch")
    kill(first)
    before = installation.moves()
    done = sum(state == "done" for state, _ in before)
    assert 0 < done < len(before)
    installation.worker()
    wait_until(lambda: installation.row(job)[0] == "succeeded", _LONG_S, "the rest of the moves")
    after = installation.moves()
    assert {state for state, _ in after} == {"done"}
    assert after[:done] == before[:done], "a batch was made twice"
    assert installation.row(job)[2] == 2
