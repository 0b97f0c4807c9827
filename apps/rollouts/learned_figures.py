"""Learned figures of operators and sweeping watermarks: what Spark reports is kept where agents could read it."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from apps.rollouts.models import Learned, LearnedWatermarks, RefinedConfig
from apps.rollouts.versions import document_make, source_operators_of
from apps.telemetry.models import Agent, LiveQuery
from engine.errors import DocumentError
from engine.jarvis.refined_config import RefinedAdaptation
from engine.klink.watermarks import MIN_EPOCHS
from engine.rollouts.measures import EPOCH_S

__all__ = ["learned_operators_store", "learned_watermarks_store", "watermarks_for", "watermarks_in"]

ALL_AGENTS = "*"  #: stands for all agents together
_FIGURES = ("sweeps", "clamped", "least_s", "most_s", "expected", "within", "latency_mean_s", "latency_p99_s")
Known = Mapping[tuple[int, Any], LearnedWatermarks]  #: by ids of live query and agent, None for all together

_log = logging.getLogger(__name__)
_MAX_AHEAD = timedelta(hours=1)


def learned_operators_store(live: LiveQuery, rows: Sequence[Mapping[str, Any]], now: datetime) -> int:
    """Store figures of agents' operators unless newer ones are stored; returns how many agents have newer figures."""
    by_agent: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_agent[row["agent"]].append(row)
    agents = agents_known(live)
    stored = {str(learned.agent_id): learned for learned in Learned.objects.filter(live=live)}
    operator_ids = [row["id"] for row in source_operators_of(live)]
    newest = newest_us(now)
    noted = 0
    for agent, listed in by_agent.items():
        listed = sorted(listed, key=lambda row: row["entry"])
        measured_us = max(row["measured_us"] or 0 for row in listed)
        document = _operator_figures(listed) if [row["operator"] for row in listed] == operator_ids else None
        if agent not in agents or document is None or measured_us > newest or not is_sound(live, document, now):
            continue
        before = stored.get(agent)
        if before is not None and before.plan == live.plan and before.measured_us > measured_us:
            continue
        fields = {"plan": live.plan, "measured_us": measured_us, "document": document, "at": now}
        Learned.objects.update_or_create(live=live, agent_id=agent, defaults=fields)
        noted += 1
    return noted


def agents_known(live: LiveQuery) -> set[str]:
    """Ids of the cluster's agents."""
    return {str(pk) for pk in Agent.objects.filter(cluster=live.query.cluster).values_list("pk", flat=True)}


def newest_us(now: datetime) -> int:
    """The latest credible measurement; later ones come from a wrong clock. Microseconds since 1970."""
    return round((now + _MAX_AHEAD).timestamp() * 1e6)


def is_sound(live: LiveQuery, document: Mapping[str, Any], now: datetime) -> bool:
    """Whether agents could read the figures: numbers finite and within their ranges, a valid plan."""
    config = RefinedConfig(number=1, cluster=live.query.cluster)
    refined = document_make(config=config, live=live, agent=None, settings={}, learned=document, now=now)
    try:
        RefinedAdaptation.parse(refined)
    except DocumentError as error:
        _log.warning("learned figures of %s are ignored: %s", live.key, error.message)
        return False
    return True


def _operator_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The figures as refined documents hold them; None if one is missing."""
    needed = ("cost_s", "relay", "bytes_in", "bytes_out", "records")
    if any(row[name] is None for row in rows for name in needed):
        return None
    first = rows[0]
    fields = ("cost_s", "group_cost_s", "relay", "records", "standard_error")
    operators = [
        {"id": row["operator"], **{name: row[name] for name in fields}, "groups": row["groups"] or None} for row in rows
    ]
    return {
        "record_bytes": [first["bytes_in"], *(row["bytes_out"] for row in rows)],
        "operators": operators,
        "fitted": _fitted(first),
        "plan_prior": _plan(rows),
        "input_records": first["input_records"],
        "budget_s": first["budget_s"],
    }


def _fitted(row: Mapping[str, Any]) -> dict[str, Any] | None:
    records = [row["records_least"], row["records_most"]]
    cores = [row["budget_least_s"], row["budget_most_s"]]
    if None in records or None in cores:
        return None
    return {"records": records, "cores": [seconds / EPOCH_S for seconds in cores]}


def _plan(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    first = rows[0]
    factors = [row["load_factor"] for row in rows]
    if None in factors or first["lo"] is None or first["hi"] is None or first["theta"] is None:
        return None
    return {"lo": first["lo"], "hi": first["hi"], "theta": first["theta"], "load_factors": factors}


def learned_watermarks_store(live: LiveQuery, rows: Sequence[Mapping[str, Any]], now: datetime) -> int:
    """Store the watermarks of the streams at each agent, and at all together; older figures than those stored, and
    figures that agents could not read, are ignored. Returns how many agents have newer ones."""
    by_agent: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["agent"] and row["stream"] and row["period_s"] is not None:
            by_agent[row["agent"]].append(row)
    agents, newest = agents_known(live) | {ALL_AGENTS}, newest_us(now)
    stored = {str(learned.agent_id or ALL_AGENTS): learned for learned in LearnedWatermarks.objects.filter(live=live)}
    noted = 0
    for agent, listed in by_agent.items():
        measured_us, document = max(row["measured_us"] or 0 for row in listed), _watermark_figures(listed)
        if agent not in agents or measured_us > newest or not is_sound(live, document, now):
            continue
        before = stored.get(agent)
        if before is not None and before.plan == live.plan and before.measured_us > measured_us:
            continue
        fields = {"plan": live.plan, "measured_us": measured_us, "document": document, "at": now}
        agent_id = None if agent == ALL_AGENTS else agent
        LearnedWatermarks.objects.update_or_create(live=live, agent_id=agent_id, defaults=fields)
        noted += 1
    return noted


def _watermark_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The watermarks as refined documents hold them, and figures that are only shown."""
    ordered = sorted(rows, key=lambda row: row["stream"])
    costs = [row["event_cost_s"] for row in ordered if row["event_cost_s"] is not None]
    return {
        "watermarks": [_watermark(row) for row in ordered],
        "event_cost_s": max(costs, default=None),
        "figures": {row["stream"]: {name: _finite(row[name]) for name in _FIGURES} for row in ordered},
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _watermark(row: Mapping[str, Any]) -> dict[str, Any]:
    moments = (row["mean_s"], row["variance_s2"])
    enough = (row["epochs"] or 0) >= MIN_EPOCHS and None not in moments
    quantiles = {"levels": row["levels"], "values_s": row["values_s"]}
    return {
        "stream": row["stream"],
        "period_s": row["period_s"],
        "mean_s": moments[0] if enough else None,
        "variance_s2": moments[1] if enough else None,
        "epochs": row["epochs"] or 0,
        "quantiles": quantiles if enough and all(quantiles.values()) else None,
    }


def watermarks_in(cluster: Any) -> Known:
    """Learned watermarks of the plans that run in a cluster."""
    rows = LearnedWatermarks.objects.filter(live__query__cluster=cluster, plan=F("live__plan"))
    return {(row.live_id, row.agent_id): row for row in rows}


def watermarks_for(known: Known, live: LiveQuery, agent_id: Any = None) -> dict[str, Any]:
    """`watermarks` and `event_cost_s` for an agent, as far as they are known: its own, else those of all together."""
    rows = [row for key in dict.fromkeys((agent_id, None)) if (row := known.get((live.pk, key)))]
    streams: dict[str, dict[str, Any]] = {}
    for row in rows:
        for watermark in row.document["watermarks"]:
            had = streams.get(watermark["stream"])
            if had is None or (had["mean_s"] is None and watermark["mean_s"] is not None):
                streams[watermark["stream"]] = watermark
    cost_s = next((row.document["event_cost_s"] for row in rows if row.document["event_cost_s"] is not None), None)
    return {
        **({"watermarks": [streams[name] for name in sorted(streams)]} if streams else {}),
        **({"event_cost_s": cost_s} if cost_s else {}),
    }
