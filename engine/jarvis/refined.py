"""The refined document: what Spark learned of one query's operators at one source, and how to adapt with it.

It is a prior: the source starts from it and goes on with what it sees itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Choice, Field, Listed, Number, Table, Text
from engine.jarvis.grouping import distinct
from engine.jarvis.partition import shares
from engine.jarvis.settings import SETTINGS, Settings
from engine.klink.prior import WATERMARK, WatermarkPrior
from engine.refined import DIGEST, FIRST, LAST, SCHEMA, RefinedDocument, check_seal, checksum, sealed

__all__ = ["ENOUGH_RECORDS", "SCHEMA", "OperatorPrior", "PlanPrior", "Refined", "checksum", "sealed"]

ROUNDING = 1e-6  # of load factors that passed through a document
ENOUGH_RECORDS = 1000  # behind a cost that may be far from what a source sees itself
_NON_NEGATIVE = Number(least=0)
_SHARE = Number(least=0, most=1)
_COUNT = Number(least=0, whole=True)
_RANGE = Listed(_NON_NEGATIVE, least=2, most=2)

OPERATOR = Table(
    "an operator",
    Field("id", Text(), required=True),
    Field("cost_s", _NON_NEGATIVE, required=True, help="CPU seconds per record into it (a)"),
    Field("group_cost_s", _NON_NEGATIVE, nullable=True, help="CPU seconds per group (b), where it can be told apart"),
    Field("groups", Number(above=0), nullable=True, help="groups that there are (K)"),
    Field("relay", _NON_NEGATIVE, required=True, help="records out per record in"),
    Field("records", _COUNT, required=True, help="records behind these figures"),
    Field("standard_error", _NON_NEGATIVE, nullable=True, help="of cost_s, relative"),
)
PLAN = Table(
    "a plan",
    Field("lo", _COUNT, required=True),
    Field("hi", _COUNT, required=True),
    Field("theta", _SHARE, required=True),
    Field("load_factors", Listed(_SHARE), required=True),
)
DOCUMENT = Table(
    "a refined configuration",
    *FIRST,
    Field("query", Text(r"[^/\s]+/[^/\s]+", "cluster/query"), required=True),
    Field("plan", DIGEST, required=True, help="digest of the pipeline it was learned on"),
    Field("settings", SETTINGS, required=True),
    Field("record_bytes", Listed(_NON_NEGATIVE), required=True, help="of a record before the first and after each"),
    Field("operators", Listed(OPERATOR), required=True, help="empty where it holds settings alone"),
    Field(
        "fitted",
        Table("the range", Field("records", _RANGE, required=True), Field("cores", _RANGE, required=True)),
        nullable=True,
        help="records an epoch and cores in which the figures were seen",
    ),
    Field("plan_prior", PLAN, nullable=True, help="what is best by these figures"),
    Field("watermarks", Listed(WATERMARK, most=16), nullable=True, help="of its streams: when windows are complete"),
    Field("event_cost_s", _NON_NEGATIVE, nullable=True, help="CPU seconds of a source record through all operators"),
    Field("fallback", Choice(("local", "all-sp")), required=True, help="what the source does without it"),
    *LAST,
)


@dataclass(frozen=True, slots=True)
class OperatorPrior:
    """What is known of one operator."""

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
class Refined(RefinedDocument):
    """What was learned of one query at one source."""

    query: str
    plan: str
    settings: Settings
    record_bytes: tuple[float, ...]
    operators: tuple[OperatorPrior, ...]
    fitted_records: tuple[float, float] | None
    fitted_cores: tuple[float, float] | None
    plan_prior: PlanPrior | None
    watermarks: tuple[WatermarkPrior, ...] = ()
    event_cost_s: float | None = None

    @classmethod
    def parse(cls, document: Any) -> Refined:
        """Read a refined document.

        Raises
        ------
        DocumentError
            With every fault: fields, ranges, lengths that differ, a checksum that is not the document's.
        """
        faults: list[Fault] = []
        read = DOCUMENT.read(document, "", "", faults)
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
            settings=Settings(load_factors=tuple(settings.pop("load_factors", ())), **settings),
            record_bytes=tuple(read["record_bytes"]),
            operators=tuple(OperatorPrior(**one) for one in read["operators"]),
            fitted_records=tuple(fitted["records"]) if fitted else None,
            fitted_cores=tuple(fitted["cores"]) if fitted else None,
            plan_prior=_plan(plan) if plan else None,
            watermarks=tuple(WatermarkPrior.of(one) for one in read.get("watermarks") or ()),
            event_cost_s=read.get("event_cost_s"),
            valid_from_us=read["valid_from_us"],
            ttl_s=read["ttl_s"],
            fallback=read["fallback"],
        )


def _plan(read: Mapping[str, Any]) -> PlanPrior:
    return PlanPrior(read["lo"], read["hi"], read["theta"], tuple(read["load_factors"]))


def _check(document: Mapping[str, Any], read: Mapping[str, Any], faults: list[Fault]) -> None:
    """What fields say of each other."""
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
    for i, one in enumerate(read.get("watermarks") or ()):
        WatermarkPrior.check(one, f"watermarks[{i}]", faults)
    check_seal(document, faults)


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
