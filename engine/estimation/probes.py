"""Probes: what one event of a query would meet, where its sinks put out nothing in the horizon.

A latency is that of events. Without events at the sinks there is none, and zero would be the most flattering answer. So
something is made to come out: where a sample of n events let none through, the upper end of that rate (95 %), 3 / n;
elsewhere one event, spread over the horizon, whose latency is what any event would meet. In the first case the figure
counts as known, in the second it does not. See docs/models/mace.md, "Queries that put nothing out".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Input, InputModel, Operator, Source
from engine.estimation.loads import model_series
from engine.latency_state import UNKNOWN, LatencyStanding
from engine.records import Fact

__all__ = ["Probe", "ProbedDeployment", "probe_deployment", "upper_rate"]

_RULE_OF_THREE = 3.0  # -ln(0.05): n events without one let through leave a rate of 3 / n at 95 %
_NOTHING = 1e-200  # events over the horizon that are none: products of selectivities leave the range of floats below
_MIN_DIGITS = -100.0  # of the product of all selectivities below 1: above it nothing comes near to none
_PROBE = "one event"  # source of an operator that reads nothing


@dataclass(frozen=True, slots=True)
class Probe:
    """Stand-in for the missing events of a query.

    `bounded` are operators whose sample let nothing through, `guessed` those of which nobody knows how much they let
    through, `silent` sources without arrivals. With either of the latter two the figure is what one event would meet.
    """

    query: str
    bounded: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    silent: tuple[Fact | str, ...] = ()
    events: float = 0.0  #: the smallest sample behind `bounded`

    @property
    def is_known(self) -> bool:
        """Whether every rate that was put in is the upper end of one that was measured."""
        return not self.guessed and not self.silent

    @property
    def fact(self) -> Fact | str:
        """The grounds of the figure; empty where events end at a sink, whatever it puts out."""
        if self.is_known and not self.bounded:
            return ""
        if self.is_known:
            return Fact("latency.bounded", count=round(self.events), events=self.events, names=self.bounded)
        if self.silent:
            return Fact("latency.silent", names=self.silent)
        return Fact("latency.guessed", names=self.guessed)

    @property
    def standing(self) -> LatencyStanding:
        """Standing of the query's latency."""
        return LatencyStanding("known" if self.is_known else UNKNOWN, self.fact)


@dataclass(frozen=True, eq=False)
class ProbedDeployment:
    """A deployment in which every query puts something out, and the probes it took, by query."""

    deployment: Deployment
    probes: Mapping[str, Probe] = field(default_factory=dict)

    def standing(self, query: str) -> LatencyStanding:
        """Standing of a query's latency as far as its events go."""
        probe = self.probes.get(query)
        return LatencyStanding() if probe is None else probe.standing


def upper_rate(operator: Operator, entry: Input) -> tuple[float, float] | None:
    """Upper end (95 %) of the rate of an input whose sample let nothing through, and the size of that sample.

    None without a sample: a selectivity of 0 is then said, not seen.

    Examples
    --------
    >>> from engine.document.elements import Evidence
    >>> upper_rate(Operator("f", (), (), evidence=Evidence("measured", 800)), Input("s"))
    (0.00375, 800)
    """
    events = sum(batch.events for batch in entry.batches)
    if not events and operator.evidence is not None and operator.evidence.kind == "measured":
        events = operator.evidence.events
    return (min(1.0, _RULE_OF_THREE / events), events) if events > 0.0 else None


def probe_deployment(deployment: Deployment) -> ProbedDeployment:
    """Let every query put something out at its sinks; the same deployment where all do.

    A sink whose sample let nothing through gets its upper rate also where others of its query put events out: the way
    to it is part of the query's latency. A selectivity of 0 that was not measured is believed there.
    """
    if not _may_be_empty(deployment):
        return ProbedDeployment(deployment)
    return _Prober(deployment).probed()


def _may_be_empty(deployment: Deployment) -> bool:
    """Whether anything can keep events from the sinks: a rate of nothing, a silent source, or nothing to read."""
    graph = deployment.graph
    with np.errstate(divide="ignore"):
        kept = np.minimum(np.log10(np.maximum(graph.output[:, 1], 0.0)), 0.0).sum()
    return bool(
        graph.models
        or kept < _MIN_DIGITS
        or (np.diff(graph.in_start) == 0).any()
        or not deployment.arrivals.any(axis=1).all()
    )


class _Prober:
    """Follows the events of the horizon through the operators, in their order."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.graph = deployment, deployment.graph
        self.base = len(deployment.sources)
        self.operators = list(deployment.operators)
        self.sources = list(deployment.sources)
        self.totals = np.concatenate([deployment.arrivals.sum(axis=1), np.zeros(len(self.operators))])
        self.modelled = self._modelled() if self.graph.models else None
        for j in self.graph.order.tolist():
            self.totals[self.base + j] = self._output(j)

    def _modelled(self) -> FloatArray:
        """Events that every operator puts out over the horizon, where some follow models."""
        graph = self.graph
        series = model_series(
            graph.order, graph.in_start, graph.in_stream, graph.output, graph.cycles, self.deployment.arrivals
        )
        return np.asarray(series[1].sum(axis=1))

    def probed(self) -> ProbedDeployment:
        """The deployment with every probe that it takes."""
        empty = self.totals[self.base :] <= _NOTHING
        probes = {}
        for i, query in enumerate(self.deployment.queries):
            sinks = np.flatnonzero(self.graph.query_sink & (self.graph.query == i))
            gone = sinks[empty[sinks]]
            if not len(gone):
                continue
            is_silent = len(gone) == len(sinks)
            members = self._above(gone.tolist())
            if not is_silent and not self._are_sampled(members):
                continue
            probes[query] = self._probe(query, members)
        if not probes:
            return ProbedDeployment(self.deployment)
        derived = self.deployment.with_probes(tuple(self.operators), tuple(self.sources))
        return ProbedDeployment(derived, probes)

    def _probe(self, query: str, members: list[int]) -> Probe:
        bounded: dict[str, float] = {}
        guessed: list[str] = []
        silent: dict[Fact | str, None] = {}
        for j in members:
            if self._output(j) > _NOTHING:
                self.totals[self.base + j] = self._output(j)
                continue
            for u in self._silent_sources(j):
                silent[self.sources[u].id] = None
                self._arrive(u)
            if not self.operators[j].inputs:
                silent[Fact("latency.read_by", self.operators[j].id)] = None
                self._feed(j)
            self.totals[self.base + j] = self._output(j)
            if self.totals[self.base + j] <= _NOTHING:
                sample = self._let_through(j)
                name = self.operators[j].id
                if sample is None:
                    guessed.append(name)
                elif sample:
                    bounded[name] = sample
                self.totals[self.base + j] = self._output(j)
        smallest = min(bounded.values(), default=0.0)
        return Probe(query, tuple(bounded), tuple(guessed), tuple(silent), smallest)

    def _silent_sources(self, j: int) -> list[int]:
        """Sources that an operator reads, where none of what it reads has events."""
        streams = self._streams(j)
        if any(self.totals[u] > _NOTHING for u in streams):
            return []
        return [u for u in streams if u < self.base]

    def _arrive(self, u: int) -> None:
        """One event of a source, spread over the horizon."""
        d = self.deployment.subintervals
        self.sources[u] = Source(self.sources[u].id, np.full(d, 1.0 / d), self.sources[u].event_fields)
        self.totals[u] = 1.0

    def _feed(self, j: int) -> None:
        """An operator that reads nothing gets a source of its own, with one event that costs nothing."""
        d, operator = self.deployment.subintervals, self.operators[j]
        name = f"{_PROBE} at {operator.id}"
        self.sources.append(Source(name, np.full(d, 1.0 / d)))
        self.operators[j] = replace(operator, inputs=(Input(name, selectivity=1.0, cost_cv2=0.0),))

    def _let_through(self, j: int) -> float | None:
        """Give an operator's inputs a rate, and say by how large a sample: None without one, 0 for a sink."""
        operator = self.operators[j]
        came = [self.totals[u] for u in self._streams(j)]
        total = sum(came)
        rates = [upper_rate(operator, entry) for entry in operator.inputs]
        known = [rate for rate, events in zip(rates, came, strict=True) if events > _NOTHING]
        one = min(1.0, 1.0 / total) if total > 0.0 else 1.0
        ends_here = operator.kind == "sink"
        inputs = []
        for entry, rate, events in zip(operator.inputs, rates, came, strict=True):
            share = 1.0 if ends_here else one if rate is None else max(rate[0], one)
            inputs.append(_with_rate(entry, share) if events > _NOTHING else entry)
        self.operators[j] = replace(operator, inputs=tuple(inputs))
        if ends_here:
            return 0.0
        return None if any(rate is None for rate in known) else min(rate[1] for rate in known if rate is not None)

    def _are_sampled(self, members: list[int]) -> bool:
        """Whether everything that keeps events back was measured to do so."""
        for j in members:
            streams = self._streams(j)
            if self.totals[self.base + j] > _NOTHING or not any(self.totals[u] > _NOTHING for u in streams):
                continue
            operator = self.operators[j]
            if operator.kind != "sink" and any(upper_rate(operator, entry) is None for entry in operator.inputs):
                return False
        return True

    def _above(self, sinks: list[int]) -> list[int]:
        """Operators at and above some sinks, in their order."""
        seen, todo = set(sinks), list(sinks)
        while todo:
            fresh = {u - self.base for u in self._streams(todo.pop()) if u >= self.base} - seen
            seen |= fresh
            todo += fresh
        return [j for j in self.graph.order.tolist() if j in seen]

    def _streams(self, j: int) -> list[int]:
        """Streams that an operator reads: sources first, then operators."""
        return [int(u) for u in self.graph.in_stream[self.graph.in_start[j] : self.graph.in_start[j + 1]]]

    def _output(self, j: int) -> float:
        """Events that an operator puts out over the horizon."""
        operator = self.operators[j]
        if self.modelled is not None and self.modelled[j] > _NOTHING:
            return float(self.modelled[j])
        if operator.inputs and len(operator.inputs) != len(self._streams(j)):
            return 1.0  # it was fed
        rates = [entry.model.output[1] if entry.model else entry.selectivity for entry in operator.inputs]
        if (
            self.modelled is not None
            and operator is self.deployment.operators[j]
            and any(e.model for e in operator.inputs)
        ):
            return 0.0
        return float(sum(self.totals[u] * max(0.0, r) for u, r in zip(self._streams(j), rates, strict=True)))


def _with_rate(entry: Input, rate: float) -> Input:
    """The input with another selectivity, and a sample that agrees with it."""
    batches = tuple(replace(batch, outputs=rate * batch.events) for batch in entry.batches)
    model = None if entry.model is None else InputModel((0.0, rate, 0.0), entry.model.cycles)
    return replace(entry, selectivity=rate if model is None else entry.selectivity, batches=batches, model=model)
