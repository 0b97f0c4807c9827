"""What a request is about: the version of a registered query, or one described by a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Malformed, Missing, fault_count, join_path
from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion
from apps.queries.series import unpack
from apps.queries.services import arrivals_create_from_counts, query_create, query_version_create
from engine.elements import FloatArray
from engine.fields import BAD, Field, Listed, Table, Text
from engine.tables import ID, PRIORITY, SOURCE

__all__ = ["draft_from_document", "draft_version"]

_HEAD = Table(
    "a query's document",
    Field("query", ID, required=True),
    Field("sources", Listed(SOURCE)),
    Field("priority", PRIORITY),
    Field("team", Text()),
    Field("description", Text()),
    Field("note", Text()),
)
_ELSEWHERE = frozenset({"operators", "objective"})  # read by the services that store them


def draft_version(*, cluster: Cluster, name: str, number: int | None) -> QueryVersion:
    """A version of a registered query: the newest, unless a number is given."""
    query = cluster.queries.filter(name=name).first()
    if query is None:
        raise Missing(f"There is no query {name!r} in {cluster.slug}.", [("query", f"{name!r} is not registered")])
    versions = query.versions.select_related("query__cluster")
    found = versions.filter(number=number).first() if number is not None else versions.first()
    if found is None:
        raise Missing(f"Query {name} has no version {number}.", [("version", f"{number} does not exist")])
    if query.state == QueryState.RUNNING and query.running_version_id == found.pk:
        raise Conflict(f"{found} is running already.", [("query", "this version is running")], code="running")
    return found


def draft_from_document(
    *, cluster: Cluster, document: Mapping[str, Any], user: User | None
) -> tuple[QueryVersion, dict[str, Any]]:
    """Register what a document describes: the sources it brings, and the query or a new version of it.

    A source that the cluster has may be repeated with the same arrivals, in slices or in subintervals. Called inside a
    transaction: with any fault nothing stays.

    Returns
    -------
    The version, and the objective to hold in place of that of a query that was there before (empty: its own).

    Raises
    ------
    Malformed, Conflict
        With every fault, its path beginning with `document`.
    """
    faults: list[Fault] = []
    found = _HEAD.read({key: value for key, value in document.items() if key not in _ELSEWHERE}, "", "document", faults)
    head = {} if found is BAD else {name: value for name, value in found.items() if value is not BAD}
    for i, source in enumerate(head.get("sources", [])):
        if source is not BAD and not any(value is BAD for value in source.values()):
            store = partial(_store_source, cluster, source["id"], source["arrivals"])
            _collected(faults, f"document.sources[{i}]", store)
    is_sourceless = bool(faults)
    query = cluster.queries.filter(name=head["query"]).first() if "query" in head else None
    store = partial(_store_query, cluster, query, head, document, user)
    written: list[Fault] = []
    version = _collected(written, "document", store)
    faults += [fault for fault in written if not (is_sourceless and fault.path.endswith(".from"))]
    if faults:
        raise Malformed(f"The document has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    return version, dict(document.get("objective") or {}) if query is not None else {}


def _store_query(
    cluster: Cluster, query: Query | None, head: Mapping[str, Any], document: Mapping[str, Any], user: User | None
) -> QueryVersion:
    body = {"operators": document.get("operators")}
    if query is not None:
        version = query_version_create(query=query, body=body, note=head.get("note", ""), user=user)
    else:
        told = {name: head[name] for name in ("team", "description", "priority", "note") if name in head}
        objective = document.get("objective")
        name = head.get("query", "unnamed")  # refused by the caller: the document's own fault is known already
        created = query_create(cluster=cluster, name=name, body=body, objective=objective, user=user, **told)
        version = created.versions.get()
    return QueryVersion.objects.select_related("query__cluster").get(pk=version.pk)


def _store_source(cluster: Cluster, source_id: str, arrivals: FloatArray) -> None:
    known = cluster.arrivals.filter(source_id=source_id).first()
    is_coarse = len(arrivals) * 4 == cluster.slices
    if known is not None:
        values = unpack(known.data)
        values = values.reshape(-1, 4).sum(axis=1) if is_coarse else values
        if len(values) != len(arrivals) or not np.allclose(values, arrivals):
            message = f"{source_id!r} has other arrivals in {cluster.slug}; allowed: the same, or a new id"
            raise Conflict(f"Source {message}.", [("arrivals", message)])
        return
    arrivals_create_from_counts(
        cluster=cluster,
        source_id=source_id,
        counts=arrivals,
        step_s=cluster.subinterval_s if is_coarse else cluster.slice_s,
    )


def _collected(faults: list[Fault], path: str, store: Callable[[], Any]) -> Any:
    """What `store` returns; its faults are kept, so that all of them are told at once."""
    try:
        with transaction.atomic():
            return store()
    except (Malformed, Conflict) as error:
        faults += [Fault(join_path(path, fault.path), fault.message) for fault in error.faults] or [
            Fault(path, error.message)
        ]
        return None
