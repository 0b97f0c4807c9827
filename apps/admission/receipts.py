"""Receipts of decisions: each promise comes back after an hour, a day and a week, held against what was measured.

A decision writes its promise and its three receipts, not yet due, in the transaction that applies it. A task keeps the
surroundings of what has just started, and writes the receipts that are due, each in a transaction of its own: one that
was written stays as it is, one whose worker was killed is written by the next. All times are moments, not clocks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.admission.choices import (
    SET_ASIDE,
    ErrorLack,
    ReceiptLack,
    ReceiptOutcome,
    ReceiptSpan,
    WrongReason,
)
from apps.admission.models import AdmissionRequest, Promise, Receipt
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault, Malformed, SluiceError, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_REASON
from apps.estimates.accuracy import runs_set_aside
from apps.estimates.objectives import latencies_between
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, OperatorInput, Query
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, operator_id
from apps.queries.snapshots.elements import source_name
from apps.queries.snapshots.parts import snapshot_take
from engine.admission.answer import AdmissionDecision, own_effect
from engine.admission.promises import explain_error, is_within, judge_promise, query_surroundings, surroundings_changes
from engine.document.deployment import Deployment
from engine.errors import EngineError
from engine.latency_state import KNOWN
from engine.measurement.objectives import measure_latency, statistic_of
from engine.words import listed

__all__ = [
    "FLOW",
    "SPANS",
    "promise_make",
    "promises_keep",
    "promises_purge",
    "receipt_reason",
    "receipts_write",
    "receipts_write_due",
]

_log = logging.getLogger(__name__)

FLOW = "flow"  #: model of a promise that no other predicted
SPANS: Mapping[ReceiptSpan, timedelta] = {
    ReceiptSpan.HOUR: timedelta(hours=1),
    ReceiptSpan.DAY: timedelta(days=1),
    ReceiptSpan.WEEK: timedelta(days=7),
}
_MEASURED = timedelta(hours=1)  # of the past, that a receipt looks at; less where the decision is younger
_KEPT_WITHIN = timedelta(minutes=10)  # of a decision; later the surroundings are others
_PRESENT = timedelta(minutes=30)  # after it was due the present is no longer that of the receipt
_AT_ONCE = 50  # receipts in one go of the task: the others wait for the next, a minute later
_KEEP = timedelta(days=400)
_LACKS = {
    "none": ReceiptLack.NOTHING,
    "disturbed": ReceiptLack.DISTURBED,
    "few": ReceiptLack.FEW,
    "stale": ReceiptLack.STALE,
}


def promise_make(request: AdmissionRequest, decision: AdmissionDecision) -> Promise:
    """Keep what a decision promised, with its receipts to come. The caller is applying it, in a transaction."""
    effect = own_effect(decision.effects)
    known = effect.after_s if effect.standing is not None and effect.standing.kind == KNOWN.kind else None
    prediction = request.prediction if decision.never_ran else None
    version, decided_at = request.version, request.decided_at or shared_now()
    promise = Promise.objects.create(
        cluster=request.cluster,
        request=request,
        query=request.query,
        query_name=request.query.name,
        version=version.number,
        verdict=request.verdict,
        overridden=request.overridden,
        model=f"prediction {prediction.model}" if prediction is not None and prediction.model else FLOW,
        evidence=_evidence(decision),
        statistic=effect.statistic,
        bound_s=effect.bound_s,
        promised_s=known,
        low_s=effect.low_s if known is not None else None,
        high_s=effect.high_s if known is not None else None,
        state=effect.after_state,
        decided_at=decided_at,
    )
    Receipt.objects.bulk_create(
        Receipt(promise=promise, span=span, due_at=decided_at + after) for span, after in SPANS.items()
    )
    return promise


def _evidence(decision: AdmissionDecision) -> Evidence:
    """Weakest origin of the candidate's costs."""
    if decision.never_ran:
        return Evidence.PREDICTED
    kinds = {kind for kind, count in decision.evidence.items() if count}
    return Evidence.MEASURED if kinds == {Evidence.MEASURED} else Evidence.ASSUMED


# -- the task


def receipts_write_due() -> int:
    """Keep the surroundings of what has just started, and write the receipts that are due; returns how many.

    At most 50 in one go, the oldest first. One that cannot be written now does not keep the others waiting.
    """
    now = shared_now()
    promises_keep(now)
    return receipts_write(now)


def promises_keep(now: datetime) -> int:
    """Keep the surroundings of the promises of the last minutes; one snapshot of each cluster. Returns how many."""
    fresh = Promise.objects.filter(
        surroundings_lack=ErrorLack.NOT_KEPT, decided_at__gt=now - _KEPT_WITHIN, decided_at__lte=now
    )
    kept = 0
    for cluster, promises in _by_cluster(fresh.select_related("cluster")[: 4 * _AT_ONCE]).items():
        try:
            deployment = snapshot_take(cluster).deployment
            kept += sum([_keep(promise, deployment) for promise in promises])
        except Exception:  # neither the receipts nor other clusters wait for this one
            _log.exception("surroundings of promises in %s are not kept now", cluster.slug)
    return kept


def _by_cluster(promises: QuerySet[Promise]) -> dict[Cluster, list[Promise]]:
    found: dict[Cluster, list[Promise]] = {}
    for promise in promises:
        found.setdefault(promise.cluster, []).append(promise)
    return found


def _keep(promise: Promise, deployment: Deployment) -> bool:
    if promise.query_name not in deployment.query_index:
        return False
    found = query_surroundings(deployment, promise.query_name)
    promise.surroundings = None if found is None else found.to_document()
    promise.surroundings_lack = ErrorLack.TOO_LARGE if found is None else ""
    promise.save(update_fields=["surroundings", "surroundings_lack"])
    return found is not None


def receipts_write(now: datetime) -> int:
    """Write the receipts that are due at a moment; returns how many."""
    due = Receipt.objects.filter(outcome=ReceiptOutcome.DUE, due_at__lte=now).order_by("due_at", "pk")
    present = _Present(now)
    written = 0
    for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]):
        try:
            written += _write(pk, present)
        except (SluiceError, EngineError) as error:
            _log.warning("receipt %s is not written now: %s", pk, error)
        except Exception:  # else the first one that fails would hold up all that are due after it
            _log.exception("receipt %s is not written now", pk)
    return written


class _Present:
    """Clusters as they are in this go of the task, each read once."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._deployments: dict[int, Deployment] = {}

    def deployment(self, cluster: Cluster) -> Deployment:
        if cluster.pk not in self._deployments:
            self._deployments[cluster.pk] = snapshot_take(cluster).deployment
        return self._deployments[cluster.pk]


def _write(pk: int, present: _Present) -> bool:
    """Write one receipt; whether it was still due: another worker may have written it meanwhile."""
    due = Receipt.objects.filter(pk=pk, outcome=ReceiptOutcome.DUE)
    receipt = due.select_related("promise__cluster", "promise__query__running_version").first()
    if receipt is None:
        return False
    promise = receipt.promise
    receipt.since = max(promise.decided_at, receipt.due_at - _MEASURED)
    _hold(receipt)
    _look_around(receipt, present)
    receipt.decisions = _decisions_since(receipt)
    receipt.written_at = present.now
    with transaction.atomic():
        if not due.select_for_update(skip_locked=True).values_list("pk").first():
            return False
        receipt.save()
        if receipt.span == ReceiptSpan.WEEK:  # nothing is held against them any more
            Promise.objects.filter(pk=promise.pk).update(surroundings=None)
        _announce(receipt)
    return True


def _announce(receipt: Receipt) -> None:
    promise = receipt.promise
    announce(f"promises:{promise.cluster.slug}")
    if promise.request_id is not None:
        announce(f"admission:{promise.request_id}")


def _hold(receipt: Receipt) -> None:
    """Hold the promise against what was measured; nothing else takes its place."""
    promise, query = receipt.promise, receipt.promise.query
    assert receipt.since is not None
    if query is None:
        _leave_unknown(receipt, ReceiptLack.DELETED)
        return
    if promise.bound_s is None and (promise.low_s is None or promise.high_s is None):
        _leave_unknown(receipt, ReceiptLack.NO_PROMISE)
        return
    results = latencies_between(query, promise.statistic, receipt.since, receipt.due_at, promise.version)
    measured = measure_latency(results, promise.statistic, receipt.due_at.timestamp())
    if measured.lacking:
        _leave_unknown(receipt, _absence(query, promise) or _LACKS[measured.lacking])
        return
    counting = [result for result in results if not result.disturbed]
    value_s = statistic_of(counting, promise.statistic)
    receipt.results = sum(result.results for result in counting)
    ends = {"low_s": promise.low_s, "high_s": promise.high_s}
    outcome = judge_promise(value_s, bound_s=promise.bound_s, **ends)
    receipt.judge(value_s, outcome, interval_held=is_within(value_s, **ends))


def _leave_unknown(receipt: Receipt, lacking: ReceiptLack) -> None:
    receipt.lacking = lacking
    receipt.judge(None, ReceiptOutcome.NOT_KNOWN)


def _absence(query: Query, promise: Promise) -> ReceiptLack | None:
    """Why a query is no longer measured as it was promised; None where the version runs."""
    if query.state != QueryState.RUNNING or query.running_version is None:
        return ReceiptLack.STOPPED
    return ReceiptLack.REPLACED if query.running_version.number != promise.version else None


def _decisions_since(receipt: Receipt) -> int:
    """Other requests that were applied to the cluster between the decision and the receipt."""
    promise = receipt.promise
    others = Promise.objects.filter(cluster=promise.cluster, decided_at__gt=promise.decided_at)
    return others.filter(decided_at__lte=receipt.due_at).exclude(pk=promise.pk).count()


# -- what else changed, and what an error is of


def _look_around(receipt: Receipt, present: _Present) -> None:
    """Note what changed around the query since, and the parts of the error, where the present is still that of then."""
    lack, promise = _error_lack(receipt, present), receipt.promise
    if lack:
        receipt.error_lack = lack
        return
    kept = Deployment.parse(promise.surroundings)
    now = query_surroundings(present.deployment(promise.cluster), promise.query_name)
    if now is None:
        receipt.error_lack = ErrorLack.TOO_LARGE
        return
    receipt.changes = [change.to_dict() for change in surroundings_changes(kept, now, promise.query_name)]
    if receipt.measured_s is None or promise.promised_s is None:
        return
    evidence = _measured_since(promise, kept)
    error = explain_error(
        kept,
        now,
        promise.query_name,
        promised_s=promise.promised_s,
        measured_s=receipt.measured_s,
        sources_measured=evidence.sources,
        operators_measured=evidence.operators,
        mace_every=SLICES_PER_SUBINTERVAL,
    )
    receipt.error = error.to_dict() if error is not None else None
    receipt.error_lack = "" if error is not None else ErrorLack.OTHER


def _error_lack(receipt: Receipt, present: _Present) -> str:
    """Why nothing is said of what changed; empty where something is."""
    promise = receipt.promise
    if present.now - receipt.due_at > _PRESENT:
        return ErrorLack.LATE
    if promise.surroundings is None:
        return promise.surroundings_lack or ErrorLack.NOT_KEPT
    is_running = promise.query_name in present.deployment(promise.cluster).query_index
    return "" if is_running else ErrorLack.OTHER


@dataclass(frozen=True)
class _MeasuredSince:
    """Names of the sources and operators of a query's surroundings that were measured since it started."""

    sources: frozenset[str]
    operators: frozenset[str]


def _measured_since(promise: Promise, kept: Deployment) -> _MeasuredSince:
    rows = ArrivalSeries.objects.filter(
        cluster=promise.cluster, evidence=Evidence.MEASURED, updated_at__gt=promise.decided_at
    )
    names = list(rows.values_list("source_id", flat=True))
    copies = {source_name(name, query, True) for name in names for query in kept.queries}
    inputs = OperatorInput.objects.filter(
        operator__version__running_as__cluster=promise.cluster,
        operator__version__query__name__in=kept.queries,
    )
    is_measured: dict[str, bool] = {}
    columns = "operator__version__query__name", "operator__name", "evidence", "measured_at"
    for query, name, evidence, measured_at in inputs.values_list(*columns):
        own = operator_id(query, name)
        since = evidence == Evidence.MEASURED and measured_at is not None and measured_at > promise.decided_at
        is_measured[own] = is_measured.get(own, True) and since
    return _MeasuredSince(
        frozenset({*names, *copies}), frozenset(name for name, is_since in is_measured.items() if is_since)
    )


# -- why a verdict was wrong


@transaction.atomic
def receipt_reason(*, receipt: Receipt, user: User | None, reason: str, text: str = "") -> Receipt:
    """Say why a verdict turned out wrong; another reason takes the place of one that was given.

    Where something failed, or the measurement is wrong, what was measured then says nothing of estimates: the runs of
    the stretch are set aside, and count in no factor of intervals. For any other reason they count.

    Raises
    ------
    Malformed
        The reason is none of those, or something else without a text.
    Conflict
        The verdict did not turn out wrong.
    """
    rows = Receipt.objects.select_for_update(of=("self",)).select_related("promise__cluster", "promise__query")
    receipt = rows.get(pk=receipt.pk)
    faults = list(_reason_faults(reason, text))
    if faults:
        raise Malformed(f"The reason has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    if not receipt.is_wrong:
        outcome = receipt.get_outcome_display().lower()
        raise Conflict(
            f"{receipt}: {outcome}. Only a verdict that turned out wrong is asked for a reason.", code="not_wrong"
        )
    receipt.reason, receipt.reason_text = reason, text.strip()
    receipt.reason_by, receipt.reason_at = user, shared_now()
    receipt.save(update_fields=["reason", "reason_text", "reason_by", "reason_at"])
    _set_aside(receipt)
    transaction.on_commit(partial(_announce, receipt), robust=True)
    return receipt


def _reason_faults(reason: str, text: str) -> list[Fault]:
    faults = []
    if reason not in WrongReason.values:
        allowed = listed(WrongReason.values, most=len(WrongReason.values))
        faults.append(Fault("reason", f"reason is {reason!r}; allowed: {allowed}"))
    elif reason == WrongReason.OTHER and not text.strip():
        faults.append(Fault("text", "text is missing; say what it was"))
    if len(text) > MAX_REASON:
        faults.append(Fault("text", f"text has {len(text)} characters; allowed: at most {MAX_REASON}"))
    return faults


def _set_aside(receipt: Receipt) -> None:
    """Set the runs of a query aside in the stretches of all its receipts that ask for it, and no others of this one."""
    query = receipt.promise.query
    if query is None or receipt.since is None:
        return
    asking = Receipt.objects.filter(promise__query=query, reason__in=SET_ASIDE, since__isnull=False)
    stretches = [(row.since, row.due_at) for row in asking if row.since is not None]
    runs_set_aside(query=query, since=receipt.since, until=receipt.due_at, stretches=stretches, now=shared_now())


def promises_purge() -> int:
    """Purge promises older than 400 days with their receipts; returns how many rows."""
    return Promise.objects.filter(decided_at__lt=shared_now() - _KEEP).delete()[0]
