"""Incidents brought up to date with objectives and engines: late queries by cause, opened at once, resolved late.

Hysteresis keeps states that flap from opening one incident after the other: a query stays in its incident until it was
well for `CLEAR_S`, takes another cause only once that was named for `MOVE_S`, and a cause that comes back within
`REOPEN_S` opens its last incident again. An engine that is away for longer than some polls is an incident without
queries, until it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.connections.choices import ConnectionState
from apps.connections.models import Connection
from apps.connections.selectors import engines_lost
from apps.core.clock import shared_now
from apps.core.events import announce
from apps.estimates.choices import DecidedBy, MeasurementLack
from apps.estimates.models import ObjectiveStatus
from apps.estimates.objectives import objectives_judged
from apps.estimates.words import cause_sentence, evidence_words
from apps.fleet.models import Cluster
from apps.incidents.books import books_changed_at, measured_at
from apps.incidents.choices import IncidentEventKind, IncidentSeverity, IncidentState, NoticeEvent
from apps.incidents.models import Incident, IncidentChannel, IncidentEvent, IncidentQuery, IncidentRouting
from apps.incidents.notices import incident_notify, look_for_remedies
from apps.queries.choices import ObjectiveState, QueryState
from apps.telemetry.selectors import queries_driven
from engine.measurement.causes import ENGINE_AWAY, UNEXPLAINED, LatenessCause

__all__ = ["CLEAR_S", "MOVE_S", "REOPEN_S", "connect", "incidents_refresh"]

CLEAR_S = 300.0  #: a query is well for so long before it leaves
MOVE_S = 120.0  #: another cause is named for so long before it is believed
REOPEN_S = 900.0  #: a cause that comes back within this time opens its incident again

_UNCERTAIN = (MeasurementLack.STALE, MeasurementLack.FEW, MeasurementLack.DISTURBED)
_RANK = {ObjectiveState.HOLDS: 0, ObjectiveState.UNKNOWN: 0, ObjectiveState.AT_RISK: 1, ObjectiveState.BREACHED: 2}
_Key = tuple[str, str]
_BATCH = 500  # rows of one statement
_TRIES = 3
_ACKNOWLEDGED = ("acknowledged_at", "acknowledged_by", "note", "done_at")  # people write these, whatever a round is at


def connect() -> None:
    """Called once, when the app is ready: incidents follow whenever objectives were judged."""
    objectives_judged.connect(_judged, dispatch_uid="incidents.refresh")


def _judged(sender: Any, *, cluster: Cluster, now: datetime, **_: Any) -> None:
    incidents_refresh(cluster, now=now)


def _late_rows(cluster: Cluster) -> QuerySet[ObjectiveStatus]:
    rows = ObjectiveStatus.objects.filter(query__cluster=cluster, query__state=QueryState.RUNNING)
    return rows.filter(state__in=[ObjectiveState.BREACHED, ObjectiveState.AT_RISK])


def late_statuses(cluster: Cluster) -> list[ObjectiveStatus]:
    """Statuses of a cluster's running queries that are late or may be, the worst first."""
    listed = _late_rows(cluster).select_related("query", "estimate").defer("estimate__series", "estimate__result")
    return sorted(listed, key=lambda row: (-_RANK[ObjectiveState(row.state)], row.headroom_share or 0.0, row.pk))


def incidents_refresh(cluster: Cluster, now: datetime | None = None) -> None:
    """Open, change and resolve a cluster's incidents by the states of its objectives and of its engines.

    A round is worked out without a transaction, and stored by a short one if what it was worked out from is still in
    force. What has moved meanwhile is worked out again; of what moves each time the next round is believed. Where all
    is well and nothing is open, no transaction begins.
    """
    present = now or shared_now()
    is_open = Incident.objects.filter(cluster=cluster, state=IncidentState.OPEN).exists()
    if not (is_open or _late_rows(cluster).exists() or engines_lost(cluster, present)):
        return
    for _ in range(_TRIES):
        basis = _basis(cluster, present)
        refresh = _Refresh(cluster, present)
        refresh.work_out()
        if _keep(refresh, basis):
            for incident in refresh.unhelped:
                look_for_remedies(incident)
            return


@transaction.atomic
def _keep(refresh: _Refresh, basis: _Basis) -> bool:
    """Store a round; False where it was worked out from what is gone by now."""
    cluster = refresh.cluster
    Cluster.objects.select_for_update(no_key=True).filter(pk=cluster.pk).first()  # one at a time
    if _basis(cluster, refresh.now) != basis:
        return False
    refresh.store()
    if refresh.has_changed:
        announce(f"incidents:{cluster.slug}")
        announce("incidents")
        announce(f"cluster:{cluster.slug}")
    return True


class _Basis(NamedTuple):
    """Rows that a round rests on, each by its key and what changes with it."""

    late: list[tuple[int, datetime]]
    incidents: list[tuple[int, str, datetime]]
    members: list[int]
    engines: list[tuple[int, str]]


def _basis(cluster: Cluster, now: datetime) -> _Basis:
    members = IncidentQuery.objects.filter(incident__in=_incidents(cluster, now))
    return _Basis(
        list(_late_rows(cluster).order_by("pk").values_list("pk", "updated_at")),
        list(_incidents(cluster, now).order_by("pk").values_list("pk", "state", "updated_at")),
        list(members.order_by("pk").values_list("pk", flat=True)),
        [(row.pk, row.state) for row in engines_lost(cluster, now)],
    )


def _incidents(cluster: Cluster, now: datetime) -> QuerySet[Incident]:
    """Incidents that are open, or may open again."""
    is_recent = Q(state=IncidentState.RESOLVED, resolved_at__gt=now - timedelta(seconds=REOPEN_S))
    return Incident.objects.filter(Q(state=IncidentState.OPEN) | is_recent, cluster=cluster)


class _Refresh:
    """One round over a cluster: worked out in memory, and stored while the caller has the cluster's row locked.

    Rows are stored together, by as many statements for a thousand late queries as for one: queries and new incidents
    before readers are told, whose messages read them, the rest at the end.
    """

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self.cluster = cluster
        self.now = now
        self.has_changed = False
        self.tells = any(model.objects.filter(cluster=cluster).exists() for model in (IncidentRouting, IncidentChannel))
        rows = list(_incidents(cluster, now).order_by("resolved_at"))
        closed = [row for row in rows if row.state == IncidentState.RESOLVED]
        self.closed: dict[_Key, Incident] = {self._key(row): row for row in closed}
        self.incidents: dict[_Key, Incident] = {self._key(row): row for row in rows if row.is_open}
        by_pk = {row.pk: row for row in (*self.closed.values(), *self.incidents.values())}
        members = IncidentQuery.objects.filter(incident__in=rows).select_related("query")
        self.members: dict[int, IncidentQuery] = {}
        self.former: dict[tuple[int, int], IncidentQuery] = {}  # those that left, by incident and query
        for member in members:
            if member.incident_id not in by_pk:
                continue
            member.incident = by_pk[member.incident_id]  # one object for each, so that no change is lost
            if member.ended_at is None and member.incident.state == IncidentState.OPEN:
                self.members[member.query_id] = member
            else:
                self.former[member.incident_id, member.query_id] = member
        self.statuses: dict[int, ObjectiveStatus] = {}
        self.changed: dict[int, Incident | IncidentQuery] = {}  # by identity, in order
        self.events: list[IncidentEvent] = []
        self.begun: set[int] = set()  # incidents that open, or take another cause, in this round
        self.renamed: list[Incident] = []
        self.unhelped: list[Incident] = []  # those whose mails wait for what helps

    def work_out(self) -> None:
        """Take the late in, let the others go, and note the engines that are away."""
        late = late_statuses(self.cluster)
        for status in late:
            self._take(status)
        gone = self.members.keys() - {status.query_id for status in late}
        statuses = ObjectiveStatus.objects.filter(query__in=gone).select_related("query") if gone else ()
        self.statuses = {row.query_id: row for row in statuses}
        for query_id in gone:
            self._look_away(self.members[query_id])
        for connection in engines_lost(self.cluster, self.now):
            self._lose(connection)

    def store(self) -> None:
        """Store that, then settle every open incident; after that the engines."""
        for incident in self.renamed:  # first: its former cause may be that of a new one
            incident.save(update_fields=["cause_kind", "cause_subject", "cause", "updated_at"])
        self._store()
        active: dict[int, list[IncidentQuery]] = {}
        for member in self.members.values():
            active.setdefault(member.incident_id, []).append(member)
        for incident in self._open(of_engines=False):
            self._settle(incident, active.get(incident.pk, []))
        self._regain(self._open(of_engines=True))
        self._store()
        IncidentEvent.objects.bulk_create(self.events, batch_size=_BATCH)

    def _store(self) -> None:
        """Store what has changed: incidents first, which queries refer to."""
        rows, self.changed = list(self.changed.values()), {}
        for model, kept in ((Incident, _ACKNOWLEDGED), (IncidentQuery, ())):
            own = [row for row in rows if isinstance(row, model)]
            new = [row for row in own if row._state.adding]
            known = [row for row in own if not row._state.adding]
            columns = [column.name for column in model._meta.concrete_fields if not column.primary_key]
            model._default_manager.bulk_create(
                known,
                batch_size=_BATCH,
                update_conflicts=True,
                unique_fields=["id"],
                update_fields=[name for name in columns if name not in kept],
            )
            model._default_manager.bulk_create(new, batch_size=_BATCH)

    def _touch(self, row: Incident | IncidentQuery) -> None:
        self.changed[id(row)] = row

    def _open(self, *, of_engines: bool) -> list[Incident]:
        return [row for row in self.incidents.values() if (row.cause_kind == ENGINE_AWAY) == of_engines]

    # -- late queries
    def _take(self, status: ObjectiveStatus) -> None:
        member = self.members.get(status.query_id)
        if member is None:
            self._note_measured(self._join(status, self._incident_of(status)).incident, status)
            return
        if status.cause_key != self._key(member.incident):
            member = self._move(member, status)
        else:
            member.other_cause, member.other_since = {}, None
            self._note_cause(member.incident, status)
        self._worsen(member, status)
        self._note_measured(member.incident, status)

    def _note_measured(self, incident: Incident, status: ObjectiveStatus) -> None:
        """An incident that estimates expected is there once one of its queries is late by measurement."""
        if incident.measured or status.decided_by != DecidedBy.MEASUREMENT:
            return
        incident.measured, self.has_changed = True, True
        self._touch(incident)
        if id(incident) not in self.begun:
            self._event(incident, IncidentEventKind.MEASURED, status.query.name, evidence_words(status))

    def _incident_of(self, status: ObjectiveStatus) -> Incident:
        return self._with_cause(status.cause_key, _cause(status), _severity(status.state))

    def _with_cause(self, key: _Key, cause: LatenessCause, severity: IncidentSeverity) -> Incident:
        return self.incidents.get(key) or self._reopened(key, cause) or self._opened(key, cause, severity)

    def _opened(self, key: _Key, cause: LatenessCause, severity: IncidentSeverity) -> Incident:
        incident = Incident(
            cluster=self.cluster,
            cause_kind=key[0],
            cause_subject=key[1],
            cause=cause.to_dict(),
            severity=severity,
            opened_at=self.now,
            last_late_at=self.now,
            measured=key[0] == ENGINE_AWAY,  # it was asked, and did not answer
        )
        self._put(key, incident)
        self._event(incident, IncidentEventKind.OPENED, text=cause_sentence(cause))
        return incident

    def _reopened(self, key: _Key, cause: LatenessCause) -> Incident | None:
        incident = self.closed.pop(key, None)
        if incident is None:
            return None
        incident.state, incident.resolved_at, incident.last_late_at = IncidentState.OPEN, None, self.now
        incident.cause, incident.measured = cause.to_dict(), key[0] == ENGINE_AWAY
        self._put(key, incident)
        self._event(incident, IncidentEventKind.REOPENED, text=cause_sentence(cause))
        return incident

    def _put(self, key: _Key, incident: Incident) -> None:
        self.incidents[key] = incident
        self._touch(incident)
        self.has_changed = True
        self.begun.add(id(incident))

    def _join(self, status: ObjectiveStatus, incident: Incident) -> IncidentQuery:
        member = self.former.pop((incident.pk, status.query_id), None)
        if member is None:
            member = IncidentQuery(incident=incident, query=status.query, first_at=self.now, **self._fields(status))
        else:  # it was part of it before, and is again
            member.ended_at = None
            _fill(member, self._fields(status, member))
        self._touch(member)
        self.members[status.query_id] = member
        self.has_changed = True
        kind = IncidentEventKind.EXPECTED if status.is_expected else IncidentEventKind.JOINED
        self._event(incident, kind, status.query.name, evidence_words(status))
        return member

    def _fields(self, status: ObjectiveStatus, before: IncidentQuery | None = None) -> dict[str, object]:
        values = [value for value in (status.value_s, before.worst_s if before else None) if value is not None]
        states = [ObjectiveState(row.state) for row in (status, before) if row is not None]
        return {
            "last_late_at": self.now,
            "unconfirmed_at": None,
            "state": max(states, key=lambda state: _RANK[state]),
            "measured": status.decided_by == DecidedBy.MEASUREMENT or bool(before and before.measured),
            "bound_s": status.bound_s,
            "worst_s": max(values, default=None),
            "evidence": evidence_words(status)[:300],
        }

    def _worsen(self, member: IncidentQuery, status: ObjectiveStatus) -> None:
        is_worse = _RANK[ObjectiveState(status.state)] > _RANK[ObjectiveState(member.state)]
        _fill(member, self._fields(status, member))
        member.incident.last_late_at = self.now
        self._touch(member)
        if is_worse:
            self.has_changed = True
            self._event(member.incident, IncidentEventKind.WORSE, status.query.name, evidence_words(status))

    # -- causes
    def _note_cause(self, incident: Incident, status: ObjectiveStatus) -> None:
        """The newest figures of a cause that has stayed the same."""
        incident.cause = _cause(status).to_dict()

    def _move(self, member: IncidentQuery, status: ObjectiveStatus) -> IncidentQuery:
        """Another cause is named of a query: believe it once it was named for long enough."""
        key, incident = status.cause_key, member.incident
        named = {"kind": key[0], "subject": key[1]}
        if member.other_cause != named or member.other_since is None:
            member.other_cause, member.other_since = named, self.now
            return member
        if (self.now - member.other_since).total_seconds() < MOVE_S:
            return member
        member.other_cause, member.other_since = {}, None
        is_alone = not any(other.incident is incident for pk, other in self.members.items() if pk != member.query_id)
        if is_alone and key not in self.incidents:
            self._rename(incident, key, status)
            return member
        self._leave(member)
        self._event(incident, IncidentEventKind.MOVED, status.query.name, cause_sentence(_cause(status)))
        return self._join(status, self._incident_of(status))

    def _rename(self, incident: Incident, key: _Key, status: ObjectiveStatus) -> None:
        """The incident of one query has become that of another cause."""
        del self.incidents[self._key(incident)]
        incident.cause_kind, incident.cause_subject, incident.cause = *key, _cause(status).to_dict()
        self.renamed.append(incident)
        self._put(key, incident)
        self._event(incident, IncidentEventKind.CAUSE, text=cause_sentence(_cause(status)))

    def _leave(self, member: IncidentQuery) -> None:
        member.ended_at = self.now
        self.former[member.incident_id, member.query_id] = member
        self._touch(member)

    @staticmethod
    def _key(incident: Incident) -> _Key:
        return incident.cause_kind, incident.cause_subject

    # -- queries that are late no more
    def _look_away(self, member: IncidentQuery) -> None:
        """Let a query go that is well for long enough.

        One that was measured late is not well because nothing measures it any more: what delays results may also stop
        them. Only after an hour without a result, or when it does not run, does the estimate's word count. Of one that
        cannot be observed, or of whose latency nothing is known, nobody knows that it is well.
        """
        status = self.statuses.get(member.query_id)
        is_running = member.query.state == QueryState.RUNNING
        is_hidden = status is not None and status.state == ObjectiveState.UNKNOWN
        is_unsure = member.measured and status is not None and status.lacking in _UNCERTAIN
        if is_running and (is_hidden or is_unsure):
            member.last_late_at = self.now
            self._touch(member)
            return
        if is_running and (self.now - member.last_late_at).total_seconds() < CLEAR_S:
            return
        if is_running and self._is_unconfirmed(member, status):
            return
        self._leave(member)
        del self.members[member.query_id]
        self.has_changed = True
        text = evidence_words(status) if status is not None and is_running else "It does not run any more."
        self._event(member.incident, IncidentEventKind.LEFT, member.query.name, text)

    def _is_unconfirmed(self, member: IncidentQuery, status: ObjectiveStatus | None) -> bool:
        """Whether a query is well on paper alone: by its estimate, after it was measured late, or after a person
        changed the books of what Sluice does not drive. It stays until something was measured since, or a person says
        that it was done.
        """
        if status is None or status.decided_by != DecidedBy.ESTIMATE or not status.bound_s:
            return False
        if member.unconfirmed_at is None:
            since = self.now if member.measured else self._mended_at(member)
            if since is None:
                return False
            member.unconfirmed_at, self.has_changed = since, True
            self._touch(member)
            self._event(member.incident, IncidentEventKind.UNCONFIRMED, member.query.name, evidence_words(status))
        done_at, since = member.incident.done_at, member.unconfirmed_at
        is_done = done_at is not None and done_at >= since
        is_measured = self.measured_at is not None and self.measured_at > since
        return not is_done and (member.measured or not is_measured)

    def _mended_at(self, member: IncidentQuery) -> datetime | None:
        """When the books were changed since it was late last; None where they were not, or what they say happens.

        It may look late for a while after the change that mends it, until it is estimated anew.
        """
        since = member.last_late_at - timedelta(seconds=CLEAR_S)
        is_mended = self.books_changed_at is not None and self.books_changed_at > since
        return self.books_changed_at if is_mended and not queries_driven([member.query_id]) else None

    @cached_property
    def books_changed_at(self) -> datetime | None:
        return books_changed_at(self.cluster)

    @cached_property
    def measured_at(self) -> datetime | None:
        return measured_at(self.cluster)

    # -- engines
    def _lose(self, connection: Connection) -> None:
        cause = engine_cause(connection, self.now)
        incident = self._with_cause((ENGINE_AWAY, connection.name), cause, IncidentSeverity.WARNING)
        incident.cause = cause.to_dict()

    def _regain(self, incidents: Sequence[Incident]) -> None:
        """End the incidents of engines that are back, and tell readers of the others."""
        back = engines_back(self.cluster, [incident.cause_subject for incident in incidents])
        for incident in incidents:
            if incident.cause_subject in back:
                self._resolve(incident, back[incident.cause_subject])
                continue
            incident.last_late_at = self.now
            self._notify(incident, NoticeEvent.OPENED)
            self._touch(incident)

    # -- whole incidents
    def _settle(self, incident: Incident, active: Sequence[IncidentQuery]) -> None:
        """Severity, readers, and the end."""
        if not active:
            self._resolve(incident)
            return
        severity = _worst(member.state for member in active)
        if severity != incident.severity:
            incident.severity = severity
            self.has_changed = True
        self._notify(incident, NoticeEvent.OPENED)
        self._touch(incident)

    def _resolve(self, incident: Incident, reason: str = "") -> None:
        incident.state, incident.resolved_at = IncidentState.RESOLVED, self.now
        del self.incidents[self._key(incident)]
        self.has_changed = True
        self._event(incident, IncidentEventKind.RESOLVED, text=reason)
        if incident.notified:
            incident_notify(incident, NoticeEvent.RESOLVED, now=self.now)
            incident.notified = ""
        self._touch(incident)

    def _notify(self, incident: Incident, event: NoticeEvent) -> None:
        """Tell readers once that it is open, and once more when it has become critical."""
        if not self.tells or incident.notified == incident.severity or incident.notified == IncidentSeverity.CRITICAL:
            return
        said = NoticeEvent.ESCALATED if incident.notified else event
        telling = incident_notify(incident, said, now=self.now)
        if telling.is_told:
            incident.notified = incident.severity
        if telling.waits_for_remedies:
            self.unhelped.append(incident)

    def _event(self, incident: Incident, kind: IncidentEventKind, query: str = "", text: str = "") -> None:
        self.events.append(IncidentEvent(incident=incident, at=self.now, kind=kind, query_name=query, text=text[:300]))


def _fill(member: IncidentQuery, fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        setattr(member, name, value)


def _cause(status: ObjectiveStatus) -> LatenessCause:
    return next(iter(status.lateness), LatenessCause(UNEXPLAINED))


def _severity(state: str) -> IncidentSeverity:
    return IncidentSeverity.CRITICAL if state == ObjectiveState.BREACHED else IncidentSeverity.WARNING


def _worst(states: Iterable[str]) -> IncidentSeverity:
    return min((_severity(state) for state in states), key=list(IncidentSeverity).index)


#: Between a change of the connection and its next poll it is not known yet whether the engine is back.
_NOT_BACK = (ConnectionState.AWAY, ConnectionState.REFUSED, ConnectionState.NEW)


def engines_back(cluster: Cluster, names: list[str]) -> Mapping[str, str]:
    """Of connections by name, those of which nobody waits for an answer any more, each with the reason."""
    states = dict(cluster.connections.filter(name__in=names).values_list("name", "state"))
    reasons = {
        name: "It answers again." if states.get(name) == ConnectionState.CONNECTED else "It is not asked any more."
        for name in names
    }
    return {name: reason for name, reason in reasons.items() if states.get(name) not in _NOT_BACK}


def engine_cause(connection: Connection, now: datetime) -> LatenessCause:
    """Cause of an incident: since when the engine is away, and how many running queries go on with old statistics."""
    return LatenessCause(
        ENGINE_AWAY,
        connection.name,
        seconds=(now - connection.state_since).total_seconds(),
        amount=connection.jobs.filter(query__state=QueryState.RUNNING).count(),
        state=connection.state,
    )
