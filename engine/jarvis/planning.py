"""The best load factors for a budget, by what a source has learned of its operators so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.jarvis.models import ChainModel
from engine.jarvis.partition import Frontier, shares

__all__ = ["Ask", "Plan", "best_plan", "floor_within", "with_floor"]

_FLOOR_SHARE = 0.05  # of the budget that the floor may cost
_ROUNDS = 2  # groups law: costs depend on the load, and the load on the costs
_HALVINGS = 12
_NEAR = 1e-3  # of the budget
_OVER = 0.01  # of the budget, that a plan may cost more and still be kept


@dataclass(frozen=True, slots=True)
class Plan:
    """Load factors and what they are expected to lead to in an epoch."""

    load_factors: tuple[float, ...]
    cpu_s: float
    sent: float  #: bytes, or records drained
    cuts: tuple[int, int]  #: the operator-level plans that it mixes (lo, hi)


def with_floor(lo: int, hi: int, theta: float, floor: float, operators: int) -> tuple[float, ...]:
    """Load factors of a plan of which the share `floor` of the input runs the whole chain instead.

    Examples
    --------
    >>> with_floor(1, 1, 0.0, 0.01, 3)
    (1.0, 0.01, 1.0)
    """
    plain, effective = shares(lo, hi, theta, operators)
    if floor <= 0:
        return plain
    factors, before = [], 1.0
    for e in effective:
        now = floor + (1 - floor) * e
        factors.append(min(now / before, 1.0))
        before = now
    return tuple(factors)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a plan is made for: an epoch, and what counts."""

    n_records: float  #: above 0
    budget_s: float  #: CPU seconds, above 0
    usable: int  #: leading operators that are known; the others get nothing
    floor: float  #: share of the input that runs all usable operators
    objective: str  #: bytes or records


def floor_within(model: ChainModel, floor: float, budget_s: float, n_records: float, usable: int) -> float:
    """The floor, less where it would cost more than 5 % of the budget."""
    if floor <= 0 or budget_s <= 0:
        return 0.0
    factors = (floor, *(1.0,) * (usable - 1)) if usable else ()
    cost_s = model.forecast(n_records, _whole(model, factors)).cpu_s
    return floor if cost_s <= _FLOOR_SHARE * budget_s else floor * _FLOOR_SHARE * budget_s / cost_s


def _whole(model: ChainModel, factors: tuple[float, ...]) -> tuple[float, ...]:
    return factors + (0.0,) * (len(model.operators) - len(factors))


def best_plan(model: ChainModel, ask: Ask, *, keep: tuple[int, int] | None = None, bar: float = 0.0) -> Plan:
    """The plan that sends least within the budget, by the model.

    Cuts to `keep` stay unless others send less by more than the share `bar`.
    """
    best = min(_candidates(model, ask), key=lambda plan: plan.sent)
    if keep is None or keep == best.cuts or keep[1] > ask.usable:
        return best
    kept = _filled(model, ask, keep, 0.5)
    return best if kept.cpu_s > (1 + _OVER) * ask.budget_s or best.sent < (1 - bar) * kept.sent else kept


def _candidates(model: ChainModel, ask: Ask) -> Iterator[Plan]:
    """By costs at all of the input, then at the load of the plan that these gave."""
    effective: tuple[float, ...] | None = None
    tried: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        relay, cost, sizes = model.inputs(ask.n_records, effective)
        counted = sizes[: ask.usable + 1] if ask.objective == "bytes" else None
        frontier = Frontier.of(relay[: ask.usable], cost[: ask.usable], counted)
        partition = frontier.at(ask.budget_s, ask.n_records)
        pair = (partition.lo, partition.hi)
        if pair in tried:
            return
        tried.add(pair)
        yield _filled(model, ask, pair, partition.theta)
        runs = (max(e, 1e-6) if k < partition.hi else 1.0 for k, e in enumerate(partition.effective))
        effective = (*runs, *(1.0,) * (len(model.operators) - ask.usable))


def _filled(model: ChainModel, ask: Ask, pair: tuple[int, int], theta: float) -> Plan:
    """The plan between two cuts that takes the whole budget, costs taken at its own load."""
    lo, hi = pair

    def plan(share: float) -> Plan:
        factors = _whole(model, with_floor(lo, hi, share, ask.floor, ask.usable))
        forecast = model.forecast(ask.n_records, factors, ask.objective)
        return Plan(factors, forecast.cpu_s, forecast.sent, pair)

    if lo == hi:
        return plan(theta)
    budget_s = ask.budget_s
    if (whole := plan(1.0)).cpu_s <= (1 + _NEAR) * budget_s:
        return whole
    low, high, least_s, found = 0.0, 1.0, plan(0.0).cpu_s, plan(theta)
    for _ in range(_HALVINGS):
        if abs(found.cpu_s - budget_s) <= _NEAR * budget_s:
            break
        low, high = (theta, high) if found.cpu_s < budget_s else (low, theta)
        guess = theta * (budget_s - least_s) / (found.cpu_s - least_s) if found.cpu_s > least_s else 1.0
        theta = guess if low < guess < high else (low + high) / 2
        found = plan(theta)
    return found
