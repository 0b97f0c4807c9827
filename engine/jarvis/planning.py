"""The best load factors for a budget, by what a source has learned of its operators so far."""

from __future__ import annotations

from dataclasses import dataclass

from engine.jarvis.models import ChainModel
from engine.jarvis.partition import Frontier, shares

__all__ = ["Plan", "best_plan", "floor_within", "with_floor"]

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


def floor_within(model: ChainModel, floor: float, budget_s: float, n_records: float, usable: int) -> float:
    """The floor, less where it would cost more than 5 % of the budget."""
    if floor <= 0 or budget_s <= 0:
        return 0.0
    factors = (floor, *(1.0,) * (usable - 1)) if usable else ()
    cost_s = model.forecast(n_records, _whole(model, factors)).cpu_s
    return floor if cost_s <= _FLOOR_SHARE * budget_s else floor * _FLOOR_SHARE * budget_s / cost_s


def _whole(model: ChainModel, factors: tuple[float, ...]) -> tuple[float, ...]:
    return factors + (0.0,) * (len(model.operators) - len(factors))


def best_plan(
    model: ChainModel,
    n_records: float,
    budget_s: float,
    *,
    floor: float,
    objective: str,
    usable: int,
    keep: tuple[int, int] | None = None,
    bar: float = 0.0,
) -> Plan:
    """The plan that sends least within a budget, by the model.

    Parameters
    ----------
    model
        Of which the first `usable` operators are known; the others get nothing.
    n_records, budget_s
        Of an epoch, above 0.
    floor
        Share of the input that runs all usable operators.
    objective
        ``bytes`` or ``records``.
    keep, bar
        Cuts that are kept unless others send less by more than this share.
    """
    best: Plan | None = None
    effective: tuple[float, ...] | None = None
    tried: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        relay, cost, sizes = model.inputs(n_records, effective)
        counted = sizes[: usable + 1] if objective == "bytes" else None
        partition = Frontier.of(relay[:usable], cost[:usable], counted).at(budget_s, n_records)
        pair = (partition.lo, partition.hi)
        if pair in tried:
            break
        tried.add(pair)
        plan = _filled(model, n_records, budget_s, floor, objective, usable, pair, partition.theta)
        if best is None or plan.sent < best.sent:
            best = plan
        theirs = partition.effective
        effective = tuple(max(theirs[k] if k < partition.hi else 1.0, 1e-6) for k in range(usable))
        effective += (1.0,) * (len(model.operators) - usable)
    assert best is not None
    if keep is None or keep == best.cuts or keep[1] > usable:
        return best
    kept = _filled(model, n_records, budget_s, floor, objective, usable, keep, 0.5)
    return best if kept.cpu_s > (1 + _OVER) * budget_s or best.sent < (1 - bar) * kept.sent else kept


def _filled(
    model: ChainModel,
    n_records: float,
    budget_s: float,
    floor: float,
    objective: str,
    usable: int,
    pair: tuple[int, int],
    theta: float,
) -> Plan:
    """The plan between two cuts that takes the whole budget, costs taken at its own load."""
    lo, hi = pair

    def plan(share: float) -> Plan:
        factors = _whole(model, with_floor(lo, hi, share, floor, usable))
        forecast = model.forecast(n_records, factors, objective)
        return Plan(factors, forecast.cpu_s, forecast.sent, pair)

    if lo == hi:
        return plan(theta)
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
