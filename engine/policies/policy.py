"""The policy of a cluster: one document for it and its teams, described once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from engine.errors import Fault, suggestion
from engine.kinds import Enumeration, Number, String
from engine.policies.calendar import Freeze
from engine.policies.quotas import CORES, POOL, QUERIES, RATE
from engine.policies.rules import EvidenceRules, TeamEvidence
from engine.records import BAD, Flag, ItemCount, Record, Words

__all__ = [
    "OVERRIDE_ROLES",
    "ClusterPolicy",
    "Cohort",
    "OverrideRules",
    "PoolQuota",
    "PriorityClass",
    "QueueRules",
    "Quota",
    "TeamPolicy",
    "TeamQuotas",
    "VerdictRules",
]

OVERRIDE_ROLES = ("admitter", "admin")  #: the last of them always may
MAX_ENTRIES = 1000  # teams, cohorts, freezes of one policy
_NAME = String()
_AMOUNT = Number(least=0, most=1e12)
_MARGIN = Words("Share of every objective that must stay free above the upper end; less of it counts as at risk.")
_THIN = Words("A verdict that keeps with less than this share of more load or cost is called thin; 0: none is.")
_SHARE = Number(least=0, most=1)
_PRIORITY = Number(least=-1_000_000, most=1_000_000, whole=True)


@dataclass(frozen=True)
class OverrideRules(Record):
    """Roles that may apply a request against its verdict."""

    TITLE: ClassVar[str] = "rules of overriding"

    roles: Annotated[
        tuple[Annotated[str, Enumeration(OVERRIDE_ROLES)], ...], Words("Roles that may; admin always may.")
    ] = OVERRIDE_ROLES
    second_person: Annotated[Flag, Words("Whether another person with such a role has to confirm it.")] = False

    def find_faults(self) -> Iterator[Fault]:
        if "admin" not in self.roles:
            listed = ", ".join(self.roles) or "an empty list"
            yield Fault("roles", f"roles is {listed}; allowed: a list with admin, since an administrator always may")


@dataclass(frozen=True)
class VerdictRules:
    """Rules that a verdict on a request of a team goes by."""

    evidence: EvidenceRules
    margin: float
    thin_below: float
    override: OverrideRules


@dataclass(frozen=True)
class Quota(Record):
    """An amount that a team may use, and what it may borrow of its cohort and lend to it."""

    TITLE: ClassVar[str] = "a quota"

    nominal: Annotated[float, _AMOUNT, Words("What is the team's own.")]
    borrowing_limit: Annotated[
        Annotated[float, _AMOUNT] | None, Words("Above its own, of what its cohort lends; null: any amount.")
    ] = None
    lending_limit: Annotated[
        Annotated[float, _AMOUNT] | None, Words("Of its own, while it does not use it; null: all of it.")
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        if self.lending_limit is not None and self.lending_limit > self.nominal:
            told = f"lending_limit is {self.lending_limit:g}"
            yield Fault("lending_limit", f"{told}; allowed: at most nominal, {self.nominal:g}")


@dataclass(frozen=True)
class PoolQuota(Record):
    """A share of a pool's cores."""

    TITLE: ClassVar[str] = "a quota of a pool"

    pool: Annotated[str, _NAME]
    share: Annotated[float, _SHARE, Words("Share of the pool's cores that is the team's own, 0 to 1.")]
    borrowing_limit: Annotated[Annotated[float, _SHARE] | None, Words("Above it, as a share; null: any.")] = None
    lending_limit: Annotated[Annotated[float, _SHARE] | None, Words("Of it, as a share; null: all of it.")] = None

    def find_faults(self) -> Iterator[Fault]:
        if self.lending_limit is not None and self.lending_limit > self.share:
            told = f"lending_limit is {self.lending_limit:g}"
            yield Fault("lending_limit", f"{told}; allowed: at most share, {self.share:g}")

    def of(self, cores: float) -> Quota:
        """The quota in cores."""
        limits = [None if limit is None else limit * cores for limit in (self.borrowing_limit, self.lending_limit)]
        return Quota(self.share * cores, *limits)


@dataclass(frozen=True)
class TeamQuotas(Record):
    """Quotas of a team; of what is left out it may have any amount."""

    TITLE: ClassVar[str] = "quotas"

    cores: Annotated[Quota | None, Words("Cores that its queries keep busy on average over the horizon.")] = None
    queries: Annotated[Quota | None, Words("Running queries.")] = None
    rate_eps: Annotated[Quota | None, Words("Events per second that its queries read on average.")] = None
    pools: Annotated[tuple[PoolQuota, ...], ItemCount(most=MAX_ENTRIES), Words("Shares of pools.")] = ()

    def find_faults(self) -> Iterator[Fault]:
        yield from _repeated("pools", "pool", {i: entry.pool for i, entry in enumerate(self.pools)})

    def by_resource(self, pools: Mapping[str, float]) -> dict[str, Quota]:
        """Quotas by resource, those of pools in cores; a pool that is gone has none."""
        own = {CORES: self.cores, QUERIES: self.queries, RATE: self.rate_eps}
        shares = {f"{POOL}{entry.pool}": entry.of(pools.get(entry.pool, 0.0)) for entry in self.pools}
        return {name: quota for name, quota in own.items() if quota is not None} | shares


@dataclass(frozen=True)
class Cohort(Record):
    """Teams that lend one another what they do not use; a cohort may lie in another."""

    TITLE: ClassVar[str] = "a cohort"

    name: Annotated[str, _NAME]
    parent: Annotated[Annotated[str, _NAME] | None, Words("The cohort that it lies in.")] = None


@dataclass(frozen=True)
class PriorityClass(Record):
    """Queries of a priority and above, up to the next class."""

    TITLE: ClassVar[str] = "a priority class"

    name: Annotated[str, _NAME]
    priority: Annotated[int, _PRIORITY, Words("Least priority of its queries.")]
    may_stop: Annotated[
        tuple[Annotated[str, _NAME], ...],
        Words("Classes whose queries may be proposed to be stopped for it. Nothing is stopped without a person."),
    ] = ()


@dataclass(frozen=True)
class QueueRules(Record):
    """Rules of the queue."""

    TITLE: ClassVar[str] = "rules of the queue"

    overdue_after_s: Annotated[
        float,
        Number(least=60, most=31_536_000),
        Words("An entry that has waited so long goes before all others, and nothing overtakes it any more.", unit="s"),
    ] = 3600.0


@dataclass(frozen=True)
class TeamPolicy(Record):
    """Rules of a team in place of the cluster's, and its quotas."""

    TITLE: ClassVar[str] = "a team's policy"

    team: Annotated[str, _NAME]
    evidence: Annotated[TeamEvidence, Words("Rules of its own; null: the cluster's.")] = field(
        default_factory=TeamEvidence
    )
    margin: Annotated[Annotated[float, Number(least=0, most=0.9)] | None, _MARGIN] = None
    thin_below: Annotated[Annotated[float, _SHARE] | None, _THIN] = None
    override: Annotated[OverrideRules | None, Words("Who may override for it; null: as for the cluster.")] = None
    cohort: Annotated[Annotated[str, _NAME] | None, Words("The cohort that it lends to and borrows of.")] = None
    highest_class: Annotated[Annotated[str, _NAME] | None, Words("Highest priority class of its queries.")] = None
    quotas: TeamQuotas = field(default_factory=TeamQuotas)


@dataclass(frozen=True)
class ClusterPolicy(Record):
    """The policy of a cluster: what evidence means, margins, who overrides, freezes, quotas, classes, and the queue."""

    TITLE: ClassVar[str] = "a policy"
    JUDGES_PARTS: ClassVar[bool] = True

    evidence: EvidenceRules = field(default_factory=EvidenceRules)
    margin: Annotated[float, Number(least=0, most=0.9), _MARGIN] = 0.0
    thin_below: Annotated[float, _SHARE, _THIN] = 0.1
    override: OverrideRules = field(default_factory=OverrideRules)
    freezes: Annotated[tuple[Freeze, ...], ItemCount(most=MAX_ENTRIES), Words("Times in which nothing starts.")] = ()
    classes: Annotated[tuple[PriorityClass, ...], ItemCount(most=100), Words("Classes of queries by priority.")] = ()
    cohorts: Annotated[tuple[Cohort, ...], ItemCount(most=MAX_ENTRIES), Words("Teams that borrow of one another.")] = ()
    teams: Annotated[tuple[TeamPolicy, ...], ItemCount(most=MAX_ENTRIES), Words("What differs by team.")] = ()
    queue: QueueRules = field(default_factory=QueueRules)

    def team(self, name: str) -> TeamPolicy | None:
        """The entry of a team; None where it has none."""
        return next((entry for entry in self.teams if entry.team == name), None)

    def rules_for(self, team: str) -> VerdictRules:
        """Rules for requests of a team: its own where it has them, else the cluster's."""
        own = self.team(team)
        if own is None:
            return VerdictRules(self.evidence, self.margin, self.thin_below, self.override)
        return VerdictRules(
            own.evidence.over(self.evidence),
            self.margin if own.margin is None else own.margin,
            self.thin_below if own.thin_below is None else own.thin_below,
            own.override or self.override,
        )

    def class_of(self, priority: int) -> PriorityClass | None:
        """The class of a query's priority; None below the lowest."""
        below = [entry for entry in self.classes if entry.priority <= priority]
        return max(below, key=lambda entry: entry.priority, default=None)

    def may_stop(self, priority: int, other: int) -> bool:
        """Whether a query may be proposed to be stopped for one of `priority`: without classes any of a lower one."""
        own, its = self.class_of(priority), self.class_of(other)
        if not self.classes:
            return other < priority
        return own is not None and its is not None and other < priority and its.name in own.may_stop

    @property
    def has_quotas(self) -> bool:
        return any(entry.quotas != TeamQuotas() for entry in self.teams)

    @property
    def readable_teams(self) -> list[tuple[int, TeamPolicy]]:
        """Entries of teams with their places; of a policy with faults those without."""
        return _readable(self.teams)

    @property
    def named_teams(self) -> list[tuple[str, str]]:
        """(path, team) of every team that is named."""
        listed = [(f"teams[{i}].team", entry.team) for i, entry in self.readable_teams]
        frozen = [
            (f"freezes[{i}].teams[{j}]", team)
            for i, freeze in _readable(self.freezes)
            for j, team in enumerate(freeze.teams)
        ]
        return listed + frozen

    @property
    def named_pools(self) -> list[tuple[str, str]]:
        """(path, pool) of every pool that is named."""
        return [
            (f"teams[{i}].quotas.pools[{j}].pool", quota.pool)
            for i, entry in self.readable_teams
            for j, quota in enumerate(entry.quotas.pools)
        ]

    def find_faults(self) -> Iterator[Fault]:
        for name, key in (("freezes", "name"), ("classes", "name"), ("cohorts", "name"), ("teams", "team")):
            yield from _repeated(name, key, {i: getattr(entry, key) for i, entry in _readable(getattr(self, name))})
        yield from _repeated("classes", "priority", {i: entry.priority for i, entry in _readable(self.classes)})
        classes = [entry.name for _, entry in _readable(self.classes)]
        cohorts = [entry.name for _, entry in _readable(self.cohorts)]
        yield from self._class_faults(classes)
        yield from self._cohort_faults(cohorts)
        for i, team in _readable(self.teams):
            if team.cohort is not None:
                yield from _unknown(f"teams[{i}].cohort", "cohort", "cohort", team.cohort, cohorts)
            if team.highest_class is not None:
                yield from _unknown(f"teams[{i}].highest_class", "highest_class", "class", team.highest_class, classes)
        yield from self._pool_faults()

    def _class_faults(self, classes: list[str]) -> Iterator[Fault]:
        """Classes that may stop what is no class, or none below them."""
        priorities = {entry.name: entry.priority for _, entry in _readable(self.classes)}
        for i, entry in _readable(self.classes):
            for j, name in enumerate(entry.may_stop):
                path = f"classes[{i}].may_stop[{j}]"
                yield from _unknown(path, "may_stop", "class", name, classes)
                if priorities.get(name, entry.priority - 1) >= entry.priority:
                    told = f"may_stop is {name!r} of priority {priorities[name]}"
                    yield Fault(path, f"{told}; allowed: classes below {entry.priority}, that of {entry.name}")

    def _cohort_faults(self, cohorts: list[str]) -> Iterator[Fault]:
        """Cohorts that lie in what is no cohort, or in themselves."""
        parents = {entry.name: entry.parent for _, entry in _readable(self.cohorts)}
        for i, cohort in _readable(self.cohorts):
            if cohort.parent is None:
                continue
            path = f"cohorts[{i}].parent"
            yield from _unknown(path, "parent", "cohort", cohort.parent, cohorts)
            if circle := _circle(cohort.name, parents):
                told = f"parent is {cohort.parent!r}, which closes a circle: {' in '.join(circle)}"
                yield Fault(path, f"{told}; allowed: a cohort that does not lie in {cohort.name}")

    def _pool_faults(self) -> Iterator[Fault]:
        """Pools of which teams are given more than there is."""
        given: dict[str, float] = {}
        for i, team in _readable(self.teams):
            for j, quota in enumerate(team.quotas.pools):
                before = given.get(quota.pool, 0.0)
                given[quota.pool] = before + quota.share
                if given[quota.pool] > 1.0 + 1e-9:
                    told = f"share is {quota.share:g}, which makes {given[quota.pool]:.0%} of {quota.pool}"
                    yield Fault(
                        f"teams[{i}].quotas.pools[{j}].share", f"{told}; allowed: up to {max(0.0, 1 - before):g}"
                    )


def _readable(entries: Any) -> list[tuple[int, Any]]:
    """Entries of a list that could be read, each with its place."""
    return [] if entries is BAD else [(i, entry) for i, entry in enumerate(entries) if entry is not BAD]


def _repeated(path: str, key: str, values: Mapping[int, Any]) -> Iterator[Fault]:
    """A fault for each value that an entry before has."""
    seen = set[Any]()
    for i, value in values.items():
        if value in seen:
            yield Fault(f"{path}[{i}].{key}", f"{key} is {value!r}, as of an entry before; allowed: one entry for each")
        seen.add(value)


def _unknown(path: str, key: str, noun: str, name: str, known: list[str]) -> Iterator[Fault]:
    if name not in known:
        allowed = (
            suggestion(name, known)
            or f"; allowed: {', '.join(dict.fromkeys(known)) or f'none, since no {noun} is listed'}"
        )
        yield Fault(path, f"{key} is {name!r}, which is no {noun} of this policy{allowed}")


def _circle(name: str, parents: Mapping[str, str | None]) -> list[str]:
    """The cohorts from one up to itself; empty where it does not lie in itself."""
    way, at = [name], parents.get(name)
    while at is not None and at not in way:
        way.append(at)
        at = parents.get(at)
    return [*way, name] if at == name else []
