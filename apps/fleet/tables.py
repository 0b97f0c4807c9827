"""Nodes and links as tables: bulk import from CSV or JSON, and export to CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from apps.core.errors import Fault, SluiceError
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Link, Node
from apps.fleet.services import link_create, link_update, node_create, node_update
from apps.fleet.table_rows import Cells, Row, refuse, rows_of_table

__all__ = ["ImportResult", "links_export", "links_import", "nodes_export", "nodes_import"]

NODE_COLUMNS = ("name", "pool", "capacity_cps", "cores", "state", "labels")
LINK_COLUMNS = ("from", "to", "bandwidth_bytes_s", "delay_s")


@dataclass
class ImportResult:
    """What an import did, or with `dry_run` would do: names of rows."""

    dry_run: bool
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("dry_run", "created", "updated", "unchanged")}


class _DryRun(Exception):
    """Ends the transaction of a dry run."""


def nodes_import(*, cluster: Cluster, table: bytes | str | list[Any], dry_run: bool = False) -> ImportResult:
    """Create nodes, or update those whose name exists; either every row is stored or none.

    Columns: name, pool, and optionally capacity_cps, cores (a new node has its pool's), state, labels (JSON).

    Raises
    ------
    Malformed
        With every fault of every row, its line and column.
    """
    pools = {pool.name: pool for pool in cluster.pools.all()}
    nodes = {node.name: node for node in cluster.nodes.select_related("pool", "cluster")}

    def store(row: Row, result: ImportResult) -> None:
        values, faults = _node_values(row.values, pools)
        refuse(faults)
        known = nodes.get(values["name"])
        if known is None:
            node_create(**values)
            result.created.append(values["name"])
            return
        changed = {name: value for name, value in values.items() if getattr(known, name) != value}
        if changed:
            node_update(node=known, **changed)
        (result.updated if changed else result.unchanged).append(known.name)

    return _import(rows_of_table(table, NODE_COLUMNS), ("name",), store, dry_run)


def links_import(*, cluster: Cluster, table: bytes | str | list[Any], dry_run: bool = False) -> ImportResult:
    """Create links, or update those between the same nodes; either every row is stored or none.

    Columns: from, to, and optionally bandwidth_bytes_s (empty: no limit), delay_s.
    """
    nodes = {node.name: node for node in cluster.nodes.all()}
    links = {(link.source.name, link.target.name): link for link in _links(cluster)}

    def store(row: Row, result: ImportResult) -> None:
        values, faults = _link_values(row.values, nodes)
        refuse(faults)
        known = links.get((values["source"].name, values["target"].name))
        name = f"{values['source'].name}->{values['target'].name}"
        if known is None:
            link_create(**values)
            result.created.append(name)
            return
        changed = {name: value for name, value in values.items() if getattr(known, name) != value}
        if changed:
            link_update(link=known, **changed)
        (result.updated if changed else result.unchanged).append(name)

    return _import(rows_of_table(table, LINK_COLUMNS), ("from", "to"), store, dry_run)


def nodes_export(cluster: Cluster) -> str:
    """The cluster's nodes as CSV, in the form `nodes_import` reads."""
    rows = cluster.nodes.select_related("pool")
    return _csv(
        NODE_COLUMNS,
        (
            [n.name, n.pool.name, repr(n.capacity_cps), n.cores, n.state, json.dumps(n.labels) if n.labels else ""]
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
    rows: Sequence[Row], identity: tuple[str, ...], store: Callable[[Row, ImportResult], None], dry_run: bool
) -> ImportResult:
    """Store row by row in one transaction; faults are collected over all rows, and any of them undoes everything."""
    result, faults, seen = ImportResult(dry_run), [], {}  # type: ignore[var-annotated]
    try:
        with transaction.atomic():
            for row in rows:
                key = "->".join(str(row.values.get(name)) for name in identity)
                if key in seen:
                    faults.append(Fault(row.path, f"{row.place}: {key} stands in {seen[key]} already"))
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


def _placed(row: Row, error: SluiceError) -> list[Fault]:
    names = {"": row.path, "source": f"{row.path}.from", "target": f"{row.path}.to"}
    own = error.faults or (Fault("", error.message),)
    return [Fault(names.get(f.path, f"{row.path}.{f.path}"), f"{row.place}: {f.message}") for f in own]


def _node_values(given: Mapping[str, Any], pools: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    read = Cells(given)
    values = {
        "name": read.text("name", required=True),
        "pool": read.choice("pool", pools, required=True),
        "capacity_cps": read.number("capacity_cps"),
        "cores": read.whole("cores"),
        "state": read.choice("state", {state.value: state.value for state in NodeState}),
        "labels": read.labels("labels"),
    }
    return {name: value for name, value in values.items() if value is not None}, read.faults


def _link_values(given: Mapping[str, Any], nodes: Mapping[str, Node]) -> tuple[dict[str, Any], list[Fault]]:
    read = Cells(given)
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
