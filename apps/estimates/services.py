"""Asking for estimates and keeping their results."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible, from_engine
from apps.core.events import announce
from apps.core.packing import pack_json, unpack_json
from apps.estimates.live import with_live_parts
from apps.estimates.models import DocumentEstimate, EstimateRun, QueryEstimate
from apps.estimates.results import node_rows, query_rows, run_facts
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.jobs.models import Job
from apps.jobs.services import job_submit
from apps.queries.snapshots import Snapshot
from engine.deployment import Deployment
from engine.errors import EngineError

if TYPE_CHECKING:  # it loads numba, which only workers need
    from engine.estimation import Estimate

__all__ = [
    "KEEP_RUNS",
    "KEEP_SERIES",
    "document_estimate_document",
    "document_estimate_request",
    "document_estimate_result",
    "document_estimate_store",
    "document_estimates_purge",
    "estimate_request",
    "estimate_store",
    "estimates_thin",
]

KEEP_DOCUMENTS = timedelta(days=7)
KEEP_SERIES = 200  # runs of a cluster that keep their curves
KEEP_RUNS = 2000  # runs of a cluster that keep their numbers
MOST_CELLS = 50_000_000  # numbers in one series of every core and operator of a document; 400 MB each


def estimate_request(*, cluster: Cluster, user: User | None = None, by_telemetry: bool = False) -> Job:
    """Ask for an estimate of everything that runs in `cluster`. One that still waits for a worker is returned instead
    of a second one: it takes its snapshot when it starts.

    Those `by_telemetry` are quiet: pages do not show their progress, and they are thinned with age.
    """
    if not cluster.nodes.exists():
        raise Impossible(
            f"Cluster {cluster.slug} has no nodes; register at least one before estimating.",
            [("cluster", f"{cluster.slug} has no nodes")],
        )
    job = job_submit(
        kind=JobKind.ESTIMATE,
        title=f"Estimate {cluster.slug}",
        params={"cluster": cluster.slug} | ({"by_telemetry": True} if by_telemetry else {}),
        cluster=cluster,
        user=user,
        dedupe_key=f"estimate:{cluster.pk}",
    )
    if not by_telemetry and job.params.pop("by_telemetry", False):  # one that telemetry asked for is waiting
        job.save(update_fields=["params"])
    return job


def estimate_store(
    *, job: Job | None, cluster: Cluster, snapshot: Snapshot, estimate: Estimate, duration_s: float
) -> EstimateRun:
    """Keep a run, one row per query and one per server. Called inside the job's transaction."""
    answer = with_live_parts(estimate.to_dict(), cluster=cluster, estimate=estimate)
    with transaction.atomic():
        run = EstimateRun.objects.create(
            cluster=cluster,
            job=job,
            snapshot=snapshot.digest,
            snapshot_parts=snapshot.parts,
            subinterval_s=cluster.subinterval_s,
            slice_s=cluster.slice_s,
            slices=snapshot.deployment.subintervals,
            result=run_facts(answer),
            duration_s=duration_s,
            by_telemetry=job is not None and job.params.get("by_telemetry", False),
        )
        run.queries.bulk_create(query_rows(run, answer))
        run.nodes.bulk_create(node_rows(run, answer))
        estimates_thin(cluster=cluster)
        announce(f"cluster:{cluster.slug}")
    return run


def estimates_thin(*, cluster: Cluster) -> None:
    """Drop the curves of all but the newest runs, and runs older still."""
    ids = list(EstimateRun.objects.filter(cluster=cluster).values_list("pk", flat=True)[: KEEP_RUNS + 50])
    QueryEstimate.objects.filter(run_id__in=ids[KEEP_SERIES:KEEP_RUNS], series__isnull=False).update(series=None)
    EstimateRun.objects.filter(pk__in=ids[KEEP_RUNS:]).delete()


def document_estimate_request(*, document: dict[str, Any], flow_slices: int = 1, user: User | None = None) -> Job:
    """Ask for an estimate of a deployment document; every fault of it is refused at once, before anything is stored."""
    try:
        deployment = Deployment.parse(document)
    except EngineError as error:
        raise from_engine(error, "document") from None
    unplaced = [operator.id for operator in deployment.operators if not operator.replicas]
    if unplaced:
        faults = [("document.operators", f"{name} is on no node") for name in unplaced]
        raise Impossible("An estimate needs every operator on a node.", faults, code="unplaced")
    _check_size(deployment, flow_slices)
    with transaction.atomic():
        row = DocumentEstimate.objects.create(
            requested_by=user, digest=deployment.digest, flow_slices=flow_slices, document=pack_json(document)
        )
        job = job_submit(
            kind=JobKind.ESTIMATE_DOCUMENT,
            title=_title(deployment),
            params={"document_estimate": str(row.pk)},
            cluster=None,
            user=user,
        )
        row.job = job
        row.save(update_fields=["job"])
    return job


def _title(deployment: Deployment) -> str:
    count = len(deployment.operators)
    return f"Estimate a document of {count} operator{'' if count == 1 else 's'}"


def _check_size(deployment: Deployment, flow_slices: int) -> None:
    """A worker holds a few series for every core and operator: refuse what it has no memory for."""
    series = sum(node.cores for node in deployment.nodes) + len(deployment.operators)
    cells = series * deployment.subintervals * flow_slices
    if cells > MOST_CELLS:
        message = f"{series} cores and operators x {deployment.subintervals} subintervals x {flow_slices} slices"
        fault = ("document.subintervals", f"{message} is {cells:.2g} numbers; allowed: at most {MOST_CELLS:.0e}")
        raise Impossible("The document is too large for one estimate.", [fault], code="impossible")


def document_estimate_store(*, row: DocumentEstimate, answer: dict[str, Any]) -> None:
    """Keep the engine's whole answer for a document. Called inside the job's transaction."""
    DocumentEstimate.objects.filter(pk=row.pk).update(result=pack_json(answer))


def document_estimate_document(row: DocumentEstimate) -> dict[str, Any]:
    """The document as it was posted."""
    return unpack_json(row.document)


def document_estimate_result(row: DocumentEstimate) -> dict[str, Any] | None:
    """The engine's answer for a document, as its command line prints it; None while it is computed."""
    return None if row.result is None else unpack_json(row.result)


def document_estimates_purge() -> int:
    """Forget documents older than `KEEP_DOCUMENTS`; returns how many."""
    return DocumentEstimate.objects.filter(created_at__lt=timezone.now() - KEEP_DOCUMENTS).delete()[0]
