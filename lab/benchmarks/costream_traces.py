"""Sets of simulated traces for the benchmark of predictions, made in several processes."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import lab.simulation.cohort_shapes  # noqa: F401 - in each process: shapes are drawn by their names from then on
from engine.query_graph.graph import CostTrace
from engine.simulation.cohort import SIMULATOR_VERSION, TraceSettings, simulate_trace, trace_seed
from lab.training.dataset import CorpusOrigin, TraceSet

__all__ = ["Workshop", "in_processes"]


def in_processes(function: Callable[..., Any], arguments: Sequence[Any], processes: int, *common: Any) -> list[Any]:
    """Results of ``function(argument, *common)`` in the order of the arguments."""
    shared = [itertools.repeat(value) for value in common]
    if processes == 1:
        return list(map(function, arguments, *shared))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        chunk = max(1, len(arguments) // (8 * processes))
        return list(pool.map(function, arguments, *shared, chunksize=chunk))


class Workshop:
    """Maker of trace sets: each name is a corpus of its own, the same in every run.

    Parameters
    ----------
    seed
        Of all corpora.
    processes
        To simulate in.
    """

    def __init__(self, seed: int, processes: int) -> None:
        self.seed, self.processes = seed, processes

    def traces(self, name: str, count: int, settings: TraceSettings | None = None) -> TraceSet:
        """`count` simulated traces of the corpus `name`."""
        settings = settings or TraceSettings()
        corpus = self.seed * 1_000_003 + sum(ord(letter) * 131**k for k, letter in enumerate(name)) % 1_000_003
        seeds = [trace_seed(corpus, index) for index in range(count)]
        traces = in_processes(_trace, seeds, self.processes, settings)
        origin = CorpusOrigin(name, "", "simulated", str(SIMULATOR_VERSION), corpus, settings.digest())
        return TraceSet.of_traces(origin, traces)


def _trace(seed: int, settings: TraceSettings) -> CostTrace:
    return simulate_trace(seed, settings).trace
