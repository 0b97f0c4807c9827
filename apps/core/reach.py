"""Reach of a caller, and the rows within it: the one rule on what a page or an endpoint shows and changes.

A request has a caller once its credentials are checked; commands, jobs and schedules have none and reach everything.
Rows are narrowed where they enter an answer (`visible`, `check_row`), and nowhere else: what a model computes from is
never narrowed, since an estimate without the queries of others would admit too much. A row is reached by its cluster,
to which the keys of its model lead (`cluster_path`), so that a new model needs no rule of its own. An answer to a
caller of less than everything that no such place has narrowed is refused (`Caller.close`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any, TypeVar
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import Q, QuerySet

from apps.core.errors import Forbidden, Missing
from apps.core.labels import LabelSelector, labels_text, merged_labels, selector_parse

__all__ = [
    "EVERYTHING",
    "READ",
    "AskedOn",
    "Caller",
    "Part",
    "Reach",
    "caller_entered",
    "caller_now",
    "check_cluster",
    "check_owner",
    "check_row",
    "cluster_path",
    "is_seen_in_part",
    "is_topic_visible",
    "places_seen",
    "query_path",
    "row_visible",
    "visible",
]

READ = "read"
Scopes = frozenset[str]
Row = TypeVar("Row", bound=models.Model)
_CLUSTER, _QUERY, _TEAM = "fleet.cluster", "queries.query", "accounts.team"
_PERSON, _JOB = "accounts.user", "jobs.job"
#: What a team may own and what has labels: the path to its team, and those to its labels, of which the first that has
#: a label counts. Beside queries these are seen by whoever has a role on such a part; others' queries run on them and
#: read them, so that changing them takes the cluster.
_OWNED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    _QUERY: ("team", ("labels",)),
    "fleet.nodepool": ("team", ("labels",)),
    "fleet.node": ("pool__team", ("labels", "pool__labels")),
    "queries.arrivalseries": ("team", ("labels",)),
}
_OWNERS = ("owner", "requested_by", "user")  # of rows of no cluster: they are their owner's


class AskedOn(StrEnum):
    """Where a view asks its scope for."""

    CONSOLE = "console"  #: on everything, before it does anything
    NARROWED = "narrowed"  #: on what it is about, which it narrows or checks itself
    PARTS = "parts"  #: as narrowed, and of a cluster it shows the part of a team or of labels, and nothing else
    SEEN = "seen"  #: as parts where it reads; what it changes takes a role on the cluster
    OWN = "own"  #: anywhere: it is about its caller, or about the product


_selector = lru_cache(1000)(selector_parse)


@dataclass(frozen=True)
class Part:
    """Parts of clusters that somebody reaches without reaching these as a whole.

    Attributes
    ----------
    teams
        Keys of the teams, whatever they own in whichever cluster.
    labels
        Keys of clusters, each with a selector of labels: what these match there.
    """

    teams: Sequence[int] = ()
    labels: Sequence[tuple[int, str]] = ()

    def __bool__(self) -> bool:
        return bool(self.teams or self.labels)

    def owning(self, kind: str = _QUERY, prefix: str = "") -> Q:
        """Rows of which this is a part, by what they lead to: a row of a kind that is owned or has labels."""
        team, labels = _OWNED[kind]
        found = Q(**{f"{prefix}{team}__in": self.teams})
        for cluster, text in self.labels:
            matching = _selector(text).condition(*(f"{prefix}{path}" for path in labels))
            found |= Q(**{f"{prefix}cluster": cluster}) & matching
        return found


@dataclass(frozen=True)
class Reach:
    """Scopes by where they were granted.

    Attributes
    ----------
    everything
        Held on the whole console.
    clusters
        Held on a cluster and all in it, by the cluster's key.
    teams
        Held on what a team owns, in whichever cluster, by the team's key.
    labels
        Held on what a selector of labels matches within a cluster, by the cluster's key and the selector.
    """

    everything: Scopes = frozenset()
    clusters: Mapping[int, Scopes] = field(default_factory=dict)
    teams: Mapping[int, Scopes] = field(default_factory=dict)
    labels: Mapping[tuple[int, str], Scopes] = field(default_factory=dict)

    @property
    def anywhere(self) -> Scopes:
        """Scopes held somewhere at least."""
        return self.everything.union(*self.clusters.values(), *self.teams.values(), *self.labels.values())

    def on_cluster(self, cluster: int | None) -> Scopes:
        """Scopes on all of a cluster; of what is of no cluster (None), those held on everything."""
        return self.everything if cluster is None else self.everything | self.clusters.get(cluster, frozenset())

    def on_owned(self, cluster: int | None, team: int | None, labels: Mapping[str, str]) -> Scopes:
        """Scopes on what a team owns in a cluster and has some labels."""
        held = (
            scopes for (at, text), scopes in self.labels.items() if at == cluster and _selector(text).matches(labels)
        )
        return self.on_cluster(cluster).union(self.teams.get(team, frozenset()) if team is not None else (), *held)

    def clusters_with(self, scope: str) -> frozenset[int]:
        """Keys of the clusters on which a scope was granted."""
        return frozenset(key for key, scopes in self.clusters.items() if scope in scopes)

    def teams_with(self, scope: str) -> frozenset[int]:
        """Keys of the teams for which a scope was granted."""
        return frozenset(key for key, scopes in self.teams.items() if scope in scopes)

    def selectors_with(self, cluster: int, scope: str) -> list[LabelSelector]:
        """Selectors of labels for which a scope was granted in a cluster."""
        return [_selector(text) for (at, text), scopes in self.labels.items() if at == cluster and scope in scopes]

    def part_with(self, scopes: Scopes) -> Part:
        """Parts of clusters for which any of some scopes was granted."""
        return Part(
            [key for key, held in self.teams.items() if not scopes.isdisjoint(held)],
            [key for key, held in self.labels.items() if not scopes.isdisjoint(held)],
        )

    def on_part(self, cluster: int, part: Part) -> Scopes:
        """Scopes held in a cluster for some parts, on something at least."""
        of_labels = (self.labels[key] for key in part.labels if key[0] == cluster)
        return frozenset[str]().union(*(self.teams[key] for key in part.teams), *of_labels)

    def within(self, scopes: Scopes) -> Reach:
        """The same places, and of the scopes only these: what a token may do for its owner."""
        return Reach(
            self.everything & scopes,
            {key: held & scopes for key, held in self.clusters.items()},
            {key: held & scopes for key, held in self.teams.items()},
            {key: held & scopes for key, held in self.labels.items()},
        )

    def bound(self, clusters: Iterable[int], teams: Iterable[int]) -> Reach:
        """Of the same scopes only those in some clusters and on what some teams own; on nothing else any."""
        within = frozenset(clusters)
        return Reach(
            frozenset(),
            {key: self.on_cluster(key) for key in within},
            {key: self.on_owned(None, key, {}) for key in teams},
            {key: scopes for key, scopes in self.labels.items() if key[0] in within},
        )


EVERYTHING = Reach(frozenset({READ, "author", "admit", "operate", "ingest", "admin"}))


@dataclass
class Caller:
    """Sender of a request, and what it needs: nobody known, until `enter`.

    Attributes
    ----------
    reach
        Of the credentials: a token's may be less than its owner's.
    owner_reach
        Of the person behind them, by all the person's roles.
    needed
        Scope that the request needs on what it is about.
    hint
        Sentence that names the roles with that scope.
    is_narrowed
        Whether the answer is narrowed to what the caller may see, or was checked to be about that alone.
    here
        Scopes on the cluster that the request is about, once that is known.
    takes_parts
        Whether the view shows parts of clusters: without that, a role on a part of one shows nothing.
    changes_parts
        Whether it changes them as well.
    """

    reach: Reach = EVERYTHING
    owner_reach: Reach = EVERYTHING
    person: int | None = None
    needed: str = READ
    hint: str = ""
    is_narrowed: bool = False
    here: Scopes | None = None
    takes_parts: bool = False
    changes_parts: bool = False

    def enter(
        self, reach: Reach, person: int | None, needed: str, hint: str, asked_on: str, owner_reach: Reach
    ) -> None:
        """The credentials are checked."""
        self.reach, self.person, self.needed, self.hint = reach, person, str(needed), hint
        self.owner_reach = owner_reach
        self.changes_parts = asked_on in {AskedOn.PARTS, AskedOn.OWN}
        self.takes_parts = self.changes_parts or asked_on == AskedOn.SEEN

    def scopes_seeing(self, scope: str) -> Scopes:
        """Scopes by which rows are found: what may be changed is found without reading, by a token to send with."""
        return frozenset({READ, self.needed} if scope == READ else {scope})

    def part_seen(self, scope: str = READ) -> Part:
        """The parts that the view shows to the caller of clusters seen in part, for a scope."""
        is_taken = self.takes_parts and (self.changes_parts or scope == READ)
        return self.reach.part_with(self.scopes_seeing(scope)) if is_taken else Part()

    @property
    def is_everywhere(self) -> bool:
        """Whether what the request needs is held on everything."""
        return self.needed in self.reach.everything

    def check(self, cluster: int | None, name: str, held: Scopes = frozenset()) -> None:
        """Refuse what is needed on a cluster, or on everything (None), and not held there, nor on the part asked about.

        Raises
        ------
        Forbidden
            `scope_missing`, with the roles and where they are needed.
        """
        self.is_narrowed = True
        self.here = self.reach.on_cluster(cluster) | held
        if self.needed not in self.here:
            place = f"on the cluster {name}" if cluster is not None else "on everything"
            raise Forbidden(f"You do not have the scope {self.needed!r} {place}. {self.hint}", code="scope_missing")

    def check_asked_on(self, asked_on: str) -> None:
        """Refuse what a view asks for on everything; note what is about its caller alone. Raises Forbidden."""
        if asked_on == AskedOn.CONSOLE:
            self.check_everything()
        self.is_narrowed |= asked_on == AskedOn.OWN

    def check_everything(self) -> None:
        """Refuse what is of no cluster to whoever does not hold the scope on everything. Raises Forbidden."""
        if not self.is_narrowed:
            self.check(None, "")

    def close(self) -> None:
        """Refuse an answer that may be about what the caller does not reach. Raises Forbidden."""
        if not self.is_everywhere and not self.is_narrowed:
            raise Forbidden(
                f"This is about every cluster: it takes the scope {self.needed!r} on everything. {self.hint}",
                code="scope_missing",
            )


_caller: ContextVar[Caller | None] = ContextVar("caller of a request", default=None)


def caller_now() -> Caller:
    """The caller of the present request; outside of one, somebody who reaches everything."""
    return _caller.get() or Caller()


@contextmanager
def caller_entered(caller: Caller) -> Iterator[Caller]:
    """Have what is inside be the caller's doing."""
    token = _caller.set(caller)
    try:
        yield caller
    finally:
        _caller.reset(token)


@cache
def cluster_path(model: type[models.Model]) -> str | None:
    """Path by which a model's rows lead to their cluster, the shortest one; "" of clusters, None where none does."""
    return _path(model, _CLUSTER)


@cache
def query_path(model: type[models.Model]) -> str | None:
    """Path by which a model's rows lead to their query; "" of queries, None where none does."""
    return _path(model, _QUERY)


def _path(model: type[models.Model], label: str) -> str | None:
    paths, seen = deque([(model, "")]), {model}
    while paths:
        present, path = paths.popleft()
        if present._meta.label_lower == label:
            return path
        for column in present._meta.concrete_fields:
            parent = column.related_model if isinstance(column, models.ForeignKey) else None
            if not isinstance(parent, type) or parent in seen or parent._meta.label_lower in {_PERSON, _JOB}:
                continue
            seen.add(parent)
            paths.append((parent, f"{path}__{column.name}".removeprefix("__")))
    return None


def visible(rows: QuerySet[Row], scope: str = READ) -> QuerySet[Row]:
    """Those of the rows that the caller holds a scope on; without a request, all of them."""
    caller = caller_now()
    caller.is_narrowed |= scope == caller.needed
    if not caller.scopes_seeing(scope).isdisjoint(caller.reach.everything):
        return rows
    return rows.filter(_condition(rows.model, caller, scope))


def is_seen_in_part(cluster: int) -> bool:
    """Whether the caller sees of a cluster what their teams own or their labels match, and no more."""
    return caller_now().scopes_seeing(READ).isdisjoint(caller_now().reach.on_cluster(cluster))


def _owned_kind(model: type[models.Model]) -> tuple[str, str] | None:
    """Kind by whose team and labels a model's rows are a part of a cluster, and the prefix of its paths; or None."""
    query, kind = query_path(model), model._meta.label_lower
    if query is not None:
        return _QUERY, f"{query}__" if query else ""
    return (kind, "") if kind in _OWNED else None


def _within(model: type[models.Model], path: str | None, part: Part) -> Q:
    """Rows of a part: the clusters that it is of, all that leads to a query in it, and themselves."""
    if part and path == "":
        return Q(pk__in=_clusters_of(part))
    owned = _owned_kind(model) if part else None
    return part.owning(*owned) if owned is not None else Q(pk__in=())


def _clusters_of(part: Part) -> QuerySet[Any]:
    """Keys of the clusters in which teams own something, or which they were given to use, and those of the labels."""
    clusters, teams = apps.get_model(_CLUSTER)._base_manager, part.teams
    owned = (Q(**{f"{kind}__team__in": teams}) for kind in ("queries", "pools", "arrivals"))
    of_labels = Q(pk__in=[cluster for cluster, _ in part.labels])
    return clusters.filter(reduce(or_, owned, Q(teams__in=teams) | of_labels)).values("pk")


def _condition(model: type[models.Model], caller: Caller, scope: str) -> Q:
    path, scopes = cluster_path(model), caller.scopes_seeing(scope)
    clusters = [key for key, held in caller.reach.clusters.items() if not scopes.isdisjoint(held)]
    names = {column.name for column in model._meta.get_fields()}
    if "cluster_key" in names:  # it names its cluster by value, since it outlives it
        return Q(cluster_key__in=clusters)
    owner = next((name for name in _OWNERS if name in names), None)
    own = Q(**{owner: caller.person}) if owner and caller.person is not None else Q(pk__in=())
    if model._meta.label_lower == _TEAM:
        return Q(pk__in=[key for key, held in caller.reach.teams.items() if not scopes.isdisjoint(held)])
    if path is None:
        return own
    column = f"{path}__pk" if path else "pk"
    within = Q(**{f"{column}__in": clusters}) | _within(model, path, caller.part_seen(scope))
    may_lack = bool(path) and "__" not in path and model._meta.get_field(path).null
    return within | (Q(**{path: None}) & own) if may_lack else within


def check_cluster(cluster: models.Model) -> None:
    """Refuse a cluster that the caller does not see, as if there were none, or may not do there what it asks for.

    Raises
    ------
    Missing
        It is not seen.
    Forbidden
        It is seen; names the scope, where it is needed, and the roles that have it.
    """
    caller, name = caller_now(), str(getattr(cluster, "slug", cluster.pk))
    if is_seen_in_part(cluster.pk) and not visible(type(cluster)._default_manager.filter(pk=cluster.pk)).exists():
        raise Missing(f"There is no cluster {name!r}.")
    caller.check(cluster.pk, name, caller.reach.on_part(cluster.pk, caller.part_seen(caller.needed)))


def check_owner(cluster: models.Model, team: models.Model | None, labels: Mapping[str, str]) -> None:
    """Refuse to make something in a cluster a team's, with labels, where the caller may not do what the request needs.

    Raises
    ------
    Forbidden
        Names the team, and the teams and labels that are allowed.
    """
    caller = caller_now()
    if caller.needed in caller.reach.on_owned(cluster.pk, team.pk if team is not None else None, labels):
        return
    own = apps.get_model(_TEAM)._base_manager.filter(pk__in=caller.reach.teams_with(caller.needed))
    teams = [repr(name) for name in own.order_by("name").values_list("name", flat=True)]
    selectors = [f"the labels {selector}" for selector in caller.reach.selectors_with(cluster.pk, caller.needed)]
    allowed = ", or ".join([", ".join(teams)] * bool(teams) + selectors) or "none"
    field, name, scope = "labels" if selectors else "team", str(team or ""), f"the scope {caller.needed!r}"
    if selectors:
        message = f"you do not have {scope} for the team {name!r} with the labels {labels_text(labels)!r}"
    else:
        message = f"{name!r} is not a team for which you have {scope}"
    message = f"{message}; allowed: {allowed}"
    raise Forbidden(f"{field}: {message}. {caller.hint}", [(field, message)], code="scope_missing")


def check_reach_kept(
    cluster: models.Model,
    before: tuple[models.Model | None, Mapping[str, str]],
    after: tuple[models.Model | None, Mapping[str, str]],
) -> None:
    """Refuse a team and labels by which the caller would be allowed more on something than by those of before: nobody
    widens a reach of their own, nor by a token that has less than its owner. Raises Forbidden.
    """
    reach = caller_now().owner_reach
    had, gets = (
        reach.on_owned(cluster.pk, team.pk if team is not None else None, labels) for team, labels in (before, after)
    )
    if gained := gets - had:
        field = "team" if before[0] != after[0] else "labels"
        scopes = "scope" + "s" * (len(gained) > 1) + " " + ", ".join(repr(str(scope)) for scope in sorted(gained))
        message = f"this would give you the {scopes} on it; it takes somebody who has it already"
        raise Forbidden(f"{field}: {message}.", [(field, message)], code="scope_missing")


def check_row(row: models.Model) -> None:
    """Refuse a row that is seen where the caller may not do what the request needs.

    Of what belongs to a query, a role on the team that owns it or on its labels counts beside one on the cluster; of a
    pool, a node or a source, to read it. Raises Forbidden.
    """
    caller, kind = caller_now(), type(row)
    if caller.is_everywhere:
        return
    if kind._meta.label_lower == _TEAM or (cluster_path(kind) is None and not hasattr(kind, "cluster_key")):
        owner = next((name for name in _OWNERS if hasattr(row, f"{name}_id")), "")
        if owner and getattr(row, f"{owner}_id") == caller.person:
            caller.is_narrowed = True
            return
        caller.check(None, "")
        return
    cluster, name, held = _place_of(row, caller.reach, to_read=caller.needed == READ)
    if cluster_path(kind) == "" and caller.needed == READ:
        check_cluster(row)  # a part of it is enough to read what it is
        return
    if cluster is None and getattr(row, "requested_by_id", None) == caller.person:
        caller.is_narrowed = True
        return
    caller.check(cluster, name, held)


def _place_of(row: models.Model, reach: Reach, *, to_read: bool) -> tuple[int | None, str, Scopes]:
    """Key and slug of a row's cluster, and the scopes held by team and labels: its query's, or `to_read` its own."""
    kind = type(row)
    if hasattr(kind, "cluster_key"):
        return row.cluster_key, row.cluster, frozenset()  # type: ignore[attr-defined]
    path, owned, columns = cluster_path(kind), _owned_kind(kind), list[str]()
    if owned is not None and (to_read or owned[0] == _QUERY):
        team, labels = _OWNED[owned[0]]
        columns = [f"{owned[1]}{column}" for column in (team, *labels)]
    place = [f"{path}__pk" if path else "pk", f"{path}__slug" if path else "slug"]
    found = kind._base_manager.filter(pk=row.pk).values_list(*place, *columns).first() or (None, "")
    cluster, slug, *owner = found
    if not owner:
        return cluster, slug or "", frozenset()
    return cluster, slug or "", reach.on_owned(cluster, owner[0], merged_labels(owner[1:]))


def row_visible(rows: QuerySet[Row], noun: str = "", **key: Any) -> Row:
    """The one of the rows that a key names, seen and of those that the request may be about.

    Raises
    ------
    Missing
        There is none, or the caller does not see it.
    Forbidden
        The caller sees it, and may not do there what it asks for.
    """
    row = visible(rows, READ).filter(**key).first()
    if row is None:
        noun = noun or str(rows.model._meta.verbose_name)
        raise Missing(f"There is no {noun} {next(iter(key.values()))}.")
    check_row(row)
    return row


def places_seen(reach: Reach) -> frozenset[str] | None:
    """Places that a reach shows: slugs of clusters that are seen whole, `slug/` of those seen in part, and of these
    `slug/name` of each query in the part. None: every one.
    """
    if READ in reach.everything:
        return None
    clusters, part = apps.get_model(_CLUSTER)._base_manager, reach.part_with(frozenset({READ}))
    queries = apps.get_model(_QUERY)._base_manager.filter(part.owning())
    return frozenset(
        [
            *clusters.filter(pk__in=reach.clusters_with(READ)).values_list("slug", flat=True),
            *(f"{slug}/" for slug in clusters.filter(pk__in=_clusters_of(part)).values_list("slug", flat=True)),
            *(f"{slug}/{name}" for slug, name in queries.values_list("cluster__slug", "name")),
        ]
    )


def is_topic_visible(topic: str, places: frozenset[str]) -> bool:
    """Whether a page may be told that a topic changed: `kind:slug`, `kind:slug/name`, or `kind:key`, which names none.

    `places` are those that its reader sees (`places_seen`).
    """
    _, _, place = topic.partition(":")
    slug, slash, _ = place.partition("/")
    part = place if slash else f"{slug}/"
    return not slug or slug in places or part in places or _is_key(place)


def _is_key(text: str) -> bool:
    try:
        return text.isdigit() or bool(UUID(text))
    except ValueError:
        return False
