"""Requests for estimates, and storage of the engine's answers."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible, from_engine
from apps.core.events import announce
from apps.core.models import pack_json
from apps.estimates.answers import STRIP_PARTS, LiveParts, StoredEstimate, curves_pack, stored_estimate
from apps.estimates.calibration import calibrated
from apps.estimates.models import DocumentEstimate, EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.services import job_submit
from apps.measurements.selectors import STREAM_NODE
from apps.measurements.stream_processor import timing_now
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import Snapshot
from apps.telemetry.configs import live_served
from engine.arrays import finite_max, step_maxima
from engine.document.deployment import Deployment
from engine.document.policies import scheduling_bound
from engine.errors import EngineError
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits
from engine.words import counted

if TYPE_CHECKING:
    from engine.estimation.answer import EstimateAnswer, ServerAnswer
    from engine.estimation.estimate import Estimate
    from engine.estimation.reports import QueryReport

__all__ = [
    "KEEP_RUNS",
    "KEEP_SERIES",
    "document_estimate_request",
    "document_estimate_store",
    "document_estimates_purge",
    "estimate_request",
    "estimate_store",
    "series_purge",
]

KEEP_DOCUMENTS = timedelta(days=7)
KEEP_SERIES = 200  # runs of a cluster that keep their curves
KEEP_RUNS = 2000  # runs of a cluster that keep their numbers
MAX_CELLS = 50_000_000  # numbers in one series of every core and operator of a document; 400 MB each


def estimate_request(*, cluster: Cluster, user: User | None = None, by_telemetry: bool = False) -> Job:
    """Request an estimate of everything that runs in `cluster`. One that still waits for a worker is returned instead
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
    answer = estimate.answer()
    stored = {name: stored_estimate(name, report, answer) for name, report in (answer.queries or {}).items()}
    stored = calibrated(_with_live_parts(stored, cluster=cluster, estimate=estimate), cluster=cluster)
    with transaction.atomic():
        run = EstimateRun.objects.create(
            cluster=cluster,
            job=job,
            snapshot=snapshot.digest,
            snapshot_parts=snapshot.parts,
            subinterval_s=cluster.subinterval_s,
            slice_s=cluster.slice_s,
            slices=snapshot.deployment.subintervals,
            result=answer.facts.to_dict(),
            duration_s=duration_s,
            by_telemetry=job is not None and job.params.get("by_telemetry", False),
        )
        rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).select_related("running_version")
        running = {query.name: query for query in rows}
        run.queries.bulk_create(
            _query_row(run, running[name], report)
            for name, report in stored.items()
            if name in running  # stopped while it was estimated: nobody asks for it any more
        )
        run.nodes.bulk_create(_node_row(run, name, server) for name, server in (answer.servers or {}).items())
        objectives_refresh(cluster)
        series_purge(cluster=cluster)
        announce(f"cluster:{cluster.slug}")
    return run


def _query_row(run: EstimateRun, query: Query, answer: StoredEstimate) -> QueryEstimate:
    """Row of a query, whose curve is kept apart."""
    return QueryEstimate(
        run=run,
        query=query,
        version=query.running_version,
        **{name: getattr(answer, name) for name in ("statistic", "bound_s", "estimate_s", "low_s", "high_s")},
        **{name: getattr(answer, name) for name in ("worst_s", "headroom_share", "mace_s", "state")},
        certainty=answer.standing.kind,
        result=replace(answer, series=None).to_dict(),
        series=curves_pack((answer.series or {})["flow"], run.subinterval_s),
    )


def _node_row(run: EstimateRun, name: str, server: ServerAnswer) -> NodeEstimate:
    """Row of a core of a node, or of a link with a bandwidth."""
    return NodeEstimate(
        run=run,
        server=name,
        node_name=(server.node or "") if server.kind == "node" else "",
        mean_load=server.load_mean,
        peak_load=server.load_peak,
        excess_s=server.mace_wc,
        excess=[round(value, 6) for value in step_maxima(server.mace, STRIP_PARTS).tolist()]
        if server.mace is not None
        else [],
    )


def series_purge(*, cluster: Cluster) -> None:
    """Drop the curves of all but the newest runs, and runs older still."""
    ids = list(EstimateRun.objects.filter(cluster=cluster).values_list("pk", flat=True)[: KEEP_RUNS + 50])
    QueryEstimate.objects.filter(run_id__in=ids[KEEP_SERIES:KEEP_RUNS], series__isnull=False).update(series=None)
    EstimateRun.objects.filter(pk__in=ids[KEEP_RUNS:]).delete()


def document_estimate_request(*, document: dict[str, Any], flow_slices: int = 1, user: User | None = None) -> Job:
    """Request an estimate of a deployment document; all of its faults are reported before anything is stored."""
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
    return f"Estimate a document of {counted(len(deployment.operators), 'operator')}"


def _check_size(deployment: Deployment, flow_slices: int) -> None:
    """A worker holds a few series for every core and operator: refuse what it has no memory for."""
    series = sum(node.cores for node in deployment.nodes) + len(deployment.operators)
    cells = series * deployment.subintervals * flow_slices
    if cells > MAX_CELLS:
        message = f"{series} cores and operators x {deployment.subintervals} subintervals x {flow_slices} slices"
        fault = ("document.subintervals", f"{message} is {cells:.2g} numbers; allowed: at most {MAX_CELLS:.0e}")
        raise Impossible("The document is too large for one estimate.", [fault], code="impossible")


def document_estimate_store(*, row: DocumentEstimate, answer: EstimateAnswer) -> None:
    """Keep the engine's whole answer for a document. Called inside the job's transaction."""
    DocumentEstimate.objects.filter(pk=row.pk).update(result=pack_json(answer.to_dict()))


def document_estimates_purge() -> int:
    """Purge documents older than `KEEP_DOCUMENTS`; returns how many."""
    return DocumentEstimate.objects.filter(created_at__lt=timezone.now() - KEEP_DOCUMENTS).delete()[0]


def _with_live_parts(
    stored: dict[str, StoredEstimate], *, cluster: Cluster, estimate: Estimate
) -> dict[str, StoredEstimate]:
    """Estimates with the waits of live queries, each with its parts, assumed until a batch was timed."""
    names = set(live_served().filter(query__cluster=cluster).values_list("query__name", flat=True))
    if not names & stored.keys():
        return stored
    timing = timing_now()
    servers = [i for i, server in enumerate(estimate.coarse.servers) if _is_stream(estimate, server.node)]
    return {
        name: _with_waits(answer, estimate.queries[name], estimate, timing, servers) if name in names else answer
        for name, answer in stored.items()
    }


def _is_stream(estimate: Estimate, node: int | None) -> bool:
    return node is not None and estimate.coarse.nodes[node].id == STREAM_NODE


def _with_waits(
    stored: StoredEstimate, report: QueryReport, estimate: Estimate, timing: StageTiming, servers: list[int]
) -> StoredEstimate:
    """An estimate with the waits that belong to each of its numbers."""
    work = batch_work_s(estimate.mace, servers, timing.interval_s)
    margin_s = live_latency(0.0, work, timing, statistic=report.statistic).margin_s
    late = report.delayed_by(live_waits(work, timing), margin_s)
    added_s = late.estimate_s - report.estimate_s
    live = live_latency(report.estimate_s, work, timing, statistic=report.statistic, added_s=added_s)
    uneven_s = estimate.coarse.subinterval_s  # a burst may begin inside a subinterval
    upper = batch_upper_s(estimate.mace, dict.fromkeys(servers, timing.interval_s)) + uneven_s
    parts = LiveParts(
        **vars(live),
        interval_s=timing.interval_s,
        mean_work_s=float(work.mean()),
        upper_s=finite_max(upper + timing.epoch_s + live.overhead_s),
        evidence=Evidence.ASSUMED if timing.is_assumed else Evidence.MEASURED,
    )
    answer = late.answer()
    scheduling = answer.scheduling
    if scheduling is not None:
        bound = scheduling_bound(scheduling.nodes, parts.upper_s)
        scheduling = replace(scheduling, words=bound.words, upper_s=bound.upper_s)
    figures = {item.name: getattr(answer, item.name) for item in fields(answer)}
    return replace(stored, **figures | {"scheduling": scheduling}, live=parts)
