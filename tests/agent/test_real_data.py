"""Real traces through the whole agent, equal to the query run whole. Runs where the traces are present."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agent.config import AgentConfig
from agent.runtime import Spool
from agent.service import SourceAgent
from agent.settings import ReadableFolders
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import whole
from engine.dataflow.templates import TEMPLATES
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.servers import wait_until

DATA = Path(os.environ.get("SLUICE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
QUERY = "eu/real"
HOSTS, SWITCHES = 40, 8
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not here")


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Round trips between 40 hosts of PlanetLab as probe records; what was not measured is a probe that failed."""
    rtt_ms = np.load(DATA / "netlatency" / "planetlab_rtt_6x490x490.npz")["rtt"][:, :HOSTS, :HOSTS]
    slots, source, target = (axis.ravel() for axis in np.indices(rtt_ms.shape))
    values = rtt_ms.ravel()
    lost = ~np.isfinite(values) | (values <= 0)
    table = pa.table(
        {
            "time": pa.array(1_600_000_000_000_000 + np.arange(len(values)) * 3000).cast(pa.timestamp("us", "UTC")),
            "src_ip": [f"10.0.0.{i}" for i in source],
            "src_cluster": pa.repeat("planetlab", len(values)),
            "dst_ip": [f"10.0.0.{i}" for i in target],
            "dst_cluster": pa.repeat("planetlab", len(values)),
            "rtt_us": pa.array(np.where(lost, 0, values * 1000).astype(np.int64), mask=lost),
            "err_code": np.where(lost, 110, 0),
        }
    )
    assert slots.max() == 5
    path = tmp_path_factory.mktemp("probes") / "probes.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write(table)
    return path


def through_the_agent(
    folder: Path, document: dict[str, Any], source: dict[str, Any], factors: list[float], records: int
) -> tuple[Pipeline, pa.Table]:
    """The query's result from what an agent drained and aggregated."""
    pipeline = Pipeline.parse(document)
    query = {"query": QUERY, "version": 1, "plan": pipeline.digest, "pipeline": document}
    query |= {"settings": {"method": "fixed", "load_factors": factors}}
    head = {"version": 1, "agent": "a", "cluster": "eu", "epoch_s": 0.1, "sub_epochs": 2, "budget_cores": 4.0}
    given = source | {"time": "ts", "columns": document["source"]["columns"]}
    config = AgentConfig.parse({**head, "sources": {document["source"]["id"]: given}, "queries": [query]})
    spool = Spool(folder / "spool", 2**28, sync=False)
    work = SourceAgent(config, spool, ReadableFolders([Path(source["options"]["path"]).parent]))
    above, stopping = ReferenceProcessor([pipeline]), threading.Event()
    thread = threading.Thread(target=work.run, args=(stopping,))
    thread.start()

    def over() -> bool:
        for seq, data in spool.unsent():
            above.take(data)
            spool.acknowledged(seq)
        return above.total("records_in", entry=0) == records

    try:
        wait_until(over, what=f"{records} records")
    finally:
        work.apply(AgentConfig.parse({**head, "sources": {}, "queries": []}))  # what is open is sent with a final mark
        wait_until(lambda: not work.report()["queries"], what="the end of the query")
        wait_until(lambda: over() and above.finals, what="the final mark")
        stopping.set()
        thread.join()
        spool.close()
    return pipeline, above.result(QUERY, pipeline)


def assert_same(given: pa.Table, wanted: pa.Table) -> None:
    assert given.num_rows == wanted.num_rows > 0
    exact = [field.name for field in wanted.schema if not pa.types.is_floating(field.type)]
    keys = [(name, "ascending") for name in exact]
    given, wanted = given.sort_by(keys), wanted.sort_by(keys)
    for name in wanted.column_names:
        if name not in exact:
            np.testing.assert_allclose(given[name].to_numpy(), wanted[name].to_numpy(), rtol=1e-9)
        else:
            assert given[name].to_pylist() == wanted[name].to_pylist(), name


def replayed(pipeline: Pipeline, path: Path) -> pa.Table:
    table = pa.ipc.open_file(path).read_all()
    return table.rename_columns(["ts", *table.column_names[1:]]).select(pipeline.source.schema.names)


@pytest.mark.parametrize(("name", "factors"), [("s2s-probe", [1, 0.9, 0.5]), ("t2t-probe", [1, 1, 0.8, 0.9, 1, 0.7])])
def test_probes_of_planetlab(tmp_path: Path, probes: Path, name: str, factors: list[float]) -> None:
    document = TEMPLATES[name]("probes", window_s=5).document
    if "tables" in document:
        rows = [[f"10.0.0.{i}", f"tor-{i % SWITCHES}"] for i in range(HOSTS)]
        document["tables"]["tor_of"]["rows"] = rows
    options = {"path": str(probes), "time_column": "time", "rebase": False, "speed": 40}
    source = {"kind": "replay", "options": options}
    pipeline, result = through_the_agent(tmp_path, document, source, factors, 6 * HOSTS * HOSTS)
    table = replayed(pipeline, probes)
    assert_same(result, whole(pipeline, table))
    if name == "t2t-probe":
        assert pc.count_distinct(result["src_tor"]).as_py() == SWITCHES


def test_requests_of_a_web_server(tmp_path: Path) -> None:
    """10,000 lines of an Apache log, followed as a log file that is rotated in the middle."""
    lines = gzip.decompress((DATA / "weblogs" / "semicomplete_apache_10k.log.gz").read_bytes()).splitlines(
        keepends=True
    )
    log = tmp_path / "access.log"
    (tmp_path / "access.log.1").write_bytes(b"".join(lines[:6000]))
    log.write_bytes(b"".join(lines[6000:]))
    document = TEMPLATES["common-log"]("logs", window_s=3600, group_depth=1).document
    options = {"path": str(log) + "*", "begin": "start"}
    options |= {"time_pattern": r"\[([^\]]+)\]", "time_format": "%d/%b/%Y:%H:%M:%S %z"}
    source = {"kind": "log_file", "options": options, "lateness_s": 3600}
    factors = [1, 0.8, 1, 0.5, 0.9]
    pipeline, result = through_the_agent(tmp_path, document, source, factors, len(lines))
    times = [pc.strptime(line.split(b"[")[1][:20].decode(), "%d/%b/%Y:%H:%M:%S", "us").as_py() for line in lines]
    texts = [line.rstrip(b"\n").decode(errors="replace") for line in lines]
    table = pa.table({"line": texts, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))}, pipeline.source.schema)
    assert_same(result, whole(pipeline, table))
    assert pc.sum(result["requests"]).as_py() > 9_900


def test_requests_to_nasa(tmp_path: Path) -> None:
    """The packed file as it is, 200 times as fast, with the times of its records."""
    path = DATA / "weblogs" / "nasa_19950801.tsv.gz"
    columns = {"ts": "timestamp", "url": "string", "response": "int64"}
    stages = {
        "window": {"op": "window", "size_s": 600},
        "good": {"op": "filter", "where": "response = 200"},
        "count": {"op": "aggregate", "by": ["url"], "compute": {"n": "count(*)"}},
    }
    operators = [{"id": name, "expression": expression} for name, expression in stages.items()]
    document = {"source": {"id": "web", "time": "ts", "columns": columns}, "operators": operators}
    options = {"path": str(path), "time_column": "time", "rebase": False, "speed": 20_000}
    rows = [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode(errors="replace").splitlines()[1:]]
    source = {"kind": "replay", "options": options, "lateness_s": 60}
    pipeline, result = through_the_agent(tmp_path, document, source, [1, 0.9, 0.6], len(rows))
    table = pa.table(
        {
            "response": [int(row[5]) if row[5] else None for row in rows],
            "ts": pa.array([int(row[2]) * 1_000_000 for row in rows]).cast(pa.timestamp("us", "UTC")),
            "url": [row[4] for row in rows],
        },
        pipeline.source.schema,
    )
    assert rows_of(result) == rows_of(whole(pipeline, table))
