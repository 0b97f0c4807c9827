"""Requests for estimates, and storage of the engine's answers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible, from_engine
from apps.core.events import announce
from apps.core.models import pack_json, unpack_json
from apps.estimates.curves import STRIP_PARTS, curves_pack
from apps.estimates.intervals import with_calibration
from apps.estimates.models import DocumentEstimate, EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.services import job_submit
from apps.measurements.operators import STREAM_NODE
from apps.measurements.stream_processor import timing_now
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import Snapshot
from apps.telemetry.configs import live_served
from engine.arrays import finite_max, step_maxima
from engine.document.deployment import Deployment
from engine.document.elements import scheduling_document
from engine.errors import EngineError
from engine.latency_state import LatencyStanding
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits
from engine.words import counted

if TYPE_CHECKING:
    from engine.estimation.estimate import Estimate
    from engine.estimation.reports import QueryReport

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
    "node_rows",
    "operators_of",
    "query_rows",
    "run_facts",
    "series_purge",
]


_PER_SUBINTERVAL = 200  # a list this long is a series, not a fact


def run_facts(answer: dict[str, Any]) -> dict[str, Any]:
    """Facts of the cluster as a whole; series and the parts that get rows of their own are left out."""
    parts = {"operators", "servers", "queries"}
    return {
        key: value
        for key, value in answer.items()
        if key not in parts and not (isinstance(value, list) and _is_series(value, answer))
    }


def query_rows(run: EstimateRun, answer: dict[str, Any]) -> list[QueryEstimate]:
    """One unsaved row for each query of the answer."""
    running = {
        query.name: query
        for query in Query.objects.filter(cluster=run.cluster, state=QueryState.RUNNING).select_related(
            "running_version"
        )
    }
    return [
        _query_row(run, running[name], result | _waiting(name, answer), operators_of(name, answer, run.subinterval_s))
        for name, result in answer["queries"].items()
        if name in running  # stopped while it was estimated: nobody asks for it any more
    ]


def node_rows(run: EstimateRun, answer: dict[str, Any]) -> list[NodeEstimate]:
    """One unsaved row for each server: the cores of nodes, and links with a bandwidth."""
    return [
        NodeEstimate(
            run=run,
            server=name,
            node_name=(result.get("node") or "") if result["kind"] == "node" else "",
            mean_load=result["load_mean"],
            peak_load=result["load_peak"],
            excess_s=result["mace_wc"],
            excess=[round(value, 6) for value in step_maxima(result["mace"], STRIP_PARTS).tolist()],
        )
        for name, result in answer["servers"].items()
    ]


def _is_series(value: list[Any], answer: dict[str, Any]) -> bool:
    return len(value) == answer.get("subintervals") or len(value) >= _PER_SUBINTERVAL


def _query_row(
    run: EstimateRun, query: Query, result: dict[str, Any], operators: dict[str, dict[str, float]]
) -> QueryEstimate:
    facts = {key: value for key, value in result.items() if key != "series"}
    return QueryEstimate(
        run=run,
        query=query,
        version=query.running_version,
        statistic=result["statistic"],
        bound_s=result["bound_s"],
        estimate_s=result["estimate_s"],
        low_s=result["low_s"],
        high_s=result["high_s"],
        worst_s=result["worst_s"],
        headroom_share=result["headroom_share"],
        mace_s=result["mace_s"],
        state=result["state"],
        certainty=LatencyStanding.parse(result["standing"]).kind,
        result={**facts, "operators": operators},
        series=curves_pack(result["series"], run.subinterval_s),
    )


def operators_of(query: str, answer: dict[str, Any], subinterval_s: float) -> dict[str, dict[str, float]]:
    """Load and output of each of the query's operators, by their names within the query."""
    prefix = f"{query}/"
    return {
        name.removeprefix(prefix): _operator_facts(result, subinterval_s)
        for name, result in answer["operators"].items()
        if name.startswith(prefix)
    }


def _waiting(query: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Backlogs of the query's inputs where the horizon begins; empty where nothing waits."""
    backlogs = [found for found in answer.get("backlogs", ()) if found["query"] == query]
    return {"backlogs": backlogs} if backlogs else {}


def _operator_facts(result: dict[str, Any], subinterval_s: float) -> dict[str, float]:
    load, output = result["load"], result["output"]
    count = max(1, len(load))
    return {
        "load_mean_cps": sum(load) / count / subinterval_s,
        "load_peak_cps": max(load, default=0.0) / subinterval_s,
        "output_mean_eps": sum(output) / count / subinterval_s,
        "output_peak_eps": max(output, default=0.0) / subinterval_s,
    }


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
    answer = _with_live_parts(estimate.to_dict(), cluster=cluster, estimate=estimate)
    answer = with_calibration(answer, cluster=cluster)
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
        objectives_refresh(cluster)
        series_purge(cluster=cluster)
        announce(f"cluster:{cluster.slug}")
    return run


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
    """Purge documents older than `KEEP_DOCUMENTS`; returns how many."""
    return DocumentEstimate.objects.filter(created_at__lt=timezone.now() - KEEP_DOCUMENTS).delete()[0]


def _with_live_parts(answer: dict[str, Any], *, cluster: Cluster, estimate: Estimate) -> dict[str, Any]:
    """The engine's answer with the waits of live queries.

    Each gets `live`: its parts in seconds, and their evidence, assumed until a batch was timed.
    """
    names = set(live_served().filter(query__cluster=cluster).values_list("query__name", flat=True))
    if not names:
        return answer
    timing = timing_now()
    servers = [i for i, server in enumerate(estimate.coarse.servers) if _is_stream(estimate, server.node)]
    answer_with_waits = {
        name: _whole(report, estimate, timing, servers) if name in names else answer["queries"][name]
        for name, report in estimate.queries.items()
    }
    return {**answer, "queries": answer_with_waits}


def _is_stream(estimate: Estimate, node: int | None) -> bool:
    return node is not None and estimate.coarse.nodes[node].id == STREAM_NODE


def _whole(report: QueryReport, estimate: Estimate, timing: StageTiming, servers: list[int]) -> dict[str, Any]:
    """A report with the waits that belong to each of its numbers."""
    work = batch_work_s(estimate.mace, servers, timing.interval_s)
    margin_s = live_latency(0.0, work, timing, statistic=report.statistic).margin_s
    late = report.delayed_by(live_waits(work, timing), margin_s)
    added_s = late.estimate_s - report.estimate_s
    live = live_latency(report.estimate_s, work, timing, statistic=report.statistic, added_s=added_s)
    uneven_s = estimate.coarse.subinterval_s  # a burst may begin inside a subinterval
    upper = batch_upper_s(estimate.mace, dict.fromkeys(servers, timing.interval_s)) + uneven_s
    parts = live.to_dict() | {
        "interval_s": timing.interval_s,
        "mean_work_s": float(work.mean()),
        "upper_s": finite_max(upper + timing.epoch_s + live.overhead_s),
        "evidence": str(Evidence.ASSUMED if timing.is_assumed else Evidence.MEASURED),
    }
    latency = late.to_dict() | {"live": parts}
    if "scheduling" in latency:
        bound = scheduling_document(latency["scheduling"]["nodes"], parts["upper_s"])
        latency["scheduling"] = {**latency["scheduling"], **bound}
    return latency
