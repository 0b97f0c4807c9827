"""Refined documents as agents get them: settings and learned figures, with version, validity and checksum."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import F

from apps.rollouts.models import Learned, RefinedConfig
from apps.telemetry.models import Agent, Assignment, LiveQuery
from engine.jarvis.refined_config import SCHEMA, seal

__all__ = [
    "TTL_S",
    "document_make",
    "document_of_learned",
    "document_plain",
    "document_renew",
    "document_stamp",
    "figures_of",
    "learned_in",
    "source_operators_of",
]

TTL_S = 3600.0  #: after that without contact an agent falls back to its own measurements
_LEARNED = ("record_bytes", "operators", "fitted", "plan_prior")
_OF_WATERMARKS = ("watermarks", "event_cost_s")  # left out if unknown
_NOTHING: dict[str, Any] = {"record_bytes": [0.0], "operators": [], "fitted": None, "plan_prior": None}


def document_make(
    *,
    config: RefinedConfig,
    live: LiveQuery,
    agent: Agent | None,
    settings: Mapping[str, Any],
    learned: Mapping[str, Any] | None,
    now: datetime,
) -> dict[str, Any]:
    """The document of a query at an agent, or at all agents; without `learned` it holds settings only."""
    figures = {**_NOTHING, **(learned or {})}
    says = {
        "schema": SCHEMA,
        "query": live.key,
        "plan": live.plan,
        "agent": str(agent.pk) if agent else "*",
        "settings": dict(settings),
        **{name: figures[name] for name in _LEARNED},
        **{name: figures[name] for name in _OF_WATERMARKS if figures.get(name)},
        "ttl_s": TTL_S,
        "fallback": "local",
    }
    return document_stamp(says, config, now)


def document_stamp(document: Mapping[str, Any], config: RefinedConfig, now: datetime) -> dict[str, Any]:
    """The same content under a configuration's number, valid from now on."""
    says = {
        **document,
        "config": config.name,
        "version": config.number,
        "parent": config.parent.number if config.parent else None,
        "valid_from_us": round(now.timestamp() * 1e6),
    }
    return seal(says)


def document_renew(document: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The same document, valid from now on; to agents it is the same version."""
    return seal({**document, "valid_from_us": round(now.timestamp() * 1e6)})


def document_plain(config: RefinedConfig, assignment: Assignment, now: datetime) -> dict[str, Any]:
    """The document of an agent that never got a configuration: the settings of its assignment."""
    live, agent = assignment.live, assignment.agent
    return document_make(config=config, live=live, agent=agent, settings=assignment.settings, learned=None, now=now)


def learned_in(cluster: Any) -> dict[tuple[int, Any], Learned]:
    """Learned figures of the plans that run in a cluster, by ids of live query and agent."""
    rows = Learned.objects.filter(live__query__cluster=cluster, plan=F("live__plan"))
    return {(row.live_id, row.agent_id): row for row in rows}


def document_of_learned(row: Learned) -> dict[str, Any]:
    """Learned figures as documents hold them."""
    return {name: row.document[name] for name in _LEARNED}


def figures_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The learned figures in a refined document."""
    return {name: document[name] for name in (*_LEARNED, *_OF_WATERMARKS) if name in document}


def source_operators_of(live: LiveQuery) -> list[dict[str, Any]]:
    """The operators of a live query that may run at a source, as its pipeline describes them."""
    operators: list[dict[str, Any]] = live.pipeline["operators"][: live.source_operators]
    return operators
