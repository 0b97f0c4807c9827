"""The bench's inputs in an address: read with every fault, written without what stands at its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from apps.planning.inputs import Inputs
from apps.planning.options import MOST_NODES
from apps.ui.numbers import as_float

__all__ = ["SOURCE_PREFIX", "inputs_query", "inputs_read"]

#: `s.clicks=1.5`: the source clicks at 1.5 times its load.
SOURCE_PREFIX = "s."
_FACTOR = ("a number from 0.01 to 100", lambda number: 0.01 <= number <= 100)
_RULES: dict[str, tuple[str, str, str, Callable[[float], bool]]] = {
    "rate": ("factor", "Record rate", *_FACTOR),
    "objf": ("objective_factor", "Objective factor", *_FACTOR),
    "bound": ("bound_s", "Objective", "seconds above 0", lambda number: 0 < number <= 1e7),
    "headroom": ("headroom_s", "Headroom", "seconds, 0 or more", lambda number: 0 <= number <= 1e7),
    "nodes": ("nodes", "Nodes", f"a whole number from 1 to {MOST_NODES}", lambda n: n in range(1, MOST_NODES + 1)),
}


def inputs_read(query: QueryDict) -> tuple[Inputs, list[str]]:
    """The inputs of an address and what is wrong with it; a wrong value counts as not given."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for param, (name, label, allowed, is_allowed) in _RULES.items():
        given = query.get(param, "").strip()
        number = as_float(given.replace(",", "."))
        if given and (number is None or not is_allowed(number)):
            faults.append(f"{label} is {given[:40]!r}; allowed: {allowed}.")
        elif given:
            values[name] = int(number or 0) if name == "nodes" else number
    sources, wrong = _sources(query)
    if sources:
        values["sources"] = sources
    if query.get("pool"):
        values["pool"] = query["pool"]
    return Inputs(lose_one=query.get("lost", "1") != "0", **values), faults + wrong


def _sources(query: QueryDict) -> tuple[dict[str, float], list[str]]:
    _, _, allowed, is_allowed = _RULES["rate"]
    found, faults = {}, []
    for param in query:
        given = query.get(param, "").strip()
        if not param.startswith(SOURCE_PREFIX) or not given:
            continue
        name, number = param.removeprefix(SOURCE_PREFIX), as_float(given.replace(",", "."))
        if number is None or not is_allowed(number):
            faults.append(f"The factor of {name} is {given[:40]!r}; allowed: {allowed}.")
        elif number != 1.0:
            found[name] = number
    return found, faults


def inputs_query(inputs: Inputs, **changes: Any) -> str:
    """The inputs as a query string, with its question mark; `changes` replace parameters, None removes one."""
    given: dict[str, Any] = {}
    blank = Inputs()
    for param, (name, *_) in _RULES.items():
        value = getattr(inputs, name)
        if value != getattr(blank, name) and value is not None:
            given[param] = f"{value:g}"
    given |= {"pool": inputs.pool} if inputs.pool else {}
    given |= {} if inputs.lose_one else {"lost": "0"}
    given |= {f"{SOURCE_PREFIX}{name}": f"{by:g}" for name, by in sorted(inputs.sources.items())}
    query = _without_none({**given, **changes})
    return f"?{urlencode(query)}" if query else ""


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
