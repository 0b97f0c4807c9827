"""Predictions made and stored, and model versions put in force."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible, Malformed, from_engine
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.predictions.choices import ModelState, PredictionPurpose, PredictionState, TargetMetric
from apps.predictions.ensembles import ModelInForce, ensemble_of, model_in_force, shipped_version
from apps.predictions.models import ModelVersion, Prediction
from apps.queries.models import Placement, QueryVersion
from apps.queries.selectors import version_never_ran
from apps.queries.snapshots.cluster import candidate_document, cluster_snapshot
from apps.queries.snapshots.elements import operator_id
from apps.queries.snapshots.relatives import StoppedRelatives
from engine.costream.first_placement import (
    FirstPlacement,
    PlacementPredictor,
    PlacementQuestion,
    predict_placement,
)
from engine.document.candidate import Candidate, read_candidate
from engine.document.deployment import Deployment
from engine.errors import EngineError

__all__ = [
    "CandidatePrediction",
    "candidate_predict",
    "model_put_in_force",
    "prediction_of_new",
    "prediction_request",
    "prediction_running",
    "prediction_store",
    "predictions_announce",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CandidatePrediction:
    """A prediction that is not stored yet: the engine's answer, the model that gave it, and how long it took.

    `predictor` answers for other places and changes while a decision is made.
    """

    answer: FirstPlacement
    model: ModelVersion
    target: str
    elapsed_s: float
    predictor: PlacementPredictor


def candidate_predict(
    *,
    cluster: Cluster,
    running: Deployment,
    candidate: Candidate,
    closed_nodes: tuple[str, ...] = (),
    target: str = TargetMetric.END_TO_END_LATENCY,
    begun_s: float | None = None,
) -> CandidatePrediction:
    """Predict candidate placements of a query beside what runs, and choose one. Nothing is stored.

    Parameters
    ----------
    candidate : Candidate
        Operators that have a place stay there, unless their node takes nothing new.
    begun_s : float, optional
        `time.perf_counter` when the question came, for the time it took.

    Raises
    ------
    Impossible
        There is no model.
    """
    begun_s = time.perf_counter() if begun_s is None else begun_s
    model = model_in_force(cluster)
    predictor = PlacementPredictor(model.ensemble, str(target), closed_nodes, model.note)
    return _timed(predictor.predict_candidate(running, candidate), model, predictor, begun_s)


def _timed(
    answer: FirstPlacement, model: ModelInForce, predictor: PlacementPredictor, begun_s: float
) -> CandidatePrediction:
    return CandidatePrediction(answer, model.version, predictor.target, time.perf_counter() - begun_s, predictor)


@transaction.atomic
def prediction_store(
    *,
    version: QueryVersion,
    prediction: CandidatePrediction,
    purpose: str,
    user: User | None = None,
) -> Prediction:
    """Store a prediction of a version."""
    answer = prediction.answer
    row = Prediction.objects.create(
        cluster=version.query.cluster,
        query=version.query,
        version=version,
        model=prediction.model,
        requested_by=user,
        purpose=purpose,
        target=prediction.target,
        state=PredictionState(answer.state),
        placement=dict(answer.placement),
        costs=answer.costs.to_dict() if answer.costs else {},
        answer=answer.to_dict(),
        trace=answer.trace,
        candidates=answer.candidates.count if answer.candidates else 0,
        elapsed_s=prediction.elapsed_s,
    )
    predictions_announce(row.cluster)
    return row


def prediction_request(
    *,
    version: QueryVersion,
    target: str = TargetMetric.END_TO_END_LATENCY,
    placement: Mapping[str, str] | None = None,
    user: User | None = None,
) -> Prediction:
    """Predict a version beside what runs now, and store the answer; in well under a second.

    Parameters
    ----------
    placement : mapping, optional
        Node of operators that are not free to choose; it comes before what the version's document asks for.

    Raises
    ------
    Malformed
        Operators and nodes that do not exist.
    Impossible
        There is no model.
    """
    begun_s = time.perf_counter()
    cluster = version.query.cluster
    running, closed_nodes = _surroundings(version)
    asked = {name: {"node": node, "core": 0} for name, node in (placement or {}).items()}
    _check_operators(version, asked)
    candidate = _candidate(version, running, asked)
    prediction = candidate_predict(
        cluster=cluster,
        running=running,
        candidate=candidate,
        closed_nodes=closed_nodes,
        target=target,
        begun_s=begun_s,
    )
    return prediction_store(version=version, prediction=prediction, purpose=PredictionPurpose.QUESTION, user=user)


def prediction_of_new(*, version: QueryVersion, **asked: Any) -> Prediction | None:
    """Predict a version that never ran, as `prediction_request`; None for any other, and where there is no model."""
    if not version_never_ran(version):
        return None
    try:
        return prediction_request(version=version, **asked)
    except Impossible as error:
        _log.warning("query %s is not predicted: %s", version.query, error)
        return None


def prediction_running(
    *, version: QueryVersion, rates: Mapping[str, float] | None = None
) -> CandidatePrediction | None:
    """Predict a running version where it runs, beside what runs with it; None where an operator has no single place.

    `rates`: events/s of sources, where they are others than in their busiest minutes.
    """
    begun_s = time.perf_counter()
    rows = Placement.objects.filter(operator__version=version).select_related("operator", "node")
    where = {operator_id(version.query.name, row.operator.name): row.node.name for row in rows}
    if len(where) != len(rows) or len(where) != version.operators.count():
        return None
    running, _ = _surroundings(version)
    candidate = _candidate(version, running, {})
    model = model_in_force(version.query.cluster)
    predictor = PlacementPredictor(model.ensemble, note=model.note)
    sources = {source.id: source for source in (*running.sources, *candidate.sources)}
    held = [
        replace(sources[id_], arrivals=np.full_like(sources[id_].arrivals, rate * running.subinterval_s))
        for id_, rate in (rates or {}).items()
    ]
    question = PlacementQuestion(running, candidate.operators, (*candidate.sources, *held), pins=where)
    return _timed(predictor.noted(predict_placement(question, model.ensemble)), model, predictor, begun_s)


def _surroundings(version: QueryVersion) -> tuple[Deployment, tuple[str, ...]]:
    """Queries that run beside a version, and the nodes that take nothing new."""
    snapshot = cluster_snapshot(version.query.cluster)
    name, running = version.query.name, snapshot.deployment
    return (running.without_query(name) if name in running.queries else running), snapshot.closed_nodes


def _candidate(version: QueryVersion, running: Deployment, placement: Mapping[str, Any]) -> Candidate:
    document = StoppedRelatives(version.query.cluster).beside(candidate_document(version, placement=placement))
    try:
        return read_candidate(document, running, path="query")
    except EngineError as error:
        raise from_engine(error) from None


def _check_operators(version: QueryVersion, placement: Mapping[str, Any]) -> None:
    names = set(version.operators.values_list("name", flat=True))
    prefix = f"{version.query.name}/"
    unknown = [name for name in placement if name.removeprefix(prefix) not in names]
    if unknown:
        faults = [(f"placement.{name}", f"{name!r} is not an operator of {version.query.name}") for name in unknown]
        raise Malformed(f"placement: {faults[0][1]}.", faults)


@transaction.atomic
def model_put_in_force(*, cluster: Cluster, version: ModelVersion, user: User | None) -> ModelVersion:
    """Let a version predict for a cluster from now on: a roll-back, or the return to a later one.

    Raises
    ------
    Conflict
        It is in force already, belongs to another cluster, or was refused by the guard.
    Impossible
        Its weights cannot be read.
    """
    Cluster.objects.select_for_update().get(pk=cluster.pk)
    own = ModelVersion.objects.select_for_update().filter(cluster=cluster, state=ModelState.IN_FORCE).first()
    if version.cluster_id not in (None, cluster.pk):
        raise Conflict(f"Model {version} belongs to another cluster.", code="other_cluster")
    if version.state == ModelState.REFUSED:
        raise Conflict(f"Model {version} was refused by the guard: it is no better.", code="refused")
    if version.pk == (own or shipped_version()).pk:
        raise Conflict(f"Model {version} is in force already.", code="in_force")
    try:
        ensemble_of(version)
    except EngineError as error:
        raise Impossible(f"Model {version} cannot be read: {error}", code="no_model") from None
    if own is not None:
        own.state = ModelState.AVAILABLE
        own.save(update_fields=["state"])
    if version.cluster_id is not None:
        version.state, version.in_force_at = ModelState.IN_FORCE, timezone.now()
        version.save(update_fields=["state", "in_force_at"])
    predictions_announce(cluster)
    return version


def predictions_announce(cluster: Cluster) -> None:
    """Tell open pages that predictions, executions or models of a cluster have changed."""
    announce(f"predictions:{cluster.slug}")
