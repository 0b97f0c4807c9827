"""How a scenario gives its operators places: keep, fill or search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.deployment import Deployment
from engine.errors import Fault, InfeasibleError
from engine.placement.greedy import place
from engine.placement.proposal import place as propose
from engine.provisioning.scenario import unplaced

__all__ = ["PLACES", "placed"]

PLACES = ("keep", "fill", "search")


def placed(
    deployment: Deployment,
    how: str,
    *,
    mace_every: int = 1,
    seed: int = 0,
    rounds: int = 8,
    max_moves: int | None = None,
    closed: Sequence[str] = (),
) -> Deployment:
    """The deployment with every operator in a place.

    A search minimises the largest latency over its objective, or the worst case where there is no objective.

    Parameters
    ----------
    how : str
        ``keep`` refuses if something has no place; ``fill`` finds a place for what has none; ``search`` places
        everything again, moving at most `max_moves` of what has a place.

    Raises
    ------
    InfeasibleError
        Naming every operator without a place, and why.
    """
    missing = unplaced(deployment)
    if how == "keep":
        _refuse(deployment, missing)
        return deployment
    if how == "search" and rounds and deployment.operators:
        return _searched(deployment, mace_every, seed, rounds, max_moves, closed)
    return deployment.with_placement(place(deployment, closed=closed, coarse=mace_every)) if missing else deployment


def _refuse(deployment: Deployment, missing: Sequence[str]) -> None:
    if missing:
        count = "1 operator has" if len(missing) == 1 else f"{len(missing)} operators have"
        faults = [_fault(deployment, name, 'it has no place; allowed: place "fill" or "search"') for name in missing]
        raise InfeasibleError(f"{count} no place", faults)


def _fault(deployment: Deployment, name: str, why: str) -> Fault:
    return Fault(f"operators[{deployment.operator_index[name]}].node", f"operator {name!r} fits no node: {why}")


def _searched(
    deployment: Deployment, mace_every: int, seed: int, rounds: int, max_moves: int | None, closed: Sequence[str]
) -> Deployment:
    limits = deployment.constraints
    moves = limits.max_moves if max_moves is None else max_moves
    proposal = propose(
        replace(deployment, constraints=replace(limits, max_moves=moves)),
        budget_s=None,
        rounds=rounds,
        seed=seed,
        closed=closed,
        objective="objectives" if deployment.objectives else "worst",
        mace_every=mace_every,
        flow=False,
    )
    return deployment.with_placement(proposal.placement)
