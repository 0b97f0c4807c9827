"""Estimates: of everything that runs in a cluster, and of documents; requested, answered and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import transaction
from django.db.models import Count, Q

from apps.accounts.models import User
from apps.core.errors import Impossible, from_engine
from apps.core.events import announce
from apps.estimates.answers import STRIP_PARTS, LiveParts, StoredEstimate, curves_pack, stored_estimates
from apps.estimates.bases import base_facts, base_keep, cluster_base
from apps.estimates.calibration import calibrated
from apps.estimates.capacities import ClusterCapacities, capacities_begin, capacities_of, capacities_refresh
from apps.estimates.copies import RowCopies, copies_of
from apps.estimates.models import DocumentEstimate, EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.estimates.selectors import run_latest
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.runs import AnswerKind, RunKind, register
from apps.measurements.selectors import STREAM_NODE
from apps.measurements.stream_processor import timing_now
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import Snapshot
from apps.queries.snapshots.parts import is_large, parts_read, snapshot_take
from apps.telemetry.configs import live_served
from engine.arrays import finite_max, step_maxima
from engine.document.deployment import Deployment
from engine.document.policies import scheduling_bound
from engine.errors import EngineError
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits
from engine.words import counted

if TYPE_CHECKING:
    from engine.estimation.answer import ServerAnswer
    from engine.estimation.base import EstimateBase
    from engine.estimation.estimate import Estimate
    from engine.estimation.reports import QueryReport

__all__ = [
    "DOCUMENT_ESTIMATE",
    "ESTIMATE",
    "KEEP_RUNS",
    "KEEP_SERIES",
    "listed_facts",
    "run_present",
    "runs_kept",
    "series_purge",
]

KEEP_SERIES = 200  # runs of a cluster that keep their curves
KEEP_RUNS = 2000  # runs of a cluster that keep their numbers
KEEP_SERIES_ROWS, MIN_SERIES = 50_000, 2  # curves of queries in a cluster, some 1.5 kB each; of no fewer runs
KEEP_ROWS, MIN_RUNS = 400_000, 24  # estimates of queries in a cluster, some 7 kB each; of no fewer runs
MAX_CELLS = 50_000_000  # numbers in one series of every core and operator of a document; 400 MB each


class _ClusterEstimate(NamedTuple):
    """Answer of a run to keep: the base that it rests on, capacities, and rows that are copied or written."""

    base: EstimateBase
    capacities: ClusterCapacities
    copies: RowCopies
    queries: Sequence[QueryEstimate]
    nodes: Sequence[NodeEstimate]


class EstimateKind(AnswerKind[EstimateRun]):
    """Estimate of everything that runs in a cluster.

    Those `by_telemetry` are quiet: pages do not show their progress, and they are thinned with age. One that is asked
    for `if_changed` ends with the newest estimate where that is of the cluster as it is.
    """

    model, job, name, path = EstimateRun, JobKind.ESTIMATE, "estimate", "estimates"

    def title(self, run: EstimateRun) -> str:
        return f"Estimate {run.cluster.slug}"

    def page(self, run: EstimateRun) -> str:
        return f"/c/{run.cluster.slug}/"

    def once(self, run: EstimateRun, params: Mapping[str, object]) -> str:
        return f"estimate:{run.cluster_id}"

    def is_long(self, run: EstimateRun) -> bool:
        return is_large(run.cluster)

    def ask(self, cluster: Cluster, *, by_telemetry: bool = False, if_changed: bool = False) -> Mapping[str, object]:
        if not cluster.nodes.exists():
            raise Impossible(
                f"Cluster {cluster.slug} has no nodes; register at least one before estimating.",
                [("cluster", f"{cluster.slug} has no nodes")],
            )
        flags = {"by_telemetry": by_telemetry, "if_changed": if_changed}
        return {name: True for name, is_so in flags.items() if is_so}

    def request(self, *, by_telemetry: bool = False, if_changed: bool = False, **asked: Any) -> tuple[EstimateRun, Job]:
        flags = {"by_telemetry": by_telemetry, "if_changed": if_changed}
        run, job = super().request(**flags, **asked)
        others = {name for name, is_so in flags.items() if not is_so} & job.params.keys()
        if others:  # one that was asked for otherwise is waiting
            job.params = {name: value for name, value in job.params.items() if name not in others}
            job.save(update_fields=["params"])
        return run, job

    def work(self, report: JobReporter) -> JobOutcome:
        run = run_present(report.job.cluster) if report.job.params.get("if_changed") else None
        if run is None:
            return super().work(report)
        return JobOutcome(self.facts(run), self.page(run), self.address(run))

    def answered_by(self, job: Job) -> EstimateRun:
        return self.visible().get(pk=(job.result or {})["estimate"])

    def answer(self, run: EstimateRun, report: Callable[[float, str], None]) -> _ClusterEstimate:
        report(0.0, "Taking a snapshot")
        return self.estimate(run, snapshot_take(run.cluster), report)

    def estimate(self, run: EstimateRun, snapshot: Snapshot, report: Callable[[float, str], None]) -> _ClusterEstimate:
        """Estimate a snapshot by what has changed since the last, and set the columns of the run."""
        started = time.perf_counter()
        base = cluster_base(run.cluster, snapshot.deployment, report)
        run.duration_s = time.perf_counter() - started
        run.snapshot, run.snapshot_parts = snapshot.digest, dict(snapshot.parts)
        run.base = base_facts(base).to_dict()
        run.subinterval_s, run.slice_s = run.cluster.subinterval_s, run.cluster.slice_s
        run.slices = snapshot.deployment.subintervals
        by_telemetry = run.job is not None and bool(run.job.params.get("by_telemetry"))
        capacities = capacities_of(run.cluster, base, by_telemetry=by_telemetry, report=report)
        return self._answered(run, base, capacities)

    def _answered(self, run: EstimateRun, base: EstimateBase, capacities: ClusterCapacities) -> _ClusterEstimate:
        """The rows of a run, one per query and one per server: copies of the last run's where nothing differs."""
        cluster, estimate = run.cluster, base.whole
        facts = estimate.answer(plain=False)
        capacity = capacities.cluster
        run.result = facts.facts.to_dict() | ({"capacity": capacity.to_dict()} if capacity is not None else {})
        copies = copies_of(run, base)
        rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).select_related("running_version")
        running = {query.name: query for query in rows}
        stored = stored_estimates(facts, running.keys() - copies.queries.keys())
        stored = calibrated(_with_live_parts(stored, cluster=cluster, estimate=estimate), cluster=cluster)
        queries = [
            _query_row(run, running[name], replace(report, capacity=capacities.queries.get(name)))
            for name, report in stored.items()
            if name in running
        ]
        nodes = [
            _node_row(run, name, server) for name, server in (facts.servers or {}).items() if name not in copies.servers
        ]
        return _ClusterEstimate(base, capacities, copies, queries, nodes)

    def take(self, run: EstimateRun, snapshot: Snapshot, report: Callable[[float, str], None]) -> EstimateRun:
        """Estimate a snapshot and keep the run, for work that is no job of its own."""
        answer = self.estimate(run, snapshot, report)
        self.keep(run, answer, None)
        self.follow(run, answer)
        return run

    @transaction.atomic
    def keep(self, run: EstimateRun, answer: _ClusterEstimate, job: Job | None) -> EstimateRun:
        """Keep a run with the rows of its answer."""
        cluster = run.cluster
        run.by_telemetry = job is not None and job.params.get("by_telemetry", False)
        self.write(run)
        rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING)
        running = set(rows.values_list("pk", "running_version"))
        run.queries.bulk_create(
            row
            for row in answer.queries
            if (row.query_id, row.version_id) in running  # stopped or replaced meanwhile: nobody asks for it any more
        )
        run.nodes.bulk_create(answer.nodes)
        answer.copies.write(run)
        capacities_refresh(run, answer.capacities, answer.copies.queries)
        series_purge(cluster=cluster)
        announce(f"cluster:{cluster.slug}")
        transaction.on_commit(partial(base_keep, cluster, answer.base), robust=True)
        capacities_begin(run, answer.capacities)
        return run

    def follow(self, run: EstimateRun, answer: _ClusterEstimate) -> None:
        """Judge the objectives by the new run."""
        written = {row.query_id for row in answer.queries}
        objectives_refresh(run.cluster, among=None if answer.copies.before is None else written)

    def facts(self, run: EstimateRun) -> Mapping[str, object]:
        states = run.queries.order_by().values_list("state").annotate(count=Count("pk"))
        return {"estimate": run.pk, "queries": dict(states), "duration_s": round(run.duration_s, 3)}


ESTIMATE = register(EstimateKind())


def run_present(cluster: Cluster) -> EstimateRun | None:
    """The newest estimate where it is of the cluster as it is: read from its rows, whose parts are kept."""
    present, newest = parts_read(cluster), run_latest(cluster)
    return newest if newest is not None and newest.snapshot == present.digest else None


def _query_row(run: EstimateRun, query: Query, answer: StoredEstimate) -> QueryEstimate:
    """Row of a query, whose curve is kept apart."""
    return QueryEstimate(
        run=run,
        query=query,
        version=query.running_version,
        **{name: getattr(answer, name) for name in ("statistic", "bound_s", "estimate_s", "low_s", "high_s")},
        **{name: getattr(answer, name) for name in ("worst_s", "headroom_share", "mace_s", "state")},
        certainty=answer.standing.kind,
        **listed_facts(answer),
        result=replace(answer, series=None).to_dict(),
        series=curves_pack((answer.series or {})["flow"], run.subinterval_s),
    )


def listed_facts(answer: StoredEstimate) -> dict[str, object]:
    """Columns of an answer's facts that lists show: they parse none."""
    trust = answer.calibration.trust.state if answer.calibration is not None else ""
    bottleneck = answer.bottleneck
    if bottleneck is None:
        return {"trust": trust}
    return {
        "trust": trust,
        "bottleneck_server": bottleneck.server,
        "bottleneck_node": bottleneck.node or "",
        "bottleneck_load": bottleneck.load_peak,
    }


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
    """Drop the curves of all but the newest runs, and runs older still; fewer runs are kept of a large cluster."""
    ids = list(EstimateRun.objects.filter(cluster=cluster).values_list("pk", flat=True)[: KEEP_RUNS + 50])
    queries = max(1, QueryEstimate.objects.filter(run=ids[0]).count()) if ids else 1
    with_series, with_numbers = runs_kept(queries)
    QueryEstimate.objects.filter(run_id__in=ids[with_series:with_numbers], series__isnull=False).update(series=None)
    EstimateRun.objects.filter(pk__in=ids[with_numbers:]).delete()


def runs_kept(queries: int) -> tuple[int, int]:
    """Numbers of runs that keep their curves, and that keep their numbers, in a cluster of so many queries.

    Examples
    --------
    >>> runs_kept(10), runs_kept(1_000), runs_kept(10_000)
    ((200, 2000), (50, 400), (5, 40))
    """
    with_series = min(KEEP_SERIES, max(MIN_SERIES, KEEP_SERIES_ROWS // queries))
    return with_series, min(KEEP_RUNS, max(MIN_RUNS, KEEP_ROWS // queries))


class DocumentEstimateKind(RunKind[DocumentEstimate]):
    """Estimate of a deployment document that belongs to no cluster."""

    model, job, name, path = DocumentEstimate, JobKind.ESTIMATE_DOCUMENT, "document_estimate", "estimates/documents"
    related, bulk = ("job",), ("document",)
    retention, old = timedelta(days=7), Q()

    def title(self, run: DocumentEstimate) -> str:
        return f"Estimate a document of {counted(len(run.document.get('operators', ())), 'operator')}"

    def page(self, run: DocumentEstimate) -> str:
        return ""

    def cluster(self, run: DocumentEstimate) -> None:
        return None

    def create(self, *, user: User | None, document: Any, flow_slices: int = 1) -> DocumentEstimate:
        """Write an estimate without a job; all faults of its document are reported before anything is stored."""
        try:
            deployment = Deployment.parse(document)
        except EngineError as error:
            raise from_engine(error, "document") from None
        unplaced = [operator.id for operator in deployment.operators if not operator.replicas]
        if unplaced:
            faults = [("document.operators", f"{name} is on no node") for name in unplaced]
            raise Impossible("An estimate needs every operator on a node.", faults, code="unplaced")
        _check_size(deployment, flow_slices)
        return DocumentEstimate.objects.create(
            requested_by=user, digest=deployment.digest, flow_slices=flow_slices, document=document
        )

    def answer(self, run: DocumentEstimate, report: JobReporter) -> None:
        from engine.estimation.estimate import estimate  # numba with it, which only workers load

        report(0.0, "Reading the document")
        found = estimate(Deployment.parse(run.document), flow_slices=run.flow_slices, progress=report)
        run.result = found.answer().to_dict()

    def facts(self, run: DocumentEstimate) -> Mapping[str, object]:
        return {"digest": run.digest} | {
            name: run.result.get(name) for name in ("mace_wc", "flow_wc", "flow_by_input_wc")
        }


DOCUMENT_ESTIMATE = register(DocumentEstimateKind())


def _check_size(deployment: Deployment, flow_slices: int) -> None:
    """A worker holds a few series for every core and operator: refuse what it has no memory for."""
    series = sum(node.cores for node in deployment.nodes) + len(deployment.operators)
    cells = series * deployment.subintervals * flow_slices
    if cells > MAX_CELLS:
        message = f"{series} cores and operators x {deployment.subintervals} subintervals x {flow_slices} slices"
        fault = ("document.subintervals", f"{message} is {cells:.2g} numbers; allowed: at most {MAX_CELLS:.0e}")
        raise Impossible("The document is too large for one estimate.", [fault], code="impossible")


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
