"""An agent's own talk with a real console: what changed is told at once, whatever goes away in between."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import AgentConfig
from agent.uplink.console import Client, Identity
from agent.uplink.control import Control
from tests.e2e.installation import SMALL_QUESTION, Api, Installation
from tests.servers import wait_until

HEARTBEAT_S = 1e6  # nothing is learned from the answers to heartbeats
_SEED = """
import json
import django
django.setup()
from apps.fleet.services import cluster_create
from apps.telemetry.agent_services import agent_enrol, enrolment_create
cluster = cluster_create(slug="lab", name="Lab", subinterval_s=5.0, horizon_s=300.0)
_, token = enrolment_create(cluster=cluster, user=None)
joined = agent_enrol(token=token, name="edge", host="lab", cores=1, capacity_cps=2e9)
print(json.dumps([str(joined.agent.pk), joined.secret]))
"""


class Agent:
    """An agent that does nothing but to be told."""

    def __init__(self, url: str, identity: Identity, folder: Path) -> None:
        self.adopted: list[AgentConfig] = []
        self.beats = 0
        self.control = Control(
            Client(url, secret=identity.secret),
            identity,
            folder,
            report=self._report,
            progress=lambda document, says, since: None,
            post_marker=lambda: None,
            adopt=self.adopted.append,
        )

    def _report(self) -> dict[str, Any]:
        self.beats += 1
        return {"life": "l1", "time": time.time()}

    @property
    def budgets(self) -> list[float]:
        return [config.budget_cores for config in self.adopted]

    def is_connected(self) -> bool:
        return self.control.push_state == "connected"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path / "console", SLUICE_LOG_FORMAT="json")
    made.start()
    yield made
    made.stop()


def lines_of(console: Installation, process: str, request_id: str) -> list[dict[str, Any]]:
    """Lines of a process's log that name a request."""
    lines = [json.loads(line) for line in console.log(process).splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("request_id") == request_id]


def test_agent_fetches_changes_whatever_goes_away_in_between(
    console: Installation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent_id, secret = json.loads(console.script(_SEED).splitlines()[-1])
    api, path = Api(console.url, console.token), f"agents/{agent_id}"
    agent = Agent(console.url, Identity(agent_id, secret, "lab", HEARTBEAT_S), tmp_path)
    agent.control.start()
    try:
        wait_until(lambda: agent.is_connected() and agent.budgets == [0.2], what="the first configuration")

        api.patch(path, {"budget_cores": 0.3})
        wait_until(lambda: agent.budgets[-1] == 0.3, what="a change that was told")

        with caplog.at_level(logging.INFO, "agent.uplink.control"):
            api.patch(path, {"budget_cores": 0.25}, request_id="from-ada")
            wait_until(lambda: agent.budgets[-1] == 0.25, what="a change of a request that is followed")
        assert [record.facts for record in caplog.records if hasattr(record, "facts")] == [{"request_id": "from-ada"}]
        served = {(line["method"], line["status"]) for line in lines_of(console, "web", "from-ada") if "method" in line}
        assert served == {("PATCH", 200), ("GET", 200)}
        api.post("estimates", SMALL_QUESTION, wait_s=30, request_id="from-bob")
        (done,) = lines_of(console, "worker", "from-bob")
        assert "workers.estimate_document" in done["message"] and "succeeded" in done["message"]

        console.end("web")
        wait_until(lambda: not agent.is_connected(), what="noticing that the console went")
        console.serve_again()
        wait_until(agent.is_connected, what="coming back")
        api.patch(path, {"budget_cores": 0.4})
        wait_until(lambda: agent.budgets[-1] == 0.4, what="a change that was told by the new process")

        console.redis.stop()
        api.patch(path, {"budget_cores": 0.5})  # is made all the same
        agent.control.wake()
        wait_until(lambda: agent.budgets[-1] == 0.5, what="a change that a heartbeat told of")
        console.redis.start()
        wait_until(lambda: _told(api, path, agent), what="a change that was told after Redis came back")

        api.patch(path, {"enabled": False})
        wait_until(lambda: agent.control.push_state == "refused", what="being sent away")
    finally:
        agent.control.stop()
    assert agent.control.state in {"connected", "refused"}, "refused, where a heartbeat came in between"
    assert not agent.control._push._thread.is_alive()


def _told(api: Api, path: str, agent: Agent) -> bool:
    """Changes made while Redis was away are not announced; later ones are."""
    wanted = round(agent.budgets[-1] + 0.01, 2)
    api.patch(path, {"budget_cores": wanted})
    until = time.monotonic() + 2.0
    while agent.budgets[-1] != wanted and time.monotonic() < until:
        time.sleep(0.01)
    if told := agent.budgets[-1] == wanted:
        return told
    agent.control.wake()
    wait_until(lambda: agent.budgets[-1] == wanted, what="a heartbeat's answer")
    return False
