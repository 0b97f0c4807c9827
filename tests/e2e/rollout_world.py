"""An installation with schedules, three agents that count generated numbers, and a stream processor when asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apps.telemetry.epochs import epochs_of
from engine.rollouts.measures import EpochRow
from tests.e2e.installation import ROOT, Api, Installation
from tests.java import java_variables
from tests.servers import PATIENCE_S, wait_until

__all__ = ["AGENTS", "CLUSTER", "OPERATORS", "QUERY", "WINDOW_S", "RolloutWorld"]

CLUSTER, QUERY = "lab", "numbers"
AGENTS = ("edge-1", "edge-2", "edge-3")
WINDOW_S = 2
RATE_PER_S = 20_000  # so much that the least budget is too little for it
_PAUSE_S = 0.3
OPERATORS = 3  #: window, filter, aggregate: all of them may run at a source

_SEED = """
import json, sys
import django
django.setup()
from django.core.management import call_command
from pathlib import Path
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.services import query_create
from apps.queries.services import query_start
from apps.telemetry.agent_services import agent_enrol, agent_update, enrolment_create
from apps.telemetry.live_services import live_start
from apps.telemetry.sources import source_upsert

asked = json.loads(sys.argv[1])
cluster = cluster_create(slug=asked["cluster"], name="Lab", subinterval_s=5.0, horizon_s=300.0)
pool = pool_create(cluster=cluster, name="all", capacity_cps=2e9, cores=2)
for name in [*asked["agents"], "stream"]:
    node_create(pool=pool, name=name)
_, token = enrolment_create(cluster=cluster, user=None, uses=len(asked["agents"]))
agents = []
for name in asked["agents"]:
    enrolled = agent_enrol(token=token, name=name, host="lab", cores=1, capacity_cps=2e9)
    agents.append(agent_update(agent=enrolled.agent, budget_cores=1.0))
    folder = Path(asked["var"]) / "agents" / name
    folder.mkdir(parents=True)
    values = {"name": name, "agent": str(enrolled.agent.pk), "secret": enrolled.secret, "url": asked["url"]}
    (folder / "agent.toml").write_text("".join(f"{key} = {json.dumps(value)}\\n" for key, value in values.items()))
source_upsert(cluster=cluster, source_id="numbers", **asked["source"])
counts = [10.0] * cluster.slices
arrivals_create_from_counts(cluster=cluster, source_id="numbers", counts=counts, description="assumed")
body = {"operators": asked["operators"]}
query = query_create(cluster=cluster, name=asked["query"], body=body, objective=None, user=None)
version = query.versions.get()
query_start(version=version, placement={row.name: "stream" for row in version.operators.all()})
query.refresh_from_db()
live_start(query=query, agents=agents)
call_command("stream_token")
"""

_KNOWS = """
import django
django.setup()
from apps.rollouts.models import LearnedWatermarks
rows = LearnedWatermarks.objects.exclude(agent=None)
print(any(one["mean_s"] is not None for row in rows for one in row.document["watermarks"]))
"""


def _operators() -> list[dict[str, Any]]:
    compute = {"n": "count(*)", "most": "max(value)"}
    expressions = (
        ("window", "window", {"op": "window", "size_s": WINDOW_S}),
        ("most", "filter", {"op": "filter", "where": "value % 10 <> 3"}),
        ("by-key", "aggregate", {"op": "aggregate", "by": ["value"], "compute": compute}),
    )
    listed, before = [], "numbers"
    for name, kind, expression in expressions:
        inputs = [{"from": before, "selectivity": 1.0, "cycles_per_event": 1000.0}]
        listed.append({"id": name, "kind": kind, "bytes_per_event": 40, "inputs": inputs, "expression": expression})
        before = name
    return listed


class RolloutWorld:
    """Everything that `up` starts, one process at a time, so that a test may take one away and bring it back."""

    def __init__(self, folder: Path) -> None:
        self.installation = Installation(folder)
        own = {"PYTHONPATH": str(ROOT), "SLUICE_URL": self.installation.url, "SLUICE_STREAM_TRIGGER_S": "1"}
        own |= {"SLUICE_STREAM_REFINE_S": "5"}
        self.installation.env |= own

    def start(self) -> None:
        """Up to every agent's first configuration."""
        self.installation.start()
        self.api = Api(self.installation.url, self.installation.token)
        self._seed()
        self.installation.run("beat", ["celery", "-A", "console", "beat", "-l", "INFO", "--pidfile="])
        for name in AGENTS:
            config = self.installation.var_dir / "agents" / name / "agent.toml"
            self.installation.run(name, ["agent", "run", "--config", str(config)])
        self.wait(lambda: all(self.agent(name)["heartbeat"] for name in AGENTS), "heartbeats of all agents")

    def stop(self) -> None:
        self.installation.stop()

    def _seed(self) -> None:
        drawn = {"key": {"choice": ["a", "b", "c", "d"]}, "value": {"sequence": 1000}}
        asked = {
            "cluster": CLUSTER,
            "query": QUERY,
            "agents": AGENTS,
            "var": str(self.installation.var_dir),
            "url": self.installation.url,
            "operators": _operators(),
            "source": {
                "kind": "generator",
                "time": "ts",
                "columns": {"ts": "timestamp", "key": "string", "value": "int64"},
                "options": {"rate_per_s": RATE_PER_S, "columns": drawn},
            },
        }
        self.installation.env["SLUICE_STREAM_TOKEN"] = self.installation.script(_SEED, json.dumps(asked)).split()[-1]

    def start_stream_processor(self) -> None:
        """Start the stream processor, up to where Spark starts: it knows the plan, and needs the console no more."""
        java = java_variables()
        assert java, "no Java 17 or later: run ./sluice doctor"
        self.installation.env |= java
        self.installation.run("stream", ["spark_jobs"])
        self.wait(lambda: self.stream_processor() in ("warming", "ready"), "the start of Spark")

    def stream_processor(self) -> str:
        """State of the stream processor, as the console heard it."""
        return str(self.api.get("stream-processor")["state"])

    def agent(self, name: str) -> dict[str, Any]:
        """As REST shows it."""
        found: dict[str, Any] = self.api.get(f"agents?cluster={CLUSTER}&name={name}")["results"][0]
        return found

    def part(self, name: str) -> dict[str, Any]:
        """Last report of an agent about the query."""
        queries = self.agent(name)["heartbeat"].get("queries") or [{}]
        found: dict[str, Any] = queries[0]
        return found

    def policy(self, name: str) -> str:
        """By which an agent last said that its queries share its core."""
        return str(self.agent(name)["heartbeat"]["schedule"]["policy"])

    def knows_watermarks(self) -> bool:
        """Whether the console has heard from Spark how late watermarks are at some agent."""
        return self.installation.script(_KNOWS).split()[-1] == "True"

    def epochs(self, name: str) -> list[EpochRow]:
        """Last epochs of an agent that the console keeps, oldest first. Django's settings name this Redis."""
        found = epochs_of([self.agent(name)["id"]])
        return next(iter(found.values()), {}).get(f"{CLUSTER}/{QUERY}", [])

    def rollout(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"clusters/{CLUSTER}/rollouts/{number}")
        return found

    def configure(self, settings: dict[str, Any], *canaries: str, words: str) -> int:
        """Make a configuration, and start its rollout whatever its check says; its number."""
        made = self.api.post(f"clusters/{CLUSTER}/configs", {"settings": settings, "words": words})
        begun = {"force": True, "canaries": list(canaries)}
        rollout = self.api.post(f"clusters/{CLUSTER}/configs/{made['number']}/start", begun)
        return int(rollout["number"])

    def pass_epochs(self, count: int) -> None:
        """Until agents have gone through so many more epochs, by the status files that they write themselves."""
        files = [self.installation.var_dir / "agents" / name / "status.json" for name in AGENTS]
        until_s = {file: json.loads(file.read_text())["uptime_s"] + count for file in files}
        wait_until(
            lambda: all(json.loads(file.read_text())["uptime_s"] >= until_s[file] for file in files), what="epochs"
        )

    def wait(self, true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Ask often, and yet leave the console time for its work."""

        def asked() -> object:
            time.sleep(_PAUSE_S)
            return true()

        wait_until(asked, timeout_s, what)
