"""Benchmarks, training, experiments and pictures by name: ``./sluice lab NAME [options]``.

Each is one or more modules with ``main(arguments) -> int``: 0 for success, where a benchmark met every target; 1 for a
failure or a missed target; 2 for wrong usage.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from engine.compilation import show_compilation

__all__ = ["BENCHMARKS", "COMMANDS", "DOCUMENTATION", "EXPERIMENTS", "TRAINING", "main"]

BENCHMARKS = {
    "capacity": ("lab.benchmarks.capacity",),
    "costream": ("lab.benchmarks.costream", "lab.benchmarks.costream_speed"),
    "costream-adaptation": ("lab.benchmarks.costream_adaptation",),
    "costream-executions": ("lab.benchmarks.costream_executions",),
    "costream-simulator": ("lab.benchmarks.costream_simulator",),
    "costream-speed": ("lab.benchmarks.costream_speed",),
    "deadlines": ("lab.benchmarks.deadlines",),
    "fleet": ("lab.benchmarks.fleet.command",),
    "false-admits": ("lab.benchmarks.false_admits",),
    "flink": ("lab.benchmarks.flink.command",),
    "flink-jobs": ("lab.benchmarks.flink_jobs.command",),
    "forecast": ("lab.benchmarks.forecast",),
    "honesty": ("lab.benchmarks.honesty",),
    "jarvis": ("lab.benchmarks.jarvis",),
    "klink": ("lab.benchmarks.klink",),
    "learning": ("lab.benchmarks.learning",),
    "mace": ("lab.benchmarks.mace_speed", "lab.benchmarks.mace_accuracy"),
    "mace-speed": ("lab.benchmarks.mace_speed",),
    "mace-accuracy": ("lab.benchmarks.mace_accuracy",),
    "microbatch": ("lab.benchmarks.microbatch",),
    "nexmark": ("lab.benchmarks.nexmark.command",),
    "noise": ("lab.benchmarks.noise_speed",),
    "placement": ("lab.benchmarks.placement",),
    "planner": (
        "lab.benchmarks.planner_model",
        "lab.benchmarks.planner_figures",
        "lab.benchmarks.planner_plans",
        "lab.benchmarks.deadlines",
    ),
    "planner-model": ("lab.benchmarks.planner_model",),
    "planner-figures": ("lab.benchmarks.planner_figures",),
    "planner-plans": ("lab.benchmarks.planner_plans",),
    "planner-spark": ("lab.benchmarks.planner_spark",),
    "plans": ("lab.benchmarks.plans",),
    "questions": ("lab.benchmarks.questions",),
    "scale": ("lab.benchmarks.scale.command",),
    "soak": ("lab.soak.command",),
    "spark-job": ("lab.benchmarks.spark_job",),
    "stream": ("lab.benchmarks.stream",),
    "telemetry": ("lab.benchmarks.telemetry",),
    "testbed": ("lab.testbed.command",),
    "what-if": ("lab.benchmarks.what_if",),
}
TRAINING = {
    "corpus": ("lab.training.corpus",),
    "evaluate": ("lab.training.evaluation",),
    "executions": ("lab.training.executions",),
    "flink-executions": ("lab.benchmarks.flink_executions.command",),
    "stream-processor": ("lab.benchmarks.stream_processors",),
    "weights": ("lab.training.costream",),
}
EXPERIMENTS = {
    "partition-tree": ("lab.jarvis.tree_search",),
}
DOCUMENTATION = {
    "pictures": ("lab.pictures",),
}
COMMANDS = BENCHMARKS | TRAINING | EXPERIMENTS | DOCUMENTATION


def main(arguments: Sequence[str]) -> int:
    """Run what is named; the worst of its modules' exit codes, 2 for wrong usage."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: sluice lab NAME [options]\n")
        for kind, names in (
            ("benchmarks", BENCHMARKS),
            ("training", TRAINING),
            ("experiments", EXPERIMENTS),
            ("documentation", DOCUMENTATION),
        ):
            print(f"{kind}: {', '.join(names)}")
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"{arguments[0]!r} is no command of the laboratory; allowed: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return max(importlib.import_module(module).main(list(arguments[1:])) for module in COMMANDS[arguments[0]])


if __name__ == "__main__":
    with show_compilation(sys.stderr):
        sys.exit(main(sys.argv[1:]))
