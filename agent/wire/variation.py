"""Sums of how costs and arrivals vary, in the header of a COUNTERS frame.

`extra.variation` is ``{"v": 1, "costs": [...], "arrivals": [...]}``: for each row of the body the `COST_SUMS` of its
runs, and for the first operator of a query the `ARRIVAL_SUMS` of its source; empty where there are none. Receivers
that know nothing of it leave it alone, as they do with another version. Rows behind the last item have none: a header
has bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.wire.sums import ARRIVAL_SUMS, COST_SUMS

__all__ = ["variation_columns", "variation_extra", "variation_fault"]

_NAME, _VERSION = "variation", 1
_DIGITS = 9  # residuals are differences of sums
_MAX_BYTES = 12_000  # of a header of 16 KiB
_MAX_SUM = 1e100  # their products are still numbers
_LISTS = {"costs": COST_SUMS, "arrivals": ARRIVAL_SUMS}


def variation_extra(costs: Sequence[Sequence[float]], arrivals: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The `extra` of a frame whose rows have these sums, row by row; of as many rows as there is room for."""
    kept: dict[str, list[list[float]]] = {"costs": [], "arrivals": []}
    size = 0
    for pair in zip(costs, arrivals, strict=True):
        rows = [[_short(value) for value in sums] for sums in pair]
        size += sum(len(json.dumps(row, separators=(",", ":"))) + 1 for row in rows)
        if size > _MAX_BYTES:
            break
        for listed, row in zip(kept.values(), rows, strict=True):
            listed.append(row)
    return {_NAME: {"v": _VERSION, **kept}} if any(map(any, kept.values())) else {}


def _short(value: float) -> float:
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def variation_fault(extra: Mapping[str, Any]) -> str:
    """Fault of the sums in a COUNTERS frame's `extra`, in words; empty where there is none, or they are not told."""
    if _NAME not in extra:
        return ""
    told = extra[_NAME]
    if not isinstance(told, Mapping):
        return f"{_NAME} is {str(told)[:80]}; allowed: an object"
    if told.get("v") != _VERSION:
        return ""
    for name, sums in _LISTS.items():
        rows = told.get(name)
        if not isinstance(rows, list):
            return f"{_NAME}.{name} is {str(rows)[:80]}; allowed: a list with an item for each row"
        for i, row in enumerate(rows):
            if not isinstance(row, list) or len(row) not in (0, len(sums)) or not all(map(_is_sum, row)):
                allowed = f"none or {len(sums)} numbers of at least 0"
                return f"{_NAME}.{name}[{i}] is {str(row)[:80]}; allowed: {allowed}"
    return ""


def _is_sum(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_SUM


def variation_columns(extra: Mapping[str, Any], rows: int) -> dict[str, list[float]]:
    """The sums as columns of so many rows; 0 where there are none.

    Raises
    ------
    ValueError
        They cannot be, or are of more rows.
    """
    if fault := variation_fault(extra):
        raise ValueError(f"extra.{fault}")
    told = extra.get(_NAME, {})
    columns = {name: [0.0] * rows for sums in _LISTS.values() for name in sums}
    for name, sums in _LISTS.items() if told.get("v") == _VERSION else ():
        if len(told[name]) > rows:
            raise ValueError(f"extra.{_NAME}.{name} has {len(told[name])} items; allowed: {rows}, the rows of the body")
        for i, row in enumerate(told[name]):
            for column, value in zip(sums, row, strict=False):
                columns[column][i] = float(value)
    return columns
