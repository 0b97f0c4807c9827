"""Scenarios of a what-if, read strictly, and places for their operators: keep, fill or search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from engine.document.deployment import Deployment
from engine.document.kinds import ID, INDEX
from engine.errors import DocumentError, Fault, InfeasibleError, value_words
from engine.kinds import Anything, Enumeration
from engine.placement.greedy import place
from engine.placement.proposal import place as propose
from engine.provisioning.changes import AppliedChanges, apply_each, unplaced_operators
from engine.records import Record
from engine.solvers import solving

__all__ = ["PLACES", "WhatIfScenario", "place_unplaced", "read_scenarios"]

PLACES = ("keep", "fill", "search")

MAX_SCENARIOS = 64


def place_unplaced(
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
    solving()
    missing = unplaced_operators(deployment)
    if how == "keep":
        _refuse(deployment, missing)
        return deployment
    if how == "search" and rounds and deployment.operators:
        return _searched(deployment, mace_every, seed, rounds, max_moves, closed)
    return deployment.with_placement(place(deployment, closed=closed, coarse=mace_every)) if missing else deployment


def _refuse(deployment: Deployment, missing: Sequence[str]) -> None:
    if missing:
        faults = [_fault(deployment, name, 'it has no place; allowed: place "fill" or "search"') for name in missing]
        count = len(missing)
        raise InfeasibleError("1 operator has no place" if count == 1 else f"{count} operators have no place", faults)


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


@dataclass(frozen=True)
class ScenarioDocument(Record):
    """A scenario as it is asked for."""

    TITLE: ClassVar[str] = "a scenario"

    name: Annotated[str, ID]
    changes: Annotated[object, Anything()] = ()
    place: Annotated[str, Enumeration(PLACES)] = "fill"
    max_moves: Annotated[int, INDEX] | None = None


@dataclass(frozen=True, eq=False)
class WhatIfScenario:
    """A scenario with its changes applied; operators may still lack a place."""

    name: str
    applied: AppliedChanges
    place: str = "fill"
    max_moves: int | None = None


def read_scenarios(items: Any, deployment: Deployment, *, path: str = "scenarios") -> list[WhatIfScenario]:
    """Scenarios against what runs.

    Raises
    ------
    DocumentError
        With every fault of all of them.
    """
    faults: list[Fault] = []
    if not isinstance(items, (list, tuple)) or not 0 < len(items) <= MAX_SCENARIOS:
        fault = f"{path} is {value_words(items)}; allowed: a list of 1 to {MAX_SCENARIOS} scenarios"
        raise DocumentError([Fault(path, fault)], "what-if")
    seen: dict[str, int] = {}
    scenarios = []
    for i, item in enumerate(items):
        record = ScenarioDocument.read(item, path, i, faults)
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str) and name in seen:
            message = f"name {name!r} is that of {path}[{seen[name]}] already; allowed: names that differ"
            faults.append(Fault(f"{path}[{i}].name", message))
        seen.setdefault(str(name), i)
        given = item.get("changes", []) if isinstance(item, Mapping) else []
        try:
            done = apply_each(deployment, given, path=f"{path}[{i}].changes")
        except DocumentError as error:
            faults.extend(error.faults)
            continue
        if record is not None:
            scenarios.append(WhatIfScenario(record.name, done, record.place, record.max_moves))
    if faults:
        raise DocumentError(faults, "what-if")
    return scenarios
