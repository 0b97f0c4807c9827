"""Bulk import of nodes and links from CSV or JSON, and their export to CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from apps.core.errors import Fault, Malformed, SluiceError, TooLarge, fault_count
from apps.core.limits import MAX_BULK_ROWS
from apps.core.reach import visible
from apps.core.rest.parsers import strict_json
from apps.fleet.choices import CycleUnit, NodeState
from apps.fleet.models import Cluster, Link, Node
from apps.fleet.services import link_create, link_update, node_create, node_update

__all__ = [
    "BulkCells",
    "BulkRow",
    "ImportResult",
    "links_export",
    "links_import",
    "nodes_export",
    "nodes_import",
    "refuse",
    "rows_of_table",
]


@dataclass(frozen=True)
class BulkRow:
    """A row with its place in the table: `place` is `line 4` of a CSV or `rows[2]` of JSON."""

    path: str
    place: str
    values: Mapping[str, Any]


def rows_of_table(table: bytes | str | list[Any], columns: Sequence[str]) -> list[BulkRow]:
    """Rows of a CSV with a header, of a JSON list of objects, or of such a list already read.

    Raises
    ------
    Malformed
        Not a table, or a column that is not one of `columns`, with every such fault.
    TooLarge
        More than `MAX_BULK_ROWS` rows.
    """
    if isinstance(table, bytes):
        try:
            table = table.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Malformed(f"The table is not UTF-8: byte {error.start}.", [("file", "not UTF-8")]) from None
    if isinstance(table, str) and table.lstrip()[:1] in {"[", "{"}:
        table = strict_json(table.encode())
    rows = _csv_rows(table) if isinstance(table, str) else _json_rows(table)
    if len(rows) > MAX_BULK_ROWS:
        raise TooLarge(f"The table has {len(rows)} rows; at most {MAX_BULK_ROWS} are taken at once.")
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


def _csv_rows(text: str) -> list[BulkRow]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if ";" in text.partition("\n")[0] else ",")
    rows: list[Any] = []
    faults: list[Any] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            path, place = f"rows[{len(rows)}]", f"line {reader.line_num}"
            if len(cells) != len(header):
                faults.append(Fault(path, f"{place} has {len(cells)} columns; allowed: {len(header)}"))
            filled = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
            rows.append(BulkRow(path, place, filled))
    except csv.Error as error:
        raise Malformed(f"The table cannot be read at line {reader.line_num}: {error}.") from None
    refuse(faults)
    return rows


def _json_rows(table: Any) -> list[BulkRow]:
    if not isinstance(table, list):
        raise Malformed("The table is not a list of objects.", [("rows", "allowed: a list of objects, or CSV")])
    wrong = [i for i, values in enumerate(table) if not isinstance(values, Mapping)]
    refuse([Fault(f"rows[{i}]", "allowed: an object") for i in wrong])
    return [BulkRow(f"rows[{i}]", f"rows[{i}]", values) for i, values in enumerate(table)]


def refuse(faults: Iterable[Fault]) -> None:
    """Raise Malformed if there are faults."""
    listed = list(faults)
    if listed:
        raise Malformed(f"The table has {fault_count(listed)}, nothing was stored; first: {listed[0].message}", listed)


class BulkCells:
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

    def choice(self, name: str, choices: Mapping[str, Any], *, required: bool = False) -> Any:
        value = self.given.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or value not in choices:
            listed = ", ".join(list(choices)[:10]) or "none exists yet"
            self._fault(name, listed + (" and more" if len(choices) > 10 else ""))
            return None
        return choices[value]

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


NODE_COLUMNS = (
    "name",
    "pool",
    "capacity_cps",
    "cores",
    "memory_bytes",
    "state",
    "labels",
    "cycle_unit",
    "cycles_per_ns",
)
LINK_COLUMNS = ("from", "to", "bandwidth_bytes_s", "delay_s")


@dataclass
class ImportResult:
    """Result of an import, or of its dry run: names of rows."""

    dry_run: bool
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


class _DryRun(Exception):
    """Ends the transaction of a dry run."""


def nodes_import(*, cluster: Cluster, table: bytes | str | list[Any], dry_run: bool = False) -> ImportResult:
    """Create nodes, or update those whose name exists; either every row is stored or none.

    Columns: name, pool, and optionally capacity_cps, cores, memory_bytes, cycle_unit, cycles_per_ns (a new node has its
    pool's), state, labels (JSON).

    Raises
    ------
    Malformed
        With every fault of every row, its line and column.
    """
    pools = {pool.name: pool for pool in cluster.pools.all()}
    nodes = {node.name: node for node in cluster.nodes.select_related("pool", "cluster")}

    def store(row: BulkRow, result: ImportResult) -> None:
        values, faults = _node_values(row.values, pools)
        refuse(faults)
        existing = nodes.get(values["name"])
        if existing is None:
            node_create(**values)
            result.created.append(values["name"])
            return
        changed = {name: value for name, value in values.items() if getattr(existing, name) != value}
        if changed:
            node_update(node=existing, **changed)
        (result.updated if changed else result.unchanged).append(existing.name)

    return _import(rows_of_table(table, NODE_COLUMNS), ("name",), store, dry_run)


def links_import(*, cluster: Cluster, table: bytes | str | list[Any], dry_run: bool = False) -> ImportResult:
    """Create links, or update those between the same nodes; either every row is stored or none.

    Columns: from, to, and optionally bandwidth_bytes_s (empty: no limit), delay_s.
    """
    nodes = {node.name: node for node in cluster.nodes.all()}
    links = {(link.source.name, link.target.name): link for link in _links(cluster)}

    def store(row: BulkRow, result: ImportResult) -> None:
        values, faults = _link_values(row.values, nodes)
        refuse(faults)
        existing = links.get((values["source"].name, values["target"].name))
        name = f"{values['source'].name}->{values['target'].name}"
        if existing is None:
            link_create(**values)
            result.created.append(name)
            return
        changed = {name: value for name, value in values.items() if getattr(existing, name) != value}
        if changed:
            link_update(link=existing, **changed)
        (result.updated if changed else result.unchanged).append(name)

    return _import(rows_of_table(table, LINK_COLUMNS), ("from", "to"), store, dry_run)


def nodes_export(cluster: Cluster) -> str:
    """The cluster's nodes that the caller sees as CSV, in the form `nodes_import` reads."""
    rows = visible(cluster.nodes.select_related("pool"))
    return _csv(
        NODE_COLUMNS,
        (
            [
                n.name,
                n.pool.name,
                repr(n.capacity_cps),
                n.cores,
                "" if n.memory_bytes is None else n.memory_bytes,
                n.state,
                json.dumps(n.labels) if n.labels else "",
                n.cycle_unit,
                "" if n.cycles_per_ns is None else repr(n.cycles_per_ns),
            ]
            for n in rows
        ),
    )


def links_export(cluster: Cluster) -> str:
    """The cluster's links as CSV, in the form `links_import` reads."""
    return _csv(
        LINK_COLUMNS,
        (
            [
                link.source.name,
                link.target.name,
                "" if link.bandwidth_bytes_s is None else repr(link.bandwidth_bytes_s),
                repr(link.delay_s),
            ]
            for link in _links(cluster)
        ),
    )


def _import(
    rows: Sequence[BulkRow], identity: tuple[str, ...], store: Callable[[BulkRow, ImportResult], None], dry_run: bool
) -> ImportResult:
    """Store row by row in one transaction; faults are collected over all rows, and any of them undoes everything."""
    result, faults, seen = ImportResult(dry_run), [], {}  # type: ignore[var-annotated]
    try:
        with transaction.atomic():
            for row in rows:
                key = "->".join(str(row.values.get(name)) for name in identity)
                if key in seen:
                    faults.append(Fault(row.path, f"{row.place}: {key} is in {seen[key]} already"))
                    continue
                seen[key] = row.place
                try:
                    with transaction.atomic():
                        store(row, result)
                except SluiceError as error:
                    faults += _placed(row, error)
            refuse(faults)
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    return result


def _placed(row: BulkRow, error: SluiceError) -> list[Fault]:
    names = {"": row.path, "source": f"{row.path}.from", "target": f"{row.path}.to"}
    own = error.faults or (Fault("", error.message),)
    return [Fault(names.get(f.path, f"{row.path}.{f.path}"), f"{row.place}: {f.message}") for f in own]


def _node_values(cells: Mapping[str, Any], pools: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    read = BulkCells(cells)
    values = {
        "name": read.text("name", required=True),
        "pool": read.choice("pool", pools, required=True),
        "capacity_cps": read.number("capacity_cps"),
        "cores": read.whole("cores"),
        "memory_bytes": read.whole("memory_bytes"),
        "state": read.choice("state", {state.value: state.value for state in NodeState}),
        "labels": read.labels("labels"),
        "cycle_unit": read.choice("cycle_unit", {unit.value: unit.value for unit in CycleUnit}),
        "cycles_per_ns": read.number("cycles_per_ns"),
    }
    return {name: value for name, value in values.items() if value is not None}, read.faults


def _link_values(cells: Mapping[str, Any], nodes: Mapping[str, Node]) -> tuple[dict[str, Any], list[Fault]]:
    read = BulkCells(cells)
    values = {
        "source": read.choice("from", nodes, required=True),
        "target": read.choice("to", nodes, required=True),
        "bandwidth_bytes_s": read.number("bandwidth_bytes_s"),
        "delay_s": read.number("delay_s") or 0.0,
    }
    return values, read.faults


def _links(cluster: Cluster) -> Iterable[Link]:
    return cluster.links.select_related("source", "target", "cluster")


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()
