"""Results as text for people at a terminal: aligned columns, and any JSON value as a listing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["column_lines", "result_text", "value_text"]

_MAX_WIDTH = 60
_MAX_ROWS = 40
_MAX_VALUES = 8


def column_lines(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines whose cells stand below each other.

    Examples
    --------
    >>> column_lines([["query", "state"], ["fraud", "breached"]])
    ['  query  state', '  fraud  breached']
    """
    widths = [max(len(row[place]) for row in rows if place < len(row)) for place in range(max(map(len, rows)))]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    ]


def value_text(value: Any) -> str:
    """One value: numbers with five significant digits, nothing as a dash.

    Examples
    --------
    >>> value_text(2.37880001), value_text(None), value_text(True), value_text(12345678)
    ('2.3788', '-', 'yes', '12345678')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_text(one)}" for key, one in value.items()) or "-"
    if isinstance(value, list):
        shown = ", ".join(value_text(one) for one in value[:_MAX_VALUES])
        return f"{shown}, … ({len(value)})" if len(value) > _MAX_VALUES else shown or "-"
    return str(value)


def result_text(value: Any) -> str:
    """A result of any command: plain values by name, then each list of objects as a table, each object as a part."""
    return "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield from _table(value, indent) if _is_table(value) else [f"{indent}{value_text(value)}"]
        return
    plain = {key: one for key, one in value.items() if not _is_part(one)}
    if plain:
        yield from column_lines([[str(key), value_text(one)] for key, one in plain.items()], indent)
    for key, one in value.items():
        if _is_part(one):
            yield ""
            yield f"{indent}{key}"
            yield from _lines(one, f"{indent}  ")


def _is_part(value: Any) -> bool:
    """Whether a value is more than a line holds."""
    return _is_table(value) or (
        isinstance(value, Mapping) and any(isinstance(one, Mapping | list) for one in value.values())
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _table(rows: Sequence[Mapping[str, Any]], indent: str) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cut(value_text(row.get(name))) for name in names] for row in rows[:_MAX_ROWS]]
    left_out = [f"{indent}… {len(rows) - _MAX_ROWS} more"] if len(rows) > _MAX_ROWS else []
    return [*column_lines([[str(name) for name in names], *cells], indent), *left_out]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 1]}…"
