"""Imports of deployment documents as jobs: checked first, then stored, each exactly once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Malformed, fault_count, from_engine
from apps.core.models import pack_json, unpack_json
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.queries.documents import document_import
from apps.queries.models import ImportRun
from engine.document.deployment import Deployment
from engine.errors import DocumentError

__all__ = ["import_request", "imports_purge", "run_import"]

KEEP = timedelta(days=7)


def import_request(
    *,
    cluster: Cluster,
    document: Any,
    dry_run: bool = True,
    fill: str = "",
    query: str = "",
    start: bool = False,
    user: User | None = None,
    path: str = "document",
) -> ImportRun:
    """Have a worker import a document; options as in `document_import`. `run.job` is the job.

    Raises
    ------
    Malformed
        With every fault of the document itself. What does not fit the cluster is found by the job.
    """
    try:
        read = Deployment.parse(document, placed=start)
    except DocumentError as error:
        refusal = from_engine(error, path)
        first = f"first: {refusal.faults[0].path}: {refusal.faults[0].message}" if refusal.faults else refusal.message
        raise Malformed(f"The document has {fault_count(refusal.faults)}; {first}", refusal.faults) from None
    counts = {"nodes": len(read.nodes), "queries": len(read.queries), "operators": len(read.operators)}
    with transaction.atomic():
        run = ImportRun.objects.create(
            cluster=cluster,
            requested_by=user if user is not None and user.pk else None,
            document=pack_json(document),
            options={"dry_run": dry_run, "fill": fill, "query": query, "start": start},
            counts=counts,
        )
        run.job = job_submit(
            kind=JobKind.IMPORT,
            title=f"{'Check' if dry_run else 'Import'} a document of {counts['operators']} operators",
            params={"import": str(run.pk)},
            cluster=cluster,
            user=user,
        )
        run.save(update_fields=["job"])
    return run


def run_import(report: JobReporter) -> JobOutcome:
    """The work of an import's job. What it stores and that it has stored it are one transaction: done again, it is not
    done twice."""
    pk = report.job.params["import"]
    report(0.1, "Reading the document")
    document = import_document(ImportRun.objects.get(pk=pk))
    report(0.2, "Checking and storing nodes, arrivals and queries")
    with transaction.atomic():
        run = ImportRun.objects.select_for_update(of=("self",)).select_related("cluster", "requested_by").get(pk=pk)
        if run.result is None:
            done = document_import(cluster=run.cluster, document=document, user=run.requested_by, **run.options)
            run.result = done.as_dict()
            run.save(update_fields=["result"])
    return JobOutcome(
        {name: len(run.result[name]) for name in ("created", "updated", "unchanged")},
        f"/c/{run.cluster.slug}/import/{run.pk}/",
        f"/api/v1/jobs/{report.job.pk}",
    )


def import_document(run: ImportRun) -> Any:
    """The document as it was given."""
    return unpack_json(run.document)


def imports_purge() -> int:
    """Forget imports older than a week; what they stored stays. Returns how many."""
    return ImportRun.objects.filter(created_at__lt=timezone.now() - KEEP).delete()[0]


def import_result(job: Job) -> dict[str, Any]:
    """Effects of a finished import's job in REST."""
    return ImportRun.objects.get(job=job).result or {}
