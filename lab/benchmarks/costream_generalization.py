"""Predictions for what was not trained: hardware between and beyond the values, chains of filters, other benchmarks.

Sources: Costream (ICDE 2024), experiments 3 to 6, tables IV to VI and figure 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.costream.adaptation import fine_tune, observation_of
from engine.costream.features import TrainingDomain
from engine.costream.prediction import Ensemble
from engine.costream.weights import ModelCard
from engine.query_graph.graph import HostNode
from engine.simulation.cohort import TraceSettings
from engine.simulation.cohort_queries import PAPER_RANGES
from lab.benchmarks.costream_contenders import (
    Contender,
    Sizes,
    flat_contenders,
    members_contender,
    network_contender,
    print_errors,
)
from lab.benchmarks.costream_traces import Workshop
from lab.simulation.cohort_shapes import UNSEEN_RANGES, restricted_ranges
from lab.training.dataset import TraceSet
from lab.training.fit import FitSettings

__all__ = ["print_benchmarks", "print_chains", "print_extrapolation", "print_interpolation"]

_CHAINS = ("two-filters", "three-filters", "four-filters")
_BENCHMARKS = ("advertisement", "spike-detection", "smart-grid-global", "smart-grid-local")
_REPLAY = 600  # traces of the training mixed into fine-tuning


@dataclass(frozen=True)
class Restriction:
    """A range of hardware that is left out of training, as an attribute of hosts and its least and greatest value."""

    name: str
    attribute: str
    dimension: str
    low: float
    high: float
    scale: float = 1.0

    def holds(self, host: HostNode) -> bool:
        """Whether a host is in the range that is left out."""
        return self.low <= getattr(host, self.attribute) * self.scale <= self.high

    def unseen(self) -> TraceSettings:
        """Traces on hosts of that range alone."""
        bins = getattr(PAPER_RANGES, self.dimension)
        values = sorted({value for row in bins for value in row if self.low <= value <= self.high})
        return TraceSettings(ranges=restricted_ranges(PAPER_RANGES, **{self.dimension: values}))


# Table V: what is evaluated.
_RESTRICTIONS = (
    Restriction("stronger: cpu 700, 800 %", "cpu_percent", "cpu_percent", 700, 800),
    Restriction("stronger: memory 24, 32 GB", "ram_mb", "ram_mb", 24_000, 32_000),
    Restriction("stronger: bandwidth 6.4, 10 Gbit/s", "bandwidth_mbit_s", "bandwidth_mbit_s", 6400, 10_000),
    Restriction("stronger: latency 1, 2 ms", "latency_s", "latency_ms", 1, 2, 1e3),
    Restriction("weaker: cpu 50, 100 %", "cpu_percent", "cpu_percent", 50, 100),
    Restriction("weaker: memory 1, 2 GB", "ram_mb", "ram_mb", 1000, 2000),
    Restriction("weaker: bandwidth 25, 50 Mbit/s", "bandwidth_mbit_s", "bandwidth_mbit_s", 25, 50),
    Restriction("weaker: latency 80, 160 ms", "latency_s", "latency_ms", 80, 160, 1e3),
)


def print_interpolation(contenders: Sequence[Contender], workshop: Workshop, sizes: Sizes) -> None:
    """Experiment 3: hosts between the values of training."""
    traces = workshop.traces("between", sizes.unseen, TraceSettings(ranges=UNSEEN_RANGES))
    rows = [(contender.name, contender.errors(traces)) for contender in contenders]
    print_errors(f"Interpolation: hardware between the values of training, {len(traces)} traces", rows)


def print_extrapolation(
    training: TraceSet, validation: TraceSet, workshop: Workshop, sizes: Sizes, settings: FitSettings
) -> None:
    """Experiment 4: hosts beyond the values of training; every contender is trained anew without them."""
    short = replace(settings, epochs=sizes.short_epochs)
    for restriction in _RESTRICTIONS:
        seen = [_without(traces, restriction) for traces in (training, validation)]
        kept = seen[0].subset(range(min(len(seen[0]), sizes.restricted)))
        beyond = workshop.traces(restriction.name, sizes.unseen, restriction.unseen())
        rows = [(flat.name, flat.errors(beyond)) for flat in flat_contenders(("fair", "flow"), kept)]
        for form in ("plain", "recommended"):
            network = network_contender(
                f"network, {form}", kept, seen[1], replace(short, form=form), sizes.seeds[:1], 1
            )
            rows.append((network.name, network.errors(beyond)))
        print_errors(f"Extrapolation, {restriction.name}: {len(kept)} traces to train on, {len(beyond)} beyond", rows)


def _without(traces: TraceSet, restriction: Restriction) -> TraceSet:
    """Traces that use no host of the range."""
    rows = [
        i
        for i, trace in enumerate(traces.traces)
        if not any(restriction.holds(trace.hosts[j]) for j in set(trace.placement))
    ]
    return traces.subset(rows)


def print_chains(
    contenders: Sequence[Contender], training: TraceSet, test: TraceSet, workshop: Workshop, sizes: Sizes
) -> dict[str, Any]:
    """Experiment 5: chains of filters, before and after fine-tuning; returns the errors on chains of four by name."""
    chains = {name: workshop.traces(name, sizes.unseen, TraceSettings(shapes={name: 1.0})) for name in _CHAINS}
    for name, traces in chains.items():
        rows = [(contender.name, contender.errors(traces)) for contender in contenders]
        print_errors(f"Unseen pattern, {name}: {len(traces)} traces", rows)
    longest = chains[_CHAINS[-1]]
    found = {contender.name: contender.errors(longest) for contender in contenders}
    pool = workshop.traces("chains to learn from", max(sizes.tuning), TraceSettings(shapes={_CHAINS[-1]: 1.0}))
    for form in ("plain", "recommended"):
        name = f"network, {form}"
        members = next(contender.members for contender in contenders if contender.name == name)
        rows = [("before", found[name])]
        for count in sizes.tuning:
            tuned = _tuned(members, form, pool.subset(range(count)), training.subset(range(_REPLAY)))
            rows.append((f"after {count} of them", tuned.errors(longest)))
        rows.append((f"trained shapes, after {count}", tuned.errors(test)))
        print_errors(f"Fine-tuning on chains of four filters, {name}", rows)
    return found


def _tuned(members: Sequence[Any], form: str, observed: TraceSet, replay: TraceSet) -> Contender:
    """The networks fine-tuned as in the product, by NumPy."""
    hidden = len(members[0]["update.flow.1.bias"])
    domain = TrainingDomain.of_traces(replay.traces)
    scale = {"T": 1.0, "Lp": 1.0, "Le": 1.0}
    card = ModelCard(
        version="benchmark",
        form=form,
        hidden=hidden,
        members=len(members),
        simulated=len(replay),
        real=0,
        simulator="",
        parameters="",
        interval_scale=scale,
        ranges=domain.ranges,
    )
    seen, mixed = ([observation_of(trace) for trace in traces.traces] for traces in (observed, replay))
    return members_contender("tuned", fine_tune(Ensemble(members, card), seen, mixed), form)


def print_benchmarks(contenders: Sequence[Contender], workshop: Workshop, sizes: Sizes) -> None:
    """Experiment 6: queries re-created from public benchmarks."""
    for name in _BENCHMARKS:
        traces = workshop.traces(name, sizes.unseen, TraceSettings(shapes={name: 1.0}))
        rows = [(contender.name, contender.errors(traces)) for contender in contenders]
        print_errors(f"Unseen benchmark, {name}: {len(traces)} traces", rows)
