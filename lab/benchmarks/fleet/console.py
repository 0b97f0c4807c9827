"""A console with a fleet: agents in its database, live queries, and all processes of an installation.

Django is loaded inside: a process that is told which database it has loads it first.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import redis

from agent.wire import broker
from engine.dataflow import Pipeline
from lab.benchmarks.fleet.clients import FleetAgent
from lab.benchmarks.fleet.recorded_agents import AgentRecording, record_agent
from launcher import services
from launcher.children import end_family, spawn
from launcher.java import java_environment
from launcher.places import LOOPBACK, child_environment, free_port

__all__ = ["ROLES", "FleetConsole"]

SLUG = "fleet"
QUERIES = 10
_START_S = 300.0
_COLUMNS = {
    "ts": "timestamp",
    "src_ip": "string",
    "src_cluster": "string",
    "dst_ip": "string",
    "dst_cluster": "string",
    "rtt_us": "int64",
    "err_code": "int64",
}
_EXPRESSIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "window": ("window", {"op": "window", "size_s": 2}),
    "answered": ("filter", {"op": "filter", "where": "err_code = 0"}),
    "pairs": (
        "aggregate",
        {
            "op": "aggregate",
            "by": ["src_ip", "dst_ip"],
            "compute": {"n": "count(*)", "mean_rtt": "avg(rtt_us)", "most": "max(rtt_us)"},
        },
    ),
}
#: Processes by what they are for; of the stream processor its three kinds apart.
ROLES = ("web", "worker", "background", "beat", "redis", "driver", "jvm", "spark workers")


class FleetConsole:
    """The database of a fleet, and its processes while `running`."""

    def __init__(self, agents: int) -> None:
        self._size = agents
        self.agents: list[FleetAgent] = []
        self.recordings: list[AgentRecording] = []
        self._redis_url = os.environ["REDIS_URL"]

    def set_up(self, epochs: int) -> None:
        """Tables, agents and live queries, and what real agents say of these."""
        import django

        django.setup()
        from django.core.management import call_command

        from apps.accounts.services import token_create, user_create
        from apps.fleet.services import cluster_create, node_create, pool_create
        from apps.telemetry.live_services import live_start
        from apps.telemetry.models import Agent
        from apps.telemetry.sources import source_upsert

        call_command("migrate", verbosity=0)
        user = user_create(username=SLUG, password="a long way downstream", role="admin")
        _, self._token = token_create(user=user, name=SLUG, scopes=("ingest", "read"))
        cluster = cluster_create(slug=SLUG, name="Fleet", subinterval_s=10.0, horizon_s=600.0)
        node_create(pool=pool_create(cluster=cluster, name="std", capacity_cps=1e9, cores=2 * QUERIES), name="n1")
        probe = {"interval_s": 1.0, "peers": [{"address": "10.0.0.2:9101"}]}
        source_upsert(
            cluster=cluster, source_id="probes", kind="tcp_probe", options=probe, time="ts", columns=_COLUMNS,
            lateness_s=1.0,
        )  # fmt: skip
        secrets = [f"sla_{hashlib.sha256(str(number).encode()).hexdigest()}" for number in range(self._size)]
        rows = Agent.objects.bulk_create(
            Agent(cluster=cluster, name=f"a{number}", secret_hash=hashlib.sha256(secret.encode()).hexdigest())
            for number, secret in enumerate(secrets)
        )
        for number in range(min(QUERIES, self._size)):
            query = _started(cluster, f"q{number}")
            live = live_start(query=query, agents=rows[number::QUERIES])
            document = live.pipeline
            recorded = record_agent(live.key, live.plan, document, epochs=epochs, seed=100 * number)
            assert Pipeline.parse(document).digest == live.plan
            self.recordings.append(recorded)
        self.agents = [
            FleetAgent(str(row.pk), secret, self.recordings[number % QUERIES])
            for number, (row, secret) in enumerate(zip(rows, secrets, strict=True))
        ]

    @contextmanager
    def running(self) -> Iterator[int]:
        """The processes of `./sluice up`; yields the web's port."""
        from django.db import connections

        connections.close_all()
        self.port = free_port()
        url = {"SLUICE_URL": f"http://{LOOPBACK}:{self.port}", "SLUICE_STREAM_TOKEN": self._token}
        env = child_environment() | url | java_environment() | {"SLUICE_STREAM_TRIGGER_S": "1"}
        self._processes: dict[str, psutil.Process] = {}
        with ExitStack() as stack:
            for service in (
                services.web(self.port, env), services.worker(env), services.background(env), services.beat(env),
                services.stream(env),
            ):  # fmt: skip
                path = Path(env["SLUICE_VAR_DIR"]) / f"{service.name}.log"
                log = stack.enter_context(path.open("ab"))
                process = spawn(service.command, env=env, cwd=service.cwd, output=log, tied=True)
                stack.callback(end_family, process, service.stop_steps)
                self._processes[service.name] = psutil.Process(process.pid)
                _wait(partial(_is_ready, service, path), f"{service.name}, see {path}")
            with redis.Redis.from_url(self._redis_url) as client:
                _wait(lambda: (broker.stream_state(client) or {}).get("state") == "ready", "the stream processor")
            yield self.port

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far by role."""
        spent = dict.fromkeys(ROLES, 0.0)
        port = int(self._redis_url.rpartition(":")[2].partition("/")[0])
        for name, head in self._processes.items():
            for process in (head, *head.children(recursive=True)):
                with _gone_is_nothing():
                    role = name if name != "stream" else _stream_role(process, head)
                    times = process.cpu_times()
                    spent[role] += times.user + times.system
        for process in psutil.Process(os.getppid()).children(recursive=True):
            with _gone_is_nothing():
                if str(port) in " ".join(process.cmdline()) and re.search("redis|valkey", process.name()):
                    times = process.cpu_times()
                    spent["redis"] += times.user + times.system
        return spent

    def committed(self) -> int:
        """Frames that the stream processor has worked off."""
        with redis.Redis.from_url(self._redis_url) as client:
            return sum(int(seq) for seq in client.hvals(broker.COMMITTED))  # type: ignore[union-attr]

    def stored(self) -> dict[str, int]:
        """Rows that the console has written of what came."""
        from django.db.models import Sum

        from apps.estimates.models import EstimateRun
        from apps.measurements.models import StatisticsWindow

        told = StatisticsWindow.objects.aggregate(epochs=Sum("epochs"))["epochs"] or 0
        rows = StatisticsWindow.objects.count()
        return {"statistics": rows, "epochs": int(told), "refreshes": EstimateRun.objects.count()}

    def sql_of(self, what: str) -> int:
        """Statements of a heartbeat or a post of frames, of an agent that came a moment ago."""
        from django.db import connection
        from django.test import Client
        from django.test.utils import CaptureQueriesContext

        one, client = self.agents[0], Client(SERVER_NAME="localhost")
        head = {"HTTP_AUTHORIZATION": f"Bearer {one.secret}"}

        def send(number: int) -> int:
            if what == "heartbeats":
                body: Any = one.recording.heartbeat(number, time.time())
                kind, path = "application/json", f"/api/v1/agents/{one.id}/heartbeat"
            else:
                body, kind = one.recording.post(one.id, number), "application/vnd.sluice.frames"
                path = "/api/v1/telemetry/batches"
            return client.post(path, body, content_type=kind, **head).status_code

        send(0)
        with CaptureQueriesContext(connection) as statements:
            status = send(1)
        assert status == 200, status
        return len(statements)


def _started(cluster: Any, name: str) -> Any:
    from apps.queries.arrivals.services import arrivals_create_from_counts
    from apps.queries.services import query_create, query_start

    if not cluster.arrivals.filter(source_id="probes").exists():
        arrivals_create_from_counts(cluster=cluster, source_id="probes", counts=[100.0] * cluster.slices)
    operators, before = [], "probes"
    for operator, (kind, expression) in _EXPRESSIONS.items():
        reads = {"from": before, "selectivity": 1.0, "cycles_per_event": 1_000}
        operators.append({"id": operator, "kind": kind, "expression": expression, "inputs": [reads]})
        before = operator
    objective = {"statistic": "worst", "bound_s": 10.0}
    query = query_create(cluster=cluster, name=name, body={"operators": operators}, objective=objective)
    return query_start(version=query.versions.get(number=1), placement=dict.fromkeys(_EXPRESSIONS, "n1"))


def _stream_role(process: psutil.Process, head: psutil.Process) -> str:
    return "driver" if process == head else "jvm" if process.name() == "java" else "spark workers"


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    try:
        yield
    except psutil.Error:
        return


def _is_ready(service: services.Service, log: Path) -> bool:
    """Whether a service is healthy and has said what it says when it is ready."""
    text = log.read_text(errors="replace")
    return service.healthy() and (service.ready_line is None or re.search(service.ready_line, text) is not None)


def _wait(is_there: Any, what: str) -> None:
    until_s = time.monotonic() + _START_S
    while not is_there():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not start within {_START_S:g} s")
        time.sleep(0.1)
