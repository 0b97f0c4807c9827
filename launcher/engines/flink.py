"""A Flink session cluster on loopback: JobManager, TaskManagers, and a gateway through which Python submits SQL.

Flink is started from its jars alone, without its scripts, so every size that they would work out stands here.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import py4j.java_gateway

from launcher.engines.flink_package import require_flink
from launcher.engines.folders import EngineMissing
from launcher.java import find_java
from launcher.places import LOOPBACK, child_environment, free_port, port_answers
from launcher.runner import ProcessRunner
from launcher.services import Service

__all__ = ["DEFAULT_FLINK_PORT", "FlinkCluster", "FlinkHost", "FlinkOptions"]

DEFAULT_FLINK_PORT = 8081
#: Java's modules that Flink opens for itself, as the configuration that it ships does.
_EXPORTS = (
    "java.rmi/sun.rmi.registry",
    "jdk.compiler/com.sun.tools.javac.api",
    "java.security.jgss/sun.security.krb5",
)
_OPENS = (
    "lang",
    "lang.reflect",
    "net",
    "io",
    "nio",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "util.concurrent.locks",
)
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:MaxMetaspaceSize=192m",
    "-XX:+IgnoreUnrecognizedVMOptions",  # an image without one of these modules starts all the same
    *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENS),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_JOBMANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASKMANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_GATEWAY = "py4j.GatewayServer"
_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %-5p %c{1} %m%n
"""
#: Whatever is neither a warning nor an error, such as the lines that follow one.
_QUIET = r"^(?!WARN |ERROR)|^WARN +(NativeCodeLoader|FileCache|ConfigurationUtils) "


_SIZE = re.compile(r"(\d+)\s*(m|mb|g|gb)", re.IGNORECASE)
_SPARE_DIRECT = 16  # MiB


def _mebibytes(size: str) -> int:
    """A size as Flink's settings have it, in MiB."""
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise EngineMissing(f"{size!r} is no size of memory here; allowed is a number with m or g, such as 512m")
    return int(match[1]) * (1024 if match[2].lower().startswith("g") else 1)


@dataclass(frozen=True)
class FlinkHost:
    """Host of one TaskManager: its address, the words before a command that run it there, and its cores.

    None for as many cores as there are slots.
    """

    address: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    cores: float | None = None


@dataclass(frozen=True)
class FlinkOptions:
    """Size and address of a cluster; with `hosts` one TaskManager on each, all of which reach the JobManager's."""

    port: int = DEFAULT_FLINK_PORT
    taskmanagers: int = 1
    slots: int = 4
    sql: bool = True  #: whether the gateway for SQL is started, which takes 100 MB and more once it is used
    settings: Mapping[str, str] = field(default_factory=dict)  #: of Flink, over those made here
    address: str = LOOPBACK  #: of the JobManager
    hosts: tuple[FlinkHost, ...] = ()


class FlinkCluster:
    """The processes of a cluster, made for one folder of configuration, temporary files and uploaded jars."""

    def __init__(self, folder: Path, options: FlinkOptions) -> None:
        self._home = require_flink()
        java = find_java(folder)
        if java is None:
            raise EngineMissing("no Java 17 or later is on this machine; ./sluice doctor says how to mend it")
        self._java = java.home / "bin" / "java"
        self._folder = folder
        self._options = options
        self._hosts = dict(enumerate(options.hosts or [FlinkHost()] * options.taskmanagers, start=1))
        self.url = f"http://{options.address}:{options.port}"
        self.ports = {"rest": options.port}
        if options.sql:
            self.ports["gateway"] = free_port()
        for name in ("jobmanager", *(f"taskmanager-{number}" for number in self._hosts)):
            self.ports[f"metrics_{name}"] = free_port()

    def start(self, runner: ProcessRunner) -> float:
        """Start everything at once and wait until the TaskManagers have joined; the seconds that it took."""
        self._configure()
        runs = [runner.launch(service, loud=False) for service in self._services()]
        return max(runner.await_ready(run) for run in runs)

    def _configure(self) -> None:
        for name in ("conf", "tmp", "jars"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        settings = self._settings()
        # JSON is YAML, too
        lines = [f"{json.dumps(name)}: {json.dumps(value)}\n" for name, value in settings.items()]
        (self._folder / "conf" / "config.yaml").write_text("".join(lines))
        (self._folder / "conf" / "log4j.properties").write_text(_LOG4J)

    def _settings(self) -> dict[str, str]:
        return {
            "jobmanager.rpc.address": self._options.address,
            "jobmanager.rpc.port": str(free_port()),
            "jobmanager.bind-host": self._options.address,
            "jobmanager.memory.process.size": "800m",
            "rest.address": self._options.address,
            "rest.bind-address": self._options.address,
            "rest.port": str(self._options.port),
            "web.tmpdir": str(self._folder / "jars"),
            "taskmanager.numberOfTaskSlots": str(self._options.slots),
            "taskmanager.memory.framework.heap.size": "96m",
            "taskmanager.memory.framework.off-heap.size": "96m",
            "taskmanager.memory.task.heap.size": "256m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.managed.size": "32m",
            "taskmanager.memory.network.min": "48m",
            "taskmanager.memory.network.max": "48m",
            "taskmanager.memory.jvm-metaspace.size": "192m",
            "taskmanager.memory.jvm-overhead.min": "64m",
            "taskmanager.memory.jvm-overhead.max": "64m",
            "io.tmp.dirs": str(self._folder / "tmp"),
            "execution.checkpointing.interval": "10s",
            "restart-strategy.type": "none",
            "rest.flamegraph.enabled": "true",  # the only place that tells work apart inside a chain
            "metrics.fetcher.update-interval": "1000",  # milliseconds; else answers are up to 10 s old
            "metrics.reporters": "prom",
            "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
            **self._options.settings,
        }

    def _services(self) -> list[Service]:
        services = [self._service("jobmanager", _JOBMANAGER, ["-Xmx384m"], [], ready=lambda: self._registered() >= 0)]
        memory = self._taskmanager_memory()
        for number, host in self._hosts.items():
            name = f"taskmanager-{number}"
            settings = {
                "taskmanager.resource-id": name,
                "taskmanager.host": host.address,
                "taskmanager.bind-host": host.address,
                "taskmanager.cpu.cores": str(float(self._options.slots) if host.cores is None else host.cores),
            }
            own = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
            service = self._service(
                name, _TASKMANAGER, memory, own, ready=lambda: self._registered() >= len(self._hosts)
            )
            services.append(replace(service, command=[*host.prefix, *service.command]))
        if self._options.sql:
            port = self.ports["gateway"]
            services.append(
                Service(
                    name="flink-sql",
                    command=[*self._command(["-Xmx384m"], self._gateway_jar()), _GATEWAY, str(port)],
                    env=self._environment(),
                    cwd=self._folder,
                    healthy=lambda: port_answers(port),
                    quiet=_QUIET,
                    vital=False,
                )
            )
        return services

    def _service(self, name: str, main: str, memory: Sequence[str], own: Sequence[str], *, ready: Any) -> Service:
        conf = ["--configDir", str(self._folder / "conf")]
        metrics = ["-D", f"metrics.reporter.prom.port={self.ports[f'metrics_{name}']}"]
        return Service(
            name=f"flink-{name}",
            command=[*self._command(memory), main, *conf, *metrics, *own],
            env=self._environment(),
            cwd=self._folder,
            healthy=ready,
            quiet=_QUIET,
        )

    def _taskmanager_memory(self) -> list[str]:
        """Java's limits from the sizes that Flink is told, which its own scripts would work out of them."""
        settings = self._settings()

        def added(*names: str) -> int:
            return sum(_mebibytes(settings[f"taskmanager.memory.{name}"]) for name in names)

        heap = added("framework.heap.size", "task.heap.size")
        direct = added("framework.off-heap.size", "task.off-heap.size", "network.max")
        return [f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={direct + _SPARE_DIRECT}m"]

    def _command(self, memory: Sequence[str], *more_jars: str) -> list[str]:
        log4j = f"-Dlog4j.configurationFile={self._folder / 'conf' / 'log4j.properties'}"
        classpath = os.pathsep.join([str(self._home / "lib" / "*"), *more_jars])
        return [str(self._java), *_JAVA_OPTIONS, *memory, log4j, "-cp", classpath]

    @staticmethod
    def _gateway_jar() -> str:
        """The Java half of py4j, which comes with PySpark and fits its Python half."""
        return str(py4j.java_gateway.find_jar_path())

    def _environment(self) -> dict[str, str]:
        return child_environment(
            FLINK_CONF_DIR=str(self._folder / "conf"),
            FLINK_LIB_DIR=str(self._home / "lib"),
            FLINK_PLUGINS_DIR=str(self._home / "plugins"),
        )

    def _registered(self) -> int:
        """TaskManagers that have joined; -1 before the JobManager answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/overview", timeout=2) as answer:
                return int(json.load(answer)["taskmanagers"])
        except (OSError, ValueError, KeyError):
            return -1
