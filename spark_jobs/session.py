"""The Spark session, and the stream processor's options from the environment."""

from __future__ import annotations

import math
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_jobs.input.source import KafkaTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_MASTER",
    "INTERPRETED",
    "JAVA_OPTIONS",
    "NoJava",
    "Options",
    "WrongOptions",
    "interpret_everywhere",
    "interpreter",
    "python_path",
    "require_java",
    "settings",
    "spark_session",
]


DEFAULT_MASTER = "local[2]"
_ROOT = Path(__file__).resolve().parent.parent
_PYTHON = Path(__file__).with_name("worker_python")  # in place of the interpreter that `_INTERPRETER` names
_INTERPRETER = "SPARK_WORKER_INTERPRETER"
_LOGGING = Path(__file__).with_name("log4j2.properties")
# The JVM plans, starts tasks and moves bytes; a second compiler that optimises that costs more CPU time than it saves.
JAVA_OPTIONS = f"-Dlog4j2.configurationFile=file:{_LOGGING} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Renames are those of the local file system, where a checkpoint is; Spark's other way starts a program for every look.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOOPBACK = "127.0.0.1"
#: For batches of a few rows, for which Spark would write code anew in every task.
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
SHUFFLE_PARTITIONS = 2  # telemetry of one installation is small: every further partition only costs a task's start


class NoJava(RuntimeError):
    """Spark runs on Java, and there is none."""


def spark_session(
    name: str, *, folder: Path, master: str = DEFAULT_MASTER, more: Mapping[str, str] | None = None
) -> SparkSession:
    """The Spark session of this process; the caller stops it.

    Parameters
    ----------
    name
        What the master's page calls the application.
    folder
        Spark's own working files; it may be removed while no session runs. Checkpoints do not belong there.
    master
        ``local[n]`` or the URL of a master (``spark://host:7077``).
    more
        Settings that win over those of `settings`.

    Raises
    ------
    NoJava
        There is no Java to run Spark on.
    """
    require_java()
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(_INTERPRETER, interpreter())
    os.environ["PYSPARK_PYTHON"] = str(_PYTHON)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", _own_address(master))
    # workers are started by the JVM and inherit its environment where the master is local
    os.environ["PYTHONPATH"] = python_path()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings(folder, master) | dict(more or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def interpret_everywhere(spark: SparkSession) -> None:
    """Let expressions be interpreted also where a thread of the JVM knows no session's settings.

    The threads that serve state variables are such: by Spark's default they write code for every variable of every
    task, for a value or two. A default has no setter; executors on other machines keep theirs.
    """
    jvm = spark._jvm
    assert jvm is not None
    entry = jvm.org.apache.spark.sql.internal.SQLConf.CODEGEN_FACTORY_MODE()
    default = entry.getClass().getDeclaredField("_defaultValue")
    default.setAccessible(True)
    default.set(entry, jvm.org.apache.spark.sql.catalyst.expressions.CodegenObjectFactoryMode.NO_CODEGEN())


def interpreter() -> str:
    """The Python of workers."""
    return os.environ.get(_INTERPRETER) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def python_path() -> str:
    """PYTHONPATH of workers: with Sluice first."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(_ROOT), *(path for path in paths if path not in {"", str(_ROOT)})])


def settings(folder: Path, master: str = DEFAULT_MASTER) -> dict[str, str]:
    """Every setting of a session in `folder` at `master`."""
    address = os.environ.get("SPARK_LOCAL_IP") or _own_address(master)
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executorEnv.PYTHONPATH": str(_ROOT),
        f"spark.executorEnv.{_INTERPRETER}": os.environ.get(_INTERPRETER) or sys.executable,
        "spark.python.authenticate.socketTimeout": "10min",  # of a worker that has connected and imports what it needs
        "spark.python.daemon.module": "spark_jobs.worker_daemon",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",  # a bad value is null, as in engine.dataflow, and never ends the query
        "spark.sql.variant.allowDuplicateKeys": "true",  # the last one counts
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        # state of any size: on disk, and in the checkpoint as changes between snapshots
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.default.parallelism": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # as many rows in one Arrow batch as a trigger brings: a batch a few rows long costs as much as a full one
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.cleaner.periodicGC.interval": "5min",
    }


def require_java() -> None:
    """Raise without a Java; choosing Java 17 or later is left to the one who sets JAVA_HOME.

    Raises
    ------
    NoJava
        Neither JAVA_HOME nor PATH holds one.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise NoJava(f"Spark needs Java 17 or later, and JAVA_HOME={home} holds no bin/java: correct or unset it")
    if not home and shutil.which("java") is None:
        raise NoJava(
            "Spark needs Java 17 or later, and there is none: JAVA_HOME is not set and no java is on PATH; "
            "start it with ./sluice, which brings one along, or install a Java"
        )


def _own_address(master: str) -> str:
    """The address at which executors reach this driver: loopback unless the master is on another machine."""
    host = urlsplit(master).hostname if master.startswith("spark://") else None
    if host is None:
        return _LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 7077))  # a datagram socket sends nothing by connecting; it only picks the route
        return str(probe.getsockname()[0])


class WrongOptions(ValueError):
    """Variables that are missing or have a value they do not take; every one is named."""


@dataclass(frozen=True)
class Options:
    """Addresses, folders and intervals of the stream processor."""

    url: str
    token: str
    redis_url: str
    folder: Path
    master: str = DEFAULT_MASTER
    trigger_s: float = 2.0
    refine_s: float = 10.0
    shuffle_partitions: int = SHUFFLE_PARTITIONS
    shards: int = 1
    checkpoint: str = ""  #: folder of checkpoints, by path or by a URI that Hadoop knows
    kafka: KafkaTopic | None = None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Options:
        """The options in an environment.

        Raises
        ------
        WrongOptions
        """
        faults: list[str] = []
        read = _EnvironmentReader(env, faults)
        folder = Path(env.get("SLUICE_VAR_DIR") or _ROOT / "var") / "stream"
        options = cls(
            read.text("SLUICE_URL", "the console's address, such as http://127.0.0.1:8000"),
            read.text("SLUICE_STREAM_TOKEN", "a token with scope ingest"),
            read.text("REDIS_URL", "the broker's address, such as redis://127.0.0.1:6379/0"),
            folder,
            env.get("SLUICE_SPARK_MASTER") or cls.master,
            read.number("SLUICE_STREAM_TRIGGER_S", cls.trigger_s, 0.1, 600),
            read.number("SLUICE_STREAM_REFINE_S", cls.refine_s, 1, 3600),
            round(read.number("SLUICE_STREAM_PARTITIONS", SHUFFLE_PARTITIONS, 1, 10_000)),
            round(read.number("SLUICE_STREAM_SHARDS", cls.shards, 1, 1_000)),
            env.get("SLUICE_STREAM_CHECKPOINT") or str(folder.resolve() / "keyed"),
            read.kafka(),
        )
        if faults:
            raise WrongOptions("\n".join(faults))
        return options


class _EnvironmentReader:
    def __init__(self, env: Mapping[str, str], faults: list[str]) -> None:
        self._env, self._faults = env, faults

    def kafka(self) -> KafkaTopic | None:
        servers, topic = (self._env.get(f"SLUICE_KAFKA_{name}", "") for name in ("SERVERS", "TOPIC"))
        if bool(servers) != bool(topic):
            lacking = "SLUICE_KAFKA_TOPIC" if servers else "SLUICE_KAFKA_SERVERS"
            self._faults.append(
                f"{lacking} is not set; allowed: both SLUICE_KAFKA_SERVERS and SLUICE_KAFKA_TOPIC, or none"
            )
        return KafkaTopic(servers, topic, self._env.get("SLUICE_KAFKA_JARS", "")) if servers and topic else None

    def text(self, name: str, what: str) -> str:
        value = self._env.get(name, "")
        if not value:
            self._faults.append(f"{name} is not set, and must be {what}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        text = self._env.get(name)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            self._faults.append(f"{name} is {text!r}; allowed: a number from {least:.10g} to {most:.10g}")
            return default
        return value
