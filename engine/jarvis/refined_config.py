"""Refined configuration of a query at a source: learned costs, settings, and reasons to refuse it."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Enumeration, Field, FieldTable, ListOf, Number, String
from engine.jarvis.group_law import distinct
from engine.jarvis.partition import shares
from engine.jarvis.settings import SETTINGS, AdaptationSettings
from engine.klink.settings import WATERMARK_PRIOR, WatermarkPrior
from engine.refined_document import (
    DIGEST,
    FIRST_FIELDS,
    LAST_FIELDS,
    SCHEMA,
    RefinedDocument,
    check_checksum,
    checksum,
    refusal_reasons,
    seal,
)

__all__ = [
    "ENOUGH_RECORDS",
    "SCHEMA",
    "OperatorPrior",
    "PlanPrior",
    "RefinedAdaptation",
    "checksum",
    "judge_config",
    "seal",
]

ROUNDING = 1e-6  # of load factors that passed through a document
ENOUGH_RECORDS = 1000  # behind a cost that may be far from what a source sees itself
_NON_NEGATIVE = Number(least=0)
_SHARE = Number(least=0, most=1)
_COUNT = Number(least=0, whole=True)
_RANGE = ListOf(_NON_NEGATIVE, least=2, most=2)

OPERATOR = FieldTable(
    "an operator",
    Field("id", String(), required=True),
    Field("cost_s", _NON_NEGATIVE, required=True, help="CPU seconds per record into it (a)"),
    Field("group_cost_s", _NON_NEGATIVE, nullable=True, help="CPU seconds per group (b), where it can be told apart"),
    Field("groups", Number(above=0), nullable=True, help="groups that there are (K)"),
    Field("relay", _NON_NEGATIVE, required=True, help="records out per record in"),
    Field("records", _COUNT, required=True, help="records behind these figures"),
    Field("standard_error", _NON_NEGATIVE, nullable=True, help="of cost_s, relative"),
)
PLAN = FieldTable(
    "a plan",
    Field("lo", _COUNT, required=True),
    Field("hi", _COUNT, required=True),
    Field("theta", _SHARE, required=True),
    Field("load_factors", ListOf(_SHARE), required=True),
)
REFINED_CONFIG = FieldTable(
    "a refined configuration",
    *FIRST_FIELDS,
    Field("query", String(r"[^/\s]+/[^/\s]+", "cluster/query"), required=True),
    Field("plan", DIGEST, required=True, help="digest of the pipeline it was learned on"),
    Field("settings", SETTINGS, required=True),
    Field("record_bytes", ListOf(_NON_NEGATIVE), required=True, help="of a record before the first and after each"),
    Field("operators", ListOf(OPERATOR), required=True, help="empty where it holds settings alone"),
    Field(
        "fitted",
        FieldTable("the range", Field("records", _RANGE, required=True), Field("cores", _RANGE, required=True)),
        nullable=True,
        help="records an epoch and cores in which the figures were seen",
    ),
    Field("plan_prior", PLAN, nullable=True, help="what is best by these figures"),
    Field(
        "watermarks", ListOf(WATERMARK_PRIOR, most=16), nullable=True, help="of its streams: when windows are complete"
    ),
    Field("event_cost_s", _NON_NEGATIVE, nullable=True, help="CPU seconds of a source record through all operators"),
    Field("fallback", Enumeration(("local", "all-sp")), required=True, help="what the source does without it"),
    *LAST_FIELDS,
)

MAX_COST_CHANGE = 10.0  # of a cost, against what the source sees itself, on little evidence


@dataclass(frozen=True, slots=True)
class OperatorPrior:
    """Prior of one operator."""

    id: str
    cost_s: float
    relay: float
    records: int
    group_cost_s: float | None = None
    groups: float | None = None
    standard_error: float | None = None

    def cost_at(self, records: float) -> float:
        """CPU seconds per record when so many come in an epoch; each is its own group where K is not known."""
        if self.group_cost_s is None or records <= 0:
            return self.cost_s
        return self.cost_s + self.group_cost_s * distinct(records, self.groups or math.inf) / records


@dataclass(frozen=True, slots=True)
class PlanPrior:
    """An operator-level plan: all of the input to `lo`, the share `theta` on to `hi`."""

    lo: int
    hi: int
    theta: float
    load_factors: tuple[float, ...]


@dataclass(frozen=True)
class RefinedAdaptation(RefinedDocument):
    """Refined configuration of one query at one source."""

    query: str
    plan: str
    settings: AdaptationSettings
    record_bytes: tuple[float, ...]
    operators: tuple[OperatorPrior, ...]
    fitted_records: tuple[float, float] | None
    fitted_cores: tuple[float, float] | None
    plan_prior: PlanPrior | None
    watermarks: tuple[WatermarkPrior, ...] = ()
    event_cost_s: float | None = None

    @classmethod
    def parse(cls, document: Any) -> RefinedAdaptation:
        """Read a refined document.

        Raises
        ------
        DocumentError
            With every fault: fields, ranges, lengths that differ, a checksum that is not the document's.
        """
        faults: list[Fault] = []
        read = REFINED_CONFIG.read(document, "", "", faults)
        if read is BAD or faults:
            raise DocumentError(faults, "refined configuration")
        _check(document, read, faults)
        if faults:
            raise DocumentError(faults, "refined configuration")
        plan, fitted, settings = read.get("plan_prior"), read.get("fitted"), read["settings"]
        return cls(
            config=read["config"],
            version=read["version"],
            parent=read.get("parent"),
            query=read["query"],
            plan=read["plan"],
            agent=read["agent"],
            settings=AdaptationSettings(load_factors=tuple(settings.pop("load_factors", ())), **settings),
            record_bytes=tuple(read["record_bytes"]),
            operators=tuple(OperatorPrior(**row) for row in read["operators"]),
            fitted_records=tuple(fitted["records"]) if fitted else None,
            fitted_cores=tuple(fitted["cores"]) if fitted else None,
            plan_prior=_plan(plan) if plan else None,
            watermarks=tuple(WatermarkPrior.of(row) for row in read.get("watermarks") or ()),
            event_cost_s=read.get("event_cost_s"),
            valid_from_us=read["valid_from_us"],
            ttl_s=read["ttl_s"],
            fallback=read["fallback"],
        )


def _plan(read: Mapping[str, Any]) -> PlanPrior:
    return PlanPrior(read["lo"], read["hi"], read["theta"], tuple(read["load_factors"]))


def _check(document: Mapping[str, Any], read: Mapping[str, Any], faults: list[Fault]) -> None:
    """Faults across fields."""
    operators = len(read["operators"])
    if len(read["record_bytes"]) != operators + 1:
        message = (
            f"record_bytes has {len(read['record_bytes'])} items; allowed: {operators + 1}, one more than operators"
        )
        faults.append(Fault("record_bytes", message))
    plan = read.get("plan_prior")
    if plan:
        _check_plan(plan, operators, faults)
    for name, (least, most) in (read.get("fitted") or {}).items():
        if least > most:
            faults.append(Fault(f"fitted.{name}", f"{name} is {least:g} to {most:g}; allowed: the lesser one first"))
    for i, prior in enumerate(read.get("watermarks") or ()):
        WatermarkPrior.check(prior, f"watermarks[{i}]", faults)
    check_checksum(document, faults)


def _check_plan(plan: Mapping[str, Any], operators: int, faults: list[Fault]) -> None:
    lo, hi, given = plan["lo"], plan["hi"], plan["load_factors"]
    if len(given) != operators:
        message = f"load_factors has {len(given)} items; allowed: {operators}"
        faults.append(Fault("plan_prior.load_factors", message))
    elif not lo <= hi <= operators:
        faults.append(Fault("plan_prior", f"lo is {lo}, hi {hi}; allowed: lo <= hi <= {operators}"))
    else:
        _, effective = shares(lo, hi, plan["theta"], operators)
        reached = accumulate(given, operator.mul)  # where nothing comes to a proxy its load factor is free
        if any(abs(a - b) > ROUNDING for a, b in zip(reached, effective, strict=True)):
            message = f"load_factors are not those of lo {lo}, hi {hi} and theta {plan['theta']:g}"
            faults.append(Fault("plan_prior.load_factors", f"{message}; allowed: theta at the operator after lo"))


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
