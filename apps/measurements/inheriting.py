"""A new version of a live query starts with what is known of the operators that it kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.signals import post_save
from django.utils import timezone

from apps.fleet.choices import Evidence
from apps.measurements.models import OperatorStatistic
from apps.measurements.plans import PlanOperator, pipeline_operators, plan_operators
from apps.queries.models import OperatorInput, QueryVersion
from apps.queries.services import statistics_update
from apps.telemetry.choices import LiveState
from apps.telemetry.models import LiveQuery
from apps.telemetry.pipelines import executable_of
from engine.measurement.readiness import LEAST_EVENTS, LEAST_SUBINTERVALS

__all__ = ["connect", "statistic_records", "statistics_inherit"]


def connect() -> None:
    """Hand statistics on whenever a query gets a version, and when it goes live with a plan."""
    post_save.connect(_version_stored, sender=QueryVersion, dispatch_uid="measurements.inherit.version")
    post_save.connect(_went_live, sender=LiveQuery, dispatch_uid="measurements.inherit.live")


def _version_stored(instance: QueryVersion, created: bool, raw: bool = False, **_: Any) -> None:
    """Its operators are stored after it, in the same transaction."""
    if created and not raw and _known(instance.query_id).exists():
        transaction.on_commit(partial(_inherit_if_executable, instance.pk), robust=True)


def _inherit_if_executable(pk: int) -> None:
    version = QueryVersion.objects.filter(pk=pk).select_related("query").first()
    found = executable_of(version).pipeline if version else None
    if found is not None:
        statistics_inherit(version=version, operators=pipeline_operators(found, found.source_operators))


def _went_live(instance: LiveQuery, raw: bool = False, **_: Any) -> None:
    if not raw and instance.state != LiveState.STOPPED and _known(instance.query_id).exists():
        statistics_inherit(version=instance.version, operators=plan_operators(instance))


def statistics_inherit(*, version: QueryVersion, operators: list[PlanOperator]) -> int:
    """Give inputs that rest on no measurement the statistics of their operators' fingerprints; returns how many."""
    assumed = OperatorInput.objects.filter(operator__version=version).exclude(evidence=Evidence.MEASURED)
    inputs: dict[str, list[OperatorInput]] = defaultdict(list)
    for entry in assumed.select_related("operator"):
        inputs[entry.operator.name].append(entry)
    wanted = {one.fingerprint: inputs[one.name] for one in operators if one.name in inputs}
    known = _known(version.query_id).filter(fingerprint__in=wanted)
    records = [record for row in known for record in statistic_records(row, wanted[row.fingerprint])]
    if records:
        statistics_update(version=version, statistics=records)
    return len(records)


def _known(query: int) -> QuerySet[OperatorStatistic]:
    """Statistics of a query that may take the place of an assumption (`engine.measurement.changes.is_usable`)."""
    return OperatorStatistic.objects.filter(query=query, events__gte=LEAST_EVENTS, units__gte=LEAST_SUBINTERVALS)


def statistic_records(row: OperatorStatistic, inputs: Iterable[OperatorInput]) -> list[dict[str, Any]]:
    """A statistic as `statistics_update` takes it.

    An operator that joins two streams is measured over the records of both, so what is found holds for each input.
    """
    found = {"batches": row.batches, "events": row.events, "measured_at": _past(row.last_at).isoformat()}
    return [{"operator": one.operator.name, "position": one.position, **found} for one in inputs]


def _past(moment: datetime) -> datetime:
    """A subinterval may end a moment ahead of this clock."""
    return min(moment, timezone.now())
