"""Facts of a report, gathered once by its job: the fleet, changes since the last report, and each section's facts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models.fields.json import KT
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import ServerLoad, node_estimates, run_latest, servers_by_node
from apps.estimates.services import estimate_store
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node, NodePool
from apps.queries.choices import ObjectiveState
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot, snapshot_changes
from apps.reports.choices import ReportKind, ReportState
from apps.reports.facts.findings import report_finding, risk_facts
from apps.reports.facts.forecast import forecast_facts
from apps.reports.facts.objectives import latency_facts, objective_facts
from apps.reports.facts.purchases import purchase_facts
from apps.reports.models import Report
from engine.estimation.estimate import estimate

__all__ = ["change_facts", "fleet_facts", "fresh_run", "gather_facts", "report_before"]


_MAX_DECISIONS = 200


def report_before(report: Report) -> Report | None:
    """The last finished report of the same definition."""
    rows = Report.objects.filter(
        definition=report.definition, state=ReportState.READY, covers_until__lt=report.covers_until
    )
    return rows.exclude(pk=report.pk).defer("html", "pdf", "csv", "facts").order_by("-covers_until").first()


def change_facts(report: Report, before: Report | None, snapshot: Snapshot) -> dict[str, Any]:
    """Parts of the snapshot that differ, in words, and the admissions decided since. Empty for a first report."""
    if before is None:
        return {"since": None, "parts": [], "decisions": []}
    moved = snapshot_changes(before.snapshot_parts, snapshot.parts)
    return {
        "since": before.covers_until.isoformat(),
        "parts": moved[:_MAX_DECISIONS],
        "more_parts": max(0, len(moved) - _MAX_DECISIONS),
        "decisions": _decisions(report, before.covers_until),
    }


def _decisions(report: Report, since: datetime) -> list[dict[str, Any]]:
    rows = AdmissionRequest.objects.filter(
        cluster=report.definition.cluster, decided_at__gt=since, decided_at__lte=report.covers_until
    )
    rows = rows.select_related("version__query", "decided_by").defer("result", "snapshot_parts")
    return [
        {
            "query": row.version.query.name,
            "version": row.version.number,
            "verdict": row.verdict,
            "state": row.state,
            "by": row.decided_by.username if row.decided_by else "",
            "overridden": row.overridden,
            "headline": row.headline or "",
            "at": row.decided_at.isoformat(),
        }
        for row in rows.annotate(headline=KT("result__headline")).order_by("decided_at")[:_MAX_DECISIONS]
    ]


def fleet_facts(cluster: Cluster, run: EstimateRun | None) -> dict[str, Any]:
    """`nodes` (the most excess first), `pools`, `links` that hold work up, and what the fleet costs."""
    servers = servers_by_node(node_estimates(run)) if run is not None else []
    by_name = {server.node_name: server for server in servers if server.node_name}
    nodes = list(Node.objects.filter(cluster=cluster).select_related("pool").order_by("name"))
    rows = [_node(node, by_name.get(node.name)) for node in nodes]
    rows.sort(key=lambda row: (-(row["excess_s"] or 0), -(row["peak_load"] or 0), row["name"]))
    priced = [row for row in rows if row["price_per_hour"] is not None and row["state"] != NodeState.OFFLINE]
    unpriced = [row for row in rows if row["price_per_hour"] is None and row["state"] != NodeState.OFFLINE]
    return {
        "nodes": rows,
        "pools": _pools(cluster, nodes),
        "links": [_link(server) for server in servers if not server.node_name and server.excess_s > 0],
        "currency": cluster.currency,
        "cost_per_hour": sum(row["price_per_hour"] for row in priced) if priced else None,
        "without_price": len(unpriced),
        "stretch_s": run.horizon_s if run is not None else None,
    }


def _node(node: Node, load: ServerLoad | None) -> dict[str, Any]:
    price = node.pool.price_per_hour
    return {
        "name": node.name,
        "pool": node.pool.name,
        "state": node.state,
        "cores": node.cores,
        "capacity_cps": node.capacity_cps,
        "price_per_hour": None if price is None else float(price),
        "mean_load": load.mean_load if load else None,
        "peak_load": load.peak_load if load else None,
        "excess_s": load.excess_s if load else None,
        "excess": load.excess if load else [],
    }


def _link(load: ServerLoad) -> dict[str, Any]:
    return {"name": load.name.replace("->", " to "), "peak_load": load.peak_load, "excess_s": load.excess_s}


def _pools(cluster: Cluster, nodes: list[Node]) -> list[dict[str, Any]]:
    counted = Counter(node.pool_id for node in nodes if node.state != NodeState.OFFLINE)
    return [
        {
            "name": pool.name,
            "nodes": counted[pool.pk],
            "cores": pool.cores,
            "capacity_cps": pool.capacity_cps,
            "price_per_hour": None if pool.price_per_hour is None else float(pool.price_per_hour),
        }
        for pool in NodePool.objects.filter(cluster=cluster).order_by("name")
    ]


_SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval

Progress = Callable[[float, str], None]


def gather_facts(report: Report, progress: Progress) -> tuple[dict[str, Any], dict[str, str]]:
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
    facts["finding"] = report_finding(facts)
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
    result = estimate(
        snapshot.deployment,
        mace_every=_SLICES_PER_SUBINTERVAL,
        progress=lambda share, step="": progress(0.05 + 0.35 * share, step or "Estimating what runs"),
    )
    duration_s = time.perf_counter() - started
    return estimate_store(job=None, cluster=cluster, snapshot=snapshot, estimate=result, duration_s=duration_s)


def _head(report: Report, run: EstimateRun | None) -> dict[str, Any]:
    """The title block: author, subject, time."""
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
            "stretch_s": run.horizon_s,
        },
    }


def _provisioning(report: Report, run: EstimateRun | None, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    """Every section that was asked for. Objectives and fleet are always computed: the finding speaks of them."""
    cluster, parameters = report.definition.cluster, report.definition.parameters
    sections = parameters["sections"]
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until)
    fleet = fleet_facts(cluster, run)
    facts: dict[str, Any] = {"objectives": objectives, "fleet": fleet}
    if "forecast" in sections:
        progress(0.42, "Reading the forecast")
        facts["forecast"] = forecast_facts(cluster, parameters["horizon_days"], report.covers_until)
    purchases: dict[str, Any] = {}
    if {"purchases", "risks"} & set(sections):
        purchases = purchase_facts(
            cluster, snapshot, parameters["growth"], lambda share, step: progress(0.45 + 0.4 * share, step)
        )
    if "purchases" in sections:
        facts["purchases"] = purchases
    if "risks" in sections:
        facts["risks"] = risk_facts(run, fleet, objectives["rows"], purchases)
    if "changes" in sections:
        facts["changes"] = change_facts(report, report_before(report), snapshot)
    judged = [row for row in objectives["rows"] if row["bound_s"]]
    facts["counts"] = {
        "judged": len(judged),
        "held": sum(row["state"] == ObjectiveState.HOLDS for row in judged),
        "at_risk": sum(row["state"] == ObjectiveState.AT_RISK for row in judged),
        "broken": sum(row["state"] == ObjectiveState.BREACHED for row in judged),
        "unknown": sum(row["state"] == ObjectiveState.UNKNOWN for row in judged),
    }
    return facts
