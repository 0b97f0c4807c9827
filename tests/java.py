"""Java as tests start it: its programs read Spark's classes from an archive, which halves what a start computes.

The first caller in a clone makes the archive (half a minute), the others wait for it. Where a Java cannot make one,
its programs read the classes from their jars as always.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyspark

from launcher.java import java_environment
from launcher.places import ROOT
from tests.environment import VAR_DIR

__all__ = ["java_variables"]

_CACHE = Path(__file__).with_name("__pycache__")
_JOB_S = 300.0
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"  # programs with other jars do without


def java_variables() -> dict[str, str]:
    """Environment of a process that starts Java: where it is, and the archive of classes."""
    found = java_environment()
    if not found:
        return {}
    home, spark = found["JAVA_HOME"], Path(pyspark.__file__).parent
    known_by = f"{home} {spark} {(spark / 'jars').stat().st_mtime_ns}"
    archive = _CACHE / f"spark-{sha256(known_by.encode()).hexdigest()[:12]}.jsa"
    _CACHE.mkdir(exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, found)
    is_made = archive.stat().st_size > 0
    return found | ({"JDK_JAVA_OPTIONS": f"-XX:SharedArchiveFile={archive} {_QUIET}"} if is_made else {})


def _make(archive: Path, java: dict[str, str]) -> None:
    """An empty file stands for a Java that cannot make an archive, or not in time."""
    new = archive.with_suffix(".new")
    command = [sys.executable, "-m", "tests.java", str(new)]
    with suppress(subprocess.TimeoutExpired):  # a machine too busy for it runs its tests without
        # its output ends with Java, which writes the archive after Python has gone
        subprocess.run(command, cwd=ROOT, env=os.environ | java, timeout=_JOB_S, capture_output=True, check=False)
    if not new.exists():
        new.touch()
    new.replace(archive)


def _use_spark(archive: str) -> None:
    """Load what a stream with state and Python in it needs, and write it all down at the end."""
    from pyspark.sql.functions import window

    from spark_jobs.session import settings, spark_session

    folder = VAR_DIR / "classes"
    options = "spark.driver.extraJavaOptions"
    more = {options: f"{settings(folder)[options]} -XX:ArchiveClassesAtExit={archive} {_QUIET}"}
    spark = spark_session("classes", folder=folder, more=more)
    ticks = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    same = ticks.mapInArrow(lambda batches: batches, ticks.schema)
    counted = same.groupBy(window("timestamp", "1 second")).count()

    def collect(rows: Any, number: int) -> None:
        rows.collect()

    stream = counted.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder / "checkpoint")).start()
    while len(stream.recentProgress) < 3:
        stream.awaitTermination(0.2)
    stream.stop()
    spark.stop()


if __name__ == "__main__":
    _use_spark(sys.argv[1])
