"""Live parts of an estimate: the waits of its stages, and the trust in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.operators import STREAM_NODE
from apps.measurements.stream_processor import timing_now
from apps.telemetry.configs import live_served
from engine.arrays import finite_max
from engine.document.elements import scheduling_document
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits

if TYPE_CHECKING:
    from engine.estimation.estimate import Estimate
    from engine.estimation.reports import QueryReport

__all__ = ["with_live_parts"]


def with_live_parts(answer: dict[str, Any], *, cluster: Cluster, estimate: Estimate) -> dict[str, Any]:
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
