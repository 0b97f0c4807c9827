"""Calibration set of real executions: ``./sluice lab executions --out FILE``.

Small queries run as processes under CPU quota, joined by links of limited bandwidth and injected latency; a second of
them is a second of the query. JSON lines as a corpus has them, compressed, and a card that says "real". The machine
must let control groups limit CPU; where it does not, nothing is executed. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from engine.query_graph.graph import REFERENCE_CORE_CPS
from engine.simulation.cohort import SimulatedTrace, trace_seed
from engine.simulation.cohort_tables import CohortWorld
from engine.words import counted
from lab.training.corpus import output_path
from lab.training.execution.limits import CpuGroups, QuotaUnavailable, remove_remains
from lab.training.execution.queries import draw_execution, max_cpu_percent
from lab.training.execution.run import ExecutionFailed, ExecutionResult, execute_trace
from lab.training.options import whole_option
from lab.training.traces import trace_document

__all__ = ["main", "write_executions"]

_MAX_COUNT, _MAX_SEED, _MAX_SECONDS = 10_000, 2**53 - 1, 600
_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_FAILED = 3  # before one succeeds
_MAX_STALL_S, _ATTEMPTS = 0.25, 3  # a quota alone holds a process back for a tenth of a second


def main(arguments: Sequence[str]) -> int:
    """Execute and write; returns 0, 1 where the machine or the disk refuses, 2 for wrong usage, 130 if interrupted."""
    parser = argparse.ArgumentParser(
        prog="sluice lab executions", description="Real executions of small queries, to check the simulation."
    )
    parser.add_argument("--out", help="file to write, ending in .jsonl.gz; its card is written beside it")
    parser.add_argument("--count", default="30", help="number of queries (default 30, about 19 s each)")
    parser.add_argument("--repeats", default="0", help="of the first queries, executed once more (default 0)")
    parser.add_argument("--seed", default="1", help="seed of queries and arrivals (default 1)")
    parser.add_argument("--seconds", default="15", help="length of an execution (default 15)")
    parser.add_argument(
        "--links", default="kernel", help="kernel: shaped by tc where it may be used; user: by senders (default kernel)"
    )
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    count = whole_option(options.count, "--count", 1, _MAX_COUNT, faults)
    repeats = whole_option(options.repeats, "--repeats", 0, count, faults)
    seed = whole_option(options.seed, "--seed", 0, _MAX_SEED, faults)
    seconds = whole_option(options.seconds, "--seconds", 1, _MAX_SECONDS, faults)
    path = output_path(options.out, faults)
    if options.links not in ("kernel", "user"):
        faults.append(f"--links is {options.links!r}; allowed: kernel, user")
    if faults:
        print("\n".join(f"sluice lab executions: {fault}" for fault in faults), file=sys.stderr)
        return 2
    world = CohortWorld(duration_s=float(seconds))
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in (number for number, handler in before.items() if handler != signal.SIG_IGN):
        signal.signal(number, _interrupt)
    try:
        card = write_executions(
            path, count=count, repeats=repeats, seed=seed, world=world, by_kernel=options.links == "kernel"
        )
    except QuotaUnavailable as reason:
        message = "CPU quotas are not available on this machine, so nothing was executed"
        print(f"sluice lab executions: {message}: {reason}", file=sys.stderr)
        return 1
    except (ExecutionFailed, OSError) as error:
        print(f"\nsluice lab executions: {path} was not written: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsluice lab executions: interrupted, nothing was written", file=sys.stderr)
        return _INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(json.dumps(card))
    return 0


def write_executions(
    path: Path, *, count: int, repeats: int = 0, seed: int, world: CohortWorld, by_kernel: bool = True
) -> dict[str, Any]:
    """Execute `count` queries, the first `repeats` of them twice, and write traces and card; returns the card.

    An execution during which the machine stood still for a quarter of a second is made again, up to twice.
    File and card appear complete or not at all. Groups, namespaces and processes are gone when this returns or raises.

    Raises
    ------
    QuotaUnavailable
        CPU cannot be limited here.
    ExecutionFailed
        The first three executions failed.
    """
    remove_remains()
    done, failed, disturbed = [], 0, 0
    indices = [*range(count), *range(repeats)]
    begin = time.monotonic()
    with CpuGroups() as groups:
        for place, index in enumerate(indices):
            for _ in range(_ATTEMPTS):
                execution = _execute(seed, index, place, world, groups, by_kernel)
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
        version = groups.version
    card = _card(done, failed=failed, repeats=repeats, seed=seed, world=world, version=version)
    return _write(path, done, card | {"disturbed": disturbed})


@dataclass(frozen=True)
class _Execution:
    line: str
    result: ExecutionResult


def _execute(
    seed: int, index: int, place: int, world: CohortWorld, groups: CpuGroups, by_kernel: bool
) -> _Execution | None:
    """The trace `index` of a set with what it cost; a repeat has other arrivals. None if a process failed."""
    query_seed = trace_seed(seed, index)
    trace = draw_execution(query_seed)
    try:
        result = execute_trace(
            trace, seed=trace_seed(query_seed, place), world=world, groups=groups, by_kernel=by_kernel
        )
    except ExecutionFailed as error:
        print(f"\n{error}", file=sys.stderr)
        return None
    labelled = SimulatedTrace(query_seed, replace(trace, label=result.label), crashed=False)
    return _Execution(json.dumps(trace_document(labelled), separators=(",", ":")), result)


def _card(
    done: Sequence[_Execution], *, failed: int, repeats: int, seed: int, world: CohortWorld, version: int
) -> dict[str, Any]:
    results = [execution.result for execution in done]
    is_kernel = all(result.is_kernel_shaped for result in results)
    return {
        "kind": "real",
        "note": "real executions: processes of Python under CPU quota; not simulated",
        "simulator_version": "none: real executions",
        "seed": seed,
        "count": len(done),
        "repeats": repeats,
        "failed": failed,
        "succeeded": sum(result.label.success for result in results),
        "backpressure": sum(result.label.backpressure for result in results),
        "duration_s": world.duration_s,
        "time_scale": 1,
        "core": f"100 % of cpu are one core of this machine, taken for {REFERENCE_CORE_CPS / 1e9:g}e9 cycles/s",
        "limits": {
            "cpu": f"quota per 100 ms, control groups of version {version}, at most {max_cpu_percent():g} % together",
            "memory": "not limited",
            "bandwidth": "tc htb per host in a network namespace" if is_kernel else "token bucket in the senders",
            "latency": "injected by the receiver",
        },
        "queues": {"tuples": world.queue_tuples, "send_tuples": world.send_tuples},
        "machine": _machine(),
        "executions": [
            {
                "cpu_percent": result.cpu_percent,
                "throttled": result.throttled,
                "stall_s": result.stall_s,
                "load": result.load,
            }
            for result in results
        ],
    }


def _machine() -> dict[str, Any]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _write(path: Path, done: Sequence[_Execution], card: dict[str, Any]) -> dict[str, Any]:
    card_path = path.with_name(f"{path.name}.card.json")
    fresh, fresh_card = (file.with_name(f".{file.name}.new") for file in (path, card_path))
    try:
        lines = "".join(f"{execution.line}\n" for execution in done)
        data = gzip.compress(lines.encode(), 9, mtime=0)
        card |= {"sha256": hashlib.sha256(data).hexdigest()}
        fresh.write_bytes(data)
        fresh_card.write_text(json.dumps(card, indent=1) + "\n")
        fresh.replace(path)
        fresh_card.replace(card_path)
    finally:
        for rest in (fresh, fresh_card):
            with contextlib.suppress(OSError):
                rest.unlink()
    return card


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
