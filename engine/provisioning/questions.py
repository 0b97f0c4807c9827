"""Scenarios of a what-if, read strictly: names, changes, and how operators without a place get one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.fields import BAD, Anything, Choice, Field, Table
from engine.provisioning.placing import PLACES
from engine.provisioning.scenario import Applied, applied
from engine.tables import ID, INDEX
from engine.wording import show

__all__ = ["Scenario", "read_scenarios"]

MOST = 64

_SCENARIO = Table(
    "a scenario",
    Field("name", ID, required=True),
    Field("changes", Anything()),
    Field("place", Choice(PLACES)),
    Field("max_moves", INDEX, nullable=True),
)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A scenario with its changes applied; operators may still lack a place."""

    name: str
    applied: Applied
    place: str = "fill"
    max_moves: int | None = None


def read_scenarios(items: Any, deployment: Deployment, *, path: str = "scenarios") -> list[Scenario]:
    """Scenarios against what runs.

    Raises
    ------
    DocumentError
        With every fault of all of them.
    """
    faults: list[Fault] = []
    if not isinstance(items, (list, tuple)) or not 0 < len(items) <= MOST:
        found = f"{path} is {show(items)}; allowed: a list of 1 to {MOST} scenarios"
        raise DocumentError([Fault(path, found)], "what-if")
    seen: dict[str, int] = {}
    scenarios = []
    for i, item in enumerate(items):
        record: Any = _SCENARIO.read(item, path, i, faults)
        if record is BAD:
            continue
        name = record["name"]
        if name is not BAD and name in seen:
            message = f"name {name!r} is that of {path}[{seen[name]}] already; allowed: names that differ"
            faults.append(Fault(f"{path}[{i}].name", message))
        seen.setdefault(name, i)
        try:
            done = applied(deployment, record.get("changes", []), path=f"{path}[{i}].changes")
            scenarios.append(Scenario(name, done, record.get("place", "fill"), record.get("max_moves")))
        except DocumentError as error:
            faults.extend(error.faults)
    if faults:
        raise DocumentError(faults, "what-if")
    return scenarios
