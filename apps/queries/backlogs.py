"""Backlogs of queries: events that wait at their inputs, stated or measured, with the time of reading."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from pydantic import Field

from apps.core.errors import Fault, Malformed, fault_count
from apps.queries.models import Query
from engine.document.elements import MEASURED, STATED, Backlog, BehindS, Events, backlog_faults
from engine.document.elements import Operator as EngineOperator
from engine.document.kinds import ID
from engine.errors import Fault as EngineFault
from engine.kinds import String
from engine.records import BAD, Record, Words

__all__ = [
    "AgedBacklog",
    "backlog_content",
    "backlogs_measure",
    "backlogs_of",
    "backlogs_update",
    "candidate_backlogs",
    "set_backlogs",
    "with_backlogs",
]

_AMOUNTS = ("events", "behind_s")
_STEP = 1.5  # backlogs that differ by less give a preview the same basis
_NEGLIGIBLE_S = 5.0  # a backlog that comes in less is on its way, and no part of a preview's basis
_FUTURE = timedelta(seconds=60)  # by which clocks may be apart


@dataclass(frozen=True, kw_only=True)
class BacklogStatement(Record):
    """Events that wait at an input, as somebody states them."""

    TITLE: ClassVar[str] = "a backlog"
    JUDGES_PARTS: ClassVar[bool] = True

    operator: Annotated[
        Annotated[str, ID] | None, Words("operator at whose input events wait; any that reads it unless given")
    ] = None
    source: Annotated[str, ID, Field(alias="from"), Words("source or operator that the input reads")]
    events: Events | None = None
    behind_s: BehindS | None = None
    read_at: Annotated[Annotated[str, String()] | None, Words("ISO 8601; now unless given")] = None

    def find_faults(self) -> Iterator[EngineFault]:
        """Neither how many events wait nor for how long."""
        yield from backlog_faults(self.events, self.behind_s)


@dataclass(frozen=True)
class StoredBacklog(Record):
    """Events that wait at an input of a query; without an operator, at that of any that reads the source."""

    TITLE: ClassVar[str] = "a stored backlog"

    operator: str
    source: Annotated[str, Field(alias="from")]
    events: float | None
    behind_s: float | None
    origin: str
    read_at: str

    @property
    def key(self) -> tuple[str, str]:
        return self.operator, self.source

    def at(self, now: datetime) -> Backlog:
        """As the engine has it, with its age."""
        age_s = max(0.0, (now - datetime.fromisoformat(self.read_at)).total_seconds())
        return Backlog(self.events, self.behind_s, age_s, self.origin)


@dataclass(frozen=True)
class AgedBacklog(StoredBacklog):
    """A backlog with its age; one that is stale is too old to be used."""

    age_s: float | None
    is_stale: bool


def _stored(query: Query) -> list[StoredBacklog]:
    return [StoredBacklog.parse(row) for row in query.backlogs]


def _documents(backlogs: Iterable[StoredBacklog]) -> list[object]:
    return [backlog.to_dict() for backlog in backlogs]


def backlogs_of(query: Query, now: datetime | None = None) -> list[AgedBacklog]:
    """Backlogs of a query with their age."""
    now = now or timezone.now()
    aged = [(row, row.at(now)) for row in _stored(query)]
    return [AgedBacklog(**vars(row), age_s=backlog.age_s, is_stale=backlog.is_stale) for row, backlog in aged]


@transaction.atomic
def backlogs_update(*, query: Query, backlogs: Any, now: datetime | None = None) -> Query:
    """State what waits at a query's inputs, in place of everything stated or measured before; none: nothing waits.

    Parameters
    ----------
    backlogs : list of mappings
        `from`, and `operator` where one input of several is meant; `events`, `behind_s` or both; `read_at` (ISO 8601).

    Raises
    ------
    Malformed
        With every fault; nothing is changed then.
    """
    from apps.queries.services import query_announce  # definitions store backlogs of bodies

    if not isinstance(backlogs, Sequence) or isinstance(backlogs, (str, bytes)):
        raise Malformed("backlogs: allowed is a list of objects.", [("backlogs", "allowed: a list of objects")])
    query.refresh_from_db(from_queryset=Query.objects.select_for_update())
    now = now or timezone.now()
    faults: list[EngineFault] = []
    inputs = _inputs(query)
    rows: dict[tuple[str, str], StoredBacklog] = {}
    for i, body in enumerate(backlogs):
        row = _read(body, i, inputs, now, faults)
        if row is not None:
            if row.key in rows:
                faults.append(EngineFault(f"backlogs[{i}]", f"the backlog of {row.source!r} stands twice"))
            rows[row.key] = row
    if faults:
        listed = [Fault(fault.path, fault.message) for fault in faults]
        raise Malformed(f"The backlogs have {fault_count(faults)}; first: {faults[0]}", listed)
    query.backlogs = _documents(rows.values())
    query.save(update_fields=["backlogs", "updated_at"])
    query_announce(query)
    return query


def backlogs_measure(
    *, query: Query, events: Mapping[str, float], read_at: datetime, behind_s: Mapping[str, float] | None = None
) -> bool:
    """Store what was read to wait at a query's sources; of others, and of what was read later, all stays as it is.

    Returns
    -------
    bool
        Whether what a preview rests on has changed.
    """
    since = behind_s or {}
    before = backlog_content(query)
    rows = {row.key: row for row in _stored(query)}
    for source, count in events.items():
        known = rows.get(("", source))
        if known is None or datetime.fromisoformat(known.read_at) <= read_at:
            amounts = float(count), since.get(source)
            rows["", source] = StoredBacklog("", source, *amounts, MEASURED, read_at.isoformat())
    query.backlogs = _documents(rows.values())
    if backlog_content(query) != before:
        query.save(update_fields=["backlogs"])
        return True
    Query.objects.filter(pk=query.pk).update(backlogs=query.backlogs)  # nobody who watches queries has to hear of it
    return False


def set_backlogs(query: Query, operators: Iterable[EngineOperator], now: datetime) -> bool:
    """Set what the inputs of a body say, in place of what was known of them; whether they say anything."""
    rows = {row.key: row for row in _stored(query)}
    changed = False
    for operator in operators:
        for entry in operator.inputs:
            if entry.backlog is not None:
                backlog, read_at = entry.backlog, now - timedelta(seconds=entry.backlog.age_s or 0.0)
                amounts = backlog.events, backlog.behind_s, backlog.origin
                row = StoredBacklog(operator.id, entry.source, *amounts, read_at.isoformat())
                rows[row.key], changed = row, True
    if changed:
        query.backlogs = _documents(rows.values())
    return changed


def with_backlogs(query: Query, operators: Sequence[EngineOperator], now: datetime) -> tuple[EngineOperator, ...]:
    """Operators of a running query with what waits at their inputs; those without are the same objects."""
    if not query.backlogs:
        return tuple(operators)
    changed = []
    for operator in operators:
        inputs = tuple(
            replace(entry, backlog=_found(query, operator.id, entry.source, now) or entry.backlog)
            for entry in operator.inputs
        )
        same = all(entry.backlog is None for entry in inputs)
        changed.append(operator if same else replace(operator, inputs=inputs))
    return tuple(changed)


def candidate_backlogs(query: Query, operators: Sequence[Any], now: datetime) -> None:
    """Fill in what waits at the inputs of a candidate's operators, as they stand in its document."""
    for operator in operators if query.backlogs else ():
        for entry in operator["inputs"]:
            backlog = _found(query, operator["id"], entry["from"], now)
            if backlog is not None:
                amounts = {"events": backlog.events, "behind_s": backlog.behind_s, "age_s": backlog.age_s}
                known = {name: value for name, value in amounts.items() if value is not None}
                entry["backlog"] = known | {"origin": backlog.origin}


def backlog_content(query: Query) -> str:
    """Short words for what waits, for a preview's basis: sizes in steps, without age; empty where nothing does."""
    parts = []
    for row in _stored(query):
        amounts = [_step(row.events), _step(row.behind_s)]
        if (row.behind_s is None or row.behind_s >= _NEGLIGIBLE_S) and any(amounts):
            parts.append(f"{row.operator}<{row.source}:{'/'.join(amounts)}")
    return ",".join(sorted(parts)).replace(" ", "_")


def _step(value: float | None) -> str:
    return str(round(math.log(value, _STEP))) if value else ""


def _found(query: Query, operator: str, stream: str, now: datetime) -> Backlog | None:
    """Backlog of an input by its names in documents; one of the operator comes before one of all readers."""
    found = None
    for row in _stored(query):
        if stream in _names(query, row.source) and (not row.operator or operator in _names(query, row.operator)):
            found = row if found is None or row.operator else found
    return None if found is None else found.at(now)


def _names(query: Query, name: str) -> tuple[str, ...]:
    """Names that an operator or a source of the query has in documents."""
    return name, f"{query.name}/{name}", f"{name}@{query.name}"


def _inputs(query: Query) -> set[tuple[str, str]]:
    """Inputs of the version that runs, or else of the newest, by operator and by what they read."""
    version = query.running_version or query.versions.first()
    rows = () if version is None else version.operators.prefetch_related("inputs__upstream")
    return {
        (row.name, entry.upstream.name if entry.upstream else entry.source_id)
        for row in rows
        for entry in row.inputs.all()
    }


def _read(
    body: Any, i: int, inputs: set[tuple[str, str]], now: datetime, faults: list[EngineFault]
) -> StoredBacklog | None:
    """One entry as it is kept; None where it has faults."""
    path, before = f"backlogs[{i}]", len(faults)
    record = BacklogStatement.read_parts(body, "backlogs", i, faults)
    if record is BAD:
        return None
    read_at = _moment(record.read_at, path, now, faults)
    operator, stream = record.operator or "", record.source
    known = {name for name, _ in inputs}
    if operator is not BAD and operator and operator not in known:
        faults.append(EngineFault(f"{path}.operator", f"operator is {operator!r}; allowed: {', '.join(sorted(known))}"))
    streams = sorted({read for name, read in inputs if operator in ("", name)})
    if len(faults) == before and stream not in streams:
        faults.append(EngineFault(f"{path}.from", f"from is {stream!r}; allowed: {', '.join(streams)}"))
    if len(faults) > before:
        return None
    return StoredBacklog(operator, stream, record.events, record.behind_s, STATED, read_at.isoformat())


def _moment(text: Any, path: str, now: datetime, faults: list[EngineFault]) -> datetime:
    if text is None or text is BAD:
        return now
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or timezone.is_naive(moment) or moment > now + _FUTURE:
        allowed = "ISO 8601 with its zone, such as 2026-03-01T12:00:00Z, and no time to come"
        faults.append(EngineFault(f"{path}.read_at", f"read_at is {text!r}; allowed: {allowed}"))
        return now
    return min(moment, now)
