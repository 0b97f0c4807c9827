"""Benchmarks by name: ``python -m benchmarks NAME [options]``.

A benchmark is one or more modules of this package with ``main(arguments) -> int``; 0 means that every target was met.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from engine.compilation import show_compilation

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS = {
    "costream": ("benchmarks.costream", "benchmarks.costream_speed"),
    "costream-adaptation": ("benchmarks.costream_adaptation",),
    "costream-executions": ("benchmarks.costream_executions",),
    "costream-simulator": ("benchmarks.costream_simulator",),
    "costream-speed": ("benchmarks.costream_speed",),
    "deadlines": ("benchmarks.deadlines",),
    "flink": ("benchmarks.flink.command",),
    "forecast": ("benchmarks.forecast",),
    "honesty": ("benchmarks.honesty",),
    "jarvis": ("benchmarks.jarvis",),
    "klink": ("benchmarks.klink",),
    "learning": ("benchmarks.learning",),
    "mace": ("benchmarks.mace_speed", "benchmarks.mace_accuracy"),
    "mace-speed": ("benchmarks.mace_speed",),
    "mace-accuracy": ("benchmarks.mace_accuracy",),
    "microbatch": ("benchmarks.microbatch",),
    "noise": ("benchmarks.noise_speed",),
    "placement": ("benchmarks.placement",),
    "planner": (
        "benchmarks.planner_model",
        "benchmarks.planner_figures",
        "benchmarks.planner_plans",
        "benchmarks.deadlines",
    ),
    "planner-model": ("benchmarks.planner_model",),
    "planner-figures": ("benchmarks.planner_figures",),
    "planner-plans": ("benchmarks.planner_plans",),
    "plans": ("benchmarks.plans",),
    "questions": ("benchmarks.questions",),
    "spark-job": ("benchmarks.spark_job",),
    "stream": ("benchmarks.stream",),
    "telemetry": ("benchmarks.telemetry",),
    "what-if": ("benchmarks.what_if",),
}


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmark; returns 0, 1 for a missed target, 2 for wrong usage."""
    names = ", ".join(BENCHMARKS)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m benchmarks NAME [options]\nnames: {names}")
        return 0 if arguments else 2
    if arguments[0] not in BENCHMARKS:
        print(f"{arguments[0]!r} is no benchmark; allowed: {names}", file=sys.stderr)
        return 2
    results = [importlib.import_module(module).main(list(arguments[1:])) for module in BENCHMARKS[arguments[0]]]
    return max(results)


if __name__ == "__main__":
    with show_compilation(sys.stderr):
        sys.exit(main(sys.argv[1:]))
