"""Calibration set of real executions: ``./sluice lab executions --out FILE``.

Small queries run as processes under CPU quota, joined by links of limited bandwidth and injected latency; a second of
them is a second of the query. JSON lines as a corpus has them, compressed, and a card that says "real". The machine
must let control groups limit CPU; where it does not, nothing is executed. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace
from engine.simulation.cohort import SimulatedTrace, trace_seed
from engine.simulation.cohort_tables import CohortWorld
from engine.words import counted
from lab.training.corpus import output_path
from lab.training.execution.limits import CpuGroups, QuotaUnavailable, remove_remains
from lab.training.execution.queries import draw_execution, max_cpu_percent
from lab.training.execution.run import ExecutionFailed, ExecutionResult, execute_trace
from lab.training.execution_sets import Execution, WrittenSet, execution_card, read_set, write_set
from lab.training.options import whole_option
from lab.training.traces import trace_document

__all__ = ["ExecutionEngine", "execute_all", "execution_parser", "main", "read_count_options", "write_executions"]

_MAX_COUNT, _MAX_SEED, _MAX_SECONDS = 10_000, 2**53 - 1, 600
_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_FAILED = 3  # before one succeeds
_MAX_STALL_S, _ATTEMPTS = 0.25, 3  # a quota alone holds a process back for a tenth of a second


class ExecutionEngine(Protocol):
    """Where queries are executed."""

    def draw(self, seed: int) -> CostTrace:
        """A query with hosts and a placement, of a seed."""

    def execute(self, trace: CostTrace, seed: int, world: CohortWorld) -> ExecutionResult:
        """Execute one for `world.duration_s`; `seed` is that of its arrivals. Raises `ExecutionFailed`."""

    def facts(self, results: Sequence[ExecutionResult], world: CohortWorld) -> dict[str, Any]:
        """Facts of the engine for the card: `note`, `core`, `limits`, `queues`."""


class _Processes:
    """Processes of Python under CPU quota."""

    def __init__(self, groups: CpuGroups, by_kernel: bool) -> None:
        self._groups, self._by_kernel = groups, by_kernel

    def draw(self, seed: int) -> CostTrace:
        return draw_execution(seed)

    def execute(self, trace: CostTrace, seed: int, world: CohortWorld) -> ExecutionResult:
        return execute_trace(trace, seed=seed, world=world, groups=self._groups, by_kernel=self._by_kernel)

    def facts(self, results: Sequence[ExecutionResult], world: CohortWorld) -> dict[str, Any]:
        is_kernel = all(result.is_kernel_shaped for result in results)
        kind = f"control groups of version {self._groups.version}"
        return {
            "note": "real executions: processes of Python under CPU quota; not simulated",
            "core": f"100 % of cpu are one core of this machine, taken for {REFERENCE_CORE_CPS / 1e9:g}e9 cycles/s",
            "limits": {
                "cpu": f"quota per 100 ms, {kind}, at most {max_cpu_percent():g} % together",
                "memory": "not limited",
                "bandwidth": "tc htb per host in a network namespace" if is_kernel else "token bucket in the senders",
                "latency": "injected by the receiver",
            },
            "queues": {"tuples": world.queue_tuples, "send_tuples": world.send_tuples},
        }


def main(arguments: Sequence[str]) -> int:
    """Execute and write; returns 0, 1 where the machine or the disk refuses, 2 for wrong usage, 130 if interrupted."""
    parser = execution_parser("executions", "Real executions of small queries, to check the simulation.")
    parser.add_argument(
        "--links", default="kernel", help="kernel: shaped by tc where it may be used; user: by senders (default kernel)"
    )
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    wanted = read_count_options(options, faults)
    if options.links not in ("kernel", "user"):
        faults.append(f"--links is {options.links!r}; allowed: kernel, user")
    if faults:
        print("\n".join(f"sluice lab executions: {fault}" for fault in faults), file=sys.stderr)
        return 2

    def run() -> dict[str, Any]:
        remove_remains()
        with CpuGroups() as groups:
            return write_executions(_Processes(groups, by_kernel=options.links == "kernel"), **wanted)

    return execute_all("executions", run, str(wanted["path"]))


def execution_parser(command: str, description: str) -> argparse.ArgumentParser:
    """Parser of a command that executes queries, with the options of all of them."""
    parser = argparse.ArgumentParser(prog=f"sluice lab {command}", description=description)
    parser.add_argument("--out", help="file to write, ending in .jsonl.gz; its card is written beside it")
    parser.add_argument("--count", default="30", help="number of queries (default 30, about 19 s each)")
    parser.add_argument("--first", default="0", help="which query of the seed is the first (default 0)")
    parser.add_argument("--repeats", default="0", help="of the first queries, executed once more (default 0)")
    parser.add_argument("--seed", default="1", help="seed of queries and arrivals (default 1)")
    parser.add_argument("--seconds", default="15", help="length of an execution (default 15)")
    parser.add_argument("--add", action="store_true", help="go on with the file that is there, from its last query")
    return parser


def read_count_options(options: argparse.Namespace, faults: list[str]) -> dict[str, Any]:
    """The options of `execution_parser`, as `write_executions` takes them; faults are added to `faults`."""
    count = whole_option(options.count, "--count", 1, _MAX_COUNT, faults)
    seconds = whole_option(options.seconds, "--seconds", 1, _MAX_SECONDS, faults)
    wanted: dict[str, Any] = {
        "count": count,
        "first": whole_option(options.first, "--first", 0, _MAX_COUNT, faults),
        "repeats": whole_option(options.repeats, "--repeats", 0, count, faults),
        "seed": whole_option(options.seed, "--seed", 0, _MAX_SEED, faults),
        "world": CohortWorld(duration_s=float(seconds)),
        "path": output_path(options.out, faults),
    }
    if options.add and not faults:
        told = {name: wanted[name] for name in ("seed", "repeats")}
        before = read_set(wanted["path"], duration_s=float(seconds), faults=faults, **told)
        if before is not None:
            wanted |= {"before": before, "first": before.next_index}
    return wanted


def execute_all(command: str, run: Callable[[], dict[str, Any]], path: str) -> int:
    """Run what executes and writes, and print its card; the exit status of the command."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in (number for number, handler in before.items() if handler != signal.SIG_IGN):
        signal.signal(number, _interrupt)
    try:
        card = run()
    except QuotaUnavailable as reason:
        message = "CPU quotas are not available on this machine, so nothing was executed"
        print(f"sluice lab {command}: {message}: {reason}", file=sys.stderr)
        return 1
    except (ExecutionFailed, OSError) as error:
        print(f"\nsluice lab {command}: {path} was not written: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nsluice lab {command}: interrupted, nothing was written", file=sys.stderr)
        return _INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(json.dumps(card))
    return 0


def write_executions(
    engine: ExecutionEngine,
    *,
    path: Path,
    count: int,
    first: int = 0,
    repeats: int = 0,
    seed: int,
    world: CohortWorld,
    before: WrittenSet | None = None,
) -> dict[str, Any]:
    """Execute `count` queries of a seed, the first `repeats` of them twice, and write traces and card.

    An execution during which the machine stood still for a quarter of a second is made again, up to twice.
    File and card appear complete or not at all.

    Parameters
    ----------
    engine
        Where they run.
    path
        File to write, ending in ``.jsonl.gz``.
    first
        Position of the first query among those of the seed: parts of a set are made one after the other.
    seed
        Of queries and arrivals.
    world
        Length of an execution, bursts and the share of arrivals that counts as a backlog.
    before
        The set that is there and goes on with these.

    Returns
    -------
    dict
        The card.

    Raises
    ------
    ExecutionFailed
        The first three executions failed.
    """
    done, failed, disturbed = [], 0, 0
    indices = [first + index for index in (*range(count), *range(repeats))]
    begin = time.monotonic()
    for place, index in enumerate(indices):
        for _ in range(_ATTEMPTS):
            execution = _execute(engine, seed, index, first + place, world)
            if execution is None or execution.result.stall_s <= _MAX_STALL_S:
                break
            disturbed, execution = disturbed + 1, None
        if execution is None:
            failed += 1
        else:
            done.append(execution)
        _show_progress(place + 1, len(indices), failed, time.monotonic() - begin)
        if failed >= _MAX_FAILED and not done:
            raise ExecutionFailed(f"{counted(failed, 'execution')} failed, and none succeeded")
    card = execution_card(done, seed=seed, world=world)
    card |= {"first": first, "repeats": repeats, "failed": failed, "disturbed": disturbed}
    return write_set(path, done, card | engine.facts([execution.result for execution in done], world), before)


def _execute(engine: ExecutionEngine, seed: int, index: int, place: int, world: CohortWorld) -> Execution | None:
    """The trace `index` of a set with what it cost; a repeat has other arrivals. None if it failed."""
    query_seed = trace_seed(seed, index)
    trace = engine.draw(query_seed)
    try:
        result = engine.execute(trace, trace_seed(query_seed, place), world)
    except ExecutionFailed as error:
        print(f"\n{error}", file=sys.stderr)
        return None
    labelled = SimulatedTrace(query_seed, replace(trace, label=result.label), crashed=False)
    return Execution(json.dumps(trace_document(labelled), separators=(",", ":")), result)


def _show_progress(done: int, count: int, failed: int, seconds: float) -> None:
    end = "\n" if done == count else ""
    print(
        f"\r{done} of {counted(count, 'execution')}, {failed} failed, {seconds:.0f} s",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def _interrupt(*_: object) -> NoReturn:
    for number in _SIGNALS:  # a second one would leave groups and processes behind
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
