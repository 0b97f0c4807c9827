"""Inputs of the bench as an address holds them, and the node types that a mix is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.planning.what_if_options import MAX_NODES, Inputs
from apps.ui.numbers import as_float

__all__ = ["SOURCE_PREFIX", "inputs_query", "inputs_read", "types_offered", "types_read"]


#: `s.clicks=1.5`: the source clicks at 1.5 times its load.
SOURCE_PREFIX = "s."
_FACTOR = ("a number from 0.01 to 100", lambda number: 0.01 <= number <= 100)
_RULES: dict[str, tuple[str, str, str, Callable[[float], bool]]] = {
    "rate": ("factor", "Record rate", *_FACTOR),
    "objf": ("objective_factor", "Objective factor", *_FACTOR),
    "bound": ("bound_s", "Objective", "seconds above 0", lambda number: 0 < number <= 1e7),
    "headroom": ("headroom_s", "Headroom", "seconds, 0 or more", lambda number: 0 <= number <= 1e7),
    "nodes": ("nodes", "Nodes", f"a whole number from 1 to {MAX_NODES}", lambda n: n in range(1, MAX_NODES + 1)),
}


def inputs_read(query: QueryDict) -> tuple[Inputs, list[str]]:
    """The inputs of an address and what is wrong with it; a wrong value counts as not given."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for param, (name, label, allowed, is_allowed) in _RULES.items():
        text = query.get(param, "").strip()
        number = as_float(text.replace(",", "."))
        if text and (number is None or not is_allowed(number)):
            faults.append(f"{label} is {text[:40]!r}; allowed: {allowed}.")
        elif text:
            values[name] = int(number or 0) if name == "nodes" else number
    sources, wrong = _sources(query)
    if sources:
        values["sources"] = sources
    if query.get("pool"):
        values["pool"] = query["pool"]
    return Inputs(lose_one=query.get("lost", "1") != "0", **values), faults + wrong


def _sources(query: QueryDict) -> tuple[dict[str, float], list[str]]:
    _, _, allowed, is_allowed = _RULES["rate"]
    factors, faults = {}, []
    for param in query:
        text = query.get(param, "").strip()
        if not param.startswith(SOURCE_PREFIX) or not text:
            continue
        name, number = param.removeprefix(SOURCE_PREFIX), as_float(text.replace(",", "."))
        if number is None or not is_allowed(number):
            faults.append(f"The factor of {name} is {text[:40]!r}; allowed: {allowed}.")
        elif number != 1.0:
            factors[name] = number
    return factors, faults


def inputs_query(inputs: Inputs, **changes: Any) -> str:
    """The inputs as a query string, with its question mark; `changes` replace parameters, None removes one."""
    params: dict[str, object] = {}
    blank = Inputs()
    for param, (name, *_) in _RULES.items():
        value = getattr(inputs, name)
        if value != getattr(blank, name) and value is not None:
            params[param] = f"{value:g}"
    params |= {"pool": inputs.pool} if inputs.pool else {}
    params |= {} if inputs.lose_one else {"lost": "0"}
    params |= {f"{SOURCE_PREFIX}{name}": f"{by:g}" for name, by in sorted(inputs.sources.items())}
    query = _without_none({**params, **changes})
    return f"?{urlencode(query)}" if query else ""


def _without_none(params: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in params.items() if value is not None}


_FIELDS = ("name", "capacity_cps", "cores", "memory_bytes", "price_per_hour", "max")
_MAY_BE_EMPTY = {"memory_bytes", "max"}
_BLANK_ROWS = 2


def types_offered(cluster: Cluster) -> list[dict[str, Any]]:
    """Rows of the form: every pool with a price, then blank ones."""
    rows: list[dict[str, Any]] = [
        {
            "name": pool.name,
            "capacity_cps": f"{pool.capacity_cps:g}",
            "cores": pool.cores,
            "memory_bytes": "" if pool.memory_bytes is None else pool.memory_bytes,
            "price_per_hour": f"{pool.price_per_hour:f}".rstrip("0").rstrip("."),
            "max": "",
        }
        for pool in cluster.pools.all()
        if pool.price_per_hour is not None
    ]
    return [*rows, *(dict.fromkeys(_FIELDS, "") for _ in range(_BLANK_ROWS))]


def types_read(data: Any) -> list[dict[str, Any]]:
    """The rows of a form that have a name, as the options of a search.

    Raises
    ------
    Malformed
        With every fault: a row without a number, or none at all.
    """
    columns = [data.getlist(f"type_{name}") for name in _FIELDS]
    columns = [texts or [""] * len(columns[0]) for texts in columns]
    faults: list[Fault] = []
    rows = [
        _row(dict(zip(_FIELDS, (text.strip() for text in texts), strict=True)), index, faults)
        for index, texts in enumerate(zip(*columns, strict=False))
        if texts[0].strip()
    ]
    if not rows:
        faults.append(Fault("types", "no node type is given; a mix needs at least one with its price"))
    if faults:
        raise Malformed(f"The node types have {fault_count(faults)}; first: {faults[0].message}", faults)
    return rows


def _row(texts: Mapping[str, str], index: int, faults: list[Fault]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": texts["name"]}
    for name in _FIELDS[1:]:
        text = texts[name]
        number = as_float(text.replace(",", "."))
        if number is None and (text or name not in _MAY_BE_EMPTY):
            faults.append(Fault(f"types[{index}].{name}", f"{name} of {texts['name']} is {text!r}; allowed: a number"))
        elif number is not None:
            row[name] = int(number) if name in {"cores", "max"} and number == int(number) else number
    return row
