"""Learned figures of operators and sweeping watermarks: what Spark reports is kept where agents could read it."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from apps.rollouts.models import (
    Learned,
    LearnedOperators,
    LearnedSweeps,
    LearnedWatermarks,
    RefinedConfig,
    SweepFigures,
)
from apps.rollouts.versions import document_make
from apps.telemetry.models import Agent, LiveQuery
from engine.errors import DocumentError
from engine.jarvis.refined_config import FittedRange, LearnedFigures, OperatorPrior, PlanPrior, RefinedAdaptation
from engine.klink.settings import Quantiles, WatermarkPrior
from engine.klink.watermarks import MIN_EPOCHS
from engine.records import record_fields
from engine.rollouts.measures import EPOCH_S

__all__ = ["learned_operators_store", "learned_watermarks_store", "watermarks_for", "watermarks_in"]

ALL_AGENTS = "*"  #: stands for all agents together
Known = Mapping[tuple[int, Any], LearnedWatermarks]  #: by ids of live query and agent, None for all together

_log = logging.getLogger(__name__)
_MAX_AHEAD = timedelta(hours=1)


def learned_operators_store(live: LiveQuery, rows: Sequence[Any], now: datetime) -> int:
    """Store figures of agents' operators unless newer ones are stored; returns how many agents have newer figures."""
    by_agent: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_agent[row.agent].append(row)
    agents = agents_known(live)
    stored = {str(learned.agent_id): learned for learned in Learned.objects.filter(live=live)}
    operator_ids = list(live.source_part.ids)
    newest = newest_us(now)
    noted = 0
    for agent, listed in by_agent.items():
        listed = sorted(listed, key=lambda row: row.entry)
        measured_us = max(row.measured_us or 0 for row in listed)
        figures = _operator_figures(listed) if [row.operator for row in listed] == operator_ids else None
        if agent not in agents or figures is None or measured_us > newest:
            continue
        if not is_sound(live, LearnedFigures().with_operators(figures), now):
            continue
        before = stored.get(agent)
        if before is not None and before.plan == live.plan and before.measured_us > measured_us:
            continue
        fields = {"plan": live.plan, "measured_us": measured_us, "document": figures.to_dict(), "at": now}
        Learned.objects.update_or_create(live=live, agent_id=agent, defaults=fields)
        noted += 1
    return noted


def agents_known(live: LiveQuery) -> set[str]:
    """Ids of the cluster's agents."""
    return {str(pk) for pk in Agent.objects.filter(cluster=live.query.cluster).values_list("pk", flat=True)}


def newest_us(now: datetime) -> int:
    """The latest credible measurement; later ones come from a wrong clock. Microseconds since 1970."""
    return round((now + _MAX_AHEAD).timestamp() * 1e6)


def is_sound(live: LiveQuery, learned: LearnedFigures, now: datetime) -> bool:
    """Whether agents could read the figures: numbers finite and within their ranges, a valid plan."""
    config = RefinedConfig(number=1, cluster=live.query.cluster)
    refined = document_make(config=config, live=live, agent=None, settings={}, learned=learned, now=now)
    try:
        RefinedAdaptation.parse(refined)
    except DocumentError as error:
        _log.warning("learned figures of %s are ignored: %s", live.key, error.message)
        return False
    return True


def _operator_figures(rows: Sequence[Any]) -> LearnedOperators | None:
    """The figures as refined documents hold them; None if one is missing."""
    if any(None in (row.cost_s, row.relay, row.bytes_in, row.bytes_out, row.records) for row in rows):
        return None
    first = rows[0]
    operators = [
        OperatorPrior(
            id=row.operator,
            cost_s=row.cost_s,
            group_cost_s=row.group_cost_s,
            groups=row.groups or None,
            relay=row.relay,
            records=row.records,
            standard_error=row.standard_error,
        )
        for row in rows
    ]
    return LearnedOperators(
        record_bytes=(first.bytes_in, *(row.bytes_out for row in rows)),
        operators=tuple(operators),
        fitted=_fitted(first),
        plan_prior=_plan(rows),
        input_records=first.input_records,
        budget_s=first.budget_s,
    )


def _fitted(row: Any) -> FittedRange | None:
    cores = (row.budget_least_s, row.budget_most_s)
    if None in (row.records_least, row.records_most, *cores):
        return None
    return FittedRange((row.records_least, row.records_most), tuple(seconds / EPOCH_S for seconds in cores))


def _plan(rows: Sequence[Any]) -> PlanPrior | None:
    first, factors = rows[0], tuple(row.load_factor for row in rows)
    if None in (*factors, first.lo, first.hi, first.theta):
        return None
    return PlanPrior(first.lo, first.hi, first.theta, factors)


def learned_watermarks_store(live: LiveQuery, rows: Sequence[Any], now: datetime) -> int:
    """Store the watermarks of the streams at each agent, and at all together; older figures than those stored, and
    figures that agents could not read, are ignored. Returns how many agents have newer ones."""
    by_agent: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if row.agent and row.stream and row.period_s is not None:
            by_agent[row.agent].append(row)
    agents, newest = agents_known(live) | {ALL_AGENTS}, newest_us(now)
    stored = {str(learned.agent_id or ALL_AGENTS): learned for learned in LearnedWatermarks.objects.filter(live=live)}
    noted = 0
    for agent, listed in by_agent.items():
        measured_us, sweeps = max(row.measured_us or 0 for row in listed), _sweeps(listed)
        if agent not in agents or measured_us > newest or not is_sound(live, _learned([sweeps]), now):
            continue
        before = stored.get(agent)
        if before is not None and before.plan == live.plan and before.measured_us > measured_us:
            continue
        fields = {"plan": live.plan, "measured_us": measured_us, "document": sweeps.to_dict(), "at": now}
        agent_id = None if agent == ALL_AGENTS else agent
        LearnedWatermarks.objects.update_or_create(live=live, agent_id=agent_id, defaults=fields)
        noted += 1
    return noted


def _sweeps(rows: Sequence[Any]) -> LearnedSweeps:
    ordered = sorted(rows, key=lambda row: row.stream)
    costs = [row.event_cost_s for row in ordered if row.event_cost_s is not None]
    return LearnedSweeps(
        watermarks=tuple(_watermark(row) for row in ordered),
        event_cost_s=max(costs, default=None),
        figures={
            row.stream: SweepFigures(**{name: _finite(getattr(row, name)) for name in record_fields(SweepFigures)})
            for row in ordered
        },
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _watermark(row: Any) -> WatermarkPrior:
    has_moments = (row.epochs or 0) >= MIN_EPOCHS and None not in (row.mean_s, row.variance_s2)
    return WatermarkPrior(
        stream=row.stream,
        period_s=row.period_s,
        epochs=row.epochs or 0,
        mean_s=row.mean_s if has_moments else None,
        variance_s2=row.variance_s2 if has_moments else None,
        quantiles=Quantiles(tuple(row.levels), tuple(row.values_s))
        if has_moments and row.levels and row.values_s
        else None,
    )


def watermarks_in(cluster: Any) -> Known:
    """Learned watermarks of the plans that run in a cluster."""
    rows = LearnedWatermarks.objects.filter(live__query__cluster=cluster, plan=F("live__plan"))
    return {(row.live_id, row.agent_id): row for row in rows}


def watermarks_for(known: Known, live: LiveQuery, agent_id: Any = None) -> LearnedFigures:
    """`watermarks` and `event_cost_s` for an agent, as far as they are known: its own, else those of all together."""
    keys = dict.fromkeys((agent_id, None))
    return _learned([row.figures for key in keys if (row := known.get((live.pk, key)))])


def _learned(rows: Sequence[LearnedSweeps]) -> LearnedFigures:
    """Figures of watermarks alone: of each stream the first that has a delay, else the first."""
    streams: dict[str, WatermarkPrior] = {}
    for watermark in (watermark for row in rows for watermark in row.watermarks):
        had = streams.get(watermark.stream)
        if had is None or (had.mean_s is None and watermark.mean_s is not None):
            streams[watermark.stream] = watermark
    cost_s = next((row.event_cost_s for row in rows if row.event_cost_s is not None), None)
    return LearnedFigures(
        watermarks=tuple(streams[name] for name in sorted(streams)) or None, event_cost_s=cost_s or None
    )
