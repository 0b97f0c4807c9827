"""Answers of resource plans: what the engine says, and of Spark's micro-batches what other settings would do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from apps.planning.choices import PlanChoice, PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.questions import MicroBatchPlanQuestion
from engine.microbatch.settings import SettingEffect, setting_effects
from engine.microbatch.sizing import MicroBatchSizing, SparkPlan, size_microbatch
from engine.planner.plan import StagePlan, StageSizing

__all__ = ["ANSWERS", "MicroBatchAnswer", "PlanAnswer", "SizedPlan", "answer_of", "microbatch_answer"]


@dataclass(frozen=True, kw_only=True)
class MicroBatchAnswer(MicroBatchSizing):
    """A sizing with the effects of other settings on either end of the curve, and doubts about its inputs."""

    effects: dict[str, tuple[SettingEffect, ...]]
    notes: tuple[str, ...] = ()


SizedPlan = StagePlan | SparkPlan
PlanAnswer = StageSizing | MicroBatchAnswer
ANSWERS: dict[PlanEngine, type[StageSizing] | type[MicroBatchAnswer]] = {
    PlanEngine.STAGE: StageSizing,
    PlanEngine.MICROBATCH: MicroBatchAnswer,
}


def answer_of(row: ResourcePlan) -> PlanAnswer | None:
    """The stored answer of a plan; None while there is none."""
    return None if row.result is None else ANSWERS[PlanEngine(row.engine)].parse(row.result)


def microbatch_answer(asked: MicroBatchPlanQuestion, notes: list[str]) -> MicroBatchAnswer:
    """The engine's answer about micro-batches with all that belongs to it."""
    sizing = size_microbatch(asked.profile, asked)
    ends = {PlanChoice.THROUGHPUT: sizing.ends.throughput, PlanChoice.LATENCY: sizing.ends.latency}
    effects = {str(end): _effects(asked, plan) for end, plan in ends.items() if plan is not None}
    return MicroBatchAnswer(**vars(sizing), effects=effects, notes=tuple(notes))


def _effects(asked: MicroBatchPlanQuestion, plan: SparkPlan) -> tuple[SettingEffect, ...]:
    """Effects of each setting changed alone; the limit of a batch would follow the trigger."""
    settings = replace(plan.settings, max_rows_per_trigger=None)
    return tuple(setting_effects(asked.profile, settings, asked.rate, asked.statistic))
