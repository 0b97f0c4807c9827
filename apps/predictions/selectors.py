"""Reading predictions, executions and models: lists, prequential errors, and what speaks for a query now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from django.db.models import Q, QuerySet

from apps.core.errors import Impossible
from apps.core.filters import ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.predictions.choices import (
    ExecutionOrigin,
    FineTuningState,
    ModelOrigin,
    ModelState,
    PredictionPurpose,
    PredictionState,
    TargetMetric,
)
from apps.predictions.ensembles import shipped_version, version_in_force
from apps.predictions.models import ModelVersion, ObservedExecution, Prediction
from apps.queries.models import OperatorInput, QueryVersion
from engine.costream.accuracy import RECORDED_RUNS, PredictionRecord, balanced_accuracy, q_quantiles
from engine.costream.answer import PredictedCosts

__all__ = [
    "MIN_EXECUTIONS",
    "ExecutionFilter",
    "FineTuningFilter",
    "ModelFilter",
    "PredictionFilter",
    "QueryBasis",
    "cluster_accuracy",
    "executions_visible",
    "model_words",
    "models_of",
    "models_visible",
    "prediction_newest",
    "prediction_record",
    "predictions_visible",
    "q_errors_of",
    "query_basis",
]


#: Observed executions from which on prequential errors are shown.
MIN_EXECUTIONS = 30
_MAX_EXECUTIONS = 1000  # the newest that errors are taken of

_ERRORS = {
    TargetMetric.THROUGHPUT: "q_throughput",
    TargetMetric.PROCESSING_LATENCY: "q_processing_latency",
    TargetMetric.END_TO_END_LATENCY: "q_end_to_end_latency",
}


def predictions_visible() -> QuerySet[Prediction]:
    """Predictions with what lists show of them, newest first."""
    rows = Prediction.objects.select_related("cluster", "query", "version", "model", "requested_by")
    return rows.defer("answer", "trace", "model__weights")


def executions_visible() -> QuerySet[ObservedExecution]:
    """Observed executions, newest first."""
    rows = ObservedExecution.objects.select_related("cluster", "query", "version", "model")
    return rows.defer("trace", "model__weights")


def models_visible() -> QuerySet[ModelVersion]:
    """Model versions without their weights, newest first."""
    return ModelVersion.objects.select_related("cluster", "parent", "created_by").defer("weights", "parent__weights")


def models_of(cluster: Cluster) -> QuerySet[ModelVersion]:
    """Versions that a cluster has or may return to: its own, and the shipped one of this version of Sluice."""
    shipped = _shipped()
    return models_visible().filter(Q(cluster=cluster) | Q(pk=shipped.pk if shipped else None))


def model_words(cluster: Cluster) -> str:
    """Digest of the model in force, and whether runs bear it out; empty where there is none."""
    try:
        version = version_in_force(cluster)
    except Impossible:
        return ""
    words = version.digest[:16]
    return f"{words} borne out" if prediction_record(cluster, version).is_borne_out else words


def prediction_record(cluster: Cluster, version: ModelVersion | None = None) -> PredictionRecord:
    """Record of a version (the one in force) on a cluster: its newest runs with a predicted and an observed latency.

    A run counts for the version that predicted it, so a version that was just put in force has none of another's.
    """
    version = version or _version(cluster)
    if version is None:
        return PredictionRecord()
    rows = ObservedExecution.objects.filter(cluster=cluster, model=version, end_to_end_latency_s__isnull=False)
    fields = ("query_id", "predicted", "end_to_end_latency_s", "backpressure", "success")
    newest = list(rows.order_by("-ends_at", "-pk").values_list(*fields)[:RECORDED_RUNS])
    held = sum(_is_held(PredictedCosts.parse(row[1]), *row[2:]) for row in newest)
    return PredictionRecord(len(newest), held, len({row[0] for row in newest}))


def _is_held(predicted: PredictedCosts, latency_s: float, backpressure: bool | None, success: bool | None) -> bool:
    """Whether a run was as predicted: its latency within the interval, and the votes right where they were observed."""
    if not predicted.end_to_end_latency_s.low <= latency_s <= predicted.end_to_end_latency_s.high:
        return False
    votes = ((predicted.backpressure, backpressure), (predicted.success, success))
    return all(seen is None or vote.holds == seen for vote, seen in votes)


def _shipped() -> ModelVersion | None:
    try:
        return shipped_version()
    except Impossible:
        return None


def prediction_newest(version: QueryVersion) -> Prediction | None:
    """The newest prediction of a version, with its answer."""
    rows = Prediction.objects.select_related("model", "cluster", "query", "version")
    return rows.defer("trace", "model__weights").filter(version=version).first()


@dataclass(frozen=True)
class QueryBasis:
    """Basis of a version's latency: the prediction, or Mace since the costs are known.

    Attributes
    ----------
    kind
        ``prediction``: an input has no cost yet; ``mace``: all have one.
    measured, inputs
        Inputs with measured evidence, of all.
    since
        When Mace took over from the prediction; None where it did not.
    prediction
        The newest prediction of the version, if it had one.
    """

    kind: str
    measured: int
    inputs: int
    since: datetime | None
    prediction: Prediction | None

    @property
    def is_predicted(self) -> bool:
        return self.kind == "prediction"

    @property
    def is_handed_over(self) -> bool:
        """Whether it had a prediction and every input is measured now."""
        return self.prediction is not None and self.inputs > 0 and self.measured == self.inputs

    def as_dict(self) -> dict[str, object]:
        """As REST shows it."""
        newest = None if self.prediction is None else str(self.prediction.pk)
        return {
            "kind": self.kind,
            "measured_inputs": self.measured,
            "inputs": self.inputs,
            "since": self.since,
            "handed_over": self.is_handed_over,
            "prediction": newest,
        }


def query_basis(version: QueryVersion) -> QueryBasis:
    """Basis of a version's latency now: Mace takes over once every input has a cost."""
    rows = OperatorInput.objects.filter(operator__version=version).values_list("cycles_per_event", "evidence", "model")
    inputs = list(rows)
    unknown = any(cycles is None and not model for cycles, _, model in inputs)
    measured = sum(evidence == Evidence.MEASURED for _, evidence, _ in inputs)
    since = None if unknown else version.costs_known_at
    kind = "prediction" if unknown else "mace"
    return QueryBasis(kind, measured, len(inputs), since, prediction_newest(version))


def cluster_accuracy(cluster: Cluster) -> dict[str, Any]:
    """Errors of predictions, by metric and by where they come from.

    Returns
    -------
    dict
        `executions` observed, `observed` of them by the origin of their model, and `needed` for figures; `simulated`:
        of the model in force on simulated traces, from its card; `shipped` and `fine_tuned`: prequential, of executions
        of this cluster that the version predicted before they were observed. Each of the two is None with fewer than
        `MIN_EXECUTIONS`. `record`: how often the intervals of the version in force held here, and whether verdicts may
        rest on it (`engine.costream.accuracy`).
    """
    rows = list(
        executions_visible().filter(cluster=cluster).exclude(model=None).order_by("-ends_at", "-pk")[:_MAX_EXECUTIONS]
    )
    by_origin = {
        origin: [row for row in rows if row.model is not None and row.model.origin == origin]
        for origin in (ModelOrigin.SHIPPED, ModelOrigin.FINE_TUNED)
    }
    card = {} if (words := _version(cluster)) is None else words.card
    return {
        "cluster": cluster.slug,
        "executions": len(rows),
        "needed": MIN_EXECUTIONS,
        "observed": {str(origin): len(own) for origin, own in by_origin.items()},
        "simulated": {key: value for key, value in card.get("errors", {}).items() if key != "observed"},
        "shipped": _prequential(by_origin[ModelOrigin.SHIPPED]),
        "fine_tuned": _prequential(by_origin[ModelOrigin.FINE_TUNED]),
        "record": prediction_record(cluster, words).to_dict(),
    }


def q_errors_of(cluster: Cluster) -> tuple[dict[str, list[float | None]], list[str]]:
    """Per metric the q-error of each of a cluster's newest executions, oldest first, and the models that predicted."""
    rows = ObservedExecution.objects.filter(cluster=cluster).exclude(model=None).order_by("-ends_at", "-pk")
    names = tuple(_ERRORS.values())
    newest = list(rows.values_list(*names, "model__origin", "model__number")[:_MAX_EXECUTIONS])[::-1]
    errors = {str(metric): [row[i] for row in newest] for i, metric in enumerate(_ERRORS)}
    return errors, [f"{ModelOrigin(origin).label.lower()} {number}" for *_, origin, number in newest]


def _version(cluster: Cluster) -> ModelVersion | None:
    try:
        return version_in_force(cluster)
    except Impossible:
        return None


def _prequential(rows: Sequence[ObservedExecution]) -> dict[str, Any] | None:
    """Errors of executions that were predicted before they were observed."""
    if len(rows) < MIN_EXECUTIONS:
        return None
    errors: dict[str, Any] = {"executions": len(rows)}
    for metric, name in _ERRORS.items():
        known = [getattr(row, name) for row in rows if getattr(row, name) is not None]
        if known:
            errors[str(metric)] = {"runs": len(known), **q_quantiles(np.array(known, dtype=np.float64))}
    for metric, name in (("RO", "backpressure"), ("S", "success")):
        pairs = [
            (getattr(row, name), getattr(PredictedCosts.parse(row.predicted), name).holds)
            for row in rows
            if getattr(row, name) is not None
        ]
        if pairs:
            observed, predicted = zip(*pairs, strict=True)
            errors[metric] = {"runs": len(pairs), "accuracy": balanced_accuracy(observed, predicted)}
    return errors


class PredictionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=predicted`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=PredictionState.choices)
    purpose = ChoiceFilter(choices=PredictionPurpose.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "elapsed_s", "state", query="query__name", cluster="cluster__slug")


class ExecutionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&origin=reported`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    origin = ChoiceFilter(choices=ExecutionOrigin.choices)
    model = NumberFilter("model_id", whole=True, label="Id of a model version")
    ends_at = TimeFilter()
    sorts = sort_paths("ends_at", "starts_at", "created_at", query="query__name", cluster="cluster__slug")


class ModelFilter(ListFilter):
    """`?cluster=eu-1&state=in_force`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    origin = ChoiceFilter(choices=ModelOrigin.choices)
    state = ChoiceFilter(choices=ModelState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "in_force_at", "number", "state", cluster="cluster__slug")


class FineTuningFilter(ListFilter):
    """`?cluster=eu-1&state=refused`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=FineTuningState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "observations", "state", cluster="cluster__slug")
