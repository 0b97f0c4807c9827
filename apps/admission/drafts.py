"""What a request is about: the version of a registered query, or one described by a document."""

from __future__ import annotations

from apps.core.errors import Conflict, Missing
from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import QueryVersion

__all__ = ["draft_version"]


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
