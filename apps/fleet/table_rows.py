"""Rows of an imported table, from CSV or JSON, and their cells as values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.core.errors import Fault, Malformed, TooLarge, fault_count
from apps.core.parsers import strict_json

__all__ = ["MAX_ROWS", "Cells", "Row", "refuse", "rows_of_table"]

MAX_ROWS = 10_000


@dataclass(frozen=True)
class Row:
    """A row and where it stood: `place` is `line 4` of a CSV or `rows[2]` of JSON."""

    path: str
    place: str
    values: Mapping[str, Any]


def rows_of_table(table: bytes | str | list[Any], columns: Sequence[str]) -> list[Row]:
    """Rows of a CSV with a header, of a JSON list of objects, or of such a list already read.

    Raises
    ------
    Malformed
        Not a table, or a column that is not one of `columns`, with every such fault.
    TooLarge
        More than `MAX_ROWS` rows.
    """
    if isinstance(table, bytes):
        try:
            table = table.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Malformed(f"The table is not UTF-8: byte {error.start}.", [("file", "not UTF-8")]) from None
    if isinstance(table, str) and table.lstrip()[:1] in {"[", "{"}:
        table = strict_json(table.encode())
    rows = _csv_rows(table) if isinstance(table, str) else _json_rows(table)
    if len(rows) > MAX_ROWS:
        raise TooLarge(f"The table has {len(rows)} rows; at most {MAX_ROWS} are taken at once.")
    allowed = ", ".join(columns)
    faults: list[Fault] = []
    for row in rows:
        unknown = [name for name in row.values if name not in columns]
        faults += [
            Fault(f"{row.path}.{name}", f"{row.place}: unknown column; allowed are {allowed}") for name in unknown
        ]
    if not rows:
        faults.append(Fault("rows", f"the table has no rows; allowed columns are {allowed}"))
    refuse(faults[:100])
    return rows


def _csv_rows(text: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if ";" in text.partition("\n")[0] else ",")
    rows, faults = [], []
    try:
        header = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            path, place = f"rows[{len(rows)}]", f"line {reader.line_num}"
            if len(cells) != len(header):
                faults.append(Fault(path, f"{place} has {len(cells)} columns; allowed: {len(header)}"))
            filled = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
            rows.append(Row(path, place, filled))
    except csv.Error as error:
        raise Malformed(f"The table cannot be read at line {reader.line_num}: {error}.") from None
    refuse(faults)
    return rows


def _json_rows(table: Any) -> list[Row]:
    if not isinstance(table, list):
        raise Malformed("The table is not a list of objects.", [("rows", "allowed: a list of objects, or CSV")])
    wrong = [i for i, values in enumerate(table) if not isinstance(values, Mapping)]
    refuse([Fault(f"rows[{i}]", "allowed: an object") for i in wrong])
    return [Row(f"rows[{i}]", f"rows[{i}]", values) for i, values in enumerate(table)]


def refuse(faults: Iterable[Fault]) -> None:
    """Raise Malformed if there are faults."""
    listed = list(faults)
    if listed:
        raise Malformed(f"The table has {fault_count(listed)}, nothing was stored; first: {listed[0].message}", listed)


class Cells:
    """Cells of a row as values; texts of a CSV and numbers of JSON alike."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given, self.faults = given, []  # type: ignore[var-annotated]

    def _fault(self, name: str, allowed: str) -> None:
        self.faults.append(Fault(name, f"{name} is {self.given.get(name)!r}; allowed: {allowed}"))

    def text(self, name: str, *, required: bool = False) -> str | None:
        value = self.given.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value:
            self._fault(name, "a non-empty text")
            return None
        return value

    def choice(self, name: str, known: Mapping[str, Any], *, required: bool = False) -> Any:
        value = self.given.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or value not in known:
            listed = ", ".join(list(known)[:10]) or "none exists yet"
            self._fault(name, listed + (" and more" if len(known) > 10 else ""))
            return None
        return known[value]

    def number(self, name: str) -> float | None:
        value = self.given.get(name)
        if value is None:
            return None
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "_" in str(value):
                raise ValueError
            return float(value)
        except (ValueError, OverflowError):
            self._fault(name, "a number")
            return None

    def whole(self, name: str) -> int | None:
        value = self.number(name)
        if value is None:
            return None
        if not value.is_integer():
            self._fault(name, "a whole number")
            return None
        return int(value)

    def labels(self, name: str) -> dict[str, str] | None:
        value = self.given.get(name)
        if isinstance(value, str):
            try:
                value = strict_json(value.encode())
            except Malformed:
                value = value or None
        if value is not None and not isinstance(value, Mapping):
            self._fault(name, 'an object of texts such as {"rack": "r7"}')
            return None
        return None if value is None else dict(value)
