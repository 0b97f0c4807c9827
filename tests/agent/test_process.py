"""The agent as a process: commands, signals, kill -9, a console that is away, its footprint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from agent.collect import make_collector
from agent.config import AgentConfig
from agent.settings import AgentSettings
from agent.wire import FrameKind, decode_frames
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import whole
from engine.dataflow.templates import TEMPLATES
from engine.jarvis.refined_config import seal
from launcher.children import spawn
from launcher.places import ROOT
from tests.agent.fake_console import AGENT, SECRET, TOKEN, FakeConsole
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.servers import PATIENCE_S, wait_until

pytestmark = pytest.mark.process

QUERY = "eu-1/s2s"
ENDLESS = 10**9  # records of a generator that goes on for as long as a test takes
DOCUMENT = TEMPLATES["s2s-probe"]("probes", window_s=1).document
PIPELINE = Pipeline.parse(DOCUMENT)
COLUMNS = {
    "src_ip": {"choice": ["a", "b"]},
    "src_cluster": {"constant": "x"},
    "dst_ip": {"skewed": ["p", "q", "r", "s"]},
    "dst_cluster": {"constant": "y"},
    "rtt_us": {"lognormal": [500, 0.5]},
    "err_code": {"choice": [0, 0, 0, 110]},
}


def config(version: int = 1, *, records: int = 3000, load_factors: tuple[float, ...] = (1, 1, 0.5)) -> dict[str, Any]:
    options = {"rate_per_s": 1000, "records": records, "columns": COLUMNS}
    source = {"kind": "generator", "options": options, "time": "ts", "columns": DOCUMENT["source"]["columns"]}
    query = {"query": QUERY, "version": 1, "plan": PIPELINE.digest, "pipeline": DOCUMENT}
    query |= {"settings": {"method": "fixed", "load_factors": list(load_factors)}}
    head = {"version": version, "agent": AGENT, "cluster": "eu-1", "epoch_s": 0.2, "sub_epochs": 2, "budget_cores": 2}
    return {**head, "sources": {"probes": source}, "queries": [query], "relay": None, "parent": None}


class Host:
    """A console, and the agent of one folder as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.above = ReferenceProcessor([PIPELINE])
        self.console = FakeConsole(self.above.take)
        self.console.config = config()
        self.console.start()
        self.process: subprocess.Popen[bytes] | None = None
        self.output = (folder / "log").open("ab")
        self.file = folder / "agent.toml"
        self.file.write_text(f'url = "{self.console.url}"\ntoken = "{TOKEN}"\nname = "web-1"\n')

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "agent", "run", "--config", str(self.file)]
        self.process = spawn(command, tied=True, env=environment(), output=self.output)

    def signal(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def made(self) -> pa.Table:
        """Every record of the generator, as it began when the agent did."""
        source = make_collector("probes", AgentConfig.parse(self.console.config).sources["probes"])
        status = json.loads((self.folder / "status.json").read_text())
        assert status["collectors"][0]["shed"] == 0
        start_us = self.above.epochs[0]
        source.poll(start_us, 0)
        return pa.Table.from_batches(source.poll(start_us + 50_000_000, 10**9))

    def counted(self) -> int:
        return self.above.total("records_in", entry=0)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "agent", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    made.output.close()
    made.console.stop()


def test_results_survive_repeated_kills_and_an_absent_console(host: Host) -> None:
    """kill -9 in mid-run, the console restarted in mid-run: every record is counted once, the result is exact."""
    host.console.config = config(records=8000)
    for round_ in range(3):
        host.start()
        taken = host.counted()
        wait_until(lambda before=taken: host.counted() >= min(before + 300, 8000), what="records after a start")
        if round_ == 1:
            host.console.stop()
            time.sleep(0.5)
            assert host.signal(signal.SIGKILL) < 0
            host.console.start()
        elif round_ == 0:
            assert host.signal(signal.SIGKILL) < 0
    wait_until(lambda: host.counted() == 8000, what="all records")
    wait_until(lambda: host.console.said[-1]["collectors"][0]["state"] == "ended", what="the end of the generator")
    last_us = max(mark["0"] for mark in host.above.marks.values())
    wait_until(lambda: max(m["0"] for m in host.above.marks.values()) > last_us + 1_500_000, what="closed windows")
    assert host.signal(signal.SIGTERM) == 0
    result = host.above.result(QUERY, PIPELINE)
    wanted = whole(PIPELINE, host.made())
    assert [row | {"rtt_avg_us": pytest.approx(row["rtt_avg_us"])} for row in rows_of(result)] == rows_of(wanted)
    assert host.console.said[-1]["state"] == "stopping", "the goodbye"
    assert "stopped" in host.log()


def test_heartbeat_has_every_field_and_a_new_configuration_is_applied(host: Host) -> None:
    host.console.config = config(records=ENDLESS)
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    host.console.config = config(2, records=ENDLESS, load_factors=(1, 0, 0))
    wait_until(lambda: host.console.said[-1]["config_version"] == 2, what="the new configuration")
    wait_until(lambda: host.above.total("records_in", config_version=2) > 0, what="an epoch under it")
    wait_until(lambda: host.console.said[-1]["queries"][0]["load_factors"] == [1, 0, 0], what="its load factors")
    wait_until(lambda: host.console.said[-1]["queries"][0]["state"] == "steady", what="a steady state")
    says = host.console.said[-1]
    assert {
        "life", "version", "time", "uptime_s", "rss_bytes", "cpu_cores", "budget_cores", "spool", "sent_seq",
        "acked_seq", "config_version", "queries", "collectors", "faults",
    } <= set(says)  # fmt: skip
    assert says["collectors"][0]["kind"] == "generator"
    assert says["spool"]["state"] == "ok"
    before = len(host.console.said)
    wait_until(lambda: len(host.console.said) >= before + 4, what="more heartbeats")
    assert host.console.fetched == 2, "a configuration is fetched when it has changed"


def test_faulty_configuration_is_refused_and_reported(host: Host) -> None:
    host.console.config = config(records=ENDLESS)
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    host.console.config = config(2, records=ENDLESS) | {"epoch_s": -1, "colour": "red"}
    wait_until(lambda: len(host.console.said[-1]["faults"]) == 2, what="the faults")
    says = host.console.said[-1]
    assert says["config_version"] == 1
    assert says["faults"][0].startswith("configuration 2 is not taken: ")
    before = host.counted()
    wait_until(lambda: host.counted() > before, what="records all the same")


def test_refined_configuration_is_acknowledged_and_every_epoch_reported_once(host: Host) -> None:
    host.console.config = config(records=ENDLESS)
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    host.console.config = config(2, records=ENDLESS)
    host.console.config["queries"][0]["refined"] = {"schema": 1, "config": "c-7", "version": 7}
    wait_until(lambda: host.console.said[-1]["queries"][0].get("refused"), what="the refusal")
    assert host.console.said[-1]["queries"][0]["refused"]["version"] == 7
    settings = {"method": "fixed", "load_factors": [0.25]}
    document = {
        "schema": 1, "config": "c-8", "version": 8, "parent": 7, "query": QUERY, "plan": PIPELINE.digest, "agent": "*",
        "settings": settings, "record_bytes": [86], "operators": [], "fitted": None, "plan_prior": None,
        "valid_from_us": time.time_ns() // 1000, "ttl_s": 3600, "fallback": "local",
    }  # fmt: skip
    host.console.config = config(3, records=ENDLESS)
    host.console.config["queries"][0]["refined"] = seal(document)
    wait_until(lambda: host.console.said[-1]["queries"][0].get("refined"), what="the acknowledgement")
    says = host.console.said[-1]["queries"][0]
    assert (says["refined"], says["refused"]) == ({"version": 8, "config": "c-8"}, None)
    assert says["load_factors"] == [0.25, 0.0, 0.0]

    def rows() -> list[dict[str, Any]]:
        return [row for beat in list(host.console.said) for query in beat["queries"] for row in query["epochs"]]

    wait_until(lambda: any(row["v"] == 8 and row["d"] is not None for row in rows()), what="an epoch under it")
    epochs = [row["e"] for row in rows()]
    assert epochs == sorted(set(epochs)), "told once, in order"
    wait_until(lambda: set(epochs) <= set(host.above.epochs), what="frames of the epochs that were told")
    assert {tuple(row["p"]) for row in rows() if row["v"] == 8} == {(0.25, 0.0, 0.0)}


def test_agent_with_a_cached_configuration_starts_without_its_console(host: Host) -> None:
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    host.signal(signal.SIGTERM)
    host.console.stop()
    host.start()
    status = host.folder / "status.json"

    def collecting() -> bool:
        says = json.loads(status.read_text())
        return bool(says["pid"] == host.process.pid and says["spool"]["frames"] > 0)  # type: ignore[union-attr]

    wait_until(collecting, what="frames in the spool")
    said = run("status", "--config", str(host.file))
    assert said.returncode == 0
    assert "away" in said.stdout
    assert "schedule    klink, latency: " in said.stdout
    host.console.start()
    wait_until(lambda: host.counted() == 3000, what="all records")


def test_second_agent_on_the_same_folder_is_refused(host: Host) -> None:
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    second = run("run", "--config", str(host.file))
    assert second.returncode == 1
    assert f"another agent (process {host.process.pid}) runs on it" in second.stderr  # type: ignore[union-attr]


def test_a_secret_that_no_longer_holds_is_visible(host: Host) -> None:
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")
    host.console.secret = "another"

    def refused() -> bool:
        return run("status", "--config", str(host.file)).stdout.count("refused") >= 2

    wait_until(refused, what="the word refused")
    assert "refuses this agent: No agent has this secret." in host.log()
    host.console.secret = SECRET


def test_enrolment_with_a_wrong_token_is_refused(host: Host, tmp_path: Path) -> None:
    host.file.write_text(f'url = "{host.console.url}"\ntoken = "wrong"\nname = "web-1"\n')
    made = run("run", "--config", str(host.file))
    assert made.returncode == 1
    assert made.stderr.splitlines()[-1] == (
        f"sluice agent: {host.console.url} does not enrol 'web-1': The enrolment token is not known."
    )
    host.file.write_text(f'url = "{host.console.url}"\n')
    assert "token is missing" in run("run", "--config", str(host.file)).stderr


def test_the_command_to_enrol_leaves_a_file_to_run(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "db-1"
    options = ("--url", host.console.url, "--name", "db-1", "--state-dir", str(folder))
    options += ("--read-from", str(tmp_path / "logs"), "--read-from", "/var/log")
    assert "not known" in run("enrol", *options, "--token", "wrong").stderr
    made = run("enrol", *options, "--token", TOKEN)
    assert made.stdout.splitlines() == [
        "db-1 has joined the cluster eu-1. Start it with:",
        f"  ./sluice agent run --config {folder}/agent.toml",
    ]
    assert (folder / "identity.json").stat().st_mode & 0o077 == 0
    assert TOKEN not in (folder / "agent.toml").read_text()
    assert AgentSettings.load(folder / "agent.toml").read_from == (tmp_path / "logs", Path("/var/log"))
    host.file = folder / "agent.toml"
    host.start()
    wait_until(lambda: host.counted() > 0, what="records")


def test_check_and_status_commands_name_faults(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('name = "UPPER"\ncolour = 1\n')
    made = run("check", "--config", str(file))
    assert made.returncode == 2
    assert made.stderr.splitlines()[0] == "sluice agent: The configuration file has 2 faults:"
    (tmp_path / "a.json").write_text(json.dumps(config() | {"epoch_s": 0}))
    file.write_text('[local]\nconfig = "a.json"\nframes = "frames"\n')
    assert "epoch_s is 0; allowed:" in run("check", "--config", str(file)).stderr
    assert "has not run yet" in run("status", "--config", str(file)).stdout


def test_without_a_console_frames_go_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(config(records=500)))
    file = tmp_path / "agent.toml"
    file.write_text('state_dir = "state"\n[local]\nconfig = "a.json"\nframes = "frames"\n')
    process = spawn([sys.executable, "-P", "-m", "agent", "run", "--config", str(file)], tied=True, env=environment())
    above = ReferenceProcessor([PIPELINE])

    def arrived() -> bool:
        for path in sorted((tmp_path / "frames").glob("*.slf")):
            above.take(path.read_bytes())
        return above.total("records_in", entry=0) == 500

    try:
        wait_until(arrived, what="500 records")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_agent_process_stays_small(tmp_path: Path) -> None:
    """Under 150 MB, and seconds at rest cost far less than the start did, however fast a core is.

    The time to the first epoch and the share of a core are for `docs/agent.md`.
    """
    document = config()
    columns = TEMPLATES["host-metrics"]("host", window_s=10).document
    pipeline = Pipeline.parse(columns)
    source = {"kind": "host_metrics", "time": "ts", "columns": columns["source"]["columns"]}
    query = {"query": "eu-1/host", "version": 1, "plan": pipeline.digest, "pipeline": columns}
    document |= {"epoch_s": 1, "sub_epochs": 10, "sources": {"host": source}, "queries": [query]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    file = tmp_path / "agent.toml"
    file.write_text('state_dir = "state"\n[local]\nconfig = "a.json"\nframes = "frames"\n')
    process = spawn([sys.executable, "-P", "-m", "agent", "run", "--config", str(file)], tied=True, env=environment())
    try:
        wait_until(lambda: list((tmp_path / "frames").glob("*.slf")), what="a first epoch")
        seen = psutil.Process(process.pid)
        time.sleep(1)
        start_s = sum(seen.cpu_times()[:2])
        time.sleep(3)
        rest_s = sum(seen.cpu_times()[:2]) - start_s
        assert seen.memory_info().rss < 150e6
        assert rest_s < start_s / 3, "an agent at rest is busy"
        kinds = [
            frame.kind for path in (tmp_path / "frames").glob("*.slf") for frame, _ in decode_frames(path.read_bytes())
        ]
        assert FrameKind.COUNTERS in kinds
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
