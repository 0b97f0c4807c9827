"""End of an epoch: tables as frames, notes for a restart, and what is reported of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from agent.config import AgentConfig
from agent.runtime.downstream import DELAY
from agent.runtime.query.adaptation import epoch_observation
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import QueueItem
from agent.runtime.recovery import PlanDelta, PlanNote, QueryRegistry
from agent.runtime.scheduler import Scheduler
from agent.runtime.spool import Spool
from agent.wire import MAX_BODY_BYTES, Frame, FrameKind, OperatorCounts, batch_bytes
from engine.jarvis.adaptation.control import EpochObservation
from engine.jarvis.fairness import max_min

__all__ = [
    "EpochRows",
    "Framer",
    "QueryEpochReport",
    "adapt_query",
    "counter_rows",
    "end_query_epoch",
    "query_reports",
    "runtime_state",
    "spool_report",
    "variation_rows",
]

MAX_ROWS = 120  # of a query; older ones are forgotten
DECIMALS = 6
NEAR_BUDGET_SHARE = 0.9


def epoch_row(seen: EpochObservation, counts: Sequence[OperatorCounts], version: int | None) -> dict[str, Any]:
    """One epoch in short names, apart from its delay.

    `e` epoch (microseconds since 1970), `p` load factors, `n` records, `bi` their bytes, `bs` bytes sent, `o` records
    overflowing; CPU seconds `u` used, `b` that could have been used, `i` idle; `v` version of the refined configuration
    in force; `sl` of those overflowing, records that were late everywhere and shed.
    """
    return {
        "e": seen.epoch_us,
        "p": [round(operator.load_factor, DECIMALS) for operator in seen.operators],
        "n": seen.n_records,
        "bi": counts[0].bytes_in if counts else 0,
        "bs": seen.bytes_sent,
        "o": sum(count.records_overflow for count in counts),
        "u": round(seen.used_s, DECIMALS),
        "b": round(seen.budget_s, DECIMALS),
        "i": round(seen.idle_s, DECIMALS),
        "v": version,
        "sl": sum(count.records_shed for count in counts),
    }


class EpochRows:
    """Rows by query. The runtime adds them, the sender confirms their frames, the heartbeat reads them.

    `d` of a row is the time from its epoch's end until its frames were acknowledged. Where they are not yet, it is that
    of the newest epoch that was acknowledged, or how long its own have waited by now, whichever is more; None while
    nothing was ever acknowledged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, deque[dict[str, Any]]] = {}
        self._ended_ns: dict[int, int] = {}
        self._delays_s: dict[int, float] = {}
        self._newest_delay_s: float | None = None

    def add(self, epoch_us: int, ended_ns: int, rows: Mapping[str, dict[str, Any]]) -> None:
        """An epoch has ended: a row for each query that runs."""
        with self._lock:
            for query in self._rows.keys() - rows.keys():
                del self._rows[query]
            for query, row in rows.items():
                self._rows.setdefault(query, deque(maxlen=MAX_ROWS)).append(row)
            self._ended_ns[epoch_us] = ended_ns
            for known in (self._ended_ns, self._delays_s):
                while len(known) > MAX_ROWS:
                    del known[next(iter(known))]

    def acknowledged(self, epoch_us: int, now_ns: int) -> None:
        """All frames of an epoch were taken by the console, or the relay that this agent sends to."""
        with self._lock:
            ended_ns = self._ended_ns.get(epoch_us)
            if ended_ns is not None:
                self._newest_delay_s = self._delays_s[epoch_us] = round((now_ns - ended_ns) / 1e9, DECIMALS)

    def unreported(self, now_ns: int) -> dict[str, list[dict[str, Any]]]:
        """The rows of each query, oldest first."""
        with self._lock:
            return {
                query: [{**row, "d": self._delay_s(row["e"], now_ns)} for row in rows]
                for query, rows in self._rows.items()
            }

    def mark_reported(self, query: str, epoch_us: int) -> None:
        """The console has those up to this one."""
        with self._lock:
            rows = self._rows.get(query, deque())
            while rows and rows[0]["e"] <= epoch_us:
                rows.popleft()

    def _delay_s(self, epoch_us: int, now_ns: int) -> float | None:
        if epoch_us in self._delays_s or self._newest_delay_s is None:
            return self._delays_s.get(epoch_us)
        waited_s = (now_ns - self._ended_ns[epoch_us]) / 1e9
        return round(max(self._newest_delay_s, waited_s), DECIMALS)


def granted_ns(total_ns: float, pipelines: Sequence[LocalPipeline]) -> list[float]:
    """CPU time each query could have had in this epoch, given the demand of the others.

    Its max-min share had it asked for everything; so what it used, and what nobody did. Others keep the margin that
    they plan with, or many queries together would leave none.
    """
    demands = [pipeline.demand_ns for pipeline in pipelines]
    weights = [pipeline.config.weight for pipeline in pipelines]
    return [
        max_min(total_ns, [*demands[:i], float("inf"), *demands[i + 1 :]], weights)[i] for i in range(len(pipelines))
    ]


@dataclass
class QueryEpochReport:
    """One query in one epoch."""

    pipeline: LocalPipeline
    budget_ns: float  #: that its operators could have had
    used_ns: int
    epoch_ns: int
    shed: int
    counts: list[OperatorCounts] = field(default_factory=list)

    @property
    def overflowing(self) -> bool:
        """Whether records overflowed."""
        return any(count.records_overflow for count in self.counts)

    @property
    def granted_ns(self) -> float:
        """The grant, or the use where it was more."""
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


def query_reports(registry: QueryRegistry, free_ns: float, epoch_s: float) -> list[QueryEpochReport]:
    """CPU time granted to and used by each query, before its epoch is ended."""
    pipelines, intakes = list(registry.pipelines.values()), registry.intakes
    epoch_ns = int(epoch_s * 1e9)
    shed = {name: intake.shed_since() for name, intake in intakes.items()}
    return [
        QueryEpochReport(
            pipeline,
            budget_ns=budget_ns,
            used_ns=pipeline.used_ns,
            epoch_ns=epoch_ns,
            shed=shed[pipeline.config.pipeline.source.id],
        )
        for pipeline, budget_ns in zip(pipelines, granted_ns(free_ns, pipelines), strict=True)
    ]


def counter_rows(report: QueryEpochReport, config_version: int, epoch_us: int) -> list[dict[str, Any]]:
    """`agent.wire.COUNTERS` of the query's operators."""
    return [
        {
            "query": report.pipeline.query,
            "plan": report.pipeline.plan,
            "operator": stage.operator_id,
            "fingerprint": stage.fingerprint,
            "entry": k,
            "epoch_us": epoch_us,
            **asdict(counts),
            "load_factor": stage.proxy.load_factor,
            "config_version": config_version,
            "records_shed": counts.records_shed + (report.shed if k == 0 else 0),
            "granted_cpu_ns": int(report.granted_ns),
            "used_cpu_ns": report.used_ns,
            "idle_ns": report.idle_ns,
        }
        for k, (stage, counts) in enumerate(zip(report.pipeline.stages, report.counts, strict=True))
    ]


def variation_rows(
    report: QueryEpochReport, arrivals: Mapping[str, list[float]]
) -> tuple[list[list[float]], list[list[float]]]:
    """Sums of the runs of the query's operators, and of their source's steps, in the order of `counter_rows`.

    `arrivals` are by source; a query's first operator has them.
    """
    stages = report.pipeline.stages
    steps = arrivals.get(report.pipeline.config.pipeline.source.id, [])
    return [stage.runs.take() for stage in stages], [steps if k == 0 else [] for k in range(len(stages))]


def runtime_state(
    *,
    config: AgentConfig,
    registry: QueryRegistry,
    scheduler: Scheduler,
    reports: Sequence[QueryEpochReport],
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
        "queries": _query_states(config, registry, scheduler, reports, spool),
        "schedule": scheduler.report(),
        "sources": {
            name: {
                "records": intake.records,
                "shed": intake.shed,
                "watermark_us": intake.watermark_us,
                "faults": intake.faults,
            }
            for name, intake in registry.intakes.items()
        },
        "spool": spool_report(spool),
        "faults": [*spool.faults, *filter(None, (spool_fault, clock_fault)), *scheduler.faults],
    }


def spool_report(spool: Spool) -> dict[str, Any]:
    """Fill level of the spool."""
    return {
        "frames": spool.unsent_frames,
        "bytes": spool.used_bytes,
        "limit_bytes": spool.limit_bytes,
        "state": spool.state,
    }


def _query_states(
    config: AgentConfig,
    registry: QueryRegistry,
    scheduler: Scheduler,
    reports: Sequence[QueryEpochReport],
    spool: Spool,
) -> list[dict[str, Any]]:
    running, refused = {pipeline.query: pipeline for pipeline in registry.pipelines.values()}, registry.refused
    last = {
        report.pipeline.query: report for report in reports if running.get(report.pipeline.query) is report.pipeline
    }
    blocked = spool.state in ("full", "disk-full")
    return [
        {
            "query": query.query,
            "plan": query.pipeline.digest,
            "state": _state_of(last.get(query.query), query.query in refused, blocked),
            "watermark_us": last[query.query].pipeline.watermark_us if query.query in last else 0,
            "load_factors": [],
            "late": scheduler.late(running[query.query]) if query.query in running else "",
            "faults": _faults_of(running.get(query.query), refused.get(query.query)),
            **(running[query.query].adaptation.report() if query.query in running else {}),
        }
        for query in config.queries
    ]


def _state_of(report: QueryEpochReport | None, refused: bool, blocked: bool) -> str:
    if refused:
        return "refused"
    if blocked:
        return "waiting for room"
    return report.state if report is not None else "starting"


def _faults_of(pipeline: LocalPipeline | None, refused: str | None) -> list[str]:
    faults = [refused] if refused else []
    if pipeline is not None:
        faults += [fault for fault in (pipeline.fault, *pipeline.adaptation.faults) if fault]
    return faults


@dataclass
class Framer:
    """Builds the frames of one epoch, unnumbered, in the order in which they are to be sent."""

    agent: str
    epoch: int
    batch_records: int
    frames: list[Frame] = field(default_factory=list)
    lost: int = 0  #: records of which one alone is larger than a frame may be

    def tables(self, kind: FrameKind, query: str, plan: str, entry: int, tables: Sequence[pa.Table]) -> int:
        """Records or partial rows, about `batch_records` in each frame; how many bytes they are."""
        rows = sum(table.num_rows for table in tables)
        if not rows:
            return 0
        before = len(self.frames)
        whole = pa.concat_tables(tables).combine_chunks()
        pieces = -(-rows // self.batch_records)
        for i in range(pieces):
            start = i * rows // pieces
            piece = whole.slice(start, (i + 1) * rows // pieces - start)
            for body in self._bodies(piece):
                self._add(kind, query, plan, entry=entry, body=body)
        return sum(len(frame.body) for frame in self.frames[before:])

    def checkpoint(self, query: str, plan: str, entry: int, bodies: Sequence[bytes]) -> None:
        """A copy of all rows of open windows, in as many frames as there are bodies."""
        for part, body in enumerate(bodies, 1):
            extra = {"part": part, "parts": len(bodies)}
            self._add(FrameKind.CHECKPOINT, query, plan, entry=entry, body=body, extra=extra)

    def take_lost(self) -> int:
        """Records lost since this was last asked."""
        lost, self.lost = self.lost, 0
        return lost

    def _bodies(self, table: pa.Table) -> Iterator[bytes]:
        """The table's bytes, halved until each body may travel."""
        body = batch_bytes(table)
        if len(body) <= MAX_BODY_BYTES:
            yield body
        elif table.num_rows == 1:
            self.lost += 1
        else:
            half = table.num_rows // 2
            yield from self._bodies(table.slice(0, half))
            yield from self._bodies(table.slice(half))

    def mark(
        self, query: str, plan: str, paths: int, watermark_us: int, *, final: bool, delays: Mapping[str, Any] = {}
    ) -> None:
        """The watermark of every path, drained and regular; and how late the query's streams are, for a relay."""
        document: dict[str, Any] = {
            "watermarks": {str(k): watermark_us for k in range(paths)},
            "closing_epoch_us": self.epoch,
            "final": final,
        }
        if delays:
            document[DELAY] = dict(delays)
        self._add(FrameKind.MARK, query, plan, extra=document)

    def sweeps(self, table: pa.Table) -> None:
        """Windows of all queries whose watermark has passed the operators."""
        self._add(FrameKind.SWEEPS, "", "", body=batch_bytes(table))

    def counters(self, table: pa.Table, variation: Mapping[str, Any]) -> None:
        """Add the counters of every operator, and how costs and arrivals vary; the last frame of an epoch."""
        self._add(FrameKind.COUNTERS, "", "", body=batch_bytes(table), extra=variation)

    def _add(self, kind: FrameKind, query: str, plan: str, **rest: Any) -> None:
        self.frames.append(Frame(kind, self.agent, life="", seq=1, query=query, plan=plan, epoch=self.epoch, **rest))


@dataclass(frozen=True)
class QueryEpochEnd:
    """State of a query after an epoch, as a restart needs it."""

    note: PlanNote
    delta: PlanDelta
    rows: list[pa.Table]  #: of open windows
    queue: tuple[QueueItem, ...]  #: what waits


def end_query_epoch(
    report: QueryEpochReport, framer: Framer, epoch_us: int, checkpoint_share: float, delays: Mapping[str, Any]
) -> QueryEpochEnd:
    """Frame the output of the query's pipeline, and count it in the report; `delays` of its streams go with the
    mark.
    """
    pipeline = report.pipeline
    paths, closed, report.counts = pipeline.end_epoch(epoch_us)
    for k, tables in enumerate(paths):
        pipeline.checkpoints.sent(framer.tables(FrameKind.RECORDS, pipeline.query, pipeline.plan, k, tables))
    if (other := pipeline.config.pipeline.other_entry) is not None:
        framer.tables(FrameKind.RECORDS, pipeline.query, pipeline.plan, other, pipeline.take_others())
    entry = max(len(pipeline.stages) - 1, 0)
    if closed.emitted is not None:
        pipeline.checkpoints.sent(
            framer.tables(FrameKind.PARTIALS, pipeline.query, pipeline.plan, entry, [closed.emitted])
        )
    if pipeline.windows is not None:
        bodies = pipeline.checkpoints.due(pipeline.windows, checkpoint_share)
        framer.checkpoint(pipeline.query, pipeline.plan, entry, bodies)
    framer.mark(pipeline.query, pipeline.plan, len(paths), pipeline.watermark_us, final=False, delays=delays)
    delta = PlanDelta(closed.delta, pipeline.queue_change())
    rows = pipeline.windows.tables() if pipeline.windows is not None else []
    note = _note(pipeline, entry).anew(delta, restart=closed.restart)
    return QueryEpochEnd(note, delta, rows, pipeline.queue_items())


def _note(pipeline: LocalPipeline, entry: int) -> PlanNote:
    return PlanNote(
        query=pipeline.query,
        plan=pipeline.plan,
        paths=len(pipeline.stages) + 1,
        entry=entry,
        size_us=pipeline.windows.size_us if pipeline.windows is not None else None,
        watermark_us=pipeline.watermark_us,
    )


def adapt_query(report: QueryEpochReport, epoch_us: int, epoch_s: float) -> dict[str, Any]:
    """Let the query's controller decide on the next epoch; the row of this one."""
    pipeline, version = report.pipeline, report.pipeline.adaptation.version
    seen = epoch_observation(
        report.counts,
        pipeline.load_factors,
        epoch_us=epoch_us,
        epoch_s=epoch_s,
        budget_s=report.budget_ns / 1e9,
        used_s=report.used_ns / 1e9,
    )
    pipeline.adaptation.epoch_over(seen, report.counts)
    return epoch_row(seen, report.counts, version)
