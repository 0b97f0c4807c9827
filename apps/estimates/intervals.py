"""Scaling of an estimate's intervals by the calibrations in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from apps.estimates.calibration import (
    CalibrationGroup,
    calibrations_in_force,
    evidence_of,
    in_force,
    is_windowed,
)
from apps.estimates.choices import RunOrigin, TrustState
from apps.estimates.models import IntervalCalibration, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from apps.queries.models import Query
from engine.document.elements import Objective
from engine.document.policies import high_under_policies
from engine.latency_state import LatencyStanding, objective_state
from engine.measurement.calibration import IntervalFactors, scale_interval
from engine.measurement.trust import QueryCalibration

__all__ = ["group_applied", "queries_untrusted", "query_calibrations", "scaled_result", "with_calibration"]


def with_calibration(answer: dict[str, Any], *, cluster: Cluster) -> dict[str, Any]:
    """The answer with the intervals of live queries scaled, and of those whose runs another engine reported."""
    calibrations = calibrations_in_force(cluster)
    origins = _reported_origins(calibrations)
    running = Query.objects.filter(cluster=cluster, running_version__isnull=False)
    running = running.select_related("running_version").prefetch_related("running_version__operators")
    queries = dict(answer["queries"])
    for query in running:
        result = queries.get(query.name)
        origin = RunOrigin.LIVE if result and "live" in result else origins.get(query.pk)
        if result is not None and origin is not None:
            group = CalibrationGroup(
                cluster_id=cluster.pk,
                origin=origin,
                evidence=evidence_of(result),
                statistic=result["statistic"],
                windowed=is_windowed(query.running_version),
                query_id=query.pk,
            )
            queries[query.name] = scaled_result(result, group, calibrations)
    return {**answer, "queries": queries}


def _reported_origins(calibrations: Mapping[CalibrationGroup, IntervalCalibration]) -> dict[int | None, str]:
    """By query the origin of what another engine reported, of the newest run; simulated runs scale nothing."""
    reported = [
        (row.last_at, group)
        for group, row in calibrations.items()
        if group.origin not in (RunOrigin.LIVE, RunOrigin.SIMULATED)
    ]
    return {group.query_id: group.origin for _, group in sorted(reported, key=lambda entry: entry[0])}


def scaled_result(
    result: Mapping[str, Any], group: CalibrationGroup, rows: Mapping[CalibrationGroup, IntervalCalibration]
) -> dict[str, Any]:
    """A query's answer with its intervals scaled, and `calibration`, which says how.

    A run is a short part of the horizon. So there are two intervals: `low_s` to `high_s`, of the horizon, whose upper
    side runs may widen (of a mean they scale both); and `calibration.run`, of what a run shows, which they scale.

    `calibration` further names the group of runs (`origin`, `evidence`, `windowed`), whose runs the factors are of
    (`scope`, empty: too few) and how many, the factors of its objective's statistic, the trust that the runs give, and
    the interval as the model stated it. Each realised statistic has factors of its own. "Under" is never lowered.
    """
    own = in_force(group, rows)
    realised = {
        name: _scaled(figures, in_force(replace(group, statistic=name), rows).factors.over_horizon(name))
        for name, figures in (result.get("realised") or {}).items()
    }
    stated = {"estimate_s": result["estimate_s"], "low_s": result["low_s"], "high_s": result["high_s"]}
    scaled = _scaled(stated, own.factors.over_horizon(result["statistic"]))
    bound_s, under_s = result["bound_s"], result.get("under_s")
    objective = Objective("", result["statistic"], bound_s) if bound_s is not None else None
    if realised and under_s is not None:
        under_s = max(under_s, realised["worst"]["high_s"])
    return {
        **result,
        **scaled,
        **objective_state(
            objective,
            scaled["estimate_s"],
            high_under_policies(scaled["high_s"], result.get("scheduling")),
            LatencyStanding.parse(result["standing"]),
        ),
        "realised": realised,
        "under_s": under_s,
        "calibration": {
            "origin": group.origin,
            "evidence": group.evidence,
            "windowed": group.windowed,
            "lower": own.factors.lower,
            "upper": own.factors.upper,
            "runs": own.factors.runs,
            "scope": own.scope,
            "stated": _ends(stated),
            "run": _ends(_scaled(stated, own.factors)),
            "trust": own.trust.to_dict(),
        },
    }


def group_applied(row: QueryEstimate) -> CalibrationGroup | None:
    """The group of runs that calibrated an estimate; None where none did."""
    applied = row.result.get("calibration")
    return None if applied is None else _group(row.run.cluster_id, row.query_id, row.statistic, applied)


def _group(cluster_id: int, query_id: int, statistic: str, applied: Mapping[str, Any]) -> CalibrationGroup:
    named = {name: applied[name] for name in ("origin", "evidence", "windowed")}
    return CalibrationGroup(cluster_id, statistic=statistic, query_id=query_id, **named)


def query_calibrations(cluster: Cluster) -> dict[str, QueryCalibration]:
    """Calibrations of the estimates of a cluster's running queries as they are by now, by the name of the query."""
    run = run_latest(cluster)
    if run is None:
        return {}
    calibrations = calibrations_in_force(cluster)
    rows = run.queries.filter(result__has_key="calibration").order_by("query__name")
    applied = rows.values("query__name", "query_id", "statistic", "result__calibration")
    return {
        row["query__name"]: in_force(
            _group(cluster.pk, row["query_id"], row["statistic"], row["result__calibration"]), calibrations
        )
        for row in applied
    }


def queries_untrusted(cluster: Cluster) -> list[str]:
    """Names of the running queries whose estimates have lost their trust."""
    if not IntervalCalibration.objects.filter(cluster=cluster, until__isnull=True, trust=TrustState.LOST).exists():
        return []
    return [name for name, known in query_calibrations(cluster).items() if known.trust.state == TrustState.LOST]


def _scaled(figures: Mapping[str, Any], factors: IntervalFactors) -> dict[str, Any]:
    if figures["low_s"] is None or figures["high_s"] is None:
        return dict(figures)
    low_s, high_s = scale_interval(figures["estimate_s"], figures["low_s"], figures["high_s"], factors)
    return {**figures, "low_s": low_s, "high_s": high_s}


def _ends(figures: Mapping[str, Any]) -> list[float] | None:
    return None if figures["low_s"] is None else [figures["low_s"], figures["high_s"]]
