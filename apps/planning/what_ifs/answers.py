"""Answers of what-ifs, by kind of question: what is kept of them, and where it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from apps.planning.choices import Find
from apps.planning.models import WhatIf
from engine.provisioning.answers.pools import MixAnswer, ParetoFront, PoolAnswer, PoolSize
from engine.provisioning.answers.scenarios import Growth, ScenarioComparison, SurvivalAnswer
from engine.records import Record

__all__ = ["SweepAnswer", "stored_answer"]


@dataclass(frozen=True)
class SweepAnswer(Record):
    """Sizes that a job has looked at; `lacking` and `is_unproven` as of `BenchQuestion`."""

    TITLE: ClassVar[str] = "a sweep"

    now: int
    sizes: tuple[PoolSize, ...]
    lacking: str = ""
    is_unproven: bool = False


_RECORDS: dict[Find, type[Record]] = {
    Find.COMPARE: ScenarioComparison,
    Find.SWEEP: SweepAnswer,
    Find.SMALLEST_POOL: PoolAnswer,
    Find.CHEAPEST_MIX: MixAnswer,
    Find.PARETO: ParetoFront,
    Find.SURVIVAL: SurvivalAnswer,
    Find.GROWTH: Growth,
}


def stored_answer(row: WhatIf) -> Any:
    """The answer of a what-if, the record of its kind; None while there is none."""
    return None if row.result is None else _RECORDS[Find(row.find)].parse(row.result)
