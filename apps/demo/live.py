"""The demo's live cluster: three agents that watch this very host, and queries on what they report."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.measurements.selectors import STREAM_NODE
from apps.queries.models import Query
from apps.queries.services import query_start
from apps.results.models import Comparison
from apps.results.services import alert_rule_create
from apps.telemetry.agent_services import agent_enrol, agent_update, enrolment_create
from apps.telemetry.drafts import live_query_describe
from apps.telemetry.live_services import live_start
from apps.telemetry.models import Agent
from apps.telemetry.sources import source_upsert, table_upsert
from engine.calibration import nominal_cps
from engine.dataflow.templates import TEMPLATES, AssumedStatistics, Template
from engine.dataflow.types import PipelineDocument, PipelineOperatorDocument

__all__ = ["live_build"]


RECORDS_SOURCE = "job-records"
RECORDS_EPS = 600.0  # on average
_BURST = 5.0  # times as many as else, for four seconds of every twenty
#: What the source's collector makes.
RECORDS: dict[str, Any] = {
    "rate_per_s": RECORDS_EPS / 2,  # times 2, the mean of the curve
    "curve": [[0, 1], [13, 1], [14, _BURST], [18, _BURST], [19, 1], [20, 1]],
    "period_s": 20,
    "columns": {
        "tenant": {"skewed": [f"tenant-{number:02d}" for number in range(20)]},
        "queue": {"choice": ["batch", "interactive", "nightly", "reports"]},
        "outcome": {"choice": ["done"] * 18 + ["failed", "killed"]},
        "run_ms": {"lognormal": [400, 1.2]},
        "wait_ms": {"lognormal": [60, 1.5]},
        "cpu_percent": {"uniform": [0, 100]},
    },
}
_COLUMNS = {
    "ts": "timestamp",
    "tenant": "string",
    "queue": "string",
    "outcome": "string",
    "run_ms": "float64",
    "wait_ms": "float64",
    "cpu_percent": "float64",
}
_ALL = "cpu_percent >= 0"
#: Of each query: length of its windows, which records it takes, by what it groups them, what it computes.
_QUERIES: dict[str, tuple[float, str, str, dict[str, str]]] = {
    "job-failures": (2, "outcome != 'done'", "queue", {"jobs": "count(*)"}),
    "job-waits": (2, _ALL, "queue", {"jobs": "count(*)", "wait_avg_ms": "avg(wait_ms)", "wait_max_ms": "max(wait_ms)"}),
    "job-times": (5, "outcome = 'done'", "queue", {"jobs": "count(*)", "run_median_ms": "quantile(run_ms, 0.5)"}),
    "tenant-cpu": (5, _ALL, "tenant", {"jobs": "count(*)", "cpu_avg_percent": "avg(cpu_percent)"}),
    "slow-jobs": (10, "run_ms > 2000", "tenant", {"jobs": "count(*)", "run_max_ms": "max(run_ms)"}),
    "tenant-jobs": (15, _ALL, "tenant", {"jobs": "count(*)", "run_avg_ms": "avg(run_ms)"}),
}


def _document(window_s: float, where: str, group: str, compute: dict[str, str]) -> PipelineDocument:
    operators: list[PipelineOperatorDocument] = [
        {"id": "window", "expression": {"op": "window", "size_s": window_s}},
        {"id": "wanted", "expression": {"op": "filter", "where": where}},
        {"id": "groups", "expression": {"op": "aggregate", "by": [group], "compute": compute}},
    ]
    return {"source": {"id": "", "time": "ts", "columns": _COLUMNS}, "operators": operators}


def _template(name: str, window_s: float, where: str, group: str, compute: dict[str, str]) -> Template:
    return Template(
        name=name,
        title="Jobs of a scheduler",
        summary=f"Jobs by {group} in windows of {window_s:g} s.",
        collector="generator",
        parameters=(),
        build=partial(_document, window_s, where, group, compute),
        assumed=(
            AssumedStatistics(1.0, 150, 96),
            AssumedStatistics(1.0 if where == _ALL else 0.5, 200, 96),
            AssumedStatistics(0.05, 900, 60),
        ),
    )


JOB_TEMPLATES = {name: _template(name, *query) for name, query in _QUERIES.items()}


CLUSTER: dict[str, Any] = {
    "slug": "this-host",
    "name": "This host",
    "environment": "live",
    "subinterval_s": 4.0,
    "horizon_s": 1200.0,
}
RACKS = {"agent-1": "rack-a", "agent-2": "rack-a", "agent-3": "rack-b"}
AGENTS = tuple(RACKS)
STREAM_CORES = 2
BUDGET_CORES = 0.2
SHARED, SHARED_CORES = "agent-3", 0.15  # runs most queries, on least: they wait for each other now and then
FIRST_PORT = 9411
PROBE_EVERY_S = 0.05
JOBS_EPS = 8000.0  # enough that a small budget does not do for all of them
JOBS_SOURCE = "job-log"
JOBS_BURSTS = {"curve": [[0, 0.5], [7.5, 0.5], [8, 3], [9.5, 3], [10, 0.5]], "period_s": 10}  # of that agent's
BOUND_S = 15.0
OTHERWISE_CPS = 2.4e9  # where the machine does not tell its clock rate


@dataclass(frozen=True)
class Watch:
    """A live query of the demo. Its agents find their load factors by themselves."""

    name: str
    template: str
    source: str
    rate_eps: float
    agents: Sequence[str] = AGENTS


WATCHES = (
    Watch("probe-latency", "s2s-probe", "probes", rate_eps=120.0),
    Watch("rack-latency", "t2t-probe", "probes", rate_eps=120.0),
    Watch("host-load", "host-metrics", "host", rate_eps=3.0),
    Watch("console-requests", "access-log", "console-log", rate_eps=8.0, agents=AGENTS[:1]),
    Watch("job-histograms", "log-analytics", JOBS_SOURCE, rate_eps=len(AGENTS) * JOBS_EPS),
    *(Watch(name, name, RECORDS_SOURCE, rate_eps=RECORDS_EPS, agents=(SHARED,)) for name in JOB_TEMPLATES),
)
#: Made-up lines of a scheduler; one in fourteen is of another kind, which the query's filter drops.
JOB_LINES: dict[str, Any] = {
    "rate_per_s": JOBS_EPS,
    "columns": {
        "line": {
            "template": {
                "text": "INFO scheduler.JobTracker job_{job} finished: {subject}=Tenant-{tenant}, "
                "job running time={ms}, cpu util={cpu}, memory util={memory}, attempts=1",
                "parts": {
                    "job": {"sequence": 100_000_000},
                    "subject": {"choice": ["tenant name"] * 13 + ["container of"]},
                    "tenant": {"skewed": [f"{number:02d}" for number in range(40)]},
                    "ms": {"lognormal": [400, 1.2]},
                    "cpu": {"uniform": [0, 100]},
                    "memory": {"uniform": [0, 100]},
                },
            }
        }
    },
}


def live_build(user: User, say: Callable[[str], None]) -> None:
    """Register the live cluster with its agents and queries, where it is missing, and write the agents' files."""
    if Cluster.objects.filter(slug=CLUSTER["slug"]).exists():
        return
    say("Registering cluster this-host: three agents that watch this machine, and queries on what they see")
    with transaction.atomic():
        cluster = _cluster(user)
        agents = _agents(cluster, user)
        _tables(cluster)
        _jobs(cluster)
        _queries(cluster, agents, user)


def _cluster(user: User) -> Cluster:
    cluster = cluster_create(**CLUSTER, time_zone=user.time_zone)
    cps = nominal_cps() or OTHERWISE_CPS
    for pool, cores, capacity_cps, nodes in (
        ("agents", 1, cps * BUDGET_CORES, AGENTS),
        ("stream", STREAM_CORES, cps, (STREAM_NODE,)),
    ):
        created = pool_create(cluster=cluster, name=pool, capacity_cps=capacity_cps, cores=cores)
        for node in nodes:
            node_create(pool=created, name=node)
    return cluster


def _tables(cluster: Cluster) -> None:
    rows = [[name, rack] for name, rack in RACKS.items()]
    table_upsert(cluster=cluster, name="tor_of", columns={"ip": "string", "tor": "string"}, rows=rows)


def _jobs(cluster: Cluster) -> None:
    """A source with more records than a small budget has time for; no host has such a log, so it is generated."""
    columns = {"ts": "timestamp", "line": "string"}
    source_upsert(
        cluster=cluster, source_id=JOBS_SOURCE, kind="generator", time="ts", columns=columns, options=JOB_LINES
    )


def _agents(cluster: Cluster, user: User) -> dict[str, Agent]:
    """The enrolled agents, each with its configuration file."""
    _, token = enrolment_create(cluster=cluster, user=user, uses=len(AGENTS), note="The demo's agents")
    host, cps = socket.gethostname(), nominal_cps() or OTHERWISE_CPS
    agents = {}
    for name in AGENTS:
        enrolled = agent_enrol(token=token, name=name, host=host, cores=os.cpu_count() or 1, capacity_cps=cps)
        agents[name] = agent_update(agent=enrolled.agent, budget_cores=SHARED_CORES if name == SHARED else BUDGET_CORES)
        transaction.on_commit(partial(_write, agents[name], enrolled.secret))
    return agents


def _write(agent: Agent, secret: str) -> None:
    """Write the file that `./sluice up` starts the agent with; its state lies beside it."""
    folder = settings.VAR_DIR / "agents" / agent.name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    values = {"name": agent.name, "agent": str(agent.pk), "secret": secret, "url": "http://127.0.0.1:8000"}
    values["read_from"] = [str(settings.ACCESS_LOG.parent)]
    path = folder / "agent.toml"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def _queries(cluster: Cluster, agents: Mapping[str, Agent], user: User) -> None:
    options = {
        "probes": {"interval_s": PROBE_EVERY_S},
        RECORDS_SOURCE: RECORDS,
        "console-log": {"path": str(settings.ACCESS_LOG), "time_pattern": r"time=(\S+)"},
    }
    queries, templates = {}, {**TEMPLATES, **JOB_TEMPLATES}
    for watch in WATCHES:
        queries[watch.name] = live_query_describe(
            cluster=cluster,
            template=templates[watch.template],
            name=watch.name,
            source=watch.source,
            options=options.get(watch.source),
            rate_eps=watch.rate_eps,
            objective={"statistic": "worst", "bound_s": BOUND_S},
            team="Operations",
            user=user,
        )
    _point_at_each_other(agents)
    for watch in WATCHES:
        version = queries[watch.name].versions.get()
        running = query_start(version=version, placement={row.name: STREAM_NODE for row in version.operators.all()})
        live_start(query=running, agents=[agents[name] for name in watch.agents])
    _watch_latency(queries[WATCHES[0].name], user)


def _point_at_each_other(agents: Mapping[str, Agent]) -> None:
    """Each agent answers at a port of its own and probes those of the others."""
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(AGENTS, _free_ports(), strict=True)}
    for number, (name, agent) in enumerate(agents.items()):
        peers = [{"address": addresses[other], "name": other} for other in AGENTS if other != name]
        probes = {"listen": addresses[name], "name": name, "peers": peers}
        jobs = {"seed": number, **(JOBS_BURSTS if name == SHARED else {})}
        own = {"probes": probes, "host": {"host": name}, JOBS_SOURCE: jobs}
        agent_update(agent=agent, source_options=own)


def _free_ports() -> list[int]:
    """Ports that are free now; they are kept, since agents' options name them."""
    ports: list[int] = []
    for port in range(FIRST_PORT, FIRST_PORT + 500):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == len(AGENTS):
            break
    return ports


def _watch_latency(query: Query, user: User) -> None:
    """The paper's first scenario: an alert when the median round trip is above the promised one."""
    alert_rule_create(
        query=query,
        user=user,
        name="Slow probes",
        column="rtt_median_us",
        comparison=Comparison.ABOVE,
        threshold=20_000.0,
        for_windows=2,
    )
