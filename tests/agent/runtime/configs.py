"""Configurations of agents that tests make: a query of a pipeline, and an agent with queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.config import AgentConfig, QueryConfig
from engine.dataflow import Pipeline
from engine.jarvis.settings import AdaptationSettings

__all__ = ["agent_config", "query_config"]


def query_config(
    query: str, pipeline: Pipeline, settings: AdaptationSettings | None = None, refined: Any = None, **more: Any
) -> QueryConfig:
    return QueryConfig(
        query=query,
        version=1,
        plan=pipeline.digest,
        pipeline=pipeline,
        settings=settings or AdaptationSettings(),
        refined=refined,
        **more,
    )


def agent_config(
    version: int, agent: str, queries: Sequence[QueryConfig], *, budget_cores: float = 1.0, **more: Any
) -> AgentConfig:
    return AgentConfig(
        version=version,
        agent=agent,
        cluster="here",
        sources={},
        queries=tuple(queries),
        budget_cores=budget_cores,
        **more,
    )
