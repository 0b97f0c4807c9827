"""Partition of a pipeline: the best share of input that each operator processes near the data, in closed form.

A pipeline of M operators can be cut at M + 1 places. Cut after operator k it takes A_k CPU seconds per record and sends
b_k bytes (or records). Shares of the input may go to different cuts, so that every mixture of these points is possible:
the best for a budget lies on their lower convex envelope. It mixes at most two cuts, with at most one load factor
between 0 and 1 (docs/models/jarvis.md).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Annotated, Any, ClassVar, NoReturn

from engine.errors import DocumentError, Fault
from engine.jarvis.wire_bytes import AggregateGroups, Overhead, PartialRows, WireBytes
from engine.kinds import ListOf, Number
from engine.records import BAD, Record, Words

__all__ = ["Frontier", "Partition", "PartitionProblem", "Sizes", "command", "list_faults", "outcome", "shares"]

TIE = 1e-12  # relative; nearer than that, two plans are equally good
_NonNegative = Annotated[float, Number(least=0)]
_Positive = Annotated[float, Number(above=0)]
#: Bytes of a record before the first operator of a pipeline and after each.
Sizes = Annotated[Sequence[float], ListOf(Number(least=0), first=Number(above=0))]


@dataclass(frozen=True, kw_only=True)
class PartitionProblem(Record):
    """A pipeline, and the CPU seconds that it may take of an epoch near the data."""

    TITLE: ClassVar[str] = "a partition problem"
    JUDGES_PARTS: ClassVar[bool] = True

    relay: Annotated[tuple[_NonNegative, ...], Words("records out per record in, of each operator (r)")]
    cost: Annotated[tuple[_NonNegative, ...], Words("CPU seconds per record into each operator (c)")]
    budget: Annotated[_NonNegative, Words("CPU seconds of an epoch, in the unit of cost (C)")]
    n_records: Annotated[_Positive, Words("records that enter in an epoch (N)")]
    sizes: Annotated[
        Sizes | None, Words("bytes of a record before the first operator and after each; null counts drained records")
    ] = None
    aggregate: Annotated[
        AggregateGroups | None, Words("groups of the last operator, in place of its relay and of the last of sizes")
    ] = None
    overhead: Annotated[Overhead | None, Words("bytes beside records and rows, what is left out as of our agent")] = (
        None
    )

    def find_faults(self) -> Iterator[Fault]:
        """Lists of other lengths than the operators ask for, and bytes of rows without those of records."""
        if self.relay == ():
            yield Fault("relay", "relay has 0 items; allowed: at least 1")
        yield from list_faults(self.relay, self.cost, self.sizes)
        for name, given in (("aggregate", self.aggregate), ("overhead", self.overhead)):
            if given is not None and self.sizes is None:
                yield Fault(name, f"{name} is given without sizes; allowed: with sizes, as it counts bytes")


@dataclass(frozen=True, kw_only=True)
class _Figures(Record):
    """Figures that are computed with: perhaps less than what is asked, as of a source where no operator may run."""

    TITLE: ClassVar[str] = "a partition problem"
    JUDGES_PARTS: ClassVar[bool] = True

    relay: tuple[_NonNegative, ...] | None = None
    cost: tuple[_NonNegative, ...] | None = None
    budget: _NonNegative = 0.0
    n_records: _Positive = 1.0
    sizes: tuple[_NonNegative, ...] | None = None
    load_factors: tuple[Annotated[float, Number(least=0, most=1)], ...] | None = None

    def find_faults(self) -> Iterator[Fault]:
        """Lists of other lengths than the operators ask for."""
        yield from list_faults(self.relay, self.cost, self.sizes, self.load_factors)


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
            _Figures.parse({"budget": budget_s, "n_records": n_records})
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
    _Figures.parse(given)
    records, objective, cpu_s = float(n_records), 0.0, 0.0
    for i, (ratio, seconds, factor) in enumerate(zip(relay, cost, load_factors, strict=True)):
        objective += records * (1 - factor) * (sizes[i] if sizes is not None else 1.0)
        cpu_s += records * factor * seconds
        records *= factor * ratio
    if sizes is not None:
        objective += records * sizes[-1]
    return PartitionOutcome(objective, cpu_s)


def list_faults(relay: Any, cost: Any, sizes: Any, load_factors: Any = None) -> Iterator[Fault]:
    """Lists that are not as long as `relay` asks for; what is no list is not judged here."""
    operators = None if relay is None or relay is BAD else len(relay)
    for name, values, more in (("cost", cost, 0), ("sizes", sizes, 1), ("load_factors", load_factors, 0)):
        if operators is not None and values is not None and values is not BAD and len(values) != operators + more:
            message = f"{name} has {len(values)} items; allowed: {operators + more}, as relay has {operators}"
            yield Fault(name, message)


def _raise(faults: Sequence[Fault]) -> NoReturn:
    raise DocumentError(faults, "partition problem")


def _refuse(given: Mapping[str, object]) -> NoReturn:
    """Raise for a pipeline that could not be computed."""
    _Figures.parse(given)
    _raise([Fault("relay", "relay multiplies records, bytes or seconds beyond what a number holds; allowed: less")])


def command(document: Any) -> dict[str, object]:
    """The plan of a problem: `e`, `p`, objective and CPU of an epoch, `plans` mixed and `theta`."""
    problem = PartitionProblem.parse(document)
    frontier = Frontier.of(problem.relay, problem.cost, problem.sizes)
    if problem.aggregate is not None or problem.overhead is not None:
        return _wire_plan(problem)
    plan = frontier.at(problem.budget, problem.n_records)
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


def _wire_plan(problem: PartitionProblem) -> dict[str, object]:
    """The plan of a problem with `aggregate` or `overhead`; `sent` has its bytes by what they are."""
    assert problem.sizes is not None
    partials = None if problem.aggregate is None else PartialRows.of(problem.aggregate)
    pipeline = WireBytes(problem.relay, problem.cost, problem.sizes, problem.n_records, partials, problem.overhead)
    plan = pipeline.best(problem.budget)
    if not plan.sent.total + pipeline.cpu_s[-1] < inf:
        beyond = f"n_records is {problem.n_records:g}, of which nothing can be summed; allowed: less"
        _raise([Fault("n_records", beyond)])
    load_factors, effective = shares(plan.lo, plan.hi, plan.theta, len(problem.relay))
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
