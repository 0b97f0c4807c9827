"""Facts of a report, gathered from its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models.fields.json import KT
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import run_latest
from apps.estimates.services import ESTIMATE
from apps.queries.snapshots.cluster import Snapshot, snapshot_changes
from apps.queries.snapshots.parts import snapshot_take
from apps.reports.choices import ReportKind, ReportState
from apps.reports.models import Report
from apps.reports.report import (
    AnyReport,
    LatencyParameters,
    LatencyReport,
    ProvisioningParameters,
    ProvisioningReport,
    ReportBasis,
    ReportChanges,
    ReportCluster,
    ReportDecision,
    ReportPeriod,
)
from apps.reports.sections.events import event_facts
from apps.reports.sections.findings import report_finding, report_risks
from apps.reports.sections.fleet import fleet_facts
from apps.reports.sections.forecast import forecast_facts
from apps.reports.sections.objectives import absent_queries, latency_curves, objective_facts, queries_of
from apps.reports.sections.promises import promise_facts
from apps.reports.sections.purchases import ReportPurchases
from apps.reports.sizing import purchase_facts

__all__ = ["gather_facts"]

_MAX_DECISIONS = 200

Progress = Callable[[float, str], None]


def gather_facts(report: Report, progress: Progress) -> tuple[AnyReport, dict[str, str]]:
    """The facts, and the parts of the snapshot they were computed on."""
    progress(0.02, "Taking a snapshot")
    snapshot = snapshot_take(report.definition.cluster)
    progress(0.05, "Estimating what runs")
    run = _fresh_run(report, snapshot, progress)
    facts: AnyReport
    if report.definition.kind == ReportKind.LATENCY:
        facts = _latency(report, run)
    else:
        facts = _provisioning(report, run, snapshot, progress)
    return replace(facts, finding=report_finding(facts)), dict(snapshot.parts)


def _fresh_run(report: Report, snapshot: Snapshot, progress: Progress) -> EstimateRun | None:
    """The newest estimate, made anew if the cluster has moved since; None where there is nothing to estimate.

    It is stored at once: a report that is written again after its worker was killed finds it.
    """
    cluster = report.definition.cluster
    run = run_latest(cluster)
    if run is not None and run.snapshot == snapshot.digest:
        return run
    if not snapshot.deployment.nodes or not snapshot.deployment.operators:
        return None
    run = EstimateRun(cluster=cluster)
    share = lambda done, step="": progress(0.05 + 0.35 * done, step or "Estimating what runs")  # noqa: E731
    return ESTIMATE.take(run, snapshot, share)


def _head(report: Report, run: EstimateRun | None) -> dict[str, Any]:
    """Fields of the title block."""
    definition, cluster, by = report.definition, report.definition.cluster, report.requested_by
    schedule = getattr(definition, "schedule", None)
    return {
        "kind": definition.kind,
        "id": str(report.pk),
        "name": definition.name,
        "cluster": ReportCluster(cluster.slug, cluster.name),
        "time_zone": schedule.time_zone if schedule is not None else cluster.time_zone,
        "trigger": report.trigger,
        "requested_by": by.username if by is not None else "",
        "due_at": report.due_at,
        "missed": report.missed,
        "covers": ReportPeriod(report.covers_from, report.covers_until),
        "written_at": timezone.now(),
        "estimate": None if run is None else ReportBasis(run.pk, run.created_at, run.snapshot, run.horizon_s),
    }


def _latency(report: Report, run: EstimateRun | None) -> LatencyReport:
    cluster, asked = report.definition.cluster, LatencyParameters.parse(report.definition.parameters)
    queries = queries_of(cluster, asked.query, asked.team)
    names = {query.name for query in queries}
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until, names)
    return LatencyReport(
        **_head(report, run),
        parameters=asked,
        subject=asked,
        objectives=objectives,
        absent=absent_queries(queries, objectives),
        curves=latency_curves(run, objectives),
    )


def _provisioning(
    report: Report, run: EstimateRun | None, snapshot: Snapshot, progress: Progress
) -> ProvisioningReport:
    """Every section that was asked for. Objectives and fleet are always computed: the finding speaks of them."""
    cluster, asked = report.definition.cluster, ProvisioningParameters.parse(report.definition.parameters)
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until)
    fleet = fleet_facts(cluster, run)
    forecast = purchases = None
    if "forecast" in asked.sections:
        progress(0.42, "Reading the forecast")
        forecast = forecast_facts(cluster, asked.horizon_days, report.covers_until)
    if {"purchases", "risks"} & set(asked.sections):
        purchases = purchase_facts(
            cluster, snapshot, asked.growth, lambda share, step: progress(0.45 + 0.4 * share, step)
        )
    losses = purchases.losses if isinstance(purchases, ReportPurchases) else []
    return ProvisioningReport(
        **_head(report, run),
        parameters=asked,
        objectives=objectives,
        fleet=fleet,
        forecast=forecast,
        events=event_facts(cluster, asked.horizon_days, report.covers_until) if "events" in asked.sections else None,
        purchases=purchases if "purchases" in asked.sections else None,
        promises=promise_facts(cluster, report.covers_from, report.covers_until)
        if "promises" in asked.sections
        else None,
        risks=report_risks(run, fleet, objectives.rows, losses) if "risks" in asked.sections else None,
        changes=_changes(report, snapshot) if "changes" in asked.sections else None,
        counts=objectives.counts,
    )


def _changes(report: Report, snapshot: Snapshot) -> ReportChanges:
    """Changes since the last finished report of the same definition."""
    rows = Report.objects.filter(
        definition=report.definition, state=ReportState.READY, covers_until__lt=report.covers_until
    )
    before = rows.exclude(pk=report.pk).defer("html", "pdf", "csv", "result").order_by("-covers_until").first()
    if before is None:
        return ReportChanges(parts=[], decisions=[])
    moved = snapshot_changes(before.snapshot_parts, snapshot.parts)
    return ReportChanges(
        since=before.covers_until,
        parts=moved[:_MAX_DECISIONS],
        more_parts=max(0, len(moved) - _MAX_DECISIONS),
        decisions=_decisions(report, before.covers_until),
    )


def _decisions(report: Report, since: datetime) -> list[ReportDecision]:
    rows = AdmissionRequest.objects.filter(
        cluster=report.definition.cluster, decided_at__gt=since, decided_at__lte=report.covers_until
    )
    rows = rows.select_related("version__query", "decided_by").defer("result", "snapshot_parts")
    return [
        ReportDecision(
            query=row.version.query.name,
            version=row.version.number,
            verdict=row.verdict,
            state=row.state,
            by=row.decided_by.username if row.decided_by else "",
            overridden=row.overridden,
            headline=row.headline or "",
            at=row.decided_at,
        )
        for row in rows.annotate(headline=KT("result__headline")).order_by("decided_at")[:_MAX_DECISIONS]
    ]
