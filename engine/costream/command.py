"""``predict`` and ``candidates`` of the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.command_options import CandidatesOptions, PredictOptions
from engine.costream.answer import CostFigures
from engine.costream.candidates import find_candidates
from engine.costream.choice import choose
from engine.costream.documents import Nested, placement_of, problem_of
from engine.costream.first_placement import COST_FIELDS
from engine.costream.prediction import Ensemble, PlacementPredictions, shipped_ensemble
from engine.errors import DocumentError, EngineError, Fault, OptionError, join_path, value_words
from engine.fields import BAD, Field, FieldTable, ListOf, Number
from engine.records import Record

__all__ = ["candidates_command", "predict_command"]

_MAX_PLACEMENTS = 20_000

_QUERY = Field("query", Nested(), required=True, help="operators and streams of the query")
_HOSTS = Field("hosts", Nested(), required=True, help="what each host leaves for the query")

_PREDICT_PROBLEM = FieldTable(
    "a prediction problem",
    _QUERY,
    _HOSTS,
    Field(
        "placements",
        ListOf(Nested(), least=1, most=_MAX_PLACEMENTS),
        required=True,
        help="per placement the index of each operator's host",
    ),
)

_CANDIDATE_PROBLEM = FieldTable(
    "a candidate problem",
    _QUERY,
    _HOSTS,
    Field(
        "pins",
        ListOf(
            FieldTable(
                "a pin",
                Field("operator", Number(least=0, whole=True), required=True, help="index of the operator"),
                Field("host", Number(least=0, whole=True), required=True, help="index of the host it stays on"),
            )
        ),
        help="operators that may be on one host only",
    ),
)


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
    fields = _PREDICT_PROBLEM.read(document, "", "", faults)
    if fields is BAD:
        raise DocumentError(faults, "prediction problem")
    problem = problem_of(fields, "", faults)
    given = [] if fields["placements"] is BAD else fields["placements"]
    counts = problem.operator_count, problem.host_count
    rows = [placement_of(row, *counts, join_path("placements", i), faults) for i, row in enumerate(given)]
    ensemble = _ensemble(options.weights, faults)
    if faults or problem.graph is None or problem.hosts is None or ensemble is None:
        raise DocumentError(faults, "prediction problem")
    predictions = ensemble.predict(problem.graph, problem.hosts, np.array(rows))
    answers = [_answer(predictions, i) for i in range(len(rows))]
    return {"model": ensemble.card.version, "card": ensemble.card.line, "predictions": answers}


def candidates_command(document: Any, options: CandidatesOptions) -> dict[str, object]:
    """Placements that keep the rules and the pins; with a `target` the one that is chosen, beside the heuristics."""
    target = options.target
    if options.weights is not None and target is None:
        message = f"weights is {value_words(options.weights)}; allowed: beside a target, by which to choose"
        raise OptionError("Weights serve a choice alone", [Fault("options.weights", message)])
    faults: list[Fault] = []
    fields = _CANDIDATE_PROBLEM.read(document, "", "", faults)
    if fields is BAD:
        raise DocumentError(faults, "candidate problem")
    problem = problem_of(fields, "", faults)
    pins = _pins(fields.get("pins", []), problem.operator_count, problem.host_count, faults)
    ensemble = None if target is None else _ensemble(options.weights, faults)
    if faults or problem.graph is None or problem.hosts is None:
        raise DocumentError(faults, "candidate problem")
    found = find_candidates(problem.graph, problem.hosts, options.count, pins, options.seed)
    answer = {
        "placements": found.placements.tolist(),
        "exhaustive": found.exhaustive,
        "heuristics": dict(found.heuristics),
    }
    if ensemble is None or target is None:
        return answer
    predictions = ensemble.predict(problem.graph, problem.hosts, found.placements)
    choice = choose(predictions, target, found.heuristics)
    chosen = None if choice.index is None else _answer(predictions, choice.index)
    model = {"model": ensemble.card.version, "card": ensemble.card.line}
    return answer | model | {"choice": asdict(choice), "chosen": chosen}


def _pins(documents: Any, operators: int | None, hosts: int | None, faults: list[Fault]) -> dict[int, int]:
    """Host of each pinned operator, as far as it is without fault. A number that is not known bounds nothing."""
    pins: dict[int, int] = {}
    for i, pin in enumerate([] if documents is BAD else documents):
        if pin is BAD:
            continue
        path = join_path("pins", i)
        for name, count in (("operator", operators), ("host", hosts)):
            if pin[name] is not BAD and count and pin[name] >= count:
                message = f"{name} is {pin[name]}; allowed: an index below {count}"
                faults.append(Fault(join_path(path, name), message))
        if pin["operator"] is BAD:
            continue
        if pin["operator"] in pins:
            faults.append(Fault(path, f"operator {pin['operator']} is pinned twice; allowed: one pin per operator"))
        pins[pin["operator"]] = pin["host"]
    return pins


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
