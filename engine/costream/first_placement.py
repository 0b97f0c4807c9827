"""First placement of a query that never ran: candidates, their predicted costs, the choice, and why.

From a deployment document to an answer that can be stored: the query is translated, hosts are what running queries
leave free (`engine.costream.hosts`), candidates keep the three rules, the pins and the memory, the ensemble predicts
them, and the best of those that pass the votes is chosen, of those first that would overload no node. What a candidate
does to the objectives of what runs is not known here: `engine.admission.places` goes through the options with that in
view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.costream.answer import (
    EMPTY,
    CandidatePlacements,
    CostFigures,
    HeuristicPlacement,
    HostsLeft,
    ModelName,
    PlacementPoint,
    PredictedCosts,
    PredictedVote,
)
from engine.costream.candidates import MAX_OPERATORS, StateMemory, find_candidates
from engine.costream.choice import PlacementChoice, choose, rank_survivors
from engine.costream.documents import trace_document
from engine.costream.hosts import MAX_CPU_PERCENT, MAX_RAM_MB, UNKNOWN_RAM_MB, FreeHosts, busiest_rates, free_hosts
from engine.costream.intervals import LEVEL
from engine.costream.prediction import Ensemble, PlacementPredictions, PredictionError
from engine.document.candidate import Candidate
from engine.document.deployment import Deployment
from engine.document.elements import Operator, Source
from engine.document.memory import memory_by_node, needs_of
from engine.document.translation import TranslatedQuery, input_series, translate_query
from engine.errors import Fault, InfeasibleError
from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import HostNode, QueryGraph
from engine.query_graph.processors import STREAM_PROCESSORS
from engine.records import Fact, Record, Sentence, Unwritten
from engine.solvers import solving
from engine.words import listed

__all__ = [
    "CANDIDATE_LIMIT",
    "COST_FIELDS",
    "FirstPlacement",
    "PlacementOptions",
    "PlacementPredictor",
    "PlacementQuestion",
    "find_first_placement",
    "pins_of",
    "predict_placement",
]

#: Candidates of a question unless it says otherwise.
CANDIDATE_LIMIT = 1000

#: Names of the metrics in documents.
COST_FIELDS = {"T": "throughput_eps", "Lp": "processing_latency_s", "Le": "end_to_end_latency_s"}

_MAX_POINTS = 300  # candidates that an answer keeps for a plot


@dataclass(frozen=True)
class PlacementQuestion:
    """Question for a first placement.

    Attributes
    ----------
    running
        What runs, everything placed, with nominal costs where something never ran.
    operators
        All operators of the query.
    sources
        Sources that it brings; it may also read those of `running`.
    pins
        Node of each operator that is not free to choose.
    closed
        Nodes that take nothing new.
    target
        Metric to choose by: T, Lp or Le.
    count, seed
        Of the candidates.
    """

    running: Deployment
    operators: tuple[Operator, ...]
    sources: tuple[Source, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    target: str = "Le"
    count: int = CANDIDATE_LIMIT
    seed: int = 0


@dataclass(frozen=True, eq=False)
class PlacementOptions:
    """Candidates that pass the votes, the best first; of each the answer that chooses it is made when asked for."""

    placements: tuple[Mapping[str, str], ...]  #: node of each operator
    choose: Callable[[int], FirstPlacement]  #: answer that chooses the i-th

    def __len__(self) -> int:
        return len(self.placements)

    def of(self, placement: Mapping[str, str]) -> FirstPlacement | None:
        """The answer that chooses a placement; None where that is no option."""
        position = next((i for i, option in enumerate(self.placements) if option == placement), None)
        return None if position is None else self.choose(position)


@dataclass(frozen=True)
class PlacementPredictor:
    """A model that is asked while a decision is made: of other nodes, rates and places than were predicted at first."""

    ensemble: Ensemble
    target: str = "Le"
    closed: tuple[str, ...] = ()
    note: str = ""  #: what is to be known of the model

    def predict_placed(
        self, running: Deployment, operators: tuple[Operator, ...], pins: Mapping[str, str]
    ) -> FirstPlacement:
        """Predict operators where they are."""
        return self.noted(predict_placement(PlacementQuestion(running, operators, pins=pins), self.ensemble))

    def find_placement(
        self, running: Deployment, operators: tuple[Operator, ...], sources: tuple[Source, ...] = ()
    ) -> FirstPlacement:
        """Predict candidates as if no operator had a place."""
        question = PlacementQuestion(running, operators, sources, closed=self.closed, target=self.target)
        return self.noted(find_first_placement(question, self.ensemble))

    def predict_candidate(self, running: Deployment, candidate: Candidate) -> FirstPlacement:
        """Predict candidates for a query that wants to join; what has a place stays, unless its node is closed."""
        pins = {name: node for name, node in pins_of(candidate.operators).items() if node not in self.closed}
        question = PlacementQuestion(
            running, candidate.operators, candidate.sources, pins, self.closed, self.target, CANDIDATE_LIMIT
        )
        return self.noted(find_first_placement(question, self.ensemble))

    def noted(self, answer: FirstPlacement) -> FirstPlacement:
        """An answer of the model with its note, as are those for its options."""
        if not self.note:
            return answer
        options = answer.options
        if options is not None:
            options = PlacementOptions(options.placements, lambda i, choose=options.choose: self._with_note(choose(i)))  # type: ignore[misc]
        return replace(self._with_note(answer), options=options)

    def _with_note(self, answer: FirstPlacement) -> FirstPlacement:
        return replace(answer, assumptions=(self.note, *answer.assumptions))


@dataclass(frozen=True)
class FirstPlacement(Record):
    """Answer to a question for a first placement.

    Attributes
    ----------
    state
        ``predicted``; ``infeasible``: no candidate passes the votes, or none keeps rules and pins; ``incomplete``: the
        query does not say what the model needs, has more than `MAX_OPERATORS` operators, or the model's answer is no
        finite number.
    reason
        Sentence about the choice, or why there is none.
    cause
        Why nothing was chosen, to go on in a sentence; empty where something was.
    target
        Metric that was chosen by.
    placement
        Node of each operator in the chosen candidate; empty without one.
    fill_s
        Seconds that windows on the longest way take to fill; in both latencies.
    floor_s
        Seconds that links of the chosen candidate add to that at least.
    outside
        Sentences on what of the chosen candidate lies outside the training domain. Where all candidates fail and every
        one lies outside, on what of any of them does: then their votes are no knowledge.
    assumptions
        Sentences on what nobody stated and what stands in for it.
    faults
        What the query does not say or has too much of, or why the model has no answer.
    memory
        Sentences on hosts that candidates leave out or leave room on, because state that is known does not fit theirs.
    trace
        Query, hosts and chosen placement as a corpus has them.
    blocked
        Whether it is infeasible whatever a model says: no node has anything left, one that it must run on takes
        nothing, or its state has no room.
    options
        Every candidate that passes the votes, the best first; None without any. It is not stored.
    """

    TITLE: ClassVar[str] = "a first placement"

    state: str
    reason: Sentence
    target: str
    cause: str = ""
    placement: Mapping[str, str] = field(default_factory=dict)
    costs: Annotated[PredictedCosts | None, *EMPTY] = None
    fill_s: float = 0.0
    floor_s: float = 0.0
    outside: tuple[str, ...] = ()
    assumptions: tuple[Sentence, ...] = ()
    faults: tuple[Fault, ...] = ()
    model: Annotated[ModelName | None, *EMPTY] = None
    hosts: Annotated[HostsLeft | None, *EMPTY] = None
    memory: tuple[Sentence, ...] = ()
    candidates: Annotated[CandidatePlacements | None, *EMPTY] = None
    heuristics: Mapping[str, HeuristicPlacement] = field(default_factory=dict)
    trace: Unwritten[Mapping[str, object] | None] = None
    blocked: bool = False
    options: Unwritten[PlacementOptions | None] = field(default=None, compare=False, repr=False)

    @property
    def passes_votes(self) -> bool:
        """Whether the majority predicts results and no back-pressure for what was chosen."""
        return self.costs is not None and self.costs.success.holds and not self.costs.backpressure.holds


def find_first_placement(question: PlacementQuestion, ensemble: Ensemble) -> FirstPlacement:
    """Predict candidates and choose one.

    Notes
    -----
    Operators that the document splits are taken where their largest part is. Candidates outside the training domain are
    chosen only where none within it passes the votes.
    """
    solving()
    asked = _Asked(question, ensemble)
    if asked.faults:
        return asked.incomplete(asked.faults)
    blocked = asked.blocked_pins()
    if blocked or not asked.free.names:
        return asked.infeasible(blocked or asked.nowhere(), blocked=True)
    try:
        candidates = find_candidates(
            asked.contracted, asked.free.hosts, question.count, asked.pins, question.seed, asked.memory
        )
    except InfeasibleError as error:
        if any(fault.path == "memory" for fault in error.faults):
            return asked.infeasible(asked.no_room(), blocked=True)
        detail = f"; {error.faults[0].message}" if error.faults else ""
        return asked.infeasible(Fact("costream.rules", detail=detail))
    try:
        predictions = asked.predict(candidates.placements)
    except PredictionError as error:
        return asked.incomplete([Fault("model", f"{error.message}.")])
    strain = asked.strain(candidates.placements)
    ranked = rank_survivors(predictions, question.target, strain)

    def choose_row(row: int | None) -> FirstPlacement:
        choice = choose(predictions, question.target, candidates.heuristics, strain, row)
        return asked.answer(predictions, choice, candidates.exhaustive, candidates.heuristics)

    answer = choose_row(None)
    if not len(ranked):
        return answer
    placements = tuple(asked.placement(predictions, row) for row in ranked.tolist())
    return replace(answer, options=PlacementOptions(placements, lambda i: choose_row(int(ranked[i]))))


def predict_placement(question: PlacementQuestion, ensemble: Ensemble) -> FirstPlacement:
    """Predict the one placement that the pins name, whatever the rules and the votes say of it.

    Used for queries that run: what was predicted of them is held against what is observed.
    """
    solving()
    asked = _Asked(question, ensemble)
    if asked.faults:
        return asked.incomplete(asked.faults)
    missing = [operator.id for operator in question.operators if operator.id not in question.pins]
    blocked = asked.blocked_pins()
    if blocked:
        return asked.infeasible(blocked, blocked=True)
    if missing:
        unplaced = Fact("costream.unplaced", names=missing)
        return replace(asked.infeasible(unplaced, blocked=True), reason=unplaced)
    placement = np.array([[asked.pins[i] for i in range(len(question.operators))]])
    try:
        predictions = asked.predict(placement)
    except PredictionError as error:
        return asked.incomplete([Fault("model", f"{error.message}.")])
    choice = PlacementChoice(0, question.target, None, 0, 0, {}, Fact("costream.as_it_runs"))
    return asked.answer(predictions, choice, False, {})


class _Asked:
    """A question with its translation, hosts and pins."""

    def __init__(self, question: PlacementQuestion, ensemble: Ensemble) -> None:
        self.question, self.ensemble = question, ensemble
        running = question.running
        sources = {source.id: source for source in (*running.sources, *question.sources)}
        together = (*running.operators, *question.operators)
        self._rates = rates = busiest_rates(tuple(sources.values()), together, running.subinterval_s)
        self.query: TranslatedQuery = translate_query(
            question.operators,
            rates,
            {name: source.event_fields for name, source in sources.items()},
            running.stream_processor,
        )
        self.free: FreeHosts = free_hosts(running, question.closed)
        self.faults = (*self.query.faults, *_count_faults(self.query.graph), *self._unit_faults())
        position = {name: j for j, name in enumerate(self.free.names)}
        self.pins = {
            i: position[question.pins[operator.id]]
            for i, operator in enumerate(question.operators)
            if question.pins.get(operator.id) in position
        }

    def _unit_faults(self) -> list[Fault]:
        """The fault of nodes that count in another unit than the model, where the query has no others."""
        other = self.free.other_unit
        needed = [node for node in dict.fromkeys(self.question.pins.values()) if node in other]
        if not needed and (self.free.names or self.free.full):
            return []
        names = needed or list(other)
        if not names:
            return []
        count = "counts" if len(names) == 1 else "count"
        message = (
            f"{listed(names)} {count} nanoseconds of CPU, and the model counts cycles; allowed: nodes whose "
            "cycles_per_ns is known (./sluice manage calibrate --node)."
        )
        return [Fault("nodes", message)]

    @property
    def contracted(self) -> QueryGraph:
        """The query's own operators: sources and sinks that it leaves out go with their owners."""
        own = len(self.question.operators)
        edges = tuple((a, b) for a, b in self.query.graph.edges if a < own and b < own)
        return replace(self.query.graph, operators=self.query.graph.operators[:own], edges=edges)

    def blocked_pins(self) -> str:
        """Sentence about operators that are pinned to nodes that take none; empty if there are none."""
        blocked: dict[str, list[str]] = {}
        for name, node in self.question.pins.items():
            if node not in self.free.names:
                blocked.setdefault(node, []).append(name)
        if not blocked:
            return ""
        return "; ".join(
            str(Fact("costream.pinned", names=names, node=node, refusal=self._refusal(node)))
            for node, names in blocked.items()
        )

    def _refusal(self, node: str) -> Fact:
        """Why a node takes no operator."""
        if node in self.free.full:
            return Fact("costream.full")
        return Fact("costream.closed" if node in self.question.closed else "costream.unknown")

    def nowhere(self) -> Fact:
        """Reason why no node takes an operator."""
        closed = self.question.closed
        if not self.free.full:
            return Fact("costream.all_closed")
        return Fact("costream.closed_or_full", names=closed) if closed else Fact("costream.all_full")

    @property
    def assumptions(self) -> tuple[Fact, ...]:
        """Figures that nobody stated, and what stands in for each."""
        most = {"cpu_percent": MAX_CPU_PERCENT, "ram_mb": MAX_RAM_MB}
        processor = STREAM_PROCESSORS[self.query.graph.processor]
        fitted = {"processor": processor.label, "executions": processor.executions, "machine": processor.machine}
        costs = (Fact("costream.fitted", **fitted),) if processor.executions else ()
        return costs + tuple(
            Fact(
                "costream.memory_unstated+" if kind == "memory_unstated" and len(names) > 1 else f"costream.{kind}",
                names=names,
                **(most | ({"ram_mb": UNKNOWN_RAM_MB} if kind == "memory_unstated" else {})),
            )
            for kind, names in self.free.gaps.items()
        )

    @cached_property
    def memory(self) -> StateMemory:
        """State of the query's own operators, of split ones the largest part, and what runs leaves on each host."""
        left = memory_by_node(self.question.running)
        free = [left[name].free_bytes for name in self.free.names]
        room = np.array([np.inf if size is None else size for size in free], dtype=np.float64)
        operators = self.question.operators
        parts = [max((part.fraction for part in operator.replicas), default=1.0) for operator in operators]
        return StateMemory(needs_of(operators) * np.array(parts), room)

    def memory_findings(self) -> tuple[Fact, ...]:
        """State that does not fit hosts: of single operators, then of all of them together."""
        need, room = self.memory.need, self.memory.room
        sentences = []
        for operator, size in zip(self.question.operators, need, strict=True):
            short = [name for name, left in zip(self.free.names, room, strict=True) if size > 0.0 and size > left]
            if short:
                sentences.append(Fact("costream.state_left_out", operator=operator.id, size=size, names=short))
        total, largest = float(need.sum()), float(need.max(initial=0.0))
        crowded = [name for name, left in zip(self.free.names, room, strict=True) if largest <= left < total]
        if crowded:
            sentences.append(Fact("costream.state_together", size=total, names=crowded))
        return tuple(sentences)

    def no_room(self) -> Fact:
        """State that fits no hosts that its operators may be on."""
        return Fact("costream.no_room", memory=" ".join(map(str, self.memory_findings())).removesuffix("."))

    def predict(self, placements: IntArray) -> PlacementPredictions:
        """Predictions of placements of the query's own operators, (k, n)."""
        return self.ensemble.predict(self.query.graph, self.free.hosts, placements[:, list(self.query.owners)])

    def incomplete(self, faults: Sequence[Fault]) -> FirstPlacement:
        more = Fact("costream.gaps", count=len(faults)) if len(faults) > 1 else ""
        cause = f"{faults[0].message.removesuffix('.')}{more}"
        return FirstPlacement(
            "incomplete",
            Fact("costream.incomplete", cause=cause),
            self.question.target,
            cause=cause,
            faults=tuple(faults),
            model=self._model(),
        )

    def infeasible(self, cause: Fact | str, *, blocked: bool = False) -> FirstPlacement:
        return FirstPlacement(
            "infeasible",
            Fact("costream.infeasible", cause=cause),
            self.question.target,
            cause=str(cause).removesuffix("."),
            fill_s=self._way_s(),
            assumptions=self.assumptions,
            model=self._model(),
            hosts=self._hosts(),
            memory=self.memory_findings(),
            blocked=blocked,
        )

    def strain(self, placements: IntArray) -> FloatArray:
        """Load that each candidate (k, n) would bring in its busiest minutes, over what is left, of its worst node.

        load[k, node] = sum of cycles/event x events/s of the operators on it
        """
        load = np.zeros((len(placements), len(self.free.names)))
        for n, operator in enumerate(self.question.operators):
            np.add.at(load, (np.arange(len(placements)), placements[:, n]), self._load_cps(operator))
        strain: FloatArray = (load / np.asarray(self.free.free_cps)).max(axis=1)
        return strain

    def _load_cps(self, operator: Operator) -> float:
        """Cycles/s of an operator in its busiest minutes; a polynomial counts by the mean of a subinterval."""
        width_s = self.question.running.subinterval_s
        load = 0.0
        for entry in operator.inputs:
            rate = self._rates[entry.source]
            spent = input_series(entry, np.array([rate * width_s]))[1]
            load += float(spent[0]) / width_s
        return load

    def answer(
        self,
        predictions: PlacementPredictions,
        choice: PlacementChoice,
        exhaustive: bool,
        heuristics: Mapping[str, int],
    ) -> FirstPlacement:
        points, rows = self._points(predictions, choice, heuristics)
        index = choice.index
        answer = FirstPlacement(
            "infeasible" if index is None else "predicted",
            choice.words,
            choice.target,
            cause=str(choice.reason).removesuffix(".") if index is None else "",
            fill_s=self._way_s(),
            assumptions=self.assumptions,
            model=self._model(),
            hosts=self._hosts(),
            memory=self.memory_findings(),
            candidates=CandidatePlacements(
                len(predictions.placements),
                exhaustive,
                choice.survivors,
                choice.inside,
                int(predictions.backpressure.sum()),
                int((~predictions.success).sum()),
                points,
                None if index is None else rows.index(index),
            ),
            heuristics={
                name: HeuristicPlacement(
                    rows.index(comparison.index),
                    _plain(comparison.value),
                    comparison.feasible,
                    None if comparison.gain is None else _plain(comparison.gain),
                    self.placement(predictions, comparison.index),
                )
                for name, comparison in choice.heuristics.items()
            },
        )
        if index is None:
            return replace(answer, outside=predictions.all_reasons) if predictions.outside.all() else answer
        places = predictions.placements[index].tolist()
        return replace(
            answer,
            floor_s=_plain(self._way_s(places) - self._way_s()),
            placement=self.placement(predictions, index),
            costs=self._costs(predictions, index),
            outside=predictions.reasons(index),
            trace=trace_document(self.query.graph, self.free.hosts, places),
        )

    def _points(
        self, predictions: PlacementPredictions, choice: PlacementChoice, heuristics: Mapping[str, int]
    ) -> tuple[tuple[PlacementPoint, ...], list[int]]:
        """Candidates for a plot, with the target's interval, spread evenly over its ranks, and their rows."""
        k, target = len(predictions.placements), predictions.costs[choice.target]
        ranks = np.argsort(target.mean, kind="stable")
        kept = {int(ranks[i]) for i in np.linspace(0, k - 1, min(k, _MAX_POINTS)).round().astype(int)}
        rows = sorted(kept | set(heuristics.values()) | ({choice.index} if choice.index is not None else set()))
        outside = predictions.outside
        points = tuple(
            PlacementPoint(
                _plain(predictions.costs["T"].mean[i]),
                _plain(predictions.costs["Lp"].mean[i]),
                _plain(predictions.costs["Le"].mean[i]),
                _plain(target.low[i]),
                _plain(target.high[i]),
                bool(predictions.success[i]),
                bool(predictions.backpressure[i]),
                bool(outside[i]),
                tuple(predictions.placements[i, : len(self.question.operators)].tolist()),
            )
            for i in rows
        )
        return points, rows

    def placement(self, predictions: PlacementPredictions, i: int) -> dict[str, str]:
        """Node of each operator in candidate i."""
        hosts = predictions.placements[i].tolist()
        return {operator.id: self.free.names[hosts[n]] for n, operator in enumerate(self.question.operators)}

    def _costs(self, predictions: PlacementPredictions, i: int) -> PredictedCosts:
        intervals = {
            COST_FIELDS[metric]: CostFigures(_plain(cost.mean[i]), _plain(cost.low[i]), _plain(cost.high[i]))
            for metric, cost in predictions.costs.items()
        }
        return PredictedCosts(
            **intervals,
            success=PredictedVote(int(predictions.success_votes[i]), bool(predictions.success[i])),
            backpressure=PredictedVote(int(predictions.backpressure_votes[i]), bool(predictions.backpressure[i])),
            members=predictions.members,
            level=LEVEL,
            use=_plain(predictions.use[i]),
        )

    def _model(self) -> ModelName:
        card = self.ensemble.card
        return ModelName(card.version, card.line, card.members, card.sha256)

    def _hosts(self) -> HostsLeft:
        return HostsLeft(tuple(_rounded(host) for host in self.free.hosts), tuple(self.free.full))

    def _way_s(self, placement: Sequence[int] | None = None) -> float:
        """Seconds of the longest way: until its windows are full, and with a placement those between its hosts."""
        graph, fill_s = self.query.graph, nominal_flow(self.query.graph).fill_s
        longest: dict[int, float] = {}
        for i in graph.order:
            before = (
                longest[a] + (self._hop_s(placement[a], placement[i]) if placement is not None else 0.0)
                for a in graph.inputs[i]
            )
            longest[i] = float(fill_s[i]) + max(before, default=0.0)
        return max((longest[i] for i in graph.sinks), default=0.0)

    def _hop_s(self, origin: int, target: int) -> float:
        return 0.0 if origin == target else self.free.hosts[origin].latency_s


def _count_faults(graph: QueryGraph) -> list[Fault]:
    """The fault of a query that has too many operators for candidates."""
    count = len(graph.operators)
    if count <= MAX_OPERATORS:
        return []
    message = f"The query has {count} operators; allowed: up to {MAX_OPERATORS}, sources and sinks counted."
    return [Fault("operators", message)]


def _rounded(host: HostNode) -> HostNode:
    return replace(
        host,
        cpu_percent=_plain(host.cpu_percent),
        ram_mb=_plain(host.ram_mb),
        bandwidth_mbit_s=_plain(host.bandwidth_mbit_s),
        latency_s=_plain(host.latency_s),
    )


def _plain(value: Any) -> float:
    """Six significant digits: more would tell of the arithmetic, not of the cost."""
    return float(f"{float(value):.6g}")


def pins_of(operators: Sequence[Operator]) -> dict[str, str]:
    """Node of each operator that has a place; of a split one that of its largest part."""
    return {
        operator.id: max(operator.replicas, key=lambda replica: replica.fraction).node
        for operator in operators
        if operator.replicas
    }
