"""A Spark cluster of one master and some workers on loopback, started from the installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pyspark

from launcher.children import end_family, spawn
from launcher.places import ROOT, free_port
from tests.servers import wait_until

__all__ = ["Cluster"]


class Cluster:
    """Servers that die with the test process; `folder` takes their logs and working files."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._page = free_port()
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        host, port = self.url.removeprefix("spark://").split(":")
        self._spawn("master.Master", "--host", host, "--port", port, "--webui-port", str(self._page))
        wait_until(lambda: self.status() is not None, what="the master's page")
        for number in range(self._workers):
            room = ("--cores", "1", "--memory", "700m", "--work-dir", str(self.folder / f"work{number}"))
            self._spawn("worker.Worker", "--host", host, "--webui-port", "0", *room, self.url)
        wait_until(lambda: self.alive_workers() == self._workers, what=f"{self._workers} workers")

    def stop(self) -> None:
        for process in reversed(self._processes):
            end_family(process)
        self._processes.clear()

    def status(self) -> dict[str, Any] | None:
        """State on the master's page; None while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def alive_workers(self) -> int:
        return int((self.status() or {}).get("aliveworkers", 0))

    def executors(self) -> list[psutil.Process]:
        """Executors of whatever application runs now."""
        children = [child for process in self._processes for child in psutil.Process(process.pid).children(True)]
        return [child for child in children if any("CoarseGrainedExecutorBackend" in part for part in _command(child))]

    def _spawn(self, role: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        here = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment = os.environ | here | {"SPARK_DAEMON_MEMORY": "256m", "PYTHONPATH": str(ROOT)}
        environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # as sessions have it
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{role}.{len(self._processes)}.log").open("wb") as log:
            process = spawn(command, tied=True, output=log, env=environment, cwd=self.folder)
        self._processes.append(process)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
