"""How a scenario gives its operators places: keep, fill or search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.deployment import Deployment
from engine.errors import Fault, InfeasibleError
from engine.placement.greedy import place
from engine.placement.search import search
from engine.provisioning.board import board_of
from engine.provisioning.judge import operator_weights
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
    # The quick placement names what fits nowhere, and why, before anything is searched.
    filled = deployment.with_placement(place(deployment, closed=closed, coarse=mace_every)) if missing else deployment
    if how == "fill" or not deployment.operators:
        return filled
    return _searched(deployment, filled, mace_every, seed, rounds, max_moves, closed)


def _refuse(deployment: Deployment, missing: Sequence[str]) -> None:
    if missing:
        count = "1 operator has" if len(missing) == 1 else f"{len(missing)} operators have"
        faults = [_fault(deployment, name, 'it has no place; allowed: place "fill" or "search"') for name in missing]
        raise InfeasibleError(f"{count} no place", faults)


def _fault(deployment: Deployment, name: str, why: str) -> Fault:
    return Fault(f"operators[{deployment.operator_index[name]}].node", f"operator {name!r} fits no node: {why}")


def _searched(
    deployment: Deployment,
    filled: Deployment,
    every: int,
    seed: int,
    rounds: int,
    max_moves: int | None,
    closed: Sequence[str],
) -> Deployment:
    coarse, started = filled.coarsened(every), deployment.coarsened(every)
    board = board_of(coarse, operator_weights(coarse), closed)
    limit = deployment.constraints.max_moves if max_moves is None else max_moves
    start = board_of(started, None, closed).start if unplaced(deployment) else board.start
    problem = replace(board.problem(len(coarse.nodes), start), max_moves=limit)
    found = search(problem, rounds=rounds, seed=seed, finalists=1).assignment
    return deployment.with_placement(board.placement(found))
