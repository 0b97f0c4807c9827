"""Refined configuration of a query at a source: learned costs, settings, and reasons to refuse it."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, ClassVar

from engine.errors import Fault
from engine.jarvis.group_law import distinct
from engine.jarvis.partition import shares
from engine.jarvis.settings import AdaptationSettings
from engine.kinds import Enumeration, Number, String
from engine.klink.settings import WatermarkPrior
from engine.records import ItemCount, Omitted, Record, Words
from engine.refined_document import (
    DIGEST,
    SCHEMA,
    RefinedDocument,
    refusal_reasons,
    seal,
)

__all__ = ["ENOUGH_RECORDS", "SCHEMA", "LearnedFigures", "OperatorPrior", "RefinedAdaptation", "judge_config", "seal"]

ROUNDING = 1e-6  # of load factors that passed through a document
ENOUGH_RECORDS = 1000  # behind a cost that may be far from what a source sees itself
MAX_COST_CHANGE = 10.0  # of a cost, against what the source sees itself, on little evidence


_NonNegative = Annotated[float, Number(least=0)]
_Share = Annotated[float, Number(least=0, most=1)]
_Count = Annotated[int, Number(least=0, whole=True)]
_Range = Annotated[tuple[_NonNegative, ...], ItemCount(2, 2)]


@dataclass(frozen=True, kw_only=True)
class OperatorPrior(Record):
    """Prior of one operator."""

    TITLE: ClassVar[str] = "an operator"

    id: Annotated[str, String()]
    cost_s: Annotated[_NonNegative, Words("CPU seconds per record into it (a)")]
    group_cost_s: Annotated[_NonNegative | None, Words("CPU seconds per group (b), where it can be told apart")] = None
    groups: Annotated[Annotated[float, Number(above=0)] | None, Words("groups that there are (K)")] = None
    relay: Annotated[_NonNegative, Words("records out per record in")]
    records: Annotated[_Count, Words("records behind these figures")]
    standard_error: Annotated[_NonNegative | None, Words("of cost_s, relative")] = None

    def cost_at(self, records: float) -> float:
        """CPU seconds per record when so many come in an epoch; each is its own group where K is not known."""
        if self.group_cost_s is None or records <= 0:
            return self.cost_s
        return self.cost_s + self.group_cost_s * distinct(records, self.groups or math.inf) / records


@dataclass(frozen=True)
class PlanPrior(Record):
    """An operator-level plan: all of the input to `lo`, the share `theta` on to `hi`."""

    TITLE: ClassVar[str] = "a plan"

    lo: _Count
    hi: _Count
    theta: _Share
    load_factors: tuple[_Share, ...]

    def find_mismatches(self, operators: int) -> Iterator[Fault]:
        """Faults of the plan of so many operators."""
        lo, hi, given = self.lo, self.hi, self.load_factors
        if len(given) != operators:
            yield Fault("load_factors", f"load_factors has {len(given)} items; allowed: {operators}")
        elif not lo <= hi <= operators:
            yield Fault("", f"lo is {lo}, hi {hi}; allowed: lo <= hi <= {operators}")
        else:
            _, effective = shares(lo, hi, self.theta, operators)
            reached = accumulate(given, operator.mul)  # where nothing comes to a proxy its load factor is free
            if any(abs(a - b) > ROUNDING for a, b in zip(reached, effective, strict=True)):
                message = f"load_factors are not those of lo {lo}, hi {hi} and theta {self.theta:g}"
                yield Fault("load_factors", f"{message}; allowed: theta at the operator after lo")


@dataclass(frozen=True)
class FittedRange(Record):
    """Records an epoch and cores in which the figures were seen."""

    TITLE: ClassVar[str] = "the range"

    records: _Range
    cores: _Range

    def find_faults(self) -> Iterator[Fault]:
        """Ranges that end before they begin."""
        for name, (least, most) in (("records", self.records), ("cores", self.cores)):
            if least > most:
                yield Fault(name, f"{name} is {least:g} to {most:g}; allowed: the lesser one first")


@dataclass(frozen=True, kw_only=True)
class LearnedFigures(Record):
    """Learned figures of a query at a source in a refined configuration; without any, its settings stand alone."""

    TITLE: ClassVar[str] = "learned figures"

    record_bytes: Annotated[tuple[_NonNegative, ...], Words("of a record before the first and after each")] = (0.0,)
    operators: Annotated[tuple[OperatorPrior, ...], Words("empty where it holds settings alone")] = ()
    fitted: FittedRange | None = None
    plan_prior: Annotated[PlanPrior | None, Words("what is best by these figures")] = None
    watermarks: Annotated[
        Omitted[Annotated[tuple[WatermarkPrior, ...], ItemCount(0, 16)]],
        Words("of its streams: when windows are complete"),
    ] = None
    event_cost_s: Annotated[Omitted[_NonNegative], Words("CPU seconds of a source record through all operators")] = None

    def with_operators(self, other: LearnedFigures) -> LearnedFigures:
        """These figures with the operators of others."""
        return replace(
            self,
            record_bytes=other.record_bytes,
            operators=other.operators,
            fitted=other.fitted,
            plan_prior=other.plan_prior,
        )

    def with_watermarks(self, other: LearnedFigures) -> LearnedFigures:
        """These figures with the watermarks of others, as far as they are known there."""
        return replace(
            self,
            watermarks=other.watermarks or self.watermarks,
            event_cost_s=other.event_cost_s or self.event_cost_s,
        )


@dataclass(frozen=True, kw_only=True)
class RefinedAdaptation(LearnedFigures, RefinedDocument):
    """Refined configuration of one query at one source."""

    TITLE: ClassVar[str] = "refined configuration"

    query: Annotated[str, String(r"[^/\s]+/[^/\s]+", "cluster/query")]
    plan: Annotated[str, DIGEST, Words("digest of the pipeline it was learned on")]
    settings: AdaptationSettings
    record_bytes: Annotated[tuple[_NonNegative, ...], Words("of a record before the first and after each")]
    operators: Annotated[tuple[OperatorPrior, ...], Words("empty where it holds settings alone")]
    fallback: Annotated[str, Enumeration(("local", "all-sp")), Words("what the source does without it")]

    def find_faults(self) -> Iterator[Fault]:
        """Lengths and plans that are not those of the operators."""
        operators = len(self.operators)
        if len(self.record_bytes) != operators + 1:
            allowed = f"{operators + 1}, one more than operators"
            yield Fault("record_bytes", f"record_bytes has {len(self.record_bytes)} items; allowed: {allowed}")
        for fault in self.plan_prior.find_mismatches(operators) if self.plan_prior is not None else ():
            yield Fault(f"plan_prior.{fault.path}".rstrip("."), fault.message)


def judge_config(
    refined: RefinedAdaptation,
    *,
    current: int,
    query: str,
    plan: str,
    agent: str,
    operators: Sequence[str],
    now_us: int,
    known_costs: Sequence[float | None] = (),
) -> list[str]:
    """Reasons of a source to refuse a refined configuration, in words; empty if it accepts.

    Parameters
    ----------
    current
        Version that is in force; 0 while there is none.
    query, plan, agent
        What runs here: ``cluster/query``, digest of its pipeline, id of this agent.
    operators
        Ids of the operators that may run here, in order.
    now_us
        Microseconds since 1970.
    known_costs
        CPU seconds per record of each operator as seen here; None of one that is not known well.
    """
    ids = [prior.id for prior in refined.operators]
    reasons = refusal_reasons(refined, current=current, agent=agent, now_us=now_us) + _other_plan(refined, query, plan)
    if ids and ids != list(operators):
        reasons.append(f"its operators are {', '.join(ids)}; here may run {', '.join(operators) or 'none'}")
    else:
        reasons += _changed_costs(refined, known_costs)
    if len(refined.settings.load_factors) > len(operators):
        reasons.append(f"it sets {len(refined.settings.load_factors)} load factors; here may run {len(operators)}")
    return reasons


def _other_plan(refined: RefinedAdaptation, query: str, plan: str) -> list[str]:
    reasons = []
    if refined.query != query:
        reasons.append(f"it is for query {refined.query}; here runs {query}")
    if refined.plan != plan:
        reasons.append(f"it is for plan {refined.plan[:12]}; here runs {plan[:12]}")
    return reasons


def _changed_costs(refined: RefinedAdaptation, known_costs: Sequence[float | None]) -> list[str]:
    """Reasons: costs more than tenfold off those seen here for any number of groups, from few records."""
    reasons = []
    for prior, known_s in zip(refined.operators, known_costs, strict=False):
        records = prior.records
        if known_s is None or records >= ENOUGH_RECORDS:
            continue
        least_s, most_s = prior.cost_s, prior.cost_s + (prior.group_cost_s or 0.0)  # no record a group, or each
        if least_s > MAX_COST_CHANGE * known_s or most_s * MAX_COST_CHANGE < known_s:
            reasons.append(
                f"a record costs {1e6 * least_s:.3g} microseconds in {prior.id} by it and {1e6 * known_s:.3g} here,"
                f" more than tenfold apart; {records} records stand behind it, {ENOUGH_RECORDS} are needed"
            )
    return reasons
