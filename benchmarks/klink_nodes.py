"""Several nodes, and what waits and works over time, with the memory mode and without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.klink_runs import LABELS, WARM_MS, all_of, runs, words
from engine.klink.simulation import Run
from engine.klink.simulation_loads import Load

__all__ = ["memory", "nodes"]

_LINK_MS = 5.0


def nodes(seeds: int, counts: Sequence[int]) -> None:
    """Eighty queries on one to eight nodes of four cores: spread over them, or each over two of them."""
    print("\nnodes: 80 ysb queries, four cores each, bursty, backlog limit 8 s: mean/p99 in s")
    for count in counts:
        spread = Load("ysb", 80, 1, bursty=True, nodes=count)
        found = all_of(spread, ("random", "fcfs", "highest-rate", "least-slack", "klink"), seeds, intake_s=8.0)
        print(f"  {count} nodes, spread: {words(found)}")
        if count == 1:
            continue
        for forwarding in (True, False):
            over = Load("ysb", 80, 1, bursty=True, nodes=count, spanning=True)
            own = all_of(over, ("fcfs", "least-slack", "klink"), seeds, intake_s=8.0, link_ms=_LINK_MS,
                         forwarding=forwarding)  # fmt: skip
            print(f"    over two nodes, delays and costs {'told' if forwarding else 'not told'}: {words(own)}")


def memory(seeds: int, counts: Sequence[int]) -> None:
    """The memory mode on and off, alike and mixed, and how memory and CPU go on over time."""
    print("\nmemory: bursty, backlog limit 8 s; the mode begins at half of what waits at most: mean/p99 in s, taken in")
    for kind in ("ysb", "mixed"):
        for count in counts:
            load = Load(kind, count, 1, bursty=True)
            for name in ("least-slack", "klink"):
                free = all_of(load, (name,), seeds, intake_s=8.0)[name]
                bound = free.memory_peak / 2
                held = all_of(load, (name,), seeds, intake_s=8.0, memory_bytes=bound)[name]
                print(
                    f"  {kind} {count} q, {LABELS[name]}: without {free.mean_s:.2f}/{free.p99_s:.2f}, "
                    f"{100 * free.taken:.0f} %, "
                    f"{free.memory_mean / 1e6:.1f} MB; above {bound / 1e6:.1f} MB {held.mean_s:.2f}/{held.p99_s:.2f}, "
                    f"{100 * held.taken:.0f} %, {held.memory_mean / 1e6:.1f} MB"
                )
    print("\nover time: 60 ysb queries, bursty: what waits (MB) and CPU (% of the cores) every 5 s from 10 s on")
    for limit_s in (8.0, 1.0):
        for name in ("random", "fcfs", "least-slack", "klink"):
            (run,) = runs(Load("ysb", 60, 1, bursty=True), name, 1, intake_s=limit_s)
            print(f"  limit {limit_s:g} s, {LABELS[name]:7} {_over_time(run)}")


def _over_time(run: Run) -> str:
    every = 25  # samples of 200 ms
    first = int(WARM_MS / 200)
    held = run.memory_bytes.sum(axis=1)[first::every] / 1e6
    used = np.diff(run.used_ms.sum(axis=1)[first::every]) / (every * 200 * len(run.busy_ms)) * 100
    return " ".join(f"{one:.1f}" for one in held) + "   CPU " + " ".join(f"{one:.0f}" for one in used)
