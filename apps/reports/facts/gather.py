"""The facts of a report, gathered once by its job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from apps.estimates.choices import ObjectiveState
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import run_latest
from apps.estimates.services import estimate_store
from apps.queries.snapshots import Snapshot, cluster_snapshot
from apps.reports.choices import ReportKind
from apps.reports.facts.changes import change_facts, report_before
from apps.reports.facts.fleet import fleet_facts
from apps.reports.facts.forecast import forecast_facts
from apps.reports.facts.latency import latency_facts
from apps.reports.facts.objectives import objective_facts
from apps.reports.facts.purchases import purchase_facts
from apps.reports.facts.risks import risk_facts
from apps.reports.facts.sentences import finding_of
from apps.reports.models import Report
from engine.estimation import estimate

__all__ = ["facts_of", "fresh_run"]

_SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval

Progress = Callable[[float, str], None]


def facts_of(report: Report, progress: Progress) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts as JSON, and the parts of the snapshot they were computed on."""
    definition = report.definition
    progress(0.02, "Taking a snapshot")
    snapshot = cluster_snapshot(definition.cluster)
    progress(0.05, "Estimating what runs")
    run = fresh_run(report, snapshot, progress)
    facts = _head(report, run)
    if definition.kind == ReportKind.LATENCY:
        facts |= latency_facts(report, run)
    else:
        facts |= _provisioning(report, run, snapshot, progress)
    facts["finding"] = finding_of(facts)
    return facts, dict(snapshot.parts)


def fresh_run(report: Report, snapshot: Snapshot, progress: Progress) -> EstimateRun | None:
    """The newest estimate, made anew if the cluster has moved since; None where there is nothing to estimate.

    It is stored at once: a report that is written again after its worker was killed finds it.
    """
    cluster = report.definition.cluster
    run = run_latest(cluster)
    if run is not None and run.snapshot == snapshot.digest:
        return run
    if not snapshot.deployment.nodes or not snapshot.deployment.operators:
        return None
    started = time.perf_counter()
    found = estimate(
        snapshot.deployment,
        mace_every=_SLICES_PER_SUBINTERVAL,
        progress=lambda share, step="": progress(0.05 + 0.35 * share, step or "Estimating what runs"),
    )
    duration_s = time.perf_counter() - started
    return estimate_store(job=None, cluster=cluster, snapshot=snapshot, estimate=found, duration_s=duration_s)


def _head(report: Report, run: EstimateRun | None) -> dict[str, Any]:
    """Who, what, when: the title block."""
    definition, cluster = report.definition, report.definition.cluster
    schedule = getattr(definition, "schedule", None)
    by = report.requested_by
    return {
        "format": "sluice/report",
        "version": 1,
        "kind": definition.kind,
        "id": str(report.pk),
        "name": definition.name,
        "cluster": {"slug": cluster.slug, "name": cluster.name},
        "time_zone": schedule.time_zone if schedule is not None else cluster.time_zone,
        "trigger": report.trigger,
        "requested_by": by.username if by is not None else "",
        "due_at": report.due_at.isoformat() if report.due_at else None,
        "missed": report.missed,
        "covers": {
            "from": report.covers_from.isoformat() if report.covers_from else None,
            "until": report.covers_until.isoformat(),
        },
        "written_at": timezone.now().isoformat(),
        "parameters": definition.parameters,
        "estimate": None
        if run is None
        else {
            "id": run.pk,
            "created_at": run.created_at.isoformat(),
            "snapshot": run.snapshot,
            "stretch_s": run.slices * run.slice_s,
        },
    }


def _provisioning(report: Report, run: EstimateRun | None, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    """Every section that was asked for. Objectives and fleet are always computed: the finding speaks of them."""
    cluster, parameters = report.definition.cluster, report.definition.parameters
    wanted = parameters["sections"]
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until)
    fleet = fleet_facts(cluster, run)
    found: dict[str, Any] = {"objectives": objectives, "fleet": fleet}
    if "forecast" in wanted:
        progress(0.42, "Reading the forecast")
        found["forecast"] = forecast_facts(cluster, parameters["horizon_days"], report.covers_until)
    purchases: dict[str, Any] = {}
    if {"purchases", "risks"} & set(wanted):
        purchases = purchase_facts(
            cluster, snapshot, parameters["growth"], lambda share, step: progress(0.45 + 0.4 * share, step)
        )
    if "purchases" in wanted:
        found["purchases"] = purchases
    if "risks" in wanted:
        found["risks"] = risk_facts(run, fleet, objectives["rows"], purchases)
    if "changes" in wanted:
        found["changes"] = change_facts(report, report_before(report), snapshot)
    judged = [row for row in objectives["rows"] if row["bound_s"]]
    found["counts"] = {
        "judged": len(judged),
        "held": sum(row["state"] == ObjectiveState.HOLDS for row in judged),
        "at_risk": sum(row["state"] == ObjectiveState.AT_RISK for row in judged),
        "broken": sum(row["state"] == ObjectiveState.BREACHED for row in judged),
    }
    return found
