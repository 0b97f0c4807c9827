"""Record of a stream processor from real executions on it: ``./sluice lab stream-processor --executions FILE``.

Factors on the cost table by kind of operator, the one on sending, times of a poll and of a hop, and the units of
intervals (`engine.query_graph.processors`) are fitted to what the executions showed; what follows from the processor's
own settings (chains, buffers, timeouts) stays as its record has it. Printed is the record in Python, with its errors.
With ``--half`` it is fitted to each half as well, and judged on the other: these are the errors to expect of others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from engine.arrays import FloatArray
from engine.costream.accuracy import balanced_accuracy
from engine.costream.adaptation import Observation
from engine.costream.intervals import end_scale, kinds_of, shortage_of, units_of
from engine.costream.prediction import shipped_ensemble
from engine.costream.residual import COSTS
from engine.costream.summary import FluidFacts, facts_of
from engine.errors import EngineError
from engine.query_graph.graph import NOMINAL_PROCESSOR, OPERATOR_KINDS
from engine.query_graph.processors import STREAM_PROCESSORS, StreamProcessor
from lab.benchmarks.costream_executions import FLINK_EXECUTIONS, judged_observations, read_executions
from lab.training.options import print_faults

__all__ = ["fitted_record", "main"]

_COARSE, _FINE = (0.25, 0.5, 2.0, 4.0), (0.71, 0.84, 1.19, 1.41)  # by which numbers are tried
_PRICE = 0.003  # of the score, per factor of 2 that a kind's factor is away from that of all kinds together
_ROUNDS = 3  # over all numbers
_FITTED = 200  # executions that numbers are fitted to; the others count for the units
_JITTERS_S = (0.25e-3, 0.5e-3, 1e-3, 2e-3, 4e-3, 8e-3)
_TIMES = {"poll_s": 1e-3, "remote_hop_s": 1e-3}  # and what a fit begins with
_START = 0.05  # factor of every kind that a fit begins with
_DIGITS = 2


def main(arguments: Sequence[str] = ()) -> int:
    """Print the record and its errors; returns 2 for executions that cannot be read, or are of no other processor."""
    parser = argparse.ArgumentParser(
        prog="sluice lab stream-processor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--executions", default=str(FLINK_EXECUTIONS), help="executions, .jsonl.gz (those on Flink that come with it)"
    )
    parser.add_argument("--half", action="store_true", help="also fit to one half and judge by the other, and reverse")
    options = parser.parse_args(list(arguments))
    try:
        executions = read_executions(Path(options.executions))
        processors = {trace.graph.processor for trace in executions.traces}
        if len(processors) != 1 or NOMINAL_PROCESSOR in processors:
            raise EngineError(
                f"{options.executions} has executions on {', '.join(sorted(processors))}; allowed: on one stream "
                "processor other than the nominal one, whose costs are the table's"
            )
    except EngineError as error:
        print_faults("executions", error)
        return 2
    observed, left_out = judged_observations(executions)
    present = STREAM_PROCESSORS[executions.traces[0].graph.processor]
    print(f"{len(observed)} executions on {present.label}; {'; '.join(f'{n} {why}' for why, n in left_out.items())}")
    fitted = replace(fitted_record(present, observed), machine=executions.machine)
    print(_python(fitted))
    print("q-error Q50/Q95 (runs), balanced accuracy, what intervals of 90 % hold:")
    _print_errors("the record of before", present, observed)
    _print_errors("the fitted record, on what it was fitted to", fitted, observed)
    for first in (0, 1) if options.half else ():
        known, others = observed[first::2], observed[1 - first :: 2]
        _print_errors(f"fitted to half {first + 1}, on the other", fitted_record(present, known), others)
    return 0


def fitted_record(present: StreamProcessor, observed: Sequence[Observation]) -> StreamProcessor:
    """The record with its numbers fitted to executions, whatever they were before.

    Parameters
    ----------
    present
        Its settings stay.
    observed
        Executions on it, one or more.

    Notes
    -----
    Score: the mean over what was observed of mean ln q of T, Lp and Le and of the share of wrong votes. Numbers are
    tried one after another, all factors together first, and kept where the score gets less by more than `_PRICE` per
    factor of 2 that a kind is away from the others. Intervals of `LEVEL`: conformal, by whether something may be short.
    """
    part = observed[:: -(-len(observed) // _FITTED)]
    record = replace(
        present, factors=dict.fromkeys(OPERATOR_KINDS, _START), send_factor=_START, executions=len(observed), **_TIMES
    )

    def price(tried: StreamProcessor) -> float:
        by_kind = np.log2([*tried.factors.values(), tried.send_factor])
        return _Fluids.of(tried, part).score + _PRICE * float(np.abs(by_kind - np.median(by_kind)).mean())

    best = price(record)
    steps = [(move, step) for sizes in (_COARSE, _FINE) for move in _moves() for step in sizes]
    for _ in range(_ROUNDS):
        before = best
        for move, step in steps:
            if (value := price(tried := move(record, step))) < best:
                record, best = tried, value
        if best == before:
            break
    return _with_units(_rounded(record), observed)


_Move = Callable[[StreamProcessor, float], StreamProcessor]


def _moves() -> list[_Move]:
    """Ways to change a record by a factor: all costs together, each of them, and the times."""

    def together(record: StreamProcessor, step: float) -> StreamProcessor:
        factors = {kind: factor * step for kind, factor in record.factors.items()}
        return replace(record, factors=factors, send_factor=record.send_factor * step)

    def of_kind(kind: str) -> _Move:
        return lambda record, step: replace(record, factors={**record.factors, kind: record.factors[kind] * step})

    def of_field(name: str) -> _Move:
        return lambda record, step: replace(record, **{name: getattr(record, name) * step})

    return [together, *map(of_kind, OPERATOR_KINDS), *map(of_field, ("send_factor", *_TIMES))]


def _rounded(record: StreamProcessor) -> StreamProcessor:
    factors = {kind: _plain(factor) for kind, factor in record.factors.items()}
    return replace(
        record,
        factors=factors,
        send_factor=_plain(record.send_factor),
        **{name: _plain(getattr(record, name)) for name in _TIMES},
    )


def _plain(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _with_units(record: StreamProcessor, observed: Sequence[Observation]) -> StreamProcessor:
    """The record with the likeliest jitter, and units with which intervals hold what they are meant to."""
    plain = [replace(record, jitter_s=jitter_s, units=((1.0,) * 3,) * 2) for jitter_s in _JITTERS_S]
    likeliest = min(plain, key=lambda tried: _Fluids.of(tried, observed).surprise)
    fluids = _Fluids.of(likeliest, observed)
    scales = [[fluids.scale(m, is_short) for m in range(len(COSTS))] for is_short in (False, True)]
    # units of what nobody observed are those of what is short; rounded up, so that intervals hold what they did
    units = [[scale or other or 1.0 for scale, other in zip(row, scales[1], strict=True)] for row in scales]
    rounded = [tuple(ceil(10.0 * unit) / 10.0 for unit in row) for row in units]
    return replace(likeliest, units=(rounded[0], rounded[1]))


@dataclass(frozen=True, eq=False)
class _Fluids:
    """Fluids of executions by a record, beside what was observed."""

    observed: Sequence[Observation]
    facts: FluidFacts
    units: FloatArray

    @classmethod
    def of(cls, record: StreamProcessor, observed: Sequence[Observation]) -> _Fluids:
        parts = [
            facts_of(o.trace.graph, o.trace.hosts, np.array([o.trace.placement]), processor=record) for o in observed
        ]
        facts = FluidFacts.joined(parts)
        return cls(observed, facts, units_of(facts, {record.name: record}))

    def errors(self, metric: int) -> tuple[list[int], FloatArray]:
        """Positions of the runs that tell a cost, and ln of it over the fluid's."""
        rows = [i for i, o in enumerate(self.observed) if o.costs[metric]]
        true = np.array([self.observed[i].costs[metric] for i in rows], dtype=np.float64)
        return rows, np.log(true) - self.facts.costs[rows, metric]

    @property
    def votes(self) -> list[tuple[list[bool], list[bool]]]:
        """Of back-pressure and success, what was observed and what the fluid says."""
        votes = []
        for i, name in enumerate(("backpressure", "success")):
            known = [(getattr(o, name), self.facts.votes[k, i] > 0.0) for k, o in enumerate(self.observed)]
            told = [(bool(truth), bool(said)) for truth, said in known if truth is not None]
            votes.append(([truth for truth, _ in told], [said for _, said in told]))
        return votes

    @property
    def score(self) -> float:
        """Mean of the mean ln q of each cost and of the shares of wrong votes."""
        parts = [float(np.abs(errors).mean()) for m in range(len(COSTS)) if len(errors := self.errors(m)[1])]
        parts += [1.0 - balanced_accuracy(truth, said) for truth, said in self.votes if truth]
        return float(np.mean(parts))

    def bounds(self, metric: int) -> FloatArray:
        """Ends of the shipped model's intervals where no residual counts, in units, (n, 2)."""
        kinds = kinds_of(self.facts, np.zeros(len(self.facts), dtype=bool))
        bounds: FloatArray = np.asarray(shipped_ensemble().arrays["bounds"], dtype=np.float64)[metric][kinds]
        return bounds

    def scale(self, metric: int, is_short: bool) -> float:
        """Factor on units that makes intervals hold, where something may be short or nothing is; 0: nobody knows."""
        rows, errors = self.errors(metric)
        same = (shortage_of(self.facts.use[rows]) > 0) == is_short
        index = np.array(rows, dtype=np.int64)[same]
        if not len(index):
            return 0.0
        return end_scale(self.bounds(metric)[index], errors[same] / self.units[index, metric], np.zeros(len(index)))

    def held(self, metric: int) -> float:
        """Share of runs whose cost lies within its interval."""
        rows, errors = self.errors(metric)
        low, high = (self.bounds(metric)[rows] * self.units[rows, metric, None]).T
        return float(((low <= errors) & (errors <= high)).mean())

    @property
    def surprise(self) -> float:
        """Mean of -ln likelihood of the errors of latencies, were these Laplace's in proportion to their units."""
        parts = []
        for metric in range(1, len(COSTS)):
            rows, errors = self.errors(metric)
            units = self.units[rows, metric]
            # -ln p = ln(2·s·u) + |e|/(s·u), least at s = mean |e|/u
            parts.append(float(np.log(units).mean() + np.log(np.mean(np.abs(errors) / units))) if rows else 0.0)
        return float(np.mean(parts))


def _print_errors(name: str, record: StreamProcessor, observed: Sequence[Observation]) -> None:
    fluids, words, held = _Fluids.of(record, observed), [], []
    for m, metric in enumerate(COSTS):
        rows, errors = fluids.errors(m)
        if rows:
            q50, q95 = np.quantile(np.exp(np.abs(errors)), (0.5, 0.95))
            words.append(f"{metric} {q50:.3f}/{q95:.2f} ({len(rows)})")
            held.append(f"{metric} {fluids.held(m):.0%}")
    words += [
        f"{metric} {balanced_accuracy(truth, said):.1%}"
        for metric, (truth, said) in zip(("RO", "S"), fluids.votes, strict=True)
        if truth
    ]
    print(f"  {name} (n={len(observed)}): {', '.join(words)}; intervals hold {', '.join(held)}", flush=True)


def _python(record: StreamProcessor) -> str:
    """The fitted fields as they stand in `engine.query_graph.processors`."""
    fields: Mapping[str, object] = {
        "factors": dict(record.factors),
        "send_factor": record.send_factor,
        **{name: getattr(record, name) for name in _TIMES},
        "jitter_s": record.jitter_s,
        "units": tuple(tuple(float(unit) for unit in row) for row in record.units),
        "executions": record.executions,
        "machine": record.machine,
    }
    return "\n".join(f"    {name}={value!r}," for name, value in fields.items())
