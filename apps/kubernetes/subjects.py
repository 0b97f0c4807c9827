"""Subjects of reviews: a query of the cluster, a document of one, or nothing that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.connections.models import ImportedJob
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.kubernetes.objects import DOCUMENT_ANNOTATION, QUERY_ANNOTATION, StreamingObject, read_document
from apps.queries.models import Query, QueryVersion

__all__ = ["ReviewSubject", "subject_of", "version_parallelism"]


@dataclass(frozen=True)
class ReviewSubject:
    """A version to be decided on, or a document that describes one; `why_not` is a sentence where there is neither."""

    version: QueryVersion | None = None
    document: Mapping[str, Any] | None = None
    why_not: str = ""


def subject_of(cluster: Cluster, item: StreamingObject) -> ReviewSubject:
    """The query that an object means: by its annotations, then by an imported job's name, then by its own name.

    A document is predicted where its costs are unknown, like every query that never ran.
    """
    if item.faults:
        return ReviewSubject(why_not=f"The object cannot be read: {item.faults[0]}.")
    if item.document:
        return _document(item)
    if item.query:
        query = cluster.queries.filter(name=item.query).first()
        if query is None:
            return ReviewSubject(
                why_not=f"{QUERY_ANNOTATION} names {item.query!r}, which is no query of {cluster.slug}."
            )
        return _newest(query)
    jobs = list(_jobs(cluster, item))
    if len(jobs) > 1:
        names = ", ".join(f"{job.query.name} ({job.connection.name})" for job in jobs[:5])
        return ReviewSubject(why_not=f"Several queries are a job of this name: {names}. {QUERY_ANNOTATION} says which.")
    if jobs:
        return _imported(jobs[0])
    names = [f"{item.namespace}.{item.name}", f"{item.namespace}-{item.name}", item.name]
    found = {query.name: query for query in cluster.queries.filter(name__in=names)}
    query = next((found[name] for name in names if name in found), None)
    if query is not None:
        return _newest(query)
    return ReviewSubject(
        why_not=f"No query of {cluster.slug} is {item.kind} {item.namespace}/{item.name}: import its job by a "
        f"connection, or annotate it with {QUERY_ANNOTATION} or {DOCUMENT_ANNOTATION}."
    )


def version_parallelism(version: QueryVersion) -> int:
    """The most replicas that an operator of a version has, as it runs or as its document asks."""
    rows = version.operators.prefetch_related("placements")
    return max((len(row.placements.all()) or len(row.requested) or 1 for row in rows), default=1)


def _document(item: StreamingObject) -> ReviewSubject:
    try:
        document = read_document(item.document)
    except SluiceError as error:
        return ReviewSubject(why_not=error.message)
    if not isinstance(document, Mapping):
        return ReviewSubject(why_not=f"{DOCUMENT_ANNOTATION} holds no object.")
    return ReviewSubject(document={"query": item.query or item.name, **document})


def _jobs(cluster: Cluster, item: StreamingObject) -> Any:
    """Imported jobs of the first of the object's names that has any."""
    rows = ImportedJob.objects.select_related("connection", "query__running_version", "version__query")
    for name in item.job_names:
        jobs = rows.filter(connection__cluster=cluster, name=name)[:6]
        if jobs:
            return jobs
    return []


def _imported(job: ImportedJob) -> ReviewSubject:
    return ReviewSubject(version=job.version) if job.version is not None else _newest(job.query)


def _newest(query: Query) -> ReviewSubject:
    version = query.versions.select_related("query__cluster").first()
    if version is None:
        return ReviewSubject(why_not=f"Query {query.name} has no version.")
    return ReviewSubject(version=version)
