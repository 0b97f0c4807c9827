"""Updates of the models: measured statistics, arrivals and placements of live queries, where they say something new."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.errors import SluiceError
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.arrivals import arrivals_news, arrivals_store
from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import Places, PlanOperator, places_of, plan_operators
from apps.measurements.statistics import statistic_records, statistics_learn
from apps.queries.models import OperatorInput, Placement, Query, QueryVersion
from apps.queries.services import placement_move
from apps.queries.statistics import statistics_update
from apps.telemetry.configs import live_served
from apps.telemetry.models import LiveQuery
from engine.errors import EngineError
from engine.measurement.changes import (
    MeasuredChange,
    Pace,
    certain_move,
    combine_changes,
    dispersion_differs,
    is_usable,
    rounded_shares,
    shares_differ,
    shares_moved,
    statistic_differs,
)
from engine.measurement.places import STREAM, expected_shares
from engine.measurement.statistics import InputStatistic

__all__ = [
    "ModelUpdates",
    "PlacementNews",
    "TrialLearned",
    "placement_news",
    "placement_store",
    "refine_all",
    "refine_cluster",
    "trial_learn",
]


@dataclass(frozen=True)
class PlacementNews:
    """Operators of a query that run elsewhere than their placement says."""

    query: Query
    placement: Mapping[str, object]
    news: MeasuredChange


def placement_news(*, live: LiveQuery, operators: list[PlanOperator], places: Places) -> PlacementNews | None:
    """A changed placement of operators; None if nothing differs, or if a place is no node of the cluster.

    Shares are those that were measured last, or else what the load factors say. The stream processor's share is
    spread evenly over the cores of its node, whose tasks run side by side; an operator that neither is stateless nor
    merges stays on one.
    """
    if STREAM not in places.nodes:
        return None
    stored = _stored(live)
    placement: dict[str, object] = {}
    moved = 0.0
    for operator, shares in zip(operators, _shares(live, operators), strict=True):
        by_node, before = _by_node(shares, places), _summed(stored.get(operator.name, []))
        if operator.name in stored and by_node and shares_differ(by_node, before):
            placement[operator.name] = _replicas(by_node, places, spread=operator.merges or operator.at_sources)
            moved = max(moved, shares_moved(by_node, before))
    return PlacementNews(live.query, placement, MeasuredChange(moved=moved)) if placement else None


def placement_store(news: PlacementNews) -> None:
    """Move the operators."""
    placement_move(query=news.query, placement=dict(news.placement))


def _shares(live: LiveQuery, operators: list[PlanOperator]) -> list[dict[str, float]]:
    factors = {
        str(row.agent_id): list(row.load_factors)[: live.source_operators]
        for row in live.assignments.filter(enabled=True).select_related("agent")
    }
    expected = expected_shares(factors, len(operators)) if factors else [{STREAM: 1.0} for _ in operators]
    shares = {row.fingerprint: row.shares for row in OperatorStatistic.objects.filter(query=live.query)}
    return [shares.get(operator.fingerprint) or by_load for operator, by_load in zip(operators, expected, strict=True)]


def _by_node(shares: dict[str, float], places: Places) -> dict[str, float]:
    """Shares of nodes; what runs at an agent without one is counted as the stream processor's."""
    shares_by_node: dict[str, float] = {}
    for place, share in shares.items():
        node = places.nodes.get(place) or places.nodes[STREAM]
        shares_by_node[node.name] = shares_by_node.get(node.name, 0.0) + share
    return rounded_shares(shares_by_node)


def _stored(live: LiveQuery) -> dict[str, list[tuple[str, float]]]:
    rows = Placement.objects.filter(operator__version=live.query.running_version_id)
    replicas: dict[str, list[tuple[str, float]]] = {}
    for name, node, fraction in rows.values_list("operator__name", "node__name", "fraction"):
        replicas.setdefault(name, []).append((node, fraction))
    return replicas


def _summed(replicas: list[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for node, fraction in replicas:
        sums[node] = sums.get(node, 0.0) + fraction
    return sums


def _replicas(by_node: dict[str, float], places: Places, *, spread: bool) -> list[dict[str, object]]:
    stream = places.nodes[STREAM]
    replicas = []
    for name, share in sorted(by_node.items()):
        cores = stream.cores if spread and name == stream.name else 1
        replicas += [{"node": name, "core": core, "fraction": share / cores} for core in range(cores)]
    return replicas


_log = logging.getLogger(__name__)
_NOW = Pace()  # nothing is held back


@dataclass
class ModelUpdates:
    """Size of a change."""

    inputs: int = 0
    sources: int = 0
    placements: int = 0

    def __iadd__(self, other: ModelUpdates) -> ModelUpdates:
        self.inputs += other.inputs
        self.sources += other.sources
        self.placements += other.placements
        return self


def _at_once(cluster: Cluster) -> Pace:
    return _NOW


def refine_all(now: datetime | None = None, *, pace_of: Callable[[Cluster], Pace] = _at_once) -> ModelUpdates:
    """Update every cluster with live queries. A failing one is logged and does not hold up others."""
    total = ModelUpdates()
    for cluster in Cluster.objects.filter(queries__live__in=_live()).distinct():
        try:
            total += refine_cluster(cluster, now, pace_of(cluster))
        except (SluiceError, EngineError) as error:
            _log.warning("measurements of cluster %s cannot be used now: %s", cluster.slug, error)
    return total


def refine_cluster(cluster: Cluster, now: datetime | None = None, pace: Pace = _NOW) -> ModelUpdates:
    """Learn from what was measured and pass on what differs from what the models have, when the pace says so: what is
    not material waits until an estimate is a minute old, and is then passed on all together.

    Only what is written is within a transaction: SQLite takes no other writes meanwhile, and who learns gives way.
    """
    present = now or timezone.now()
    places = places_of(cluster)
    updates = ModelUpdates()
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
    if pace.is_due(combine_changes(move.news for move in (*moves, *inputs, *arrivals))):
        with transaction.atomic():  # so that all changes of a cluster ask for one estimate
            updates.placements = sum(_move(move) for move in moves)
            updates.inputs = sum(_store(news, present) for news in inputs)
            for arrival in arrivals:
                arrivals_store(cluster=cluster, news=arrival)
            updates.sources = len(arrivals)
    return updates


@dataclass(frozen=True)
class TrialLearned:
    """Measurements of a trial: statistics that are usable, by operator, and the news of its version's inputs."""

    usable: Mapping[str, InputStatistic]
    news: _InputsNews
    at: datetime

    @transaction.atomic
    def keep(self) -> None:
        """Give the version what was measured of its operators."""
        _store(self.news, self.at)


def trial_learn(*, live: LiveQuery, now: datetime | None = None) -> TrialLearned:
    """Learn from what was measured in a trial.

    Placements and arrivals are left as they are: what is tried runs nowhere.
    """
    present, operators = now or timezone.now(), plan_operators(live)
    places = places_of(live.query.cluster)
    learned = statistics_learn(query=live.query, places=places, operators=operators, now=present)
    news = _inputs_news(live, operators, learned, present)
    measured = {operator.name: learned.get(operator.fingerprint) for operator in operators}
    usable = {name: statistic for name, statistic in measured.items() if statistic is not None and is_usable(statistic)}
    return TrialLearned(usable, news, present)


def _live() -> QuerySet[LiveQuery]:
    return live_served().select_related("query__cluster", "query__running_version", "source", "version")


def _firsts(lives: list[LiveQuery], plans: Mapping[int, list[PlanOperator]]) -> dict[str, list[tuple[int, str]]]:
    """(query, name of the first operator) of the queries that read each source."""
    readers: dict[str, list[tuple[int, str]]] = {}
    for live in lives:
        if plans[live.pk]:
            readers.setdefault(live.source.source_id, []).append((live.query_id, plans[live.pk][0].name))
    return readers


@dataclass(frozen=True)
class _InputsNews:
    """Statistics of a version's inputs that say more than those it has."""

    version: QueryVersion
    records: list[dict[str, object]]
    news: MeasuredChange


def _store(news: _InputsNews, now: datetime) -> int:
    if news.records:
        statistics_update(version=news.version, statistics=news.records, now=now)
    return len(news.records)


def _inputs_news(
    live: LiveQuery, operators: list[PlanOperator], learned: Mapping[str, InputStatistic], now: datetime
) -> _InputsNews:
    inputs: dict[str, list[OperatorInput]] = defaultdict(list)
    for row in _inputs(live):
        inputs[row.operator.name].append(row)
    rows = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=live.query)}
    chosen = [
        operator
        for operator in operators
        if operator.fingerprint in learned
        and operator.name in inputs
        and any(
            _says_more(learned[operator.fingerprint], rows[operator.fingerprint], entry, now)
            for entry in inputs[operator.name]
        )
    ]
    return _InputsNews(
        version=live.version,
        records=[
            record
            for operator in chosen
            for record in statistic_records(rows[operator.fingerprint], inputs[operator.name])
        ],
        news=combine_changes(
            _news(learned[operator.fingerprint], rows[operator.fingerprint], entry)
            for operator in chosen
            for entry in inputs[operator.name]
        ),
    )


def _news(measured: InputStatistic, learned: OperatorStatistic, stored: OperatorInput) -> MeasuredChange:
    moves = [certain_move(measured.selectivity, stored.selectivity)]
    if stored.cycles_per_event is not None:
        moves.append(certain_move(measured.cycles_per_event, stored.cycles_per_event))
    is_first = learned.cost_dispersion is not None and stored.cost_dispersion is None
    return MeasuredChange(first=is_first or stored.evidence != Evidence.MEASURED, moved=max(moves))


def _inputs(live: LiveQuery) -> list[OperatorInput]:
    rows = OperatorInput.objects.filter(operator__version=live.version_id)
    return list(rows.select_related("operator").order_by("operator__position", "position"))


def _says_more(measured: InputStatistic, learned: OperatorStatistic, stored: OperatorInput, now: datetime) -> bool:
    if is_usable(measured) and dispersion_differs(learned.cost_dispersion, stored.cost_dispersion):
        return True
    is_measured = stored.evidence == Evidence.MEASURED and stored.measured_at is not None
    return is_usable(measured) and statistic_differs(
        measured,
        selectivity=stored.selectivity,
        cycles_per_event=stored.cycles_per_event or 0.0,
        events=stored.events,
        age_s=(now - stored.measured_at).total_seconds() if is_measured and stored.measured_at else None,
    )


def _move(news: PlacementNews) -> int:
    try:
        with transaction.atomic():
            placement_store(news)
    except SluiceError as error:  # such as a node that takes nothing new: the placement stays as it is
        name = f"{news.query.cluster.slug}/{news.query.name}"
        _log.warning("the placement of %s cannot follow its load factors: %s", name, error)
        return 0
    return 1
