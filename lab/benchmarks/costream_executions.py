"""The cohort simulation against real executions: ``./sluice lab costream-executions``.

Small queries ran as processes under CPU quota on real links (`./sluice lab executions`). Each is simulated for the
same time without hidden noise, five times with other arrivals, and predicted by the fluid and by the shipped
model where there is one. Errors stand per cost as median and 95 % quantile of the q-error; yes-no labels as balanced
accuracy. These are errors on real executions; those on simulated traces are another benchmark's.

Beside them stand what chance alone explains: executions made a second time, and one simulated run with hidden noise
against the same mean of five. The model speaks of runs of 240 s: latencies under back-pressure grow with the time, so
those of the shorter executions are left out for it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.costream.accuracy import balanced_accuracy
from engine.costream.adaptation import Observation, fit_executions, observation_errors, observation_of, recalibrated
from engine.costream.prediction import Ensemble, shipped_ensemble
from engine.costream.residual import COSTS, VOTES
from engine.costream.weights import WeightsError
from engine.errors import EngineError
from engine.query_graph.fluid import fluid_of
from engine.query_graph.graph import NOMINAL_PROCESSOR, OPERATOR_KINDS, CostTrace, TraceLabel
from engine.simulation.cohort import CohortWorld, simulate_cohorts
from engine.words import counted
from lab.training.dataset import read_corpus
from lab.training.options import print_faults

__all__ = [
    "FLINK_EXECUTIONS",
    "SHIPPED_EXECUTIONS",
    "ExecutionSet",
    "judged_observations",
    "main",
    "read_executions",
    "report_processor",
]

SHIPPED_EXECUTIONS = Path(__file__).parent / "data" / "costream_executions.jsonl.gz"
FLINK_EXECUTIONS = SHIPPED_EXECUTIONS.with_name("flink_executions.jsonl.gz")

_RUNS = 5
_MAX_Q50 = 1.25  # of the simulation, per cost

_USED_UP = 0.8  # share of a quota from which on a host may have been short
_MIN_RESULTS, _MIN_EXPECTED = 30, 3.0  # that tell a rate; without any of which an execution failed
_CONTRADICTED = "left out: back-pressure, but neither a quota was used up nor a link full"
_TOO_SHORT = "too short to tell whether anything comes out"
_FEW_RESULTS = "with too few results for a rate"


@dataclass(frozen=True)
class ExecutionSet:
    """Real executions.

    Attributes
    ----------
    traces
        One per query, with its first label.
    repeats
        Labels of later executions of the same query, and the index of its trace.
    cpu_percent
        Per trace what its first execution used of each host's CPU, in percent of a core.
    duration_s
        Length of each.
    machine
        Where they ran, and how limits were kept.
    """

    traces: tuple[CostTrace, ...]
    repeats: tuple[tuple[int, TraceLabel], ...]
    cpu_percent: tuple[tuple[float, ...], ...]
    duration_s: float
    machine: str


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if the simulation's median error of a cost is above 1.25, 2 for unreadable files."""
    parser = argparse.ArgumentParser(
        prog="sluice lab costream-executions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the first eight queries only")
    parser.add_argument(
        "--fit", action="store_true", help="also fit the shipped model to one half, and judge by the other"
    )
    parser.add_argument("--executions", default=str(SHIPPED_EXECUTIONS), help="other executions, .jsonl.gz")
    parser.add_argument("--flink", action="store_true", help="those on a real Flink that come with Sluice")
    options = parser.parse_args(list(arguments))
    try:
        executions = read_executions(FLINK_EXECUTIONS if options.flink else Path(options.executions))
    except EngineError as error:
        print_faults("executions", error)
        return 2
    if options.quick:
        executions = replace(
            executions,
            traces=executions.traces[:8],
            repeats=tuple(repeat for repeat in executions.repeats if repeat[0] < 8),
        )
    if any(trace.graph.processor != NOMINAL_PROCESSOR for trace in executions.traces):
        report_processor(executions, has_fit=options.fit)
        return 0
    is_met = _report(executions)
    if options.fit:
        _print_fitted(executions.traces)
    return 0 if is_met else 1


def read_executions(path: Path) -> ExecutionSet:
    """Read what `./sluice lab executions` wrote.

    Raises
    ------
    DocumentError
        The file is no corpus, or its card does not say that its traces are real.
    """
    corpus = read_corpus(path)
    if corpus.origin.kind != "real":
        raise EngineError(f"{path.name} holds simulated traces; allowed: real executions, by the card beside the file")
    card = json.loads(path.with_name(f"{path.name}.card.json").read_text())
    if len(card["executions"]) != len(corpus.traces):
        count = counted(len(card["executions"]), "execution")
        raise EngineError(f"The card of {path.name} tells of {count}; allowed: {len(corpus.traces)}, one a line")
    traces: list[CostTrace] = []
    repeats: list[tuple[int, TraceLabel]] = []
    places: dict[CostTrace, int] = {}
    used: list[tuple[float, ...]] = []
    for trace, execution in zip(corpus.traces, card["executions"], strict=True):
        assert trace.label is not None
        query = replace(trace, label=None)
        if query in places:
            repeats.append((places[query], trace.label))
        else:
            places[query] = len(traces)
            traces.append(trace)
            used.append(tuple(execution["cpu_percent"]))
    limits, machine = card["limits"], card["machine"]
    words = (
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; "
        f"cpu: {limits['cpu']}; bandwidth: {limits['bandwidth']}; latency: {limits['latency']}"
    )
    return ExecutionSet(tuple(traces), tuple(repeats), tuple(used), float(card["duration_s"]), words)


def _report(executions: ExecutionSet) -> bool:
    traces = executions.traces
    real = [_label(trace) for trace in traces]
    print(f"Real executions, {executions.duration_s:g} s each, on: {executions.machine}")
    succeeded, held = sum(label.success for label in real), sum(label.backpressure for label in real)
    print(
        f"{len(traces)} queries, {succeeded} with output, {held} with back-pressure; {len(executions.repeats)} repeats"
    )
    world = CohortWorld(duration_s=executions.duration_s)
    simulated = [_simulated(trace, world) for trace in traces]
    noisy = [
        simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=_RUNS + 1, world=world).label
        for trace in traces
    ]
    fluids = [_flowing(trace) for trace in traces]
    print("q-error Q50/Q95, balanced accuracy:")
    errors = _print_row("simulation", real, simulated)
    _print_row("fluid", real, fluids)
    calm = [i for i, label in enumerate(real) if not label.backpressure]
    _print_row("simulation, no back-pressure", [real[i] for i in calm], [simulated[i] for i in calm])
    _print_row("fluid, no back-pressure", [real[i] for i in calm], [fluids[i] for i in calm])
    tight = [i for i, label in enumerate(real) if label.backpressure]
    _print_row("simulation, back-pressure", [real[i] for i in tight], [simulated[i] for i in tight])
    _print_model(traces, real, calm)
    again = [label for _, label in executions.repeats]
    _print_row("chance: executed once more", [real[i] for i, _ in executions.repeats], again)
    _print_row("chance: simulated once more", noisy, simulated)
    is_met = all(values and float(np.median(values)) <= _MAX_Q50 for values in errors.values())
    print(f"target: median of the simulation at most {_MAX_Q50:g} per cost: {'met' if is_met else 'missed'}")
    return is_met


def _label(trace: CostTrace) -> TraceLabel:
    assert trace.label is not None
    return trace.label


def _simulated(trace: CostTrace, world: CohortWorld) -> TraceLabel:
    """Geometric mean of the costs of several runs without hidden noise, majority of the yes-no labels."""
    labels = [
        simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed, world=world, noise=False).label
        for seed in range(1, _RUNS + 1)
    ]

    def centre(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return math.exp(sum(map(math.log, present)) / len(present)) if 2 * len(present) > _RUNS else None

    return TraceLabel(
        centre([label.throughput_eps for label in labels]),
        centre([label.processing_latency_s for label in labels]),
        centre([label.end_to_end_latency_s for label in labels]),
        sum(label.backlog_eps for label in labels) / _RUNS,
        2 * sum(label.backpressure for label in labels) > _RUNS,
        2 * sum(label.success for label in labels) > _RUNS,
    )


def _flowing(trace: CostTrace) -> TraceLabel:
    fluid = fluid_of(trace.graph, trace.hosts, np.array([trace.placement]))
    throughput, lp, le = np.exp(fluid.costs[0]).tolist()
    return TraceLabel(throughput, lp, le, 0.0, bool(fluid.backpressure[0] > 0), bool(fluid.success[0] > 0))


def _print_model(traces: Sequence[CostTrace], real: Sequence[TraceLabel], calm: Sequence[int]) -> None:
    try:
        ensemble = shipped_ensemble()
    except (WeightsError, OSError) as error:
        print(f"  shipped model: not there ({error})")
        return
    predicted = [_predicted(ensemble, trace) for trace in traces]
    print(f"  {ensemble.card.line}")
    without = [replace(label, processing_latency_s=None, end_to_end_latency_s=None) for label in predicted]
    _print_row("shipped model, throughput and votes", real, without)
    _print_row("shipped model, no back-pressure", [real[i] for i in calm], [predicted[i] for i in calm])


def report_processor(executions: ExecutionSet, *, has_fit: bool) -> None:
    """Errors on executions of another stream processor: of the cost table, of the processor's record, and fitted.

    With `has_fit` each half of the executions is judged by a model that was fitted to and calibrated on the other.
    """
    observed, left_out = judged_observations(executions)
    ensemble, name = shipped_ensemble(), executions.traces[0].graph.processor
    print(f"Executions on {name}, {executions.duration_s:g} s each, on: {executions.machine}")
    print(f"{len(executions.traces)} queries; {'; '.join(f'{n} {words}' for words, n in left_out.items())}")
    print("q-error Q50/Q95, balanced accuracy, what intervals hold:")
    graphs = [replace(o.trace.graph, processor=NOMINAL_PROCESSOR) for o in observed]
    nominal = [replace(o, trace=replace(o.trace, graph=g)) for o, g in zip(observed, graphs, strict=True)]
    _print_errors("the cost table", ensemble, nominal)
    _print_errors(f"the record of {name}", ensemble, observed)
    for first in (0, 1) if has_fit else ():
        known, held_out = observed[first::2], observed[1 - first :: 2]
        fitting = [observation for i, observation in enumerate(known) if i % 3]
        fitted = recalibrated(fit_executions(ensemble, fitting), "fitted", len(fitting), known[::3])
        _print_errors(f"fitted to half {first + 1}, on the other", fitted, held_out)


def judged_observations(executions: ExecutionSet) -> tuple[list[Observation], dict[str, int]]:
    """Executions as a cluster's own, and how many of them, or of their labels, are left out, by the reason in words.

    Back-pressure where neither a quota was used up nor a link would be full is the machine's, not the query's.
    """
    observed: list[Observation] = []
    left_out = dict.fromkeys((_CONTRADICTED, _TOO_SHORT, _FEW_RESULTS), 0)
    for i, (trace, used) in enumerate(zip(executions.traces, executions.cpu_percent, strict=True)):
        label, fluid = _label(trace), fluid_of(trace.graph, trace.hosts, np.array([trace.placement]))
        share = max(u / host.cpu_percent for u, host in zip(used, trace.hosts, strict=True))
        if label.backpressure and share < _USED_UP and float(fluid.link_use[0]) < 1.0:
            left_out[_CONTRADICTED] += 1
            continue
        observation = _observation(trace, str(i))
        throughput, processing, end_to_end = observation.costs
        if label.success:  # full buffers hold no more as time goes on
            processing = label.processing_latency_s
        elif float(np.exp(fluid.costs[0, 0])) * executions.duration_s < _MIN_EXPECTED:
            left_out[_TOO_SHORT] += 1
            observation = replace(observation, success=None)
        if throughput is not None and throughput * executions.duration_s < _MIN_RESULTS:
            left_out[_FEW_RESULTS] += 1
            throughput = None
        observed.append(replace(observation, costs=(throughput, processing, end_to_end)))
    return observed, left_out


def _print_errors(name: str, model: Ensemble, observed: Sequence[Observation]) -> None:
    errors = observation_errors(model, observed)
    costs = [f"{m} {errors[m]['q50']:.3f}/{errors[m]['q95']:.3f} ({errors[m]['runs']})" for m in COSTS if m in errors]
    votes = [f"{m} {errors[m]['accuracy']:.1%}" for m in VOTES if m in errors]
    held = ", ".join(f"{m} {_held_share(model, observed, m):.0%}" for m in COSTS if m in errors)
    print(f"  {name} (n={len(observed)}): {', '.join([*costs, *votes])}; intervals hold: {held}")


def _print_fitted(traces: Sequence[CostTrace]) -> None:
    """Errors on every second query, of the shipped model and of one that was fitted to and calibrated on the others."""
    observed = [_observation(trace, str(i)) for i, trace in enumerate(traces)]
    known, held_out = observed[::2], observed[1::2]
    calibrating = known[::3]
    fitting = [observation for i, observation in enumerate(known) if i % 3]
    ensemble = shipped_ensemble()
    fitted = recalibrated(fit_executions(ensemble, fitting), "fitted", len(fitting), calibrating)
    factors = zip(OPERATOR_KINDS, fitted.arrays["factors"], strict=True)
    print(f"factors on the cost table: {', '.join(f'{kind} {float(factor):.3g}' for kind, factor in factors)}")
    named = {"shipped": ensemble, f"fitted to {len(fitting)}, calibrated on {len(calibrating)}": fitted}
    for name, model in named.items():
        _print_errors(name, model, held_out)


def _held_share(ensemble: Ensemble, observations: Sequence[Observation], metric: str) -> float:
    """Share of executions whose cost lies within its interval."""
    held = []
    for observation in observations:
        if (cost := observation.costs[COSTS.index(metric)]) is not None:
            trace = observation.trace
            answer = ensemble.predict(trace.graph, trace.hosts, [trace.placement]).costs[metric]
            held.append(bool(answer.low[0] <= cost <= answer.high[0]))
    return float(np.mean(held))


def _observation(trace: CostTrace, group: str) -> Observation:
    """An execution as a cluster's own; latencies under back-pressure grow with the time and are left out."""
    observation = observation_of(trace, group)
    return replace(observation, costs=(observation.costs[0], None, None)) if observation.backpressure else observation


def _predicted(ensemble: Ensemble, trace: CostTrace) -> TraceLabel:
    answer = ensemble.predict(trace.graph, trace.hosts, [trace.placement])
    throughput, lp, le = (float(answer.costs[metric].mean[0]) for metric in COSTS)
    return TraceLabel(throughput, lp, le, 0.0, bool(answer.backpressure[0]), bool(answer.success[0]))


def _print_row(name: str, true: Sequence[TraceLabel], other: Sequence[TraceLabel]) -> dict[str, list[float]]:
    """Print and return the q-errors per cost of pairs in which both have one."""
    pairs = list(zip(true, other, strict=True))
    errors = {
        "T": _q_errors([(a.throughput_eps, b.throughput_eps) for a, b in pairs]),
        "Lp": _q_errors([(a.processing_latency_s, b.processing_latency_s) for a, b in pairs]),
        "Le": _q_errors([(a.end_to_end_latency_s, b.end_to_end_latency_s) for a, b in pairs]),
    }
    words = [f"{metric} {_quantiles(values)}" for metric, values in errors.items()]
    for metric, attribute in (("RO", "backpressure"), ("S", "success")):
        flags = [(getattr(a, attribute), getattr(b, attribute)) for a, b in pairs]
        words.append(f"{metric} {balanced_accuracy(*zip(*flags, strict=True)):.1%}" if flags else f"{metric} -")
    print(f"  {name} (n={len(pairs)}): {', '.join(words)}")
    return errors


def _q_errors(pairs: Sequence[tuple[float | None, float | None]]) -> list[float]:
    return [max(a / b, b / a) for a, b in pairs if a and b]


def _quantiles(values: Sequence[float]) -> str:
    return "-" if not values else f"{np.median(values):.3f}/{np.quantile(values, 0.95):.3f}"
