"""Reach of a caller, and the rows within it: the one rule on what a page or an endpoint shows and changes.

A request has a caller once its credentials are checked; commands, jobs and schedules have none and reach everything.
Rows are narrowed where they enter an answer (`visible`, `check_row`), and nowhere else: what a model computes from is
never narrowed, since an estimate without the queries of others would admit too much. A row is reached by its cluster,
to which the keys of its model lead (`cluster_path`), so that a new model needs no rule of its own. An answer to a
caller of less than everything that no such place has narrowed is refused (`Caller.close`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, reduce
from operator import or_
from typing import Any, TypeVar
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import Q, QuerySet

from apps.core.errors import Forbidden, Missing

__all__ = [
    "EVERYTHING",
    "READ",
    "AskedOn",
    "Caller",
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
    "row_visible",
    "team_path",
    "visible",
]

READ = "read"
Scopes = frozenset[str]
Row = TypeVar("Row", bound=models.Model)
_CLUSTER, _QUERY, _TEAM = "fleet.cluster", "queries.query", "accounts.team"
_PERSON, _JOB = "accounts.user", "jobs.job"
#: Beside queries: what a team may own, by the path to it. Its members see that; others' queries run on it and read it,
#: so that changing it takes the cluster.
_OWNED = {"fleet.nodepool": "team", "fleet.node": "pool__team", "queries.arrivalseries": "team"}
_OWNERS = ("owner", "requested_by", "user")  # of rows of no cluster: they are their owner's


class AskedOn(StrEnum):
    """Where a view asks its scope for."""

    CONSOLE = "console"  #: on everything, before it does anything
    NARROWED = "narrowed"  #: on what it is about, which it narrows or checks itself
    PARTS = "parts"  #: as narrowed, and of a cluster it shows the part that a team owns, and nothing of what others own
    SEEN = "seen"  #: as parts where it reads; what it changes takes a role on the cluster
    OWN = "own"  #: anywhere: it is about its caller, or about the product


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
    """

    everything: Scopes = frozenset()
    clusters: Mapping[int, Scopes] = field(default_factory=dict)
    teams: Mapping[int, Scopes] = field(default_factory=dict)

    @property
    def anywhere(self) -> Scopes:
        """Scopes held somewhere at least."""
        return self.everything.union(*self.clusters.values(), *self.teams.values())

    def on_cluster(self, cluster: int | None) -> Scopes:
        """Scopes on all of a cluster; of what is of no cluster (None), those held on everything."""
        return self.everything if cluster is None else self.everything | self.clusters.get(cluster, frozenset())

    def on_team(self, cluster: int | None, team: int | None) -> Scopes:
        """Scopes on what a team owns in a cluster."""
        return self.on_cluster(cluster) | (frozenset() if team is None else self.teams.get(team, frozenset()))

    def clusters_with(self, scope: str) -> frozenset[int]:
        """Keys of the clusters on which a scope was granted."""
        return frozenset(key for key, scopes in self.clusters.items() if scope in scopes)

    def teams_with(self, scope: str) -> frozenset[int]:
        """Keys of the teams for which a scope was granted."""
        return frozenset(key for key, scopes in self.teams.items() if scope in scopes)

    def within(self, scopes: Scopes) -> Reach:
        """The same places, and of the scopes only these: what a token may do for its owner."""
        return Reach(
            self.everything & scopes,
            {key: held & scopes for key, held in self.clusters.items()},
            {key: held & scopes for key, held in self.teams.items()},
        )

    def bound(self, clusters: Iterable[int], teams: Iterable[int]) -> Reach:
        """Of the same scopes only those on some clusters and on what some teams own; on nothing else any."""
        return Reach(
            frozenset(),
            {key: self.on_cluster(key) for key in clusters},
            {key: self.on_team(None, key) for key in teams},
        )


EVERYTHING = Reach(frozenset({READ, "author", "admit", "operate", "ingest", "admin"}))


@dataclass
class Caller:
    """Sender of a request, and what it needs: nobody known, until `enter`.

    Attributes
    ----------
    needed
        Scope that the request needs on what it is about.
    hint
        Sentence that names the roles with that scope.
    is_narrowed
        Whether the answer is narrowed to what the caller may see, or was checked to be about that alone.
    here
        Scopes on the cluster that the request is about, once that is known.
    takes_parts
        Whether the view shows parts of clusters: without that, a role on a team shows nothing.
    changes_parts
        Whether it changes them as well.
    """

    reach: Reach = EVERYTHING
    person: int | None = None
    needed: str = READ
    hint: str = ""
    is_narrowed: bool = False
    here: Scopes | None = None
    takes_parts: bool = False
    changes_parts: bool = False

    def enter(self, reach: Reach, person: int | None, needed: str, hint: str, asked_on: str) -> None:
        """The credentials are checked."""
        self.reach, self.person, self.needed, self.hint = reach, person, str(needed), hint
        self.changes_parts = asked_on in {AskedOn.PARTS, AskedOn.OWN}
        self.takes_parts = self.changes_parts or asked_on == AskedOn.SEEN

    def scopes_seeing(self, scope: str) -> Scopes:
        """Scopes by which rows are found: what may be changed is found without reading, by a token to send with."""
        return frozenset({READ, self.needed} if scope == READ else {scope})

    def teams_seen(self, scope: str = READ) -> list[int]:
        """Teams whose part of a cluster the view shows to the caller, for a scope."""
        scopes = self.scopes_seeing(scope)
        is_taken = self.takes_parts and (self.changes_parts or scope == READ)
        held = self.reach.teams.items() if is_taken else ()
        return [key for key, given in held if not scopes.isdisjoint(given)]

    @property
    def is_everywhere(self) -> bool:
        """Whether what the request needs is held on everything."""
        return self.needed in self.reach.everything

    def check(self, cluster: int | None, name: str, *teams: int | None) -> None:
        """Refuse what is needed on a cluster, or on everything (None), and not held there, nor on one of the teams.

        Raises
        ------
        Forbidden
            `scope_missing`, with the roles and where they are needed.
        """
        self.is_narrowed = True
        self.here = self.reach.on_cluster(cluster).union(*(self.reach.on_team(cluster, team) for team in teams))
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
def team_path(model: type[models.Model]) -> str | None:
    """Path by which a model's rows lead to the team that owns their query; None where none does."""
    path = _path(model, _QUERY)
    return None if path is None else f"{path}__team".removeprefix("__")


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
    """Whether the caller sees of a cluster what their teams own, and no more."""
    return caller_now().scopes_seeing(READ).isdisjoint(caller_now().reach.on_cluster(cluster))


def _part(model: type[models.Model], path: str | None, teams: list[int]) -> Q:
    """Rows that teams own: the clusters that they use, all that leads to a query of theirs, and themselves."""
    if not teams:
        return Q(pk__in=())
    if path == "":
        return Q(pk__in=_clusters_of(teams))
    owner = team_path(model) or _OWNED.get(model._meta.label_lower)
    return Q(**{f"{owner}__in": teams}) if owner is not None else Q(pk__in=())


def _clusters_of(teams: list[int]) -> QuerySet[Any]:
    """Keys of the clusters in which teams own something, or which they were given to use."""
    clusters = apps.get_model(_CLUSTER)._base_manager
    owned = (Q(**{f"{kind}__team__in": teams}) for kind in ("queries", "pools", "arrivals"))
    return clusters.filter(reduce(or_, owned, Q(teams__in=teams))).values("pk")


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
    within = Q(**{f"{column}__in": clusters}) | _part(model, path, caller.teams_seen(scope))
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
    caller.check(cluster.pk, name, *caller.teams_seen(caller.needed))


def check_owner(cluster: models.Model, team: models.Model | None, *, field: str = "team") -> None:
    """Refuse to give something in a cluster to a team for which the caller may not do what the request needs.

    Raises
    ------
    Forbidden
        Names the field, the team, and the teams that are allowed.
    """
    caller = caller_now()
    if caller.needed in caller.reach.on_team(cluster.pk, team.pk if team is not None else None):
        return
    own = apps.get_model(_TEAM)._base_manager.filter(pk__in=caller.reach.teams_with(caller.needed))
    names = ", ".join(repr(name) for name in own.order_by("name").values_list("name", flat=True)) or "none"
    message = f"{str(team or '')!r} is not a team for which you have the scope {caller.needed!r}; allowed: {names}"
    raise Forbidden(f"{field}: {message}. {caller.hint}", [(field, message)], code="scope_missing")


def check_row(row: models.Model) -> None:
    """Refuse a row that is seen where the caller may not do what the request needs.

    Of what belongs to a query, a role on the team that owns it counts beside one on the cluster; of a pool or a source
    that a team owns, to read it. Raises Forbidden.
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
    cluster, name, team = _place_of(row, to_read=caller.needed == READ)
    if cluster_path(kind) == "" and caller.needed == READ:
        check_cluster(row)  # a part of it is enough to read what it is
        return
    if cluster is None and getattr(row, "requested_by_id", None) == caller.person:
        caller.is_narrowed = True
        return
    caller.check(cluster, name, team)


def _place_of(row: models.Model, *, to_read: bool) -> tuple[int | None, str, int | None]:
    """Key and slug of a row's cluster, and the key of the team that owns its query, or `to_read` the row itself."""
    kind = type(row)
    if hasattr(kind, "cluster_key"):
        return row.cluster_key, row.cluster, None  # type: ignore[attr-defined]
    path, team = cluster_path(kind), team_path(kind)
    team = team or (_OWNED.get(kind._meta.label_lower) if to_read else None)
    columns = [f"{path}__pk" if path else "pk", f"{path}__slug" if path else "slug", *([team] if team else [])]
    found = kind._base_manager.filter(pk=row.pk).values_list(*columns).first() or (None, "")
    return found[0], found[1] or "", found[2] if len(found) > 2 else None


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
    `slug/name` of each query that a team owns. None: every one.
    """
    if READ in reach.everything:
        return None
    clusters, teams = apps.get_model(_CLUSTER)._base_manager, list(reach.teams_with(READ))
    queries = apps.get_model(_QUERY)._base_manager.filter(team__in=teams)
    return frozenset(
        [
            *clusters.filter(pk__in=reach.clusters_with(READ)).values_list("slug", flat=True),
            *(f"{slug}/" for slug in clusters.filter(pk__in=_clusters_of(teams)).values_list("slug", flat=True)),
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
