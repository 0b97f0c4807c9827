"""Sets of real executions: their file, with the card beside it."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.simulation.cohort_tables import CohortWorld
from lab.training.execution.run import ExecutionResult

__all__ = ["Execution", "WrittenSet", "execution_card", "read_set", "write_set"]

_COUNTS = ("count", "succeeded", "backpressure", "failed", "disturbed")


@dataclass(frozen=True)
class Execution:
    """A line of a set, and what it came to."""

    line: str
    result: ExecutionResult


@dataclass(frozen=True)
class WrittenSet:
    """Lines of a set that was written, and its card."""

    lines: list[str]
    card: dict[str, Any]

    @property
    def next_index(self) -> int:
        """Position, among the queries of its seed, of the first that it has not got."""
        return int(self.card["first"] + self.card["count"] + self.card["failed"])


def read_set(path: Path, *, seed: int, duration_s: float, repeats: int, faults: list[str]) -> WrittenSet | None:
    """The set that more executions are to be added to; None without one. What keeps it from that goes to `faults`."""
    if not path.exists():
        return None
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        found = WrittenSet(lines, json.loads(_card_path(path).read_text()))
        counted = (found.next_index, found.card["executions"], found.card["repeats"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        faults.append(f"--add: {path} cannot be read with its card: {error!r}")
        return None
    for name, wanted in (("seed", seed), ("duration_s", duration_s)):
        if found.card.get(name) != wanted:
            faults.append(f"--add: {path} has executions of {name} {found.card.get(name)!r}, not {wanted!r}")
    if repeats or counted[2]:
        faults.append("--add goes with no repeats: nobody could tell which queries have been executed")
    return found


def _card_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.card.json")


def execution_card(done: Sequence[Execution], *, seed: int, world: CohortWorld) -> dict[str, Any]:
    """Card of executions by what they came to; what the engine was is added by who ran them."""
    results = [execution.result for execution in done]
    return {
        "kind": "real",
        "simulator_version": "none: real executions",
        "seed": seed,
        "count": len(done),
        "succeeded": sum(result.label.success for result in results),
        "backpressure": sum(result.label.backpressure for result in results),
        "duration_s": world.duration_s,
        "time_scale": 1,
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


def write_set(path: Path, done: Sequence[Execution], card: dict[str, Any], before: WrittenSet | None) -> dict[str, Any]:
    """Write executions and their card, after those that were there `before`: both complete or not at all.

    Returns
    -------
    dict
        The card as it was written.
    """
    lines = [execution.line for execution in done]
    if before is not None:
        lines = [*before.lines, *lines]
        sums = {name: before.card[name] + card[name] for name in _COUNTS}
        card |= sums | {"first": before.card["first"], "executions": [*before.card["executions"], *card["executions"]]}
    card_path = _card_path(path)
    fresh, fresh_card = (file.with_name(f".{file.name}.new") for file in (path, card_path))
    try:
        data = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)
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
