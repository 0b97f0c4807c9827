"""``predict`` and ``candidates`` of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from engine.command_options import CandidatesOptions, PredictOptions
from engine.costream.answer import CostFigures
from engine.costream.candidates import find_candidates
from engine.costream.choice import choose
from engine.costream.documents import CostProblem
from engine.costream.first_placement import COST_FIELDS
from engine.costream.prediction import Ensemble, PlacementPredictions, shipped_ensemble
from engine.errors import DocumentError, EngineError, Fault, OptionError, join_path, value_words
from engine.kinds import Number
from engine.records import BAD, ItemCount, Record, Words

__all__ = ["candidates_command", "predict_command"]

_MAX_PLACEMENTS = 20_000


@dataclass(frozen=True, kw_only=True)
class PredictionProblem(CostProblem):
    """Placements whose costs are to be predicted."""

    TITLE: ClassVar[str] = "a prediction problem"

    placements: Annotated[
        tuple[Any, ...], ItemCount(1, _MAX_PLACEMENTS), Words("per placement the index of each operator's host")
    ]

    def find_faults(self) -> Iterator[Fault]:
        """Placements of other operators or on other hosts."""
        for i, placement in enumerate(() if self.placements is BAD else self.placements):
            yield from self.placement_faults(placement, join_path("placements", i))


@dataclass(frozen=True)
class _Pin(Record):
    TITLE: ClassVar[str] = "a pin"
    JUDGES_PARTS: ClassVar[bool] = True

    operator: Annotated[int, Number(least=0, whole=True), Words("index of the operator")]
    host: Annotated[int, Number(least=0, whole=True), Words("index of the host it stays on")]


@dataclass(frozen=True, kw_only=True)
class CandidateProblem(CostProblem):
    """A query to be placed."""

    TITLE: ClassVar[str] = "a candidate problem"

    pins: Annotated[tuple[_Pin, ...], Words("operators that may be on one host only")] = ()

    def find_faults(self) -> Iterator[Fault]:
        """Pins of operators and hosts that do not exist, and two pins of one. A number not known bounds nothing."""
        pinned: set[int] = set()
        for i, pin in enumerate(() if self.pins is BAD else self.pins):
            if pin is BAD:
                continue
            path = join_path("pins", i)
            bounds = (("operator", pin.operator, self.operator_count), ("host", pin.host, self.host_count))
            for name, index, count in bounds:
                if index is not BAD and count and index >= count:
                    message = f"{name} is {index}; allowed: an index below {count}"
                    yield Fault(join_path(path, name), message)
            if pin.operator in pinned:
                yield Fault(path, f"operator {pin.operator} is pinned twice; allowed: one pin per operator")
            if pin.operator is not BAD:
                pinned.add(pin.operator)


@dataclass(frozen=True)
class _Votes(Record):
    success: int
    backpressure: int
    members: int


@dataclass(frozen=True)
class _Prediction(Record):
    placement: tuple[int, ...]
    throughput_eps: CostFigures
    processing_latency_s: CostFigures
    end_to_end_latency_s: CostFigures
    success: bool
    backpressure: bool
    votes: _Votes
    outside: tuple[str, ...]


def predict_command(document: Any, options: PredictOptions) -> dict[str, object]:
    """Costs, votes and what is outside the domain, per placement; the card of the model in one line."""
    faults: list[Fault] = []
    problem = PredictionProblem.read_parts(document, "", "", faults)
    ensemble = None if problem is BAD else _ensemble(options.weights, faults)
    if faults or ensemble is None:
        raise DocumentError(faults, "prediction problem")
    rows = np.array(problem.placements, dtype=np.int64)
    predictions = ensemble.predict(problem.query.graph(), problem.host_nodes, rows)
    answers = [_answer(predictions, i) for i in range(len(rows))]
    return {"model": ensemble.card.version, "card": ensemble.card.line, "predictions": answers}


def candidates_command(document: Any, options: CandidatesOptions) -> dict[str, object]:
    """Placements that keep the rules and the pins; with a `target` the one that is chosen, beside the heuristics."""
    target = options.target
    if options.weights is not None and target is None:
        message = f"weights is {value_words(options.weights)}; allowed: beside a target, by which to choose"
        raise OptionError("Weights serve a choice alone", [Fault("options.weights", message)])
    faults: list[Fault] = []
    problem = CandidateProblem.read_parts(document, "", "", faults)
    ensemble = None if target is None or problem is BAD else _ensemble(options.weights, faults)
    if faults:
        raise DocumentError(faults, "candidate problem")
    graph, hosts = problem.query.graph(), problem.host_nodes
    pins = {pin.operator: pin.host for pin in problem.pins}
    found = find_candidates(graph, hosts, options.count, pins, options.seed)
    answer = {
        "placements": found.placements.tolist(),
        "exhaustive": found.exhaustive,
        "heuristics": dict(found.heuristics),
    }
    if ensemble is None or target is None:
        return answer
    predictions = ensemble.predict(graph, hosts, found.placements)
    choice = choose(predictions, target, found.heuristics)
    chosen = None if choice.index is None else _answer(predictions, choice.index)
    model = {"model": ensemble.card.version, "card": ensemble.card.line}
    return answer | model | {"choice": asdict(choice) | {"reason": str(choice.words)}, "chosen": chosen}


def _ensemble(weights: str | None, faults: list[Fault]) -> Ensemble | None:
    """The ensemble that is asked for. Beside faults of the document, why it cannot be loaded is one more."""
    try:
        return shipped_ensemble() if weights is None else Ensemble.load(Path(weights))
    except EngineError as error:
        if not faults:
            raise
        faults.append(Fault("options.weights", error.message))
        return None


def _answer(predictions: PlacementPredictions, i: int) -> _Prediction:
    """One placement's predictions."""
    costs = {
        COST_FIELDS[metric]: CostFigures(float(cost.mean[i]), float(cost.low[i]), float(cost.high[i]))
        for metric, cost in predictions.costs.items()
    }
    success, backpressure = int(predictions.success_votes[i]), int(predictions.backpressure_votes[i])
    return _Prediction(
        placement=tuple(predictions.placements[i].tolist()),
        **costs,
        success=bool(predictions.success[i]),
        backpressure=bool(predictions.backpressure[i]),
        votes=_Votes(success, backpressure, predictions.members),
        outside=predictions.reasons(i),
    )
