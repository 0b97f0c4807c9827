"""Frames in the order of their senders: each once, none before its predecessor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

__all__ = ["GIVEN", "WAITING", "Arrival", "Ordered", "arrivals_of", "in_order", "table_of_waiting"]

_PATIENCE_STEPS = 30
_MOST_WAITING_BYTES = 64 * 2**20

#: Frames that wait, as they stand in a state: for the number before them, or for their plan.
WAITING = pa.schema(
    [
        ("id", pa.string()),
        ("agent", pa.string()),
        ("life", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("query", pa.string()),
        ("plan", pa.string()),
        ("entry", pa.int32()),
        ("epoch", pa.int64()),
        ("extra", pa.string()),
        ("body", pa.binary()),
        ("size", pa.int64()),
        ("since", pa.int64()),
    ]
)

#: Frames of a batch, as the driver gets them.
GIVEN = pa.schema([one for one in WAITING if one.name != "since"])


@dataclass(frozen=True)
class Arrival:
    """A frame as it came out of the broker; `body` is None where it stayed with Spark."""

    id: str  #: partition/id of its entry
    agent: str
    life: str
    seq: int
    kind: str
    query: str
    plan: str
    entry: int
    epoch: int
    extra: str
    body: bytes | None
    size: int
    since: int = 0  #: the step at which it began to wait

    @property
    def stretch(self) -> tuple[str, str]:
        """What its number belongs to."""
        return self.agent, self.life

    @property
    def flow(self) -> tuple[str, str]:
        return self.query, self.plan

    @property
    def teller(self) -> str:
        """The agent of which it tells, whose frame a relay may have passed on."""
        return str(self.says.get("origin") or self.agent)

    @property
    def arrived_ms(self) -> int:
        """When Redis took it."""
        return self.place[0]

    @property
    def place(self) -> tuple[int, int]:
        """Its place in its partition."""
        moment, _, count = self.id.partition("/")[2].partition("-")
        return int(moment), int(count or 0)

    @property
    def partition(self) -> str:
        return self.id.partition("/")[0]

    @cached_property
    def says(self) -> Mapping[str, Any]:
        return json.loads(self.extra) if self.extra else {}


@dataclass
class Ordered:
    """What of a batch's frames is due now."""

    due: list[Arrival] = field(default_factory=list)
    early: list[Arrival] = field(default_factory=list)  #: their predecessors are not here yet
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    duplicates: int = 0
    lost: list[str] = field(default_factory=list)  #: gaps nobody waits for any longer, in words


def arrivals_of(rows: pa.Table) -> list[Arrival]:
    """Rows of `GIVEN`, whose `id` names partition and entry."""
    return [Arrival(**row) for row in rows.to_pylist()]


def table_of_waiting(waiting: Iterable[Arrival]) -> pa.Table:
    """Waiting frames as a table of `WAITING`."""
    rows = [{name: getattr(one, name) for name in WAITING.names} for one in waiting]
    return pa.Table.from_pylist(rows, schema=WAITING)


def in_order(arrivals: Iterable[Arrival], positions: Mapping[tuple[str, str], int], step: int) -> Ordered:
    """Frames that follow on what was processed before, in the order of their numbers.

    A number seen before is a duplicate. What stands behind a gap waits for `_PATIENCE_STEPS` steps: the broker closes
    every gap it can, because agents keep what is not committed, so what is not there by then is lost and said to be.
    """
    by_stretch: dict[tuple[str, str], dict[int, Arrival]] = defaultdict(dict)
    found = Ordered(positions=dict(positions))
    for one in arrivals:
        known = by_stretch[one.stretch]
        if one.seq <= positions.get(one.stretch, 0) or one.seq in known:
            found.duplicates += 1
        else:
            known[one.seq] = one
    for stretch, known in by_stretch.items():
        _advance(found, stretch, known, step)
    return found


def _advance(found: Ordered, stretch: tuple[str, str], known: dict[int, Arrival], step: int) -> None:
    position = found.positions.get(stretch, 0)
    while known:
        while (one := known.pop(position + 1, None)) is not None:
            found.due.append(one)
            position += 1
        if not known or not _lost(known, step):
            break
        first = min(known)
        found.lost.append(f"frames {position + 1} to {first - 1} of agent {stretch[0]} never came")
        position = first - 1
    if position:
        found.positions[stretch] = position
    found.early += [one if one.since else replace(one, since=step) for one in known.values()]


def _lost(known: Mapping[int, Arrival], step: int) -> bool:
    """Whether what waits behind a gap has waited long enough, or is too much to wait on."""
    waited = max((step - one.since for one in known.values() if one.since), default=0)
    return waited >= _PATIENCE_STEPS or sum(one.size for one in known.values()) > _MOST_WAITING_BYTES
