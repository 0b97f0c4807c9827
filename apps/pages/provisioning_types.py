"""Node types that a mix is made of: pools with a price, and rows that people add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.ui.numbers import as_float

__all__ = ["types_offered", "types_read"]

_FIELDS = ("name", "capacity_cps", "cores", "price_per_hour", "max")
_BLANK_ROWS = 2


def types_offered(cluster: Cluster) -> list[dict[str, Any]]:
    """Rows of the form: every pool with a price, then blank ones."""
    rows: list[dict[str, Any]] = [
        {
            "name": pool.name,
            "capacity_cps": f"{pool.capacity_cps:g}",
            "cores": pool.cores,
            "price_per_hour": f"{pool.price_per_hour:f}".rstrip("0").rstrip("."),
            "max": "",
        }
        for pool in cluster.pools.all()
        if pool.price_per_hour is not None
    ]
    return [*rows, *(dict.fromkeys(_FIELDS, "") for _ in range(_BLANK_ROWS))]


def types_read(given: Any) -> list[dict[str, Any]]:
    """The rows of a form that have a name, as the options of a search.

    Raises
    ------
    Malformed
        With every fault: a row without a number, or none at all.
    """
    columns = [given.getlist(f"type_{name}") for name in _FIELDS]
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
        if number is None and (text or name != "max"):
            faults.append(Fault(f"types[{index}].{name}", f"{name} of {texts['name']} is {text!r}; allowed: a number"))
        elif number is not None:
            row[name] = int(number) if name in {"cores", "max"} and number == int(number) else number
    return row
