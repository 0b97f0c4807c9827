"""Queue of a cluster: who waits, in which order, behind whom, and for how long yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Annotated, ClassVar

from django.db.models import F

from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.policies.selectors import policy_of, team_of
from engine.policies.facts import PolicyFacts
from engine.policies.policy import ClusterPolicy
from engine.policies.queue_order import QueuedEntry, is_overdue, queue_order
from engine.policies.quotas import CORES, POOL, QUERIES, TeamDemand
from engine.policies.waits import MIN_WAITS, ExpectedWait, expected_wait
from engine.records import Record, Words

__all__ = ["ClusterQueue", "QueuePlace", "cluster_queue"]

_PAST = 200  # waits that are over, the newest


@dataclass(frozen=True)
class QueuePlace(Record):
    """Place of a request in the queue of its cluster."""

    TITLE: ClassVar[str] = "a place in the queue"

    place: Annotated[int, Words("1 is the next.")]
    ahead: Annotated[tuple[str, ...], Words("Requests before it, such as checkout v3; the first ten.")]
    waited_s: Annotated[float, Words("Since it came into the queue.", unit="s")]
    is_overdue: Annotated[bool, Words("Whether it has waited so long that nothing may overtake it.")]
    waits_behind: Annotated[tuple[str, ...], Words("Overdue requests that it may not overtake.")]
    priority_class: Annotated[str, Words("Class of its priority; empty: none.")]
    team: Annotated[str, Words("Its team; empty: none.")]
    why: Annotated[str, Words("Why it waits, as of its last look.")]
    expected_wait: Annotated[
        ExpectedWait | None, Words("What is left of its wait, as earlier waits went; null: too few are known.")
    ] = None


@dataclass(frozen=True)
class ClusterQueue:
    """The queue of a cluster in its order, at a moment. A group is one entry, that of its first member."""

    cluster: Cluster
    policy: ClusterPolicy
    now: datetime
    members: Mapping[str, Sequence[AdmissionRequest]]  #: of each entry, by its key
    order: Sequence[QueuedEntry]
    usage: Mapping[str, TeamDemand]
    capacities: Mapping[str, float]
    past_s: Sequence[float]

    @property
    def requests(self) -> list[AdmissionRequest]:
        """The request of each entry, in their order."""
        return [self.members[entry.key][0] for entry in self.order]

    def ahead_of(self, request: AdmissionRequest) -> list[AdmissionRequest]:
        """Requests that come before one in the order, about other queries; one that does not wait comes now.

        Of a group that waits these are all its members.
        """
        order, key = self.order, _key(request)
        if self.order and key not in self.members:
            newest = replace(_entry(request.members, self.policy, None), asked_s=self.now.timestamp())
            overdue_s = self.policy.queue.overdue_after_s
            order = queue_order([*order, newest], self.usage, self.capacities, self.now.timestamp(), overdue_s)
        before = takewhile(lambda entry: entry.key != key, order)
        others = [member for entry in before for member in self.members[entry.key]]
        own = {member.query_id for member in request.members}
        return [row for row in others if row.query_id not in own]

    def overdue_ahead(self, request: AdmissionRequest) -> tuple[str, ...]:
        """Overdue requests that one may not overtake: those ahead of it, or all where it does not wait itself."""
        names, own = [], {member.query_id for member in request.members}
        for entry in takewhile(lambda entry: entry.key != _key(request), self.order):
            if self._is_overdue(entry):
                names += [str(row.version) for row in self.members[entry.key] if row.query_id not in own]
        return tuple(names)

    def place_of(self, request: AdmissionRequest) -> QueuePlace | None:
        """Place of a request; None where it does not wait."""
        place = next((i for i, entry in enumerate(self.order) if entry.key == _key(request)), None)
        if place is None:
            return None
        entry, row = self.order[place], self.requests[place]
        waited_s = max(0.0, self.now.timestamp() - entry.asked_s)
        own_class = self.policy.class_of(min(member.query.priority for member in self.members[_key(row)]))
        return QueuePlace(
            place + 1,
            tuple(str(row.version) for entry in self.order[:place] for row in self.members[entry.key])[:10],
            waited_s,
            self._is_overdue(entry),
            self.overdue_ahead(row),
            own_class.name if own_class else "",
            team_of(row.query),
            _why(row),
            expected_wait(self.past_s, waited_s),
        )

    @property
    def places(self) -> list[tuple[AdmissionRequest, QueuePlace]]:
        """Every request with its place, in their order."""
        return [(row, place) for row in self.requests if (place := self.place_of(row)) is not None]

    @property
    def calibration(self) -> ExpectedWait | None:
        """Expected wait of who comes now; None where too few waits are over."""
        return expected_wait(self.past_s)

    @property
    def needed_waits(self) -> int:
        """Waits that are lacking before anything is said of the next."""
        return max(0, MIN_WAITS - len(self.past_s))

    def _is_overdue(self, entry: QueuedEntry) -> bool:
        return is_overdue(entry, self.now.timestamp(), self.policy.queue.overdue_after_s)


def cluster_queue(cluster: Cluster) -> ClusterQueue:
    """The queue of a cluster as it is now."""
    policy, now = policy_of(cluster), shared_now()
    rows = AdmissionRequest.objects.filter(cluster=cluster, state=AdmissionState.QUEUED)
    units: dict[str, list[AdmissionRequest]] = {}
    for row in rows.select_related(*_RELATED).defer("curves", "snapshot_parts").order_by("place"):
        units.setdefault(_key(row), []).append(row)
    entries, usage, pools = [], dict[str, TeamDemand](), dict[str, float]()
    for members in sorted(units.values(), key=lambda members: _asked_at(members[0])):
        document = (members[0].result or {}).get("policy_facts")
        facts = PolicyFacts.parse(document) if document else None
        entries.append(_entry(members, policy, facts))
        if facts is not None:
            pools = dict(facts.pools) or pools
            usage |= {team: TeamDemand(amounts) for team, amounts in (facts.usage or {}).items()}
    capacities = {CORES: sum(pools.values()), **{f"{POOL}{name}": cores for name, cores in pools.items()}}
    order = queue_order(entries, usage, capacities, now.timestamp(), policy.queue.overdue_after_s)
    return ClusterQueue(cluster, policy, now, units, order, usage, capacities, _past_waits(cluster))


_RELATED = ("cluster", "group", "query__team", "version__query__cluster", "job", "requested_by", "parts_job")


def _asked_at(request: AdmissionRequest) -> datetime:
    """When it came into the queue."""
    return request.queued_at or request.decided_at or request.created_at


def _key(request: AdmissionRequest) -> str:
    """Key of a request's entry: its group's where it has one."""
    return str(request.group_id or request.pk)


def _why(request: AdmissionRequest) -> str:
    """Why an entry waits, as of its last look."""
    result = request.group.result if request.group is not None else request.result
    return str((result or {}).get("headline", ""))


def _entry(members: Sequence[AdmissionRequest], policy: ClusterPolicy, facts: PolicyFacts | None) -> QueuedEntry:
    """The entry of a request or a group, which ranks by the lowest class of its members."""
    lead, demands = members[0], dict[str, TeamDemand]()
    for i, member in enumerate(members):
        document = (member.result or {}).get("policy_facts") if i else None
        own = PolicyFacts.parse(document) if document else None if i else facts
        wanted = TeamDemand(own.wanted) if own is not None else TeamDemand({QUERIES: 1.0})
        team = team_of(member.query)
        demands[team] = demands.get(team, TeamDemand()).plus(wanted)
    rank, team = min(_rank(member, policy) for member in members), team_of(lead.query)
    return QueuedEntry(_key(lead), rank, team, _asked_at(lead).timestamp(), demands.pop(team), demands)


def _rank(request: AdmissionRequest, policy: ClusterPolicy) -> int:
    own = policy.class_of(request.query.priority)
    return request.query.priority if not policy.classes else own.priority if own else -1_000_001


def _past_waits(cluster: Cluster) -> list[float]:
    """Waits that ended in a start, the oldest first."""
    rows = AdmissionRequest.objects.filter(cluster=cluster, state=AdmissionState.APPLIED, queued_at__isnull=False)
    rows = rows.filter(place=0)  # a group waited once
    newest = rows.filter(decided_at__gte=F("queued_at")).order_by("-decided_at").values_list("queued_at", "decided_at")
    return [(ended - begun).total_seconds() for begun, ended in newest[:_PAST] if ended and begun][::-1]
