"""A whole deployment document into a cluster, and a cluster as a document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import from_engine
from apps.fleet.models import Cluster
from apps.queries.prepared_imports import DocumentImport, PreparedImport, Report, find_unsupported
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.document.deployment import Deployment
from engine.errors import DocumentError

__all__ = ["document_export", "document_import", "document_prepare", "document_store"]


class _RollBackDryRun(Exception):
    """Ends the transaction of a dry run."""


def document_export(cluster: Cluster) -> dict[str, Any]:
    """Deployment document of the running queries of a cluster, at slice width; `document_import` reads it.

    Its nodes name the policies that their agents run.
    """
    return replace(cluster_snapshot(cluster).deployment, scheduling=None).to_document()


def document_import(
    *,
    cluster: Cluster,
    document: Any,
    dry_run: bool = False,
    fill: str = "",
    query: str = "",
    start: bool = False,
    user: User | None = None,
    path: str = "",
) -> DocumentImport:
    """Create what a deployment document describes, all of it or, with any fault, nothing.

    Policies of nodes are left to their agents, and noted where they are not stimulus time. Nodes and links that exist
    are updated; arrivals of a source that exists are replaced; a query that exists gets a
    new version. Arrivals are resampled to the cluster's grid. Queries become drafts that ask for its placement.

    Parameters
    ----------
    fill : str
        What follows where the document's arrivals end before the cluster's horizon: `zero` or `repeat`.
    query : str
        The query of operators that name none.
    start : bool
        Start the queries where the document places them, past admission: for restoring what ran before.

    Raises
    ------
    Malformed
        With every fault of the document, its paths beginning with `path`.
    """
    prepared = document_prepare(
        cluster=cluster, document=document, fill=fill, query=query, start=start, user=user, path=path
    )
    return document_store(prepared, dry_run=dry_run)


def document_prepare(
    *,
    cluster: Cluster,
    document: Any,
    fill: str = "",
    query: str = "",
    start: bool = False,
    user: User | None = None,
    path: str = "",
    report: Report = lambda share, step: None,
) -> PreparedImport:
    """Read and check what `document_import` stores, with most of the work and no transaction: nobody waits meanwhile.

    Raises
    ------
    Malformed
        With every fault of the document.
    """
    report(0.0, "Reading the document")
    try:
        deployment = Deployment.parse(document, placed=start)
    except DocumentError as error:
        raise from_engine(error, path) from None
    deployment = _named(deployment, query)
    prepared = PreparedImport(cluster, deployment, fill, start, user, path)
    prepared.faults += find_unsupported(deployment)
    prepared.refuse()
    prepared.read(report)
    return prepared


def document_store(
    prepared: PreparedImport, *, dry_run: bool = False, report: Report = lambda share, step: None
) -> DocumentImport:
    """Store what was prepared in one transaction, all of it or, with any fault, nothing.

    Raises
    ------
    Malformed
        With every fault of what does not fit the cluster.
    """
    done = DocumentImport(dry_run)
    try:
        with transaction.atomic():
            prepared.store(done, report)
            if dry_run:
                raise _RollBackDryRun
    except _RollBackDryRun:
        pass
    return done


def _named(deployment: Deployment, query: str) -> Deployment:
    if not query:
        return deployment
    return replace(deployment, operators=tuple(replace(op, query=op.query or query) for op in deployment.operators))
