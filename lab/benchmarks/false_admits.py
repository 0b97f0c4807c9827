"""False admits of queries that never ran: ``./sluice lab false-admits [--questions N] [--executions FILE]``.

Executions of several worlds, simulated and real, make a cluster each. The first of them are its record: predicted
first, then observed, as the console scores them. Each of the others is asked about as a query that never ran, on the
hosts and in the places where it was executed, by what `./sluice engine admit` does, with an objective of a quarter to
four times the latency that it then had. An admit is false where it had another latency than the objective allows, was
held back, or put nothing out. Returns 1 where one is.

What the record of a stream processor was fitted to is not held out of it: executions that came later are named with
``--executions``.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from engine.admission.decision import answer_document
from engine.command_options import AdmitOptions
from engine.costream.accuracy import RECORDED_RUNS, PredictionRecord
from engine.costream.adaptation import Observation, observation_of
from engine.costream.prediction import shipped_ensemble
from engine.errors import EngineError
from engine.query_graph.flow import BYTES_PER_MBIT, nominal_flow
from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace, OperatorNode
from engine.simulation.cohort import TraceSettings, simulate_trace, trace_seed
from engine.simulation.cohort_tables import OTHER_ENGINE
from lab.benchmarks.costream_executions import (
    FLINK_EXECUTIONS,
    SHIPPED_EXECUTIONS,
    judged_observations,
    read_executions,
)
from lab.benchmarks.machine import machine
from lab.simulation.cohort_shapes import UNSEEN_RANGES, UNSEEN_SHAPES
from lab.training.options import print_faults

__all__ = ["ExecutedWorld", "document_of", "main"]

_SEED = 34
_SPREAD = 4.0  # objectives are up to so many times the true latency, and as far below
_WIDTH_S, _STEPS = 4.0, 60  # subintervals of a run of 240 s
_KINDS = {"agg": "aggregate"}
_QUIET = AdmitOptions(policy={"choices": False, "robustness": False})


def main(arguments: Sequence[str] = ()) -> int:
    """Print the verdicts by world; returns 1 for a false admit, 2 for executions that cannot be read."""
    parser = argparse.ArgumentParser(
        prog="sluice lab false-admits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=500, help="of all worlds together (500)")
    parser.add_argument("--executions", action="append", default=[], help="further real executions, .jsonl.gz")
    options = parser.parse_args(list(arguments))
    print(f"Machine: {machine()}")
    paths = [SHIPPED_EXECUTIONS, FLINK_EXECUTIONS, *map(Path, options.executions)]
    each = max(1, ceil(options.questions / (len(_SIMULATED) + len(paths))))
    try:
        worlds = [_executed(path) for path in paths]
    except EngineError as error:
        print_faults("executions", error)
        return 2
    worlds += [_simulated(name, settings, RECORDED_RUNS + each) for name, settings in _SIMULATED.items()]
    print(f"{'world':34}{'record':>12}  borne out{'asked':>7}{'admit':>7}{'review':>8}{'reject':>8}{'false':>7}")
    total: Counter[str] = Counter()
    for world in worlds:
        counts = _asked(world, each)
        total += counts
        record = world.record
        cells = "".join(f"{counts[name]:>{width}}" for name, width in _COLUMNS)
        print(f"{world.name:34}{record.held:>5} of {record.runs:<3}  {record.is_borne_out!s:9}{cells}", flush=True)
    print(f"{'all':57}{''.join(f'{total[name]:>{width}}' for name, width in _COLUMNS)}")
    return 1 if total["false"] else 0


_COLUMNS = (("asked", 7), ("admit", 7), ("review", 8), ("reject", 8), ("false", 7))
_SIMULATED = {
    "simulated, as trained": TraceSettings(),
    "simulated, hosts between": TraceSettings(ranges=UNSEEN_RANGES),
    "simulated, unseen shapes": TraceSettings(shapes=dict.fromkeys(UNSEEN_SHAPES, 1.0)),
    "simulated, another engine": TraceSettings(world=OTHER_ENGINE),
}


@dataclass(frozen=True)
class ExecutedWorld:
    """A cluster's executions: those of its record, and those that are asked about."""

    name: str
    known: Sequence[Observation]
    asked: Sequence[Observation]
    record: PredictionRecord = field(init=False)

    def __post_init__(self) -> None:
        held = [_is_held(observation) for observation in self.known if observation.costs[2] is not None]
        newest = held[-RECORDED_RUNS:]
        object.__setattr__(self, "record", PredictionRecord(len(newest), sum(newest), len(newest)))


def _executed(path: Path) -> ExecutedWorld:
    """Real executions; five of six are known. None is asked about that is too short to tell if anything comes out."""
    executions = read_executions(path)
    name = f"real, {executions.traces[0].graph.processor}: {path.name.partition('.')[0]}"
    observed, _ = judged_observations(executions)
    known = [observation for i, observation in enumerate(observed) if i % 6]
    return ExecutedWorld(name[:33], known, [o for o in observed[::6] if o.success is not None])


def _simulated(name: str, settings: TraceSettings, count: int) -> ExecutedWorld:
    traces = (simulate_trace(trace_seed(_SEED, i), settings).trace for i in range(count))
    observed = [observation_of(trace, str(i)) for i, trace in enumerate(traces)]
    return ExecutedWorld(name, observed[:RECORDED_RUNS], observed[RECORDED_RUNS:])


def _is_held(observation: Observation) -> bool:
    """Whether an execution was as predicted, as the console counts it."""
    trace, latency_s = observation.trace, observation.costs[2]
    answer = shipped_ensemble().predict(trace.graph, trace.hosts, [trace.placement])
    latency = answer.costs["Le"]
    votes = ((answer.backpressure, observation.backpressure), (answer.success, observation.success))
    right = all(seen is None or bool(vote[0]) == seen for vote, seen in votes)
    return latency_s is not None and right and bool(latency.low[0] <= latency_s <= latency.high[0])


def _asked(world: ExecutedWorld, count: int) -> Counter[str]:
    """Verdicts on questions about a world's executions, each asked as often as it takes."""
    counts: Counter[str] = Counter()
    for n, (observation, share) in enumerate(_questions(world, count)):
        document, bound_s = document_of(observation.trace, share * _true_latency(observation))
        decision = answer_document(document, _QUIET, world.record)
        is_kept = bool(observation.success) and not observation.backpressure and share >= 1.0
        verdict = decision.verdict.partition("_")[0]
        counts["asked"] += 1
        counts["reject" if verdict == "queue" else verdict] += 1
        if verdict == "admit" and not is_kept:
            counts["false"] += 1
            print(f"  false: {world.name} {n}: {decision.headline}; objective {bound_s:.4g} s", file=sys.stderr)
    return counts


def _questions(world: ExecutedWorld, count: int) -> Iterator[tuple[Observation, float]]:
    """Executions with an objective each, as a share of the true latency."""
    source = random.Random(_SEED)
    for n in range(count):
        yield world.asked[n % len(world.asked)], _SPREAD ** source.uniform(-1.0, 1.0)


def _true_latency(observation: Observation) -> float:
    """Mean end-to-end latency, s; 10 s where it was held back or put nothing out, and no objective holds."""
    return observation.costs[2] or 10.0


def document_of(trace: CostTrace, latency_s: float) -> tuple[dict[str, Any], float]:
    """Document of a cluster with the trace's hosts and nothing on them, its query as a candidate where it was executed.

    Returns
    -------
    tuple
        The document, and the bound of its objective, s: `latency_s` end to end without the filling of windows, which no
        objective that counts from their ends has.
    """
    graph, flow = trace.graph, nominal_flow(trace.graph)
    longest: dict[int, float] = {}
    for i in graph.order:
        longest[i] = float(flow.fill_s[i]) + max((longest[a] for a in graph.inputs[i]), default=0.0)
    bound_s = max(latency_s - max(longest[i] for i in graph.sinks), 1e-6)
    sources = [i for i, inputs in enumerate(graph.inputs) if not inputs]
    candidate = {
        "query": "new",
        "operators": [_operator(trace, i, float(flow.out_eps[i]), float(flow.in_eps[i])) for i in graph.order],
        "objective": {"statistic": "mean", "bound_s": bound_s},
    }
    document = {
        "subinterval_s": _WIDTH_S,
        "sources": [_source(i, graph.operators[i]) for i in sources],
        "nodes": [
            {
                "id": f"host{j}",
                "cores": (cores := max(1, ceil(host.cpu_percent / 100.0))),
                "capacity_cps": host.cpu_percent / 100.0 * REFERENCE_CORE_CPS / cores,
                "memory_bytes": host.ram_mb * 1e6,
            }
            for j, host in enumerate(trace.hosts)
        ],
        "links": [
            {
                "from": f"host{j}",
                "to": f"host{k}",
                "bandwidth_bytes_s": host.bandwidth_mbit_s * BYTES_PER_MBIT,
                "delay_s": host.latency_s,
            }
            for j, host in enumerate(trace.hosts)
            for k in range(len(trace.hosts))
            if j != k
        ],
        "operators": [],
        "stream_processor": graph.processor,
        "candidate": candidate,
    }
    return document, bound_s


def _source(i: int, node: OperatorNode) -> dict[str, Any]:
    return {
        "id": f"stream{i}",
        "arrivals": [node.rate_eps * _WIDTH_S] * _STEPS,
        "event_fields": {"ints": node.n_int, "strings": node.n_str, "doubles": node.n_dbl},
    }


def _operator(trace: CostTrace, i: int, out_eps: float, in_eps: float) -> dict[str, Any]:
    node = trace.graph.operators[i]
    share = 1.0 if node.kind == "source" else out_eps / in_eps if in_eps > 0.0 else node.selectivity
    read = [f"new/{a}" for a in trace.graph.inputs[i]] or [f"stream{i}"]
    operator: dict[str, Any] = {
        "id": f"new/{i}",
        "kind": _KINDS.get(node.kind, node.kind),
        "node": f"host{trace.placement[i]}",
        "tuple_values_in": node.values_in,
        "tuple_values_out": node.values_out,
        "inputs": [{"from": name, "selectivity": share} for name in read],
    }
    if node.kind == "filter":
        operator["filter"] = {"function": node.function, "literal_type": node.value_type}
    elif node.kind == "join":
        operator["join"] = {"key_type": node.value_type}
    elif node.kind == "agg":
        kinds = {"argument_type": node.value_type, "group_by_type": node.group_type}
        operator["aggregate"] = {"function": node.function, **kinds}
    if node.window_policy:
        window = {"policy": node.window_policy, "type": node.window_type, "size": node.window_size}
        slide = {"slide": node.window_slide} if node.window_type == "sliding" else {}
        operator["window"] = {**window, **slide, "measured_from": "window_end"}
    return operator
