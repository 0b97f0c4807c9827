"""Imports of deployment documents as runs: requested, checked and stored by a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.core.errors import Malformed, fault_count, from_engine
from apps.core.limits import MAX_REQUEST_OPERATORS
from apps.fleet.models import Cluster
from apps.jobs.models import JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.queries.documents import document_prepare, document_store
from apps.queries.models import ImportRun
from apps.queries.prepared_imports import PreparedImport
from apps.queries.snapshots.parts import LARGE
from engine.document.deployment import Deployment
from engine.document.kinds import MAX_OPERATORS
from engine.errors import DocumentError

__all__ = ["IMPORT", "operator_count"]


class ImportKind(RunKind[ImportRun]):
    """Import of a deployment document into a cluster, or a check of one; options as of `document_import`."""

    model, job, name = ImportRun, JobKind.IMPORT, "import"
    related, bulk = ("cluster", "job__cluster", "requested_by"), ("document",)
    retention, old = timedelta(days=7), Q()

    def title(self, run: ImportRun) -> str:
        what = "Check" if run.options["dry_run"] else "Import"
        return f"{what} a document of {run.counts['operators']} operators"

    def is_long(self, run: ImportRun) -> bool:
        return int(run.counts["nodes"]) + int(run.counts["queries"]) > LARGE

    def page(self, run: ImportRun) -> str:
        return f"/c/{run.cluster.slug}/import/{run.pk}/"

    def create(
        self,
        *,
        user: User | None,
        cluster: Cluster,
        document: Any,
        dry_run: bool = True,
        fill: str = "",
        query: str = "",
        start: bool = False,
        path: str = "document",
    ) -> ImportRun:
        """Write an import without a job.

        Raises
        ------
        Malformed
            With every fault of the document itself, unless it is so large that the job reads it. What does not fit
            the cluster is found by the job.
        """
        if not MAX_REQUEST_OPERATORS < operator_count(document) <= MAX_OPERATORS:
            try:
                Deployment.parse(document, placed=start)
            except DocumentError as error:
                refusal = from_engine(error, path)
                faults = refusal.faults
                first = f"first: {faults[0].path}: {faults[0].message}" if faults else refusal.message
                raise Malformed(f"The document has {fault_count(faults)}; {first}", faults) from None
        return ImportRun.objects.create(
            cluster=cluster,
            requested_by=user,
            document=document,
            options={"dry_run": dry_run, "fill": fill, "query": query, "start": start},
            counts=_counts(document, query),
        )

    def answer(self, run: ImportRun, report: JobReporter) -> None:
        """Import. What is stored and that it is stored are one transaction: done again, it is not done twice.

        Most of the work is done before it. Within, progress is noted only: a row of the job that is written there would
        keep whoever cancels waiting for the end.
        """
        if run.result is None:
            asked, dry_run = dict(run.options), run.options["dry_run"]
            del asked["dry_run"]
            prepared = document_prepare(
                cluster=run.cluster, document=run.document, user=run.requested_by, report=report, **asked
            )
            self._store(run, prepared, dry_run, report)

    @transaction.atomic
    def _store(self, run: ImportRun, prepared: PreparedImport, dry_run: bool, report: JobReporter) -> None:
        row = ImportRun.objects.select_for_update().only("result", "state").get(pk=run.pk)
        if row.result is None:
            row.result = document_store(prepared, dry_run=dry_run, report=report.note).to_dict()
            row.state = self.answered  # what is stored stays so, however its job ends
            row.save(update_fields=["result", "state"])
        run.result = row.result

    def facts(self, run: ImportRun) -> Mapping[str, object]:
        return {name: len(run.result[name]) for name in ("created", "updated", "unchanged")}


IMPORT = register(ImportKind())


def operator_count(document: Any) -> int:
    """Number of operators of a document, as far as it is one."""
    return len(_items(document, "operators"))


def _counts(document: Any, query: str) -> dict[str, int]:
    """Numbers of elements of a document that nobody has checked yet."""
    operators = _items(document, "operators")
    queries = {str(item.get("query") or query) for item in operators if isinstance(item, Mapping)} - {""}
    return {"nodes": len(_items(document, "nodes")), "queries": len(queries), "operators": len(operators)}


def _items(document: Any, name: str) -> list[Any]:
    items = document.get(name) if isinstance(document, Mapping) else None
    return items if isinstance(items, list) else []
