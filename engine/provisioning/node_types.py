"""Types of nodes that could be bought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.deployment import Node
from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, Listed, Number, Table
from engine.provisioning.changes import MOST_NODES
from engine.tables import CAPACITY, CORES, ID, NOT_NEGATIVE

__all__ = ["NodeType", "node_of", "read_types"]

_FIELDS = (
    Field("name", ID),
    Field("capacity_cps", CAPACITY, required=True, help="cycles/s of one core"),
    Field("cores", CORES),
)
_LIKE = Table("a type", *_FIELDS, Field("price_per_hour", NOT_NEGATIVE, nullable=True))
_PRICED = Table(
    "a type",
    Field("name", ID, required=True),
    *_FIELDS[1:],
    Field("price_per_hour", Number(above=0, most=1e12), required=True),
    Field("max", Number(least=0, most=MOST_NODES, whole=True)),
)
_TYPES = Listed(_PRICED, least=1)
MOST_TYPES = 6


@dataclass(frozen=True)
class NodeType:
    """A type with its price and how many may be had."""

    name: str
    capacity_cps: float
    price_per_hour: float
    cores: int = 1
    max: int = 16

    def node(self, name: str) -> Node:
        return Node(name, self.capacity_cps, None, self.cores, self.name, self.price_per_hour)


def node_of(document: Mapping[str, Any], *, path: str = "like") -> Node:
    """A node from the description of its type.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    record: Any = _LIKE.read(document, "", path, faults)
    if faults or record is BAD:
        raise DocumentError(faults, "question")
    price = record.get("price_per_hour")
    return Node("", record["capacity_cps"], None, record.get("cores", 1), record.get("name"), price)


def read_types(items: Any, *, path: str = "types") -> list[NodeType]:
    """Types with prices, strictly.

    Raises
    ------
    DocumentError
        With every fault: missing prices, names that repeat, too many types.
    """
    faults: list[Fault] = []
    read: Any = _TYPES.read(items, "", path, faults)
    records = [] if read is BAD else [record for record in read if record is not BAD]
    if len(records) > MOST_TYPES:
        faults.append(Fault(path, f"{path} has {len(records)} items; allowed: at most {MOST_TYPES}"))
    seen: set[str] = set()
    for i, record in enumerate(records):
        if record.get("name") in seen:
            faults.append(Fault(f"{path}[{i}].name", f"name {record['name']!r} is given twice; names must differ"))
        seen.add(record.get("name"))
    if faults:
        raise DocumentError(faults, "question")
    return [NodeType(**record) for record in records]
