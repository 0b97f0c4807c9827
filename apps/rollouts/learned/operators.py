"""Learned figures of operators: what Spark reports of a live query's operators, kept where agents could read it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.rollouts.documents import document_make, source_operators_of
from apps.rollouts.models import Learned, RefinedConfig
from apps.telemetry.models import Agent, LiveQuery
from engine.errors import DocumentError
from engine.jarvis.refined_config import RefinedAdaptation
from engine.rollouts.epochs import EPOCH_S

__all__ = ["agents_known", "is_sound", "learned_operators_store", "newest_us"]

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
        document = _document(listed) if [row["operator"] for row in listed] == operator_ids else None
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


def _document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
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
