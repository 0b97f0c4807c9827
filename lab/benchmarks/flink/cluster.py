"""The Flink that a benchmark measures: one that runs, or one that it starts for itself."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from launcher.engines.flink import FlinkCluster, FlinkOptions
from launcher.engines.flink_package import fetch_flink
from launcher.output import Terminal
from launcher.places import var_dir
from launcher.runner import ProcessRunner

__all__ = ["measured_flink"]


@contextmanager
def measured_flink(rest: str | None, gateway: int | None, own: FlinkOptions) -> Iterator[tuple[str, int]]:
    """REST address of a JobManager and port of its SQL gateway: those given, else of one that ends with it."""
    if rest is not None and gateway is not None:
        yield rest, gateway
        return
    console = Terminal(sys.stderr)
    runner = ProcessRunner(console, var_dir() / "log")
    runner.catch_signals()
    try:
        fetch_flink(console)
        cluster = FlinkCluster(var_dir() / "flink-bench", own)
        console.done("flink", cluster.url, cluster.start(runner))
        yield cluster.url, cluster.ports["gateway"]
    finally:
        gc.collect()  # objects of Java that are let go of later would ask a gateway that has gone
        runner.stop()
