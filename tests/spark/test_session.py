"""Settings of the session, and the error where Spark cannot start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.places import ROOT
from spark_jobs.session import NoJava, require_java, settings
from tests.servers import PATIENCE_S


def test_session_computes_in_utc_without_ansi_and_serves_no_page(spark: Any) -> None:
    assert spark.sparkContext.uiWebUrl is None
    row = spark.sql(
        "select current_timezone() as zone, 1 / 0 as quotient, cast('a' as int) as number, "
        "cast(timestamp_micros(0) as string) as epoch"
    ).first()
    assert row.asDict() == {"zone": "UTC", "quotient": None, "number": None, "epoch": "1970-01-01 00:00:00"}


def test_workers_find_the_packages_of_the_product(spark: Any) -> None:
    def imports(batches: Any) -> Any:
        import pyarrow as pa

        from agent.wire import MAGIC

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [MAGIC.decode()] * batch.num_rows})

    assert [row.id for row in spark.range(2).mapInArrow(imports, "id string").collect()] == ["SLF1", "SLF1"]


def test_workers_import_what_the_installation_has_compiled(spark: Any) -> None:
    def path(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"path": [os.pathsep.join(sys.path)] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(path, "path string").collect()
    assert "pyspark.zip" not in row.path and ".jar" not in row.path


def test_worker_that_plans_connects_before_it_imports(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise SystemExit(7)")
    command = [str(ROOT / "spark_jobs" / "worker_python"), "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(["/a/jars/spark-core_2.13-4.jar", str(tmp_path), str(ROOT)]),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "SPARK_WORKER_INTERPRETER": sys.executable,
        }
        assert subprocess.run(command, env=environment, cwd=tmp_path, timeout=PATIENCE_S, check=False).returncode == 7
        server.settimeout(0)  # it has connected, or never will
        server.accept()[0].close()


def test_driver_binds_to_loopback_unless_the_master_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert settings(tmp_path)["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings(tmp_path, "spark://127.0.0.1:7077")["spark.driver.host"] == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    assert settings(tmp_path)["spark.driver.host"] == "127.0.0.2"


def test_missing_java_is_reported_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="holds no bin/java"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJava, match="no java is on PATH"):
        require_java()
