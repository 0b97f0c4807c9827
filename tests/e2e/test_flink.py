"""A job on a real Flink: connected, imported with what it measured, overloaded, scored, and changed by an export."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from lab.benchmarks.flink.client import SCHEDULED_JOB, FlinkClient, compiled_jar, scheduled_job_jar
from lab.benchmarks.flink.patterns import JobStage
from lab.benchmarks.flink_jobs.jobs import JOBS, SOURCE
from lab.benchmarks.nexmark.events import EventFeed
from lab.benchmarks.nexmark.queries import QUERIES
from lab.benchmarks.nexmark.scripts import FUNCTIONS, query_script
from launcher.engines.flink import FlinkCluster, FlinkOptions
from launcher.engines.sql import SqlFailed, submit_sql
from launcher.output import Terminal
from launcher.places import free_port
from launcher.runner import ProcessRunner
from tests.e2e.installation import Api, Installation
from tests.servers import wait_until

pytestmark = [pytest.mark.night, pytest.mark.slow, pytest.mark.flink]

SLUG, JOB = "flink", "orders"
STAGES = (JobStage("parse", "filter", 1000, option=80), JobStage("enrich", "keyed", 8000))
CALM, BURST = 60, 240  # events/s, of which 125 after the filter are what the second operator can do
CALM_S, BURST_S = 44, 12  # again and again, shorter than a scored stretch: whenever that begins, a burst is in it
ROUND_S = 3.0  # between refreshes, in the place of a schedule


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """URL of a JobManager and port of its SQL gateway; it starts while others do."""
    folder = tmp_path_factory.mktemp("flink")
    runner = ProcessRunner(Terminal(io.StringIO()), folder / "log")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # nothing here is worth more compiling
            options = FlinkOptions(free_port(), slots=2, settings={"jobmanager.scheduler": "adaptive"})
            cluster = FlinkCluster(folder, options)
            cluster.start(runner)
        yield cluster.url, cluster.ports["gateway"]
    finally:
        gc.collect()  # objects of Java that are let go of later would ask a gateway that has gone
        runner.stop()


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Installation]]:
    """A console that may ask engines on this machine; it starts beside the Flink."""
    installation = Installation(tmp_path_factory.mktemp("flink-console"))
    installation.env["SLUICE_CONNECT_HOSTS"] = "127.0.0.1"
    with ThreadPoolExecutor(1) as beside:
        start = beside.submit(_started, installation)
        try:
            yield start
        finally:
            wait([start])
            installation.stop()


def _started(installation: Installation) -> Installation:
    installation.start()
    return installation


def _submit(flink: FlinkClient, gateway: int, out: Path) -> str:
    """Start the job; its schedule begins some seconds later. Its id."""
    jar = flink.upload(scheduled_job_jar(gateway))
    rates = ([CALM] * CALM_S + [BURST] * BURST_S) * 15
    arguments = {
        "name": JOB,
        "out": str(out),
        "start": str(int((time.time() + 8.0) * 1000)),
        "arrivals": ",".join(map(str, rates)),
        "stages": ";".join(stage.argument("park") for stage in STAGES),
        "pad": "0",
        "keys": "16",
        "delay": "0",
        "seed": "1",
    }
    return flink.run(jar, [f"{name}={value}" for name, value in arguments.items()], {})


def test_real_job_is_imported_and_its_overload_is_scored(
    starting: Future[Installation], flink: tuple[str, int], tmp_path: Path
) -> None:
    url, gateway = flink
    with closing(FlinkClient(url)) as client:
        _follow(client, url, gateway, starting, tmp_path)


def _follow(client: FlinkClient, url: str, gateway: int, starting: Future[Installation], tmp_path: Path) -> None:
    job = _submit(client, gateway, tmp_path / "results.csv")
    console = starting.result()
    api = Api(console.url, console.token)
    wait_until(lambda: client.is_running(job), what="the job")

    api.post("clusters", {"slug": SLUG, "name": "Flink", "subinterval_s": 1, "horizon_s": 600})
    connection = api.post(
        "connections",
        {"cluster": SLUG, "name": "flink", "engine": "flink", "url": url, "latency_metric": "resultLatencyWorst"},
    )
    address = f"connections/{connection['id']}"
    objectives = {JOB: {"statistic": "worst", "bound_s": 20.0}}
    api.post(f"{address}/import", {"objectives": objectives}, wait_s=60)

    (query,) = api.get(f"queries?cluster={SLUG}")["results"]
    assert (query["name"], query["state"]) == (JOB, "running")
    (imported,) = api.get(f"imported-jobs?cluster={SLUG}")["results"]
    assert (imported["engine_id"], imported["state"]) == (job, "running")
    document = api.get(f"queries/{query['id']}/versions")["results"][0]
    operators = {operator["id"]: operator for operator in document["operators"]}
    enrich = operators["enrich"]
    assert enrich["evidence"]["kind"] == "measured"
    assert enrich["inputs"][0]["cycles_per_event"] == pytest.approx(8e6, rel=0.25)
    assert operators["parse"]["inputs"][0]["selectivity"] == pytest.approx(0.8, abs=0.06)

    def scores() -> list[dict[str, object]]:
        time.sleep(ROUND_S)
        api.post(f"{address}/refresh", wait_s=30)
        return [row for row in api.get(f"accuracy?cluster={SLUG}")["results"] if row["origin"] == "flink"]

    wait_until(scores, what="a score of its measured latency")
    score = scores()[0]
    assert (score["query"], score["statistic"], score["origin"]) == (JOB, "worst", "flink")
    assert float(str(score["observed_s"])) > 3.0  # 6 s are behind when a burst ends
    assert float(str(score["expected_s"])) > 0.0
    _apply_export(client, api, job)
    client.cancel(job)


def _apply_export(client: FlinkClient, api: Api, job: str) -> None:
    """Flink takes the call of a proposal's export, as its operator would send it."""
    run = api.post("placements", {"cluster": SLUG, "budget_s": 0.2}, wait_s=30)
    export = api.get(f"placements/{run['id']}/export?format=json")
    assert {note["code"]: note["level"] for note in export["notes"]}["adaptive_scheduler"] == "info"
    (call,) = export["apply"]["calls"]
    answer = httpx.request(call["method"], client.url + call["path"], json=call["body"])
    assert answer.status_code == 200, answer.text
    assert client.get(f"/jobs/{job}/resource-requirements") == call["body"]


def test_every_query_of_nexmark_is_planned_and_q6_is_refused(flink: tuple[str, int], tmp_path: Path) -> None:
    url, gateway = flink
    jar = tmp_path / "functions.jar"
    jar.write_bytes(compiled_jar(FUNCTIONS, gateway))
    port = httpx.URL(url).port or 80
    refused = {}
    for query in QUERIES.values():
        feed = EventFeed(100, "park", query.feed_us, query.column)
        script = query_script(query, feed, jar=jar, latencies=tmp_path, only_plan=True)
        try:
            assert list(submit_sql(script, rest_port=port, gateway_port=gateway)) == []
        except SqlFailed as failure:
            refused[query.name] = str(failure)
    assert list(refused) == ["q6"], refused
    assert "not supported for bounded OVER window" in refused["q6"]


def test_jobs_of_every_kind_are_planned_with_their_exchanges(flink: tuple[str, int], tmp_path: Path) -> None:
    url, gateway = flink
    exchanges = {}
    with closing(FlinkClient(url)) as client:
        jar = client.upload(compiled_jar(SOURCE, gateway, main="FlinkJobs", uses=[SCHEDULED_JOB]))
        for job in JOBS.values():
            arguments = job.arguments(1, 2, work="park", out=tmp_path / "out", start_s=0.0, seconds=1)
            answer = httpx.post(f"{url}/jars/{jar}/plan", json={"programArgsList": arguments}, timeout=30.0)
            assert answer.status_code == 200, answer.text
            nodes = answer.json()["plan"]["nodes"]
            exchanges[job.kind] = sorted(read["ship_strategy"] for node in nodes for read in node.get("inputs", ()))
    assert exchanges["broadcast"] == ["BROADCAST", "HASH", "REBALANCE"]
    assert exchanges["union"] == ["HASH", "HASH", "HASH", "REBALANCE"]
    assert exchanges["connected"] == ["HASH", "HASH", "REBALANCE"]
    assert exchanges["pattern"] == exchanges["timers"] == ["HASH", "REBALANCE"]


def test_job_that_began_before_a_refused_statement_is_told(flink: tuple[str, int]) -> None:
    url, gateway = flink
    script = (
        "CREATE TEMPORARY TABLE numbers (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');\n"
        "CREATE TABLE sink WITH ('connector' = 'blackhole') AS SELECT n FROM numbers;\nSELECT nothing FROM numbers;\n"
    )
    jobs = submit_sql(script, rest_port=httpx.URL(url).port or 80, gateway_port=gateway)
    with closing(FlinkClient(url)) as client:
        job = next(jobs)
        wait_until(lambda: client.is_running(job), what="the job")
        with pytest.raises(SqlFailed, match="SELECT nothing"):
            next(jobs)
        assert client.is_running(job)
        client.cancel(job)
