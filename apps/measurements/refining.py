"""Measured statistics, arrivals and places of live queries become those of the models, where they say something new."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.inheriting import statistic_records
from apps.measurements.learning import statistics_learn
from apps.measurements.models import OperatorStatistic
from apps.measurements.places import places_of
from apps.measurements.placing import PlacementNews, placement_news, placement_store
from apps.measurements.plans import PlanOperator, plan_operators
from apps.measurements.sources import arrivals_news, arrivals_store
from apps.queries.models import OperatorInput, QueryVersion
from apps.queries.services import statistics_update
from apps.telemetry.configs import live_served
from apps.telemetry.models import LiveQuery
from engine.errors import EngineError
from engine.measurement.changes import is_usable, statistic_differs
from engine.measurement.pace import News, Pace, moved_for_certain, together
from engine.measurement.ratios import Statistic

__all__ = ["Refined", "refine_all", "refine_cluster"]

_log = logging.getLogger(__name__)
_NOW = Pace()  # nothing is held back


@dataclass
class Refined:
    """How much was changed."""

    inputs: int = 0
    sources: int = 0
    placements: int = 0

    def __iadd__(self, other: Refined) -> Refined:
        self.inputs += other.inputs
        self.sources += other.sources
        self.placements += other.placements
        return self


def _at_once(cluster: Cluster) -> Pace:
    return _NOW


def refine_all(now: datetime | None = None, *, pace_of: Callable[[Cluster], Pace] = _at_once) -> Refined:
    """Refine every cluster with live queries. One that fails is told in the log, and does not keep the others."""
    total = Refined()
    for cluster in Cluster.objects.filter(queries__live__in=_live()).distinct():
        try:
            total += refine_cluster(cluster, now, pace_of(cluster))
        except (SluiceError, EngineError) as error:
            _log.warning("measurements of cluster %s are not used now: %s", cluster.slug, error)
    return total


@transaction.atomic  # so that all changes of a cluster ask for one estimate
def refine_cluster(cluster: Cluster, now: datetime | None = None, pace: Pace = _NOW) -> Refined:
    """Learn from what was measured and pass on what differs from what the models have, when the pace says so: what is
    not material waits until an estimate is a minute old, and is then passed on all together.
    """
    present = now or timezone.now()
    places = places_of(cluster)
    found = Refined()
    inputs: list[_InputsNews] = []
    moves: list[PlacementNews] = []
    lives = list(_live().filter(query__cluster=cluster))
    plans = {live.pk: plan_operators(live) for live in lives}
    for live in lives:
        operators = plans[live.pk]
        learned = statistics_learn(query=live.query, places=places, operators=operators, now=present)
        inputs.append(_inputs_news(live, operators, learned, present))
        moved = placement_news(live=live, operators=operators, places=places)
        moves += [moved] if moved else []
    arrivals = arrivals_news(cluster=cluster, firsts=_firsts(lives, plans), now=present)
    if pace.is_due(together(one.news for one in (*moves, *inputs, *arrivals))):
        found.placements = sum(_move(one) for one in moves)
        found.inputs = sum(_store(one, present) for one in inputs)
        for one in arrivals:
            arrivals_store(cluster=cluster, found=one)
        found.sources = len(arrivals)
    return found


def _live() -> QuerySet[LiveQuery]:
    return live_served().select_related("query__cluster", "query__running_version", "source", "version")


def _firsts(lives: list[LiveQuery], plans: Mapping[int, list[PlanOperator]]) -> dict[str, list[tuple[int, str]]]:
    """(query, name of the first operator) of the queries that read each source."""
    found: dict[str, list[tuple[int, str]]] = {}
    for live in lives:
        if plans[live.pk]:
            found.setdefault(live.source.source_id, []).append((live.query_id, plans[live.pk][0].name))
    return found


@dataclass(frozen=True)
class _InputsNews:
    """Statistics of a running version's inputs that say more than those it has."""

    version: QueryVersion | None
    records: list[dict[str, Any]]
    news: News


def _store(found: _InputsNews, now: datetime) -> int:
    if found.records and found.version is not None:
        statistics_update(version=found.version, statistics=found.records, now=now)
    return len(found.records)


def _inputs_news(
    live: LiveQuery, operators: list[PlanOperator], learned: Mapping[str, Statistic], now: datetime
) -> _InputsNews:
    inputs: dict[str, list[OperatorInput]] = defaultdict(list)
    for row in _inputs(live):
        inputs[row.operator.name].append(row)
    rows = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=live.query)}
    chosen = [
        one
        for one in operators
        if one.fingerprint in learned
        and one.name in inputs
        and any(_says_more(learned[one.fingerprint], entry, now) for entry in inputs[one.name])
    ]
    return _InputsNews(
        version=live.query.running_version,
        records=[record for one in chosen for record in statistic_records(rows[one.fingerprint], inputs[one.name])],
        news=together(_news(learned[one.fingerprint], entry) for one in chosen for entry in inputs[one.name]),
    )


def _news(found: Statistic, stored: OperatorInput) -> News:
    moves = [
        moved_for_certain(found.selectivity, stored.selectivity),
        moved_for_certain(found.cycles_per_event, stored.cycles_per_event),
    ]
    return News(first=stored.evidence != Evidence.MEASURED, moved=max(moves))


def _inputs(live: LiveQuery) -> list[OperatorInput]:
    rows = OperatorInput.objects.filter(operator__version=live.query.running_version_id)
    return list(rows.select_related("operator").order_by("operator__position", "position"))


def _says_more(found: Statistic, stored: OperatorInput, now: datetime) -> bool:
    is_measured = stored.evidence == Evidence.MEASURED and stored.measured_at is not None
    return is_usable(found) and statistic_differs(
        found,
        selectivity=stored.selectivity,
        cycles_per_event=stored.cycles_per_event,
        events=stored.events,
        age_s=(now - stored.measured_at).total_seconds() if is_measured else None,
    )


def _move(found: PlacementNews) -> int:
    try:
        with transaction.atomic():
            placement_store(found)
    except SluiceError as error:  # such as a node that takes nothing new: the placement stays as it is
        name = f"{found.query.cluster.slug}/{found.query.name}"
        _log.warning("the placement of %s does not follow its load factors: %s", name, error)
        return 0
    return 1
