"""Review of plans: requests a new comparison when the last is old or statistics have drifted since."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.planning.choices import ComparisonReason, RunState
from apps.planning.models import PlanComparison
from apps.planning.plan_question import InputSamples, version_digest, version_samples
from apps.planning.plans import PLANS, comparisons_latest
from apps.queries.bodies import with_operators
from apps.queries.choices import QueryState
from apps.queries.models import Operator, Query, QueryVersion
from apps.queries.services import query_announce
from engine.document.elements import Batch
from engine.errors import EngineError
from engine.plans.samples import Drift, drift

__all__ = ["plans_review", "queries_with_alternatives"]

_log = logging.getLogger(__name__)
_RETRY_AFTER = timedelta(hours=1)  # after a comparison that failed


def _batches(samples: Sequence[InputSamples]) -> dict[tuple[str, str], list[Batch]]:
    return {
        (sample["operator"], sample["input"]): [Batch(**batch) for batch in sample["batches"]] for sample in samples
    }


def queries_with_alternatives() -> QuerySet[Query]:
    """Running queries with several versions, or with operators of which it is stated what they read."""
    stated = Operator.objects.filter(version=OuterRef("running_version"), extra__has_key="reads")
    rows = Query.objects.filter(state=QueryState.RUNNING, running_version__isnull=False)
    rows = rows.annotate(version_count=Count("versions")).filter(Q(version_count__gt=1) | Exists(stated))
    return rows.select_related("cluster", "running_version").order_by("pk")


def plans_review() -> int:
    """Request the comparisons that are due; returns the number.

    A comparison is due where there is none, where the last is older than the setting says, and where the statistics of
    the running version differ significantly from those it rested on. What cannot be asked for now is tried again.
    """
    queries = list(queries_with_alternatives())
    latest = comparisons_latest(queries)
    running = QueryVersion.objects.filter(pk__in=[query.running_version_id for query in queries])
    versions: dict[int | None, QueryVersion] = {version.pk: version for version in with_operators(running)}
    busy = PlanComparison.objects.filter(query__in=queries).filter(
        Q(state=RunState.COMPUTING, job__isnull=False)
        | Q(state=RunState.FAILED, finished_at__gt=timezone.now() - _RETRY_AFTER)
    )
    waiting = set(busy.values_list("query_id", flat=True))
    asked = 0
    for query in queries:
        if query.pk in waiting:
            continue
        reason = _reason(query, latest.get(query.pk), versions[query.running_version_id])
        if reason is not None:
            asked += _request_comparison(query, latest.get(query.pk), reason)
    return asked


def _reason(query: Query, last: PlanComparison | None, version: QueryVersion) -> str | None:
    """Reason to compare the query again; None without one."""
    every_s = settings.PLANS_EVERY_S
    if last is None:
        return ComparisonReason.SCHEDULED if every_s else None
    if _has_drifted(query, last, version):
        return ComparisonReason.DRIFT
    is_old = every_s and last.created_at < timezone.now() - timedelta(seconds=every_s)
    return ComparisonReason.SCHEDULED if is_old else None


def _has_drifted(query: Query, last: PlanComparison, version: QueryVersion) -> bool:
    """Whether statistics differ significantly from those of the last comparison; the test is stored for the page."""
    if last.running != version.number:
        return False
    digest = version_digest(version)
    if digest == last.drift_digest:
        return bool(last.drift and Drift.parse(last.drift).significant)
    drift_test = drift(_batches(last.samples), _batches(version_samples(version)))
    PlanComparison.objects.filter(pk=last.pk).update(
        drift=drift_test.to_dict(), drift_digest=digest, drift_at=timezone.now()
    )
    query_announce(query)
    return drift_test.significant


def _request_comparison(query: Query, last: PlanComparison | None, reason: str) -> int:
    """Request a comparison with the parameters of the last one; its versions are chosen anew."""
    how = {"capacity_cps": last.capacity_cps, "hop_cycles": last.hop_cycles, "places": last.places} if last else {}
    try:
        PLANS.request(query=query, reason=reason, **how)
    except (SluiceError, EngineError) as error:
        _log.warning("plans of %s are not compared now: %s", query.name, error)
        return 0
    return 1
