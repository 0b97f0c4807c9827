"""Sets of simulated traces for the benchmark of predictions, made in several processes, and their noise floor."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.costream.network import OUTPUTS
from engine.costream.prediction import COSTS
from engine.query_graph.graph import CostTrace
from engine.simulation.cohort import SIMULATOR_VERSION, TraceSettings, simulate_trace, trace_seed
from lab.simulation.cohort_reruns import rerun_label
from lab.training.dataset import CorpusOrigin, TraceSet

__all__ = ["Workshop", "floor_outputs", "in_processes"]

_SURE = 1.0  # logit of a vote


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


def floor_outputs(traces: TraceSet, processes: int, seed: int) -> tuple[npt.NDArray[np.float32], TraceSet]:
    """Means of four further runs of each trace, as a network's outputs; and the traces of which they say something.

    Hidden noise is drawn anew, so that no prediction can be better, but for chance.
    """
    numbered = list(enumerate(traces.traces))
    labels = in_processes(_rerun, numbered, processes, seed)
    outputs = np.zeros((1, len(traces), len(OUTPUTS)), dtype=np.float32)
    agreed = np.ones(len(traces), dtype=bool)
    for row, label in enumerate(labels):
        costs = (label.throughput_eps, label.processing_latency_s, label.end_to_end_latency_s)
        agreed[row] = not traces.success[row] or None not in costs
        for cost, value in zip(COSTS, costs, strict=True):
            for name in (cost, f"{cost}_low", f"{cost}_high"):
                outputs[0, row, OUTPUTS.index(name)] = np.log(value or 1.0)
        outputs[0, row, OUTPUTS.index("RO")] = _SURE if label.backpressure else -_SURE
        outputs[0, row, OUTPUTS.index("S")] = _SURE if label.success else -_SURE
    return outputs[:, agreed], traces.subset(agreed)


def _rerun(numbered: tuple[int, CostTrace], seed: int) -> Any:
    row, trace = numbered
    label = rerun_label(trace.graph, trace.hosts, trace.placement, seed=seed * 100_003 + row)
    return replace(label, backlog_eps=0.0)
