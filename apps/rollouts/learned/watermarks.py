"""Learned sweeping watermarks: what Spark reports of them is kept, and composed for refined documents."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F

from apps.rollouts.learned.operators import agents_known, is_sound, newest_us
from apps.rollouts.models import LearnedWatermarks
from apps.telemetry.models import LiveQuery
from engine.klink.watermarks import MIN_EPOCHS

__all__ = ["ALL_AGENTS", "learned_watermarks_store", "watermarks_for", "watermarks_in"]

ALL_AGENTS = "*"  #: stands for all agents together
_FIGURES = ("sweeps", "clamped", "least_s", "most_s", "expected", "within", "latency_mean_s", "latency_p99_s")

Known = Mapping[tuple[int, Any], LearnedWatermarks]  #: by ids of live query and agent, None for all together


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
        measured_us, document = max(row["measured_us"] or 0 for row in listed), _document(listed)
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


def _document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
