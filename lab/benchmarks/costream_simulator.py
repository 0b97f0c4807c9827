"""The cohort simulation that labels the corpus: ``./sluice lab costream-simulator``.

Speed on one core; costs and their shares in the corpus; costs with a step of 20 ms beside those with 50 ms; processing
latency on hosts with twice the CPU; share of traces in which memory matters; and the noise floor, which is the error of
the geometric mean of four further runs, hidden noise included: no prediction can do better. Times are CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engine.query_graph.graph import CostTrace, HostNode, TraceLabel
from engine.simulation.cohort import CohortWorld, draw_trace, simulate_cohorts, simulate_trace, trace_seed
from lab.benchmarks.machine import machine
from lab.simulation.cohort_reruns import rerun_label

__all__ = ["main"]

_SEED = 99
_COUNT, _QUICK_COUNT = 1000, 60
_MIN_PER_S = 200.0
_MAX_LONGER, _LONGER = 0.02, 1.02
_MAX_STEP_Q50, _MAX_STEP_Q90 = 1.005, 1.05
_MATTERS = 1.1  # ratio of costs from which memory is said to matter
_AMPLE_MB = 64_000.0
_COSTS: dict[str, Callable[[TraceLabel], float | None]] = {
    "T": lambda label: label.throughput_eps,
    "Lp": lambda label: label.processing_latency_s,
    "Le": lambda label: label.end_to_end_latency_s,
}

Traces = list[tuple[int, CostTrace]]


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        prog="sluice lab costream-simulator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_COUNT} traces instead of {_COUNT}")
    count = _QUICK_COUNT if parser.parse_args(list(arguments)).quick else _COUNT
    print(f"Machine: {machine()}")
    traces = [(seed, draw_trace(seed)) for seed in (trace_seed(_SEED, i) for i in range(count))]
    simulate_trace(_SEED)  # compiled before it is timed
    met = [_measure_speed(traces), _compare_steps(traces), _compare_cpu(traces)]
    _compare_memory(traces)
    _measure_floor(traces)
    return 0 if all(met) else 1


def _measure_speed(traces: Traces) -> bool:
    begin = time.process_time()
    simulated = [simulate_trace(seed) for seed, _ in traces]
    per_s = len(traces) / (time.process_time() - begin)
    labels = [one.trace.label for one in simulated if one.trace.label]
    print(f"speed: {per_s:.0f} traces/s and core (target {_MIN_PER_S:.0f})")
    operators = statistics.mean(len(one.trace.graph.operators) for one in simulated)
    print(
        f"labels: success {_share(label.success for label in labels)}, "
        f"back-pressure {_share(label.backpressure for label in labels)}, "
        f"out of memory {_share(one.crashed for one in simulated)}; {operators:.2f} operators"
    )
    for name, cost in _COSTS.items():
        values = sorted(value for label in labels if (value := cost(label)))
        print(
            f"  {name}: "
            + ", ".join(f"q{q:g} {values[int(q * len(values))]:.3g}" for q in (0.05, 0.25, 0.5, 0.75, 0.95))
        )
    return per_s >= _MIN_PER_S


def _compare_steps(traces: Traces) -> bool:
    fine = CohortWorld(step_s=0.02)
    pairs = [(_plain(seed, trace), _plain(seed, trace, fine)) for seed, trace in traces]
    errors = _q_errors(pairs)
    same = _share(a.backpressure == b.backpressure and a.success == b.success for a, b in pairs)
    print(
        f"step of 50 ms beside 20 ms (Q50, Q90): {_quantiles(errors, 0.9)}; back-pressure and success equal in {same}"
    )
    return all(
        statistics.median(values) <= _MAX_STEP_Q50 and _quantile(values, 0.9) <= _MAX_STEP_Q90
        for values in errors.values()
    )


def _compare_cpu(traces: Traces) -> bool:
    pairs = _changed(traces, lambda host: replace(host, cpu_percent=2.0 * host.cpu_percent))
    ratios = [
        b.processing_latency_s / a.processing_latency_s
        for a, b in pairs
        if a.processing_latency_s and b.processing_latency_s
    ]
    longer = sum(ratio > _LONGER for ratio in ratios) / len(ratios)
    print(f"twice the CPU: Lp more than 2 % longer in {longer:.1%} of {len(ratios)} traces (target {_MAX_LONGER:.0%})")
    return longer <= _MAX_LONGER


def _compare_memory(traces: Traces) -> None:
    pairs = _changed(traces, lambda host: replace(host, ram_mb=_AMPLE_MB))
    shares = [
        f"{name} {sum(value > _MATTERS for value in values) / len(traces):.1%}"
        for name, values in _q_errors(pairs).items()
    ]
    shares += [
        f"success {_share(a.success != b.success for a, b in pairs)}",
        f"back-pressure {_share(a.backpressure != b.backpressure for a, b in pairs)}",
    ]
    print(f"64 GB in every host change by more than a tenth: {', '.join(shares)}")


def _measure_floor(traces: Traces) -> None:
    pairs = []
    for seed, trace in traces:
        label = simulate_trace(seed).trace.label
        assert label is not None
        pairs.append((label, rerun_label(trace.graph, trace.hosts, trace.placement, seed=seed)))
    print(
        f"noise floor (Q50, Q95): {_quantiles(_q_errors(pairs), 0.95)}; "
        f"back-pressure {_share(a.backpressure == b.backpressure for a, b in pairs)}, "
        f"success {_share(a.success == b.success for a, b in pairs)}"
    )


def _plain(seed: int, trace: CostTrace, world: CohortWorld | None = None) -> TraceLabel:
    run = simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed, world=world, noise=False)
    return run.label


def _changed(traces: Traces, change: Callable[[HostNode], HostNode]) -> list[tuple[TraceLabel, TraceLabel]]:
    return [
        (_plain(seed, trace), _plain(seed, replace(trace, hosts=tuple(map(change, trace.hosts)))))
        for seed, trace in traces
    ]


def _q_errors(pairs: Sequence[tuple[TraceLabel, TraceLabel]]) -> dict[str, list[float]]:
    errors = {}
    for name, cost in _COSTS.items():
        both = [(cost(a), cost(b)) for a, b in pairs]
        errors[name] = sorted(max(a / b, b / a) for a, b in both if a and b)
    return errors


def _quantile(values: Sequence[float], level: float) -> float:
    return values[min(len(values) - 1, int(level * len(values)))]


def _quantiles(errors: dict[str, list[float]], level: float) -> str:
    return ", ".join(
        f"{name} {statistics.median(values):.3f}/{_quantile(values, level):.3f}" for name, values in errors.items()
    )


def _share(flags: Iterator[bool]) -> str:
    values = list(flags)
    return f"{sum(values) / len(values):.1%}"
