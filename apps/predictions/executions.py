"""Observed executions: a stretch of a running query beside the prediction that was made of it before."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.core.errors import Conflict, Fault, Impossible, Malformed, SluiceError
from apps.predictions.choices import ExecutionOrigin, PredictionPurpose, PredictionState
from apps.predictions.models import ObservedExecution, Prediction
from apps.predictions.services import prediction_running, prediction_store, predictions_announce
from apps.queries.choices import QueryState
from apps.queries.models import Placement, Query, QueryVersion
from apps.queries.snapshots.elements import operator_id
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery
from engine.costream.answer import CostFigures, PredictedCosts
from engine.costream.first_placement import FirstPlacement

__all__ = [
    "EXECUTION_KEEP",
    "OBSERVED_S",
    "ObservedCosts",
    "execution_report",
    "execution_store",
    "executions_observe_all",
    "executions_purge",
    "is_observed_lately",
]

#: Length of a stretch that is observed of a live query: that of a simulated run.
OBSERVED_S = 240.0
#: Executions and predictions are kept so long.
EXECUTION_KEEP = timedelta(days=365)

_PAUSE = timedelta(hours=1)  # between two stretches of the same query: they would say much the same
_SETTLE = timedelta(seconds=30)  # results of a stretch have arrived by then
_MIN_WINDOWS = 3
_MAX_AGE = timedelta(days=30)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObservedCosts:
    """Costs of a stretch of an execution; None: not observed."""

    throughput_eps: float | None = None
    processing_latency_s: float | None = None
    end_to_end_latency_s: float | None = None
    backpressure: bool | None = None
    success: bool | None = None


@transaction.atomic
def execution_store(
    *, prediction: Prediction, costs: ObservedCosts, starts_at: datetime, ends_at: datetime, origin: str
) -> ObservedExecution:
    """Store a stretch beside the prediction that was made of it.

    Raises
    ------
    Conflict
        The query has an execution that ended in the same moment.
    Impossible
        Nothing was predicted that could be compared.
    """
    if prediction.state != PredictionState.PREDICTED or prediction.trace is None:
        raise Impossible(
            f"Nothing was predicted of {prediction.version}: {FirstPlacement.parse(prediction.answer).reason}"
        )
    if ObservedExecution.objects.filter(query=prediction.query, ends_at=ends_at).exists():
        message = f"{prediction.query.name} has an observed execution that ended at {ends_at.isoformat()}"
        raise Conflict(f"{message}.", [("ends_at", message)], code="observed")
    predicted = PredictedCosts.parse(prediction.costs)
    row = ObservedExecution.objects.create(
        cluster=prediction.cluster,
        query=prediction.query,
        version=prediction.version,
        prediction=prediction,
        model=prediction.model,
        origin=origin,
        starts_at=starts_at,
        ends_at=ends_at,
        predicted=prediction.costs,
        **costs.__dict__,
        q_throughput=_q_error(predicted.throughput_eps, costs.throughput_eps),
        q_processing_latency=_q_error(predicted.processing_latency_s, costs.processing_latency_s),
        q_end_to_end_latency=_q_error(predicted.end_to_end_latency_s, costs.end_to_end_latency_s),
        trace=prediction.trace,
    )
    predictions_announce(prediction.cluster)
    return row


def _q_error(predicted: CostFigures, observed: float | None) -> float | None:
    """The larger ratio of predicted and observed; None without both."""
    if not predicted.mean or not observed:
        return None
    return max(predicted.mean / observed, observed / predicted.mean)


def execution_report(
    *,
    version: QueryVersion,
    costs: ObservedCosts,
    ends_at: datetime | None = None,
    duration_s: float = OBSERVED_S,
    origin: str = ExecutionOrigin.REPORTED,
    rates: Mapping[str, float] | None = None,
    now: datetime | None = None,
) -> ObservedExecution:
    """Store what a stream processor says of a running version.

    It is held against the newest prediction of the version where it runs that is older than the stretch; without one,
    the model in force, which has not seen the stretch, predicts it now.

    Parameters
    ----------
    rates : mapping, optional
        Events/s that came in the stretch, by source. With them the model in force predicts the version at these: what
        was predicted of a busier time says nothing of a quiet one.

    Raises
    ------
    Malformed
        With every fault of what was observed.
    Impossible
        The version does not run, or cannot be predicted where it runs.
    """
    now = now or timezone.now()
    ends_at = ends_at or now
    _check_costs(costs, ends_at, duration_s, now)
    starts_at = ends_at - timedelta(seconds=duration_s)
    prediction = _prediction_at(version, rates) if rates else _prediction_before(version, starts_at)
    if prediction is None:
        name = version.query.name
        message = f"{name} does not run, or an operator of it runs on several nodes, of which the model knows nothing"
        raise Impossible(f"{message}.", [("query", message)])
    return execution_store(prediction=prediction, costs=costs, starts_at=starts_at, ends_at=ends_at, origin=origin)


def _check_costs(costs: ObservedCosts, ends_at: datetime, duration_s: float, now: datetime) -> None:
    faults = []
    for name in ("throughput_eps", "processing_latency_s", "end_to_end_latency_s"):
        value = getattr(costs, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            faults.append(Fault(name, f"{name} is {value}; allowed: a finite number of at least 0, or nothing"))
    if not (math.isfinite(duration_s) and 1.0 <= duration_s <= 86_400.0):
        faults.append(Fault("duration_s", f"duration_s is {duration_s}; allowed: 1 to 86,400 seconds"))
    if not now - _MAX_AGE <= ends_at <= now:
        faults.append(Fault("ends_at", f"ends_at is {ends_at.isoformat()}; allowed: a moment of the last 30 days"))
    if all(value is None for value in costs.__dict__.values()):
        faults.append(Fault("", "nothing was observed; allowed: at least one of the five costs"))
    if costs.success is False and costs.throughput_eps:
        faults.append(Fault("success", "success is false, but events were put out; allowed: true, or throughput_eps 0"))
    if faults:
        raise Malformed(f"The execution has {len(faults)} faults; first: {faults[0].path}: {faults[0].message}", faults)


def _prediction_before(version: QueryVersion, starts_at: datetime) -> Prediction | None:
    """The newest prediction of a version where it runs, made before a moment; else one that is made now."""
    where = _places(version)
    if where is None:
        return None
    rows = Prediction.objects.select_related("cluster", "query", "version__query", "model").filter(
        version=version, created_at__lte=starts_at, state=PredictionState.PREDICTED
    )
    for row in rows[:10]:
        if row.placement == where:
            return row
    return _prediction_at(version, {})


def _prediction_at(version: QueryVersion, rates: Mapping[str, float]) -> Prediction | None:
    """A prediction that is made now of a version where it runs; None where it has no single place."""
    made = prediction_running(version=version, rates=rates)
    if made is None:
        return None
    return prediction_store(version=version, prediction=made, purpose=PredictionPurpose.OBSERVATION)


def _places(version: QueryVersion) -> dict[str, str] | None:
    """Node of each operator of a running version; None where it does not run, or one has several."""
    rows = list(Placement.objects.filter(operator__version=version).select_related("operator", "node"))
    where = {operator_id(version.query.name, row.operator.name): row.node.name for row in rows}
    return where if len(where) == len(rows) == version.operators.count() else None


def executions_observe_all(now: datetime | None = None) -> int:
    """Observe a stretch of every live query that has none of the last hour; returns how many were stored."""
    present = now or timezone.now()
    lives = LiveQuery.objects.select_related("query__cluster", "query__running_version__query__cluster")
    stored = 0
    for live in lives.filter(query__state=QueryState.RUNNING):
        try:
            stored += _observe(live.query, present)
        except SluiceError as error:
            _log.warning("the execution of %s is not observed now: %s", live.query, error)
    return stored


def _observe(query: Query, now: datetime) -> bool:
    version = query.running_version
    ends_at = now - _SETTLE
    starts_at = ends_at - timedelta(seconds=OBSERVED_S)
    if version is None or is_observed_lately(query, now):
        return False
    costs = _live_costs(query, version, starts_at, ends_at)
    prediction = _prediction_before(version, starts_at) if costs is not None else None
    if costs is None or prediction is None or prediction.state != PredictionState.PREDICTED:
        return False
    execution_store(
        prediction=prediction, costs=costs, starts_at=starts_at, ends_at=ends_at, origin=ExecutionOrigin.LIVE
    )
    return True


def is_observed_lately(query: Query, now: datetime) -> bool:
    """Whether a query has an execution of the last hour: another one would say much the same."""
    return ObservedExecution.objects.filter(query=query, ends_at__gt=now - _PAUSE).exists()


def _live_costs(query: Query, version: QueryVersion, starts_at: datetime, ends_at: datetime) -> ObservedCosts | None:
    """Costs by the windows whose results came in a stretch; None with too few that can be judged.

    The oldest event behind a window's results came at its beginning, so its width is part of the latency. What was
    spent before the agent read a record is not measured, so the processing latency is not told apart.
    """
    rows = ResultWindow.objects.filter(
        query=query, version_number=version.number, emitted_at__gte=starts_at, emitted_at__lt=ends_at, revision=0
    )
    windows = [row for row in rows.defer("body") if row.complete and row.latency_s is not None and row.latency_s >= 0.0]
    if len(windows) < _MIN_WINDOWS:
        return None
    rows_put_out = sum(window.row_count for window in windows)
    covered_s = sum(window.width_us for window in windows) / 1e6
    latency_s = math.fsum(window.width_us / 1e6 + (window.latency_s or 0.0) for window in windows) / len(windows)
    return ObservedCosts(
        throughput_eps=rows_put_out / covered_s if covered_s > 0 else None,
        end_to_end_latency_s=latency_s,
        success=rows_put_out > 0,
    )


def executions_purge(now: datetime | None = None) -> int:
    """Delete executions and predictions older than `EXECUTION_KEEP`; returns how many."""
    before = (now or timezone.now()) - EXECUTION_KEEP
    count = ObservedExecution.objects.filter(ends_at__lt=before).delete()[0]
    return count + Prediction.objects.filter(created_at__lt=before).delete()[0]
