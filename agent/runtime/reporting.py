"""What the runtime tells: rows of counters to the stream processor, and its state to the heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agent.runtime.chain import Chain
from agent.runtime.interface import RuntimeConfig
from agent.runtime.lineup import Lineup
from agent.runtime.proxy import Counts
from agent.runtime.scheduling import Scheduler
from agent.runtime.sharing import granted_ns
from agent.runtime.spool import Spool

__all__ = ["QueryReport", "counter_rows", "query_reports", "runtime_state", "spool_report"]

NEAR_BUDGET_SHARE = 0.9


@dataclass
class QueryReport:
    """One query in one epoch."""

    chain: Chain
    budget_ns: float  #: that its operators could have had
    used_ns: int
    epoch_ns: int
    shed: int
    counts: list[Counts] = field(default_factory=list)

    @property
    def overflowing(self) -> bool:
        """Records were given up."""
        return any(one.records_overflow for one in self.counts)

    @property
    def granted_ns(self) -> float:
        """The same, with what was used beyond it."""
        return max(self.budget_ns, float(self.used_ns))

    @property
    def idle_ns(self) -> int:
        """Of the epoch, the share of the grant that the query had no use for (Jarvis: its operators stay empty)."""
        if self.granted_ns <= 0:
            return 0
        return int(self.epoch_ns * max(0.0, 1 - self.used_ns / self.granted_ns))

    @property
    def state(self) -> str:
        if self.overflowing:
            return "overflowing"
        near = self.granted_ns > 0 and self.used_ns >= NEAR_BUDGET_SHARE * self.granted_ns
        return "near its budget" if near else "steady"


def query_reports(lineup: Lineup, free_ns: float, epoch_s: float) -> list[QueryReport]:
    """What each query was granted of what operators could have had, and used, before its epoch is ended."""
    chains, intakes = list(lineup.chains.values()), lineup.intakes
    epoch_ns = int(epoch_s * 1e9)
    shed = {name: intake.shed_since() for name, intake in intakes.items()}
    return [
        QueryReport(
            chain,
            budget_ns=budget_ns,
            used_ns=chain.used_ns,
            epoch_ns=epoch_ns,
            shed=shed[chain.config.pipeline.source.id],
        )
        for chain, budget_ns in zip(chains, granted_ns(free_ns, chains), strict=True)
    ]


def counter_rows(report: QueryReport, config_version: int, epoch_us: int) -> list[dict[str, Any]]:
    """`agent.wire.COUNTERS` of the query's operators."""
    return [
        {
            "query": report.chain.query,
            "plan": report.chain.plan,
            "operator": stage.operator_id,
            "fingerprint": stage.fingerprint,
            "entry": k,
            "epoch_us": epoch_us,
            **asdict(counts),
            "load_factor": stage.proxy.load_factor,
            "config_version": config_version,
            "records_shed": report.shed if k == 0 else 0,
            "granted_cpu_ns": int(report.granted_ns),
            "used_cpu_ns": report.used_ns,
            "idle_ns": report.idle_ns,
        }
        for k, (stage, counts) in enumerate(zip(report.chain.stages, report.counts, strict=True))
    ]


def runtime_state(
    *,
    config: RuntimeConfig,
    lineup: Lineup,
    scheduler: Scheduler,
    reports: Sequence[QueryReport],
    spool: Spool,
    clock_fault: str,
    epoch_us: int,
    granted_cores: float,
    used_cores: float,
) -> dict[str, Any]:
    """The runtime's part of the heartbeat."""
    spool_fault = f"the spool cannot be written: {spool.fault}" if spool.fault else ""
    return {
        "config_version": config.version,
        "epoch_us": epoch_us,
        "budget_cores": config.budget_cores,
        "granted_cores": min(granted_cores, config.budget_cores),
        "cpu_cores": used_cores,
        "queries": _query_states(config, lineup, scheduler, reports, spool),
        "schedule": scheduler.report(),
        "sources": {
            name: {
                "records": intake.records,
                "shed": intake.shed,
                "watermark_us": intake.watermark_us,
                "faults": intake.faults,
            }
            for name, intake in lineup.intakes.items()
        },
        "spool": spool_report(spool),
        "faults": [*spool.faults, *filter(None, (spool_fault, clock_fault)), *scheduler.faults],
    }


def spool_report(spool: Spool) -> dict[str, Any]:
    """How full it is."""
    return {
        "frames": spool.unsent_frames,
        "bytes": spool.used_bytes,
        "limit_bytes": spool.limit_bytes,
        "state": spool.state,
    }


def _query_states(
    config: RuntimeConfig, lineup: Lineup, scheduler: Scheduler, reports: Sequence[QueryReport], spool: Spool
) -> list[dict[str, Any]]:
    running, refused = {chain.query: chain for chain in lineup.chains.values()}, lineup.refused
    last = {report.chain.query: report for report in reports if running.get(report.chain.query) is report.chain}
    blocked = spool.state in ("full", "disk-full")
    return [
        {
            "query": query.query,
            "plan": query.pipeline.digest,
            "state": _state_of(last.get(query.query), query.query in refused, blocked),
            "watermark_us": last[query.query].chain.watermark_us if query.query in last else 0,
            "load_factors": [],
            "late": scheduler.late(running[query.query]) if query.query in running else "",
            "faults": _faults_of(running.get(query.query), refused.get(query.query)),
            **(running[query.query].adapting.report() if query.query in running else {}),
        }
        for query in config.queries
    ]


def _state_of(report: QueryReport | None, refused: bool, blocked: bool) -> str:
    if refused:
        return "refused"
    if blocked:
        return "waiting for room"
    return report.state if report is not None else "starting"


def _faults_of(chain: Chain | None, refused: str | None) -> list[str]:
    faults = [refused] if refused else []
    if chain is not None:
        faults += [fault for fault in (chain.fault, *chain.adapting.faults) if fault]
    return faults
