"""The operators of a live query's pipeline, as measurements name them."""

from __future__ import annotations

from dataclasses import dataclass

from apps.telemetry.models import LiveQuery
from engine.dataflow.pipeline import Pipeline

__all__ = ["PlanOperator", "pipeline_operators", "plan_operators"]


@dataclass(frozen=True)
class PlanOperator:
    """An operator of a pipeline. `at_sources`: whether it may run there; `merges`: its partial results do.

    `slide_s` is how often it puts out, where it does so once per window: the aggregate and what follows it.
    """

    name: str
    fingerprint: str
    at_sources: bool
    merges: bool
    slide_s: float | None = None


def plan_operators(live: LiveQuery) -> list[PlanOperator]:
    """Operators of the pipeline that a query runs, in order."""
    return pipeline_operators(Pipeline.parse(live.pipeline), live.source_operators)


def pipeline_operators(pipeline: Pipeline, source_operators: int) -> list[PlanOperator]:
    """Operators of a pipeline in order."""
    slide_s = pipeline.window.slide_us / 1e6 if pipeline.window else None
    return [
        PlanOperator(
            name=operator.id,
            fingerprint=operator.fingerprint,
            at_sources=operator.index < source_operators,
            merges=operator.index == pipeline.aggregate,
            slide_s=slide_s if pipeline.aggregate is not None and operator.index >= pipeline.aggregate else None,
        )
        for operator in pipeline.operators
    ]
