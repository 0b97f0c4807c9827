"""A whole Sluice, as `up` starts it, with two agents on replayable sources and queries that count what they read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from launcher.places import free_port
from tests.databases import copy_sqlite_template
from tests.e2e.installation import DjangoShell
from tests.java import java_variables
from tests.servers import wait_until

__all__ = ["AGENTS", "LINES_QUERY", "NUMBERS_QUERY", "World"]

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("agent-1", "agent-2")
NUMBERS_QUERY, LINES_QUERY = "numbers", "lines"

_SEED = """
import json, sys
import django
django.setup()
from functools import partial
from pathlib import Path
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.services import query_create
from apps.queries.services import query_start
from apps.telemetry.agent_services import agent_enrol, agent_update, enrolment_create
from apps.telemetry.configs import fixed_settings
from apps.telemetry.live_services import assignment_set, live_start
from apps.telemetry.sources import source_upsert

asked = json.loads(sys.argv[1])
cluster = cluster_create(slug="lab", name="Lab", subinterval_s=5.0, horizon_s=300.0)
pool = pool_create(cluster=cluster, name="all", capacity_cps=2e9, cores=2)
for name in [*asked["agents"], "stream"]:
    node_create(pool=pool, name=name)
_, token = enrolment_create(cluster=cluster, user=None, uses=len(asked["agents"]))
agents = {}
for name in asked["agents"]:
    enrolled = agent_enrol(token=token, name=name, host="lab", cores=1, capacity_cps=2e9)
    agents[name] = enrolled.agent
    folder = Path(asked["var"]) / "agents" / name
    folder.mkdir(parents=True)
    values = {"name": name, "agent": str(enrolled.agent.pk), "secret": enrolled.secret, "url": asked["url"]}
    values["read_from"] = [asked["logs"]]
    (folder / "agent.toml").write_text("".join(f"{key} = {json.dumps(value)}\\n" for key, value in values.items()))
for source, says in asked["sources"].items():
    source_upsert(cluster=cluster, source_id=source, **says)
    counts = [10.0] * cluster.slices
    arrivals_create_from_counts(cluster=cluster, source_id=source, counts=counts, description="assumed")
for name, own in asked["options"].items():
    agent_update(agent=agents[name], source_options=own)
for name, says in asked["queries"].items():
    query = query_create(cluster=cluster, name=name, body={"operators": says["operators"]}, objective=None, user=None)
    version = query.versions.get()
    query_start(version=version, placement={row.name: "stream" for row in version.operators.all()})
    query.refresh_from_db()
    live = live_start(query=query, agents=list(agents.values()))
    for name, factors in says["factors"].items():
        assignment_set(live=live, agent=agents[name], settings=fixed_settings(factors))
"""

_READ = """
import json, sys
import django
django.setup()
from django.db.models import Sum
from apps.measurements.models import StatisticsWindow
from apps.results.rows import table_in
from apps.results.models import ResultWindow
found = {"windows": {}, "late": 0, "revisions": 0, "statistics": {}}
for row in ResultWindow.objects.select_related("query"):
    rows = table_in(row.body).to_pylist()
    for one in rows:
        one.pop("window_start", None)
    found["windows"].setdefault(row.query.name, {})[str(row.window_us)] = rows
    found["late"] = max(found["late"], row.late)
    found["revisions"] = max(found["revisions"], row.revision)
counted = StatisticsWindow.objects.exclude(place="stream")
for row in counted.values("query__name", "operator").annotate(total=Sum("records_in")):
    found["statistics"][row["query__name"] + "/" + row["operator"]] = row["total"]
print(json.dumps(found))
"""


def _operators(source: str, *expressions: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    listed, before = [], source
    for name, kind, expression in expressions:
        known = {"selectivity": 1.0, "cycles_per_event": 1000.0}
        listed.append(
            {
                "id": name,
                "kind": kind,
                "bytes_per_event": 40,
                "inputs": [{"from": before, **known}],
                "expression": expression,
            }
        )
        before = name
    return listed


class World:
    """`up --empty` on a var directory of its own. `records` is what each agent's generator makes in all."""

    def __init__(self, folder: Path, *, records: int, rate_per_s: float) -> None:
        self.var_dir, self.log = folder / "var", folder / "app.log"
        self.port = free_port()
        self.env = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}} | {
            "SLUICE_VAR_DIR": str(self.var_dir),
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(ROOT),
            "SLUICE_STREAM_TRIGGER_S": "1",
            **java_variables(),
        }
        self.log.touch()
        # what scripts announce goes nowhere, least of all to another console's Redis
        self._shell = DjangoShell(self.env | {"REDIS_URL": "redis://127.0.0.1:1/0"})
        copy_sqlite_template(self.var_dir / "sluice.sqlite3")
        self._seed(records, rate_per_s)
        self._screen = folder / "screen"
        self.process: subprocess.Popen[bytes] | None = None

    def _seed(self, records: int, rate_per_s: float) -> None:
        numbers = {"ts": "timestamp", "key": "string", "value": "int64"}
        drawn = {"key": {"choice": ["a", "b", "c", "d"]}, "value": {"sequence": 1000}}
        compute = {"n": "count(*)", "total": "sum(value)", "least": "min(value)", "most": "max(value)"}
        counted = {"op": "aggregate", "by": ["key"], "compute": compute}
        words = {"op": "parse", "column": "line", "as": "kv", "into": {"key": "string", "value": "int64"}}
        asked = {
            "var": str(self.var_dir),
            "logs": str(self.log.parent),
            "url": f"http://127.0.0.1:{self.port}",
            "agents": AGENTS,
            "sources": {
                "numbers": {
                    "kind": "generator",
                    "time": "ts",
                    "columns": numbers,
                    "options": {"rate_per_s": rate_per_s, "records": records, "columns": drawn},
                },
                "lines": {
                    "kind": "log_file",
                    "time": "ts",
                    "columns": {"ts": "timestamp", "line": "string"},
                    "options": {"path": str(self.log), "begin": "start"},
                },
            },
            "options": {
                "agent-2": {"numbers": {"seed": 2}, "lines": {"path": str(self.log.with_name("another.log"))}},
            },
            "queries": {
                NUMBERS_QUERY: {
                    "operators": _operators(
                        "numbers",
                        ("window", "window", {"op": "window", "size_s": 5}),
                        ("most", "filter", {"op": "filter", "where": "value % 10 <> 3"}),
                        ("by-key", "aggregate", counted),
                    ),
                    "factors": {"agent-1": [1, 1, 0.5], "agent-2": [1, 0.7, 0.3]},
                },
                LINES_QUERY: {
                    "operators": _operators(
                        "lines",
                        ("window", "window", {"op": "window", "size_s": 5}),
                        ("words", "map", words),
                        ("by-key", "aggregate", counted),
                    ),
                    "factors": {"agent-1": [1, 0.6, 0.8], "agent-2": [1, 1, 1]},
                },
            },
        }
        self._shell.run(_SEED, json.dumps(asked))

    def start(self) -> None:
        with self._screen.open("wb") as screen:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "launcher", "up", "--empty", "--port", str(self.port)],
                cwd=ROOT,
                env=self.env,
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def screen(self) -> str:
        return self._screen.read_text(errors="replace")

    def results(self) -> dict[str, Any]:
        """Rows of the console by query and window, and the records that its statistics counted."""
        found: dict[str, Any] = json.loads(self._shell.run(_READ))
        return found

    def wait_for(self, said: str, timeout_s: float) -> None:
        """Until a line of `up`'s screen says so."""
        assert self.process is not None
        alive = self.process.poll
        wait_until(lambda: said in self.screen or alive() is not None, timeout_s=timeout_s, what=said)
        assert alive() is None, self.screen

    def write_lines(self, first: int, last: int) -> None:
        with self.log.open("a") as log:
            log.writelines(f"key=k{number % 3} value={number}\n" for number in range(first, last))

    def kill(self, *words: str) -> list[int]:
        """kill -9 of every process of this installation whose command line holds all words; their numbers."""
        killed = []
        for process, command in self._family():
            if all(word in command for word in words):
                with suppress(psutil.NoSuchProcess):  # it has just ended
                    process.kill()
                    killed.append(process.pid)
        return killed

    def _family(self) -> Iterator[tuple[psutil.Process, str]]:
        """Living processes of this installation with their command lines."""
        assert self.process is not None
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()  # one that has ended and is not waited for has none
                if command and process.status() != psutil.STATUS_ZOMBIE:
                    yield process, " ".join(command)

    def stop(self) -> None:
        self._shell.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def wait_results(self, done: Any, timeout_s: float) -> dict[str, Any]:
        """The results once `done(results)`; what is there when the time is over."""
        until = time.monotonic() + timeout_s
        found = self.results()
        while not done(found) and time.monotonic() < until:
            time.sleep(2.0)
            found = self.results()
        return found
