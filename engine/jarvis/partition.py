"""Partition of a pipeline: the best share of input that each operator processes near the data, in closed form.

A pipeline of M operators can be cut at M + 1 places. Cut after operator k it takes A_k CPU seconds per record and sends
b_k bytes (or records). Shares of the input may go to different cuts, so that every mixture of these points is possible:
the best for a budget lies on their lower convex envelope. It mixes at most two cuts, with at most one load factor
between 0 and 1 (docs/models/jarvis.md).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, NoReturn

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, FieldTable, ListOf, Number
from engine.jarvis.wire_bytes import AGGREGATE, OVERHEAD, Overhead, PartialRows, WireBytes, wire_faults

__all__ = ["PROBLEM", "Frontier", "Partition", "command", "length_faults", "outcome", "shares"]

TIE = 1e-12  # relative; nearer than that, two plans are equally good
_NON_NEGATIVE = Number(least=0)

PROBLEM = FieldTable(
    "a partition problem",
    Field(
        "relay", ListOf(_NON_NEGATIVE, least=1), required=True, help="records out per record in, of each operator (r)"
    ),
    Field("cost", ListOf(_NON_NEGATIVE), required=True, help="CPU seconds per record into each operator (c)"),
    Field("budget", _NON_NEGATIVE, required=True, help="CPU seconds of an epoch, in the unit of cost (C)"),
    Field("n_records", Number(above=0), required=True, help="records that enter in an epoch (N)"),
    Field(
        "sizes",
        ListOf(_NON_NEGATIVE, first=Number(above=0)),
        nullable=True,
        help="bytes of a record before the first operator and after each; null counts drained records",
    ),
    Field("aggregate", AGGREGATE, help="groups of the last operator, in place of its relay and of the last of sizes"),
    Field("overhead", OVERHEAD, help="bytes beside records and rows, what is left out as of our agent"),
)
#: What is computed with inside may be less than what is asked: a source without an operator that may run at it.
_FIELDS = (
    *(
        replace(field, kind=ListOf(_NON_NEGATIVE)) if field.name in ("relay", "sizes") else field
        for field in PROBLEM.fields
    ),
    Field("load_factors", ListOf(Number(least=0, most=1))),
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A plan: operators to `lo` run on all of the input, those to `hi` on the share `theta` of it, the rest on none."""

    load_factors: tuple[float, ...]  #: M, share of what comes to its proxy that an operator processes (p)
    effective: tuple[float, ...]  #: M, share of the input that gets through to an operator (e)
    lo: int
    hi: int
    theta: float
    objective: float  #: bytes (or drained records) per epoch
    cpu_s: float  #: per epoch
    shadow_price: float  #: of the objective, saved by one more CPU second (right-hand derivative); 0: nothing
    unique: bool  #: no other effective load factors are as good


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """Outcome of load factors: records or bytes sent, and CPU time."""

    objective: float  #: bytes (or drained records) per epoch
    cpu_s: float  #: per epoch


@dataclass(frozen=True, slots=True)
class Frontier:
    """The M + 1 operator-level plans of a pipeline, per record of input, and those of them that are worth mixing.

    Examples
    --------
    >>> frontier = Frontier.of(relay=[0.5, 0.5], cost=[1e-6, 4e-6], sizes=[80, 80, 60])
    >>> plan = frontier.at(budget_s=0.08, n_records=40_000)
    >>> plan.lo, plan.hi, round(plan.theta, 9), round(plan.objective)
    (1, 2, 0.5, 1100000)
    """

    cpu_s: tuple[float, ...]  #: M + 1, never falling (A)
    sent: tuple[float, ...]  #: M + 1, bytes or records (b)
    corners: tuple[int, ...]  #: plans on the lower convex envelope, the first one free of cost, the last one the best
    corners_cpu_s: tuple[float, ...]

    @classmethod
    def of(cls, relay: Sequence[float], cost: Sequence[float], sizes: Sequence[float] | None = None) -> Frontier:
        """The frontier of a pipeline, in O(M).

        Parameters
        ----------
        relay
            M numbers >= 0, records out per record in (r); above 1 where an operator expands.
        cost
            M numbers >= 0, CPU seconds per record into the operator (c).
        sizes
            M + 1 numbers >= 0, bytes of a record before the first operator and after each of them. Without them it is
            drained records that count, and the last operator's output is free.

        Raises
        ------
        DocumentError
            With every fault, each under ``relay``, ``cost`` or ``sizes``.
        """
        try:
            return cls._of(relay, cost, sizes)
        except (TypeError, ValueError, OverflowError):
            _refuse({"relay": relay, "cost": cost, "sizes": sizes})

    @classmethod
    def _of(cls, relay: Sequence[float], cost: Sequence[float], sizes: Sequence[float] | None) -> Frontier:
        volume, cpu = 1.0, 0.0
        cpu_s, volumes = [cpu], [volume]
        for ratio, seconds in zip(relay, cost, strict=True):
            cpu += volume * seconds
            volume *= ratio
            cpu_s.append(cpu)
            volumes.append(volume)
        if sizes is not None:
            sent = [records * size for records, size in zip(volumes, sizes, strict=True)]
        else:
            sent = [*volumes[:-1], 0.0] if len(volumes) > 1 else volumes
        least = min((*relay, *cost, *(() if sizes is None else sizes)), default=0.0)
        # one comparison each is enough for what is not finite: it goes through every sum
        if not (least >= 0 and cpu < inf and volume < inf and sum(sent) < inf):
            raise ValueError
        corners = _corners(cpu_s, sent)
        return cls(tuple(cpu_s), tuple(sent), tuple(corners), tuple([cpu_s[k] for k in corners]))

    @property
    def operators(self) -> int:
        """M."""
        return len(self.cpu_s) - 1

    def at(self, budget_s: float, n_records: float) -> Partition:
        """The best plan for an epoch of `n_records` with `budget_s` of CPU time.

        Of several that are equally good it is the cheapest one, and of these that with the fewest operators. Where
        the budget buys an operator-level plan exactly, `hi` is what a larger one would go on to, and `theta` is 0.

        Raises
        ------
        DocumentError
            `budget_s` (``budget``) is not a finite number of at least 0 or `n_records` not one above 0.
        """
        if not (type(budget_s) is float and type(n_records) is float and 0 <= budget_s < inf and 0 < n_records < inf):
            _raise(faults_of({"budget": budget_s, "n_records": n_records}))
        budget = budget_s / n_records
        i = bisect_right(self.corners_cpu_s, budget) - 1
        lo = self.corners[i]
        if i + 1 == len(self.corners):
            unique = self._alone(lo, spare=budget > self.cpu_s[lo])
            return self._mixture(n_records, lo, lo, 0.0, 0.0, unique)
        hi = self.corners[i + 1]
        spent, more = self.cpu_s[lo], self.cpu_s[hi] - self.cpu_s[lo]
        theta = (budget - spent) / more
        price = min((self.sent[lo] - self.sent[hi]) / more, sys.float_info.max)
        unique = self._no_third(lo, hi) if theta else self._alone(lo, spare=False)
        return self._mixture(n_records, lo, hi, theta, price, unique)

    def cut(self, boundary: int, n_records: float) -> Partition:
        """The operator-level plan that runs the first `boundary` operators on all of the input, whatever it costs."""
        return self._mixture(n_records, boundary, boundary, 0.0, 0.0, unique=True)

    def _mixture(self, n_records: float, lo: int, hi: int, theta: float, price: float, unique: bool) -> Partition:
        cpu_s, sent = self.cpu_s, self.sent
        load_factors, effective = shares(lo, hi, theta, len(cpu_s) - 1)
        objective = n_records * (sent[lo] + theta * (sent[hi] - sent[lo]))
        cost_s = n_records * (cpu_s[lo] + theta * (cpu_s[hi] - cpu_s[lo]))
        if objective == inf or cost_s == inf:
            _raise([Fault("n_records", f"n_records is {n_records:g}, of which nothing can be summed; allowed: less")])
        return Partition(load_factors, effective, lo, hi, theta, objective, cost_s, price, unique)

    def _alone(self, corner: int, *, spare: bool) -> bool:
        """No other plan sends as little at the same price, or at any price where there is budget to `spare`."""
        cpu_s, sent = self.cpu_s, self.sent
        most_sent, most_s = sent[corner] * (1 + TIE), inf if spare else cpu_s[corner] * (1 + TIE)
        return not any(
            b <= most_sent and a <= most_s for k, (a, b) in enumerate(zip(cpu_s, sent, strict=True)) if k != corner
        )

    def _no_third(self, lo: int, hi: int) -> bool:
        """No third plan lies on the line between two corners."""
        cpu_s, sent = self.cpu_s, self.sent
        most_s, slack = cpu_s[hi] * (1 + TIE), sent[lo] * TIE
        slope = (sent[hi] - sent[lo]) / (cpu_s[hi] - cpu_s[lo])
        for k in range(lo + 1, len(cpu_s)):
            if cpu_s[k] > most_s:
                break
            if k != hi and sent[k] <= sent[lo] + slope * (cpu_s[k] - cpu_s[lo]) + slack:
                return False
        return True


def _corners(cpu_s: Sequence[float], sent: Sequence[float]) -> list[int]:
    """Indices of the lower convex envelope up to its lowest point; `cpu_s` never falls."""
    corners, gains = [0], [inf]  # gains[i]: saved per CPU second on the way to corners[i]
    for k in range(1, len(cpu_s)):
        if sent[k] >= sent[corners[-1]]:
            continue
        gain = 0.0
        while corners:
            last = corners[-1]
            more = cpu_s[k] - cpu_s[last]
            gain = min((sent[last] - sent[k]) / more, sys.float_info.max) if more > 0 else inf
            if gain < gains[-1]:
                break
            corners.pop()
            gains.pop()
        corners.append(k)
        gains.append(gain if len(corners) > 1 else inf)
    return corners


def shares(lo: int, hi: int, theta: float, operators: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Load factors and effective load factors, of `operators` each, of a plan; a proxy that sees nothing has 0.

    Examples
    --------
    >>> shares(1, 3, 0.25, 4)
    ((1.0, 0.25, 1.0, 0.0), (1.0, 0.25, 0.25, 0.0))
    """
    whole, mixed = (1.0,) * lo, hi - lo if theta else 0
    rest = (0.0,) * (operators - lo - mixed)
    if not mixed:
        return whole + rest, whole + rest
    return (*whole, theta, *(1.0,) * (mixed - 1), *rest), (*whole, *(theta,) * mixed, *rest)


def outcome(
    relay: Sequence[float],
    cost: Sequence[float],
    sizes: Sequence[float] | None,
    load_factors: Sequence[float],
    n_records: float,
) -> PartitionOutcome:
    """Compute what load factors send and cost, by the products of eqs. 1 and 2 of the Jarvis paper, without a budget.

    Raises
    ------
    DocumentError
        Wrong values, or lists of different lengths, each under its name.
    """
    given = {"relay": relay, "cost": cost, "sizes": sizes, "n_records": n_records, "load_factors": load_factors}
    _raise(faults_of(given))
    records, objective, cpu_s = float(n_records), 0.0, 0.0
    for i, (ratio, seconds, factor) in enumerate(zip(relay, cost, load_factors, strict=True)):
        objective += records * (1 - factor) * (sizes[i] if sizes is not None else 1.0)
        cpu_s += records * factor * seconds
        records *= factor * ratio
    if sizes is not None:
        objective += records * sizes[-1]
    return PartitionOutcome(objective, cpu_s)


def faults_of(given: Mapping[str, object]) -> list[Fault]:
    """Faults of a problem's fields (and ``load_factors``), by themselves and across fields."""
    faults: list[Fault] = []
    for field in _FIELDS:
        if field.name in given and not (field.nullable and given[field.name] is None):
            field.kind.read(given[field.name], "", field.name, faults)
    return faults + length_faults(given)


def length_faults(given: Mapping[str, object]) -> list[Fault]:
    """Lists of a problem that are not as long as ``relay`` asks for; what is no list is not judged here."""
    lengths = {name: len(value) for name, value in given.items() if isinstance(value, (list, tuple))}
    if (operators := lengths.get("relay")) is None:
        return []
    needed = {"cost": operators, "sizes": operators + 1, "load_factors": operators}
    return [
        Fault(name, f"{name} has {lengths[name]} items; allowed: {length}, as relay has {operators}")
        for name, length in needed.items()
        if lengths.get(name, length) != length
    ]


def _raise(faults: Sequence[Fault]) -> None:
    if faults:
        raise DocumentError(faults, "partition problem")


def _refuse(given: Mapping[str, object]) -> NoReturn:
    """Raise for a pipeline that could not be computed."""
    beyond = Fault("relay", "relay multiplies records, bytes or seconds beyond what a number holds; allowed: less")
    raise DocumentError(faults_of(given) or [beyond], "partition problem")


def command(document: Any) -> dict[str, object]:
    """The plan of a problem (`PROBLEM`): `e`, `p`, objective and CPU of an epoch, `plans` mixed and `theta`."""
    faults: list[Fault] = []
    read = PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        faults += length_faults(document) + wire_faults(document)
    if faults:
        raise DocumentError(faults, "partition problem")
    frontier = Frontier.of(read["relay"], read["cost"], read.get("sizes"))
    if "aggregate" in read or "overhead" in read:
        return _wire_plan(read)
    plan = frontier.at(read["budget"], read["n_records"])
    return {
        "e": list(plan.effective),
        "p": list(plan.load_factors),
        "objective": plan.objective,
        "cpu": plan.cpu_s,
        "plans": [plan.lo, plan.hi],
        "theta": plan.theta,
        "shadow_price": plan.shadow_price,
        "unique": plan.unique,
    }


def _wire_plan(read: Mapping[str, Any]) -> dict[str, object]:
    """The plan of a problem with `aggregate` or `overhead`; `sent` has its bytes by what they are."""
    pipeline = WireBytes(
        read["relay"],
        read["cost"],
        read["sizes"],
        read["n_records"],
        PartialRows.of(read["aggregate"]) if "aggregate" in read else None,
        Overhead(**read["overhead"]) if "overhead" in read else None,
    )
    plan = pipeline.best(read["budget"])
    if not plan.sent.total + pipeline.cpu_s[-1] < inf:
        beyond = f"n_records is {read['n_records']:g}, of which nothing can be summed; allowed: less"
        _raise([Fault("n_records", beyond)])
    load_factors, effective = shares(plan.lo, plan.hi, plan.theta, len(read["relay"]))
    return {
        "e": list(effective),
        "p": list(load_factors),
        "objective": plan.sent.total,
        "cpu": plan.cpu_s,
        "plans": [plan.lo, plan.hi],
        "theta": plan.theta,
        "shadow_price": plan.shadow_price,
        "unique": plan.unique,
        "sent": asdict(plan.sent),
    }
