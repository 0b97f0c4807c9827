"""`place`: a placement for a deployment, with what it changes, in which moves, and how far from the best it can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from engine.deployment import Deployment
from engine.errors import Fault, OptionError
from engine.estimation import Estimate, estimate
from engine.mace import Mace
from engine.placement.bumps import Bumps
from engine.placement.candidates import Settings
from engine.placement.goal import GOALS, goal_of
from engine.placement.hunt import Hunt
from engine.placement.items import Placement
from engine.placement.limits import limits_of, refuse_impossible
from engine.placement.messages import messages_of
from engine.placement.moves import Step, changes_of, move_rows, ordered
from engine.placement.ranking import Ranked, mace_at, query_rows, ranked, server_rows, standing
from engine.placement.search import ALGORITHMS, compile_kernels

__all__ = ["Proposal", "place"]

Progress = Callable[[float, str, dict[str, Any]], None]

_TIE = 1e-6
_FLOW_SHARE = 0.5  # of the budget, for comparing candidates by Flow on top of it


@dataclass(frozen=True, eq=False)
class Proposal:
    """A placement and what follows from it.

    Attributes
    ----------
    deployment : Deployment
        As given.
    placement : mapping
        Replicas of every operator.
    changed : frozenset of str
        Operators that are elsewhere than before.
    report : dict
        What `to_dict` returns.
    """

    deployment: Deployment
    placement: Placement
    changed: frozenset[str]
    report: dict[str, Any]

    @property
    def value(self) -> float:
        """The goal of what is proposed."""
        return float(self.report["value_after"])

    def placed(self) -> Deployment:
        """The deployment with the placement."""
        return self.deployment.with_placement(self.placement)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return self.report


def place(
    deployment: Deployment,
    *,
    algorithm: str = "search",
    budget_s: float | None = 5.0,
    rounds: int | None = None,
    seed: int = 0,
    workers: int = 1,
    closed: Collection[str] = (),
    objective: str = "worst",
    fixed: Collection[str] = (),
    mace_every: int = 1,
    rank_within: float = 0.0,
    tolerance: float = 0.0,
    flow: bool = True,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Proposal:
    """Find a placement that is no worse than the one there is, if that is allowed, and say how to get there.

    Parameters
    ----------
    deployment : Deployment
        Operators may lack a place. Its constraints are respected.
    algorithm : str
        One of `engine.placement.search.ALGORITHMS`.
    budget_s, rounds : float or None, int or None
        How long to search. With rounds alone the answer depends on the input and the seed only.
    closed : collection of str
        Nodes that take nothing new (draining); what is there may stay.
    objective : str
        ``worst`` (largest latency) or ``objectives`` (largest latency over bound, weighted by priority).
    fixed : collection of str
        Operators that stay where they are.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    rank_within : float
        Candidates within this share of the best are compared by Flow; 0: those as good as the best.
    tolerance : float
        Moves are left out where the value stays within this share of the best found without them; so nothing is moved
        for a gain of less.
    flow : bool
        Whether to run Flow at all; without it there are neither latencies by Flow nor bumps.
    progress : callable, optional
        Told the share done, the step in words, and the best value so far with bound and elapsed time; what it raises
        ends the call.
    stop : callable, optional
        Ends the search when it returns True; what was found by then is proposed.

    Returns
    -------
    Proposal

    Raises
    ------
    OptionError
        For options that do not exist, nodes or operators that are unknown.
    InfeasibleError
        If the constraints leave no placement; every reason that can be told.
    """
    _refuse_options(algorithm, objective, budget_s, rounds, {"rank_within": rank_within, "tolerance": tolerance})
    limits = limits_of(deployment, closed, fixed)
    refuse_impossible(limits)
    tell = progress or (lambda share, step, detail: None)
    if not deployment.operators:
        return _empty(deployment, limits.to_dict(), algorithm, objective, seed)
    goal = goal_of(deployment, objective)
    settings = Settings(algorithm, budget_s, rounds, seed, workers, mace_every, tolerance)
    tell(0.0, "Preparing the search", {"value_s": None, "bound_s": 0.0, "elapsed_s": 0.0})
    compile_kernels(algorithm == "corr")
    hunt = Hunt(deployment, limits, goal, settings, tell, stop or (lambda: False))
    candidates = hunt.run()

    def detail() -> dict[str, Any]:
        return {"value_s": hunt.best_value, "bound_s": hunt.bound.value_s, "elapsed_s": hunt.elapsed_s}

    runs = standing(deployment)
    with ThreadPoolExecutor(1) as beside:
        before = None
        if flow and runs.operators and candidates[0] is not hunt.start:
            # Flow takes seconds on a large fleet and leaves the interpreter to others: both sides at the same time.
            before = beside.submit(estimate, runs, mace_every=mace_every, intervals=False)
        best = ranked(
            deployment,
            goal,
            candidates,
            hunt.start,
            within=rank_within,
            every=mace_every,
            flow=flow,
            step=lambda done, of: tell(0.7 + 0.1 * done / of, f"Flow of placement {done + 1} of {of}", detail()),
            budget_s=None if budget_s is None else _FLOW_SHARE * budget_s,
        )
        tell(0.8, "Flow of what runs now", detail())
        was = before.result() if before else best.estimate if best.candidate is hunt.start else None
    return _proposal(hunt, best, runs, was, flow, lambda share, step: tell(share, step, detail()))


def _refuse_options(
    algorithm: str, objective: str, budget_s: float | None, rounds: int | None, shares: Mapping[str, float]
) -> None:
    faults = [
        Fault(name, f"{name} is {value!r}; allowed: {', '.join(allowed)}")
        for name, value, allowed in (("algorithm", algorithm, ALGORITHMS), ("objective", objective, GOALS))
        if value not in allowed
    ]
    if budget_s is None and rounds is None:
        faults.append(Fault("budget_s", "budget_s and rounds are both missing; allowed: at least one of the two"))
    for name, number in (("budget_s", budget_s), ("rounds", rounds)):
        if number is not None and not number > 0:
            faults.append(Fault(name, f"{name} is {number}; allowed: a number above 0"))
    for name, share in shares.items():
        if not share >= 0.0:
            faults.append(Fault(name, f"{name} is {share}; allowed: a number of at least 0"))
    if faults:
        raise OptionError(f"The options have {len(faults)} faults; first: {faults[0].message}", faults)


def _proposal(
    hunt: Hunt, best: Ranked, runs: Deployment, before: Estimate | None, flow: bool, tell: Callable[[float, str], None]
) -> Proposal:
    deployment, placement, every = hunt.deployment, best.candidate.placement, hunt.settings.mace_every
    was, now = mace_at(runs, every), best.candidate.measured.mace
    tell(0.85, "Ordering the moves")
    changes = changes_of(deployment, placement)
    steps = ordered(deployment.coarsened(every), hunt.goal, changes)
    bumps = Bumps(deployment)
    count = max(1, len(steps))

    def bump(n: int, step: Step, lasts_s: float) -> tuple[float | None, str | None]:
        if lasts_s > 0.0 and flow:
            tell(0.85 + 0.15 * (n - 1) / count, f"Latency bump of move {n} of {len(steps)}")
        return bumps(n, step, lasts_s) if flow else (None, None)

    moves = move_rows(deployment, steps, bump)
    nodes, links = server_rows(was, now)
    report = _totals(hunt, best, before, was if runs is deployment else None, now) | {
        "placement": {
            name: [{"node": part.node, "core": part.core, "fraction": part.fraction} for part in parts]
            for name, parts in placement.items()
        },
        "queries": query_rows(deployment, before, best.estimate, was, now, set(changes)),
        "nodes": nodes,
        "links": links,
        "moves": moves,
        "alone": hunt.alone,
        "messages": messages_of(hunt, best, moves),
        "trace": hunt.trace,
        "constraints": hunt.limits.to_dict(),
    }
    tell(1.0, "Done")
    return Proposal(deployment, placement, frozenset(changes), report)


def _totals(hunt: Hunt, best: Ranked, before: Estimate | None, was: Mace | None, now: Mace) -> dict[str, Any]:
    settings, value, bound = hunt.settings, best.candidate.measured.value, hunt.bound
    whole = before is not None and was is not None
    return {
        "algorithm": settings.algorithm,
        "objective": hunt.goal.kind,
        "seed": settings.seed,
        "budget_s": settings.budget_s,
        "rounds": hunt.rounds,
        "stopped": hunt.stopped,
        "elapsed_s": hunt.elapsed_s,
        "value_before": hunt.start.measured.value if hunt.start else None,
        "value_after": value,
        "mace_before_s": was.worst if was else None,
        "mace_after_s": now.worst,
        "flow_before_s": before.flow.wc if before and whole else None,
        "flow_after_s": best.estimate.flow.wc if best.estimate else None,
        "bound_s": bound.value_s,
        "bound_kind": bound.kind,
        "gap": _gap(value, bound.value_s),
    }


def _gap(value: float, bound: float) -> float | None:
    """Share by which the value is above the bound; None if the bound says nothing."""
    if value <= bound * (1.0 + _TIE):
        return 0.0
    return value / bound - 1.0 if bound > 0.0 else None


def _empty(deployment: Deployment, constraints: dict[str, Any], algorithm: str, objective: str, seed: int) -> Proposal:
    """Nothing to place."""
    report = {
        "algorithm": algorithm,
        "objective": objective,
        "seed": seed,
        "budget_s": None,
        "rounds": 0,
        "stopped": "optimal",
        "elapsed_s": 0.0,
        "value_before": 0.0,
        "value_after": 0.0,
        "mace_before_s": 0.0,
        "mace_after_s": 0.0,
        "flow_before_s": 0.0,
        "flow_after_s": 0.0,
        "bound_s": 0.0,
        "bound_kind": "nothing to place",
        "gap": 0.0,
        "placement": {},
        "queries": [],
        "nodes": [],
        "links": [],
        "moves": [],
        "alone": [],
        "messages": ["There is no operator to place."],
        "trace": [],
        "constraints": constraints,
    }
    return Proposal(deployment, {}, frozenset(), report)
