"""Executions of random queries on a real Flink: ``./sluice lab flink-executions --out FILE``.

Filters, aggregations over windows and joins, two to some twelve operators, on one to three hosts with CPU quotas and
shaped links, at rates from idle to overload. What each came to is written as a corpus is, with a card that says "real".
Root is needed. About 28 s each with the usual 15 s of measuring; `--first` makes a large set in parts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from lab.benchmarks.flink_executions.engine import flink_engine
from lab.testbed.network import NetworkFault
from lab.testbed.testbed import TestbedMissing, missing_needs
from lab.training.execution.run import ExecutionFailed
from lab.training.executions import execute_all, execution_parser, read_count_options, write_executions
from launcher.engines.folders import EngineMissing, FetchFailed
from launcher.runner import StartFailed

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Execute and write; 1 where the machine refuses, 2 for wrong usage, 130 if interrupted."""
    parser = execution_parser("flink-executions", "Executions of random queries on a real Flink across hosts.")
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    wanted = read_count_options(options, faults)
    if faults:
        print("\n".join(f"sluice lab flink-executions: {fault}" for fault in faults), file=sys.stderr)
        return 2
    if lacks := missing_needs():
        print(f"SKIPPED: no testbed on this machine: {'; '.join(lacks)}.", file=sys.stderr)
        return 1

    def run() -> dict[str, Any]:
        try:
            with flink_engine() as engine:
                return write_executions(engine, **wanted)
        except (TestbedMissing, NetworkFault, EngineMissing, FetchFailed, StartFailed) as failure:
            raise ExecutionFailed(str(failure)) from None

    return execute_all("flink-executions", run, str(wanted["path"]))
