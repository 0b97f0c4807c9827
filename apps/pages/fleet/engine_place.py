"""Process of an engine that a node is: a TaskManager, an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.connections.models import Connection
from apps.fleet.models import Node
from apps.pages.connections.looks import Look
from apps.pages.context import url_of
from apps.ui.numbers import Quantity, bytes_size, percent

__all__ = ["NodePlace", "place_of_node"]


@dataclass(frozen=True)
class NodePlace:
    """Place of an engine that a node is."""

    connection: Connection
    noun: str
    place: Mapping[str, Any]

    @property
    def memory(self) -> Quantity:
        return bytes_size(self.place.get("memory_bytes"))

    @property
    def cpu_load(self) -> Quantity:
        return percent(self.place.get("cpu_load"))

    @property
    def url(self) -> str:
        return url_of("pages:connection", self.connection.cluster.slug, self.connection.pk)

    @property
    def at(self) -> datetime:
        return Look(self.connection).at


def place_of_node(node: Node) -> NodePlace | None:
    """The TaskManager or executor that a node is; None for a machine that no engine brought."""
    rows = node.cluster.connections.select_related("cluster").defer("findings")
    connection = next((row for row in rows if row.pool_name == node.pool.name), None)
    if connection is None:
        return None
    look = Look(connection)
    known = {place["id"]: place for place in look.places}
    ids = (job.places.get(node.name) for job in connection.jobs.only("places"))
    place = next((known[place_id] for place_id in ids if place_id in known), None)
    return NodePlace(connection, look.place_noun, place) if place is not None else None
