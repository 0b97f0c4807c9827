"""``./sluice lab scale``: what verdicts, estimates and pages cost on clusters of 100, 1,000 and 10,000 queries.

Five operators a query, eight cores a node, a core a query, a horizon of 900 s in slices of 0.25 s. Ratios to the size
before stand beside the figures, and the exponent of their growth; wall seconds have the CPU seconds of what was
measured beside them, which other work on the machine does not lengthen. What does not finish within its budget says so.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import psutil

from lab.benchmarks.machine import machine
from lab.benchmarks.scale.clusters import KINDS
from lab.benchmarks.scale.console import (
    CONSOLE_STEPS,
    CONSOLE_TARGETS,
    DATABASES,
    console_environment,
    console_memory_bytes,
    run_console_steps,
)
from lab.benchmarks.scale.figures import ScaleFigure, figures_json, print_figures
from lab.benchmarks.scale.steps import ScaleStep, run_steps
from lab.benchmarks.scale.verdicts import ENGINE_STEPS, ENGINE_TARGETS, engine_memory_bytes, run_engine_steps

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab scale", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000, 10_000], help="queries (100 1000 10000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of clusters (all)")
    parser.add_argument("--load", type=float, default=1.0, help="of the cores; from 1.6 on queries are late (1)")
    parser.add_argument(
        "--candidates", type=int, default=20, help="of warm verdicts and previews, and views of each page (20)"
    )
    parser.add_argument("--budget", type=float, default=600.0, metavar="S", help="seconds for each step (600)")
    parser.add_argument("--console", action="store_true", help="the product in the place of the engine alone")
    parser.add_argument(
        "--databases", nargs="+", choices=DATABASES, default=list(DATABASES), help="with --console (both)"
    )
    parser.add_argument("--json", action="store_true", help="figures, growth and targets as JSON")
    asked = parser.parse_args(arguments)
    if min(asked.sizes) < 16 or asked.candidates < 1 or not asked.load > 0.0 or not asked.budget > 0.0:
        parser.error("sizes are at least 16, candidates at least 1, load and budget above 0")
    screen = sys.stderr if asked.json else sys.stdout
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}", file=screen, flush=True)
    figures: list[ScaleFigure] = []
    targets, measured = ENGINE_TARGETS, _engine_figures(asked)
    if asked.console:
        targets, measured = CONSOLE_TARGETS, _console_figures(asked)
    for figure in measured:
        figures.append(figure)
        print(_line(figure), file=sys.stderr, flush=True)
    if asked.json:
        print(figures_json(machine(), figures, targets))
    is_met = print_figures(figures, targets, screen)
    return 0 if is_met else 1


def _engine_figures(asked: argparse.Namespace) -> Iterator[ScaleFigure]:
    for kind in asked.kinds:
        for queries in sorted(asked.sizes):
            like = ScaleFigure("", kind, queries, None)
            lacking = _lacking_memory(engine_memory_bytes(queries))
            if lacking:
                print(f"{kind}, {queries:,} queries: {lacking}", file=sys.stderr, flush=True)
                yield from _not_run(ENGINE_STEPS, like, lacking)
                continue
            settings = {"kind": kind, "queries": queries, "load": asked.load, "candidates": asked.candidates}
            yield from run_steps(partial(run_engine_steps, settings), ENGINE_STEPS, like, asked.budget)


def _console_figures(asked: argparse.Namespace) -> Iterator[ScaleFigure]:
    for kind, queries, database in itertools.product(asked.kinds, sorted(asked.sizes), asked.databases):
        like = ScaleFigure("", kind, queries, None, database=database)
        lacking = _lacking_memory(console_memory_bytes(queries))
        with console_environment(database) as env:
            if lacking or env is None:
                yield from _not_run(CONSOLE_STEPS, like, lacking or "not run: no PostgreSQL is installed")
                continue
            work = partial(run_console_steps, env, like, asked.load, asked.candidates)
            yield from run_steps(work, CONSOLE_STEPS, like, asked.budget)


def _lacking_memory(needed_bytes: int) -> str:
    """Sentence about the memory that lacks; empty where there is enough."""
    available = psutil.virtual_memory().available
    if needed_bytes <= available:
        return ""
    return f"not run: needs about {needed_bytes / 1e9:.1f} GB, {available / 1e9:.1f} GB are free"


def _not_run(steps: Iterable[ScaleStep], like: ScaleFigure, why: str) -> Iterator[ScaleFigure]:
    return (replace(like, name=name, note=why) for step in steps for name in step.figures)


def _line(figure: ScaleFigure) -> str:
    value = figure.note if figure.value is None else f"{figure.value:.3g} {figure.unit}"
    return f"  {figure.kind} {figure.queries:,} {figure.database} {figure.name}: {value}".replace("  ", " ")
