"""``predict`` and ``candidates`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from engine.arrays import IntArray
from engine.costream.candidates import find_candidates
from engine.costream.choice import choose
from engine.costream.documents import graph_of, hosts_of, placement_of
from engine.costream.graph import HostNode, QueryGraph
from engine.costream.prediction import Ensemble, PlacementPredictions, shipped_ensemble
from engine.errors import DocumentError, Fault, join_path
from engine.fields import BAD, Anything, Field, FieldTable, ListOf, Number

__all__ = ["candidates_command", "predict_command"]

_MAX_PLACEMENTS = 20_000
_COUNT = 100

_QUERY = Field("query", Anything(), required=True, help="operators and streams of the query")
_HOSTS = Field("hosts", Anything(), required=True, help="what each host leaves for the query")

_PREDICT_PROBLEM = FieldTable(
    "a prediction problem",
    _QUERY,
    _HOSTS,
    Field(
        "placements",
        ListOf(Anything(), least=1, most=_MAX_PLACEMENTS),
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


def predict_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Costs, votes and what is outside the domain, per placement; the card of the model in one line."""
    faults: list[Fault] = []
    fields = _PREDICT_PROBLEM.read(document, "", "", faults)
    graph, hosts = _question(fields, faults)
    if graph is None or hosts is None or fields["placements"] is BAD:
        raise DocumentError(faults, "prediction problem")
    n, h = len(graph.operators), len(hosts)
    rows = [placement_of(row, n, h, join_path("placements", i), faults) for i, row in enumerate(fields["placements"])]
    if faults:
        raise DocumentError(faults, "prediction problem")
    ensemble = _ensemble(options)
    predictions = ensemble.predict(graph, hosts, np.array(rows))
    answers = [_answer(predictions, i) for i in range(len(rows))]
    return {"model": ensemble.card.version, "card": ensemble.card.line, "predictions": answers}


def candidates_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Placements that keep the rules and the pins; with a `target` the one that is chosen, beside the heuristics."""
    faults: list[Fault] = []
    fields = _CANDIDATE_PROBLEM.read(document, "", "", faults)
    graph, hosts = _question(fields, faults)
    if graph is None or hosts is None:
        raise DocumentError(faults, "candidate problem")
    pins = _pins(fields.get("pins", []), len(graph.operators), len(hosts), faults)
    if faults:
        raise DocumentError(faults, "candidate problem")
    found = find_candidates(graph, hosts, options.get("count", _COUNT), pins, options.get("seed", 0))
    answer = {
        "placements": found.placements.tolist(),
        "exhaustive": found.exhaustive,
        "heuristics": dict(found.heuristics),
    }
    if "target" in options:
        answer |= _choice(graph, hosts, found.placements, found.heuristics, options)
    return answer


def _question(fields: Any, faults: list[Fault]) -> tuple[QueryGraph | None, tuple[HostNode, ...] | None]:
    """Query and hosts of a problem, whose faults are added."""
    if fields is BAD:
        return None, None
    graph = None if fields["query"] is BAD else graph_of(fields["query"], "query", faults)
    hosts = None if fields["hosts"] is BAD else hosts_of(fields["hosts"], "hosts", faults)
    return graph, hosts


def _pins(documents: Any, operators: int, hosts: int, faults: list[Fault]) -> dict[int, int]:
    pins: dict[int, int] = {}
    for i, pin in enumerate([] if documents is BAD else documents):
        if pin is BAD or BAD in pin.values():
            continue
        path = join_path("pins", i)
        for name, count in (("operator", operators), ("host", hosts)):
            if pin[name] >= count:
                message = f"{name} is {pin[name]}; allowed: an index below {count}"
                faults.append(Fault(join_path(path, name), message))
        if pin["operator"] in pins:
            faults.append(Fault(path, f"operator {pin['operator']} is pinned twice; allowed: one pin per operator"))
        pins[pin["operator"]] = pin["host"]
    return pins


def _choice(
    graph: QueryGraph,
    hosts: tuple[HostNode, ...],
    placements: IntArray,
    heuristics: Mapping[str, int],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    ensemble = _ensemble(options)
    predictions = ensemble.predict(graph, hosts, placements)
    choice = choose(predictions, options["target"], heuristics)
    chosen = None if choice.index is None else _answer(predictions, choice.index)
    return {"model": ensemble.card.version, "card": ensemble.card.line, "choice": asdict(choice), "chosen": chosen}


def _ensemble(options: Mapping[str, Any]) -> Ensemble:
    return Ensemble.load(Path(options["weights"])) if "weights" in options else shipped_ensemble()


def _answer(predictions: PlacementPredictions, i: int) -> dict[str, Any]:
    """One placement's predictions."""
    names = {"T": "throughput_eps", "Lp": "processing_latency_s", "Le": "end_to_end_latency_s"}
    costs = {
        names[metric]: {"mean": float(cost.mean[i]), "low": float(cost.low[i]), "high": float(cost.high[i])}
        for metric, cost in predictions.costs.items()
    }
    return {
        "placement": predictions.placements[i].tolist(),
        **costs,
        "success": bool(predictions.success[i]),
        "backpressure": bool(predictions.backpressure[i]),
        "votes": {
            "success": int(predictions.success_votes[i]),
            "backpressure": int(predictions.backpressure_votes[i]),
            "members": predictions.members,
        },
        "outside": list(predictions.reasons(i)),
    }
