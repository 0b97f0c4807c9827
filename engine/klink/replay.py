"""Replay of an agent's arrivals under other policies: the latencies that each would give.

The same simulation as in the benchmarks (docs/models/klink-scheduling.md), on one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from engine.errors import Fault, join_path
from engine.kinds import Enumeration, Number, String
from engine.klink.settings import POLICIES, ScheduleSettings
from engine.klink.simulation.loads import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting
from engine.klink.watermarks import usual_epochs
from engine.records import BAD, ItemCount, Record, Words
from engine.solvers import solving

if TYPE_CHECKING:
    from engine.klink.simulation.run import KlinkRun

__all__ = [
    "PolicyFigures",
    "ReplayAnswer",
    "ReplayFigures",
    "ReplayQuery",
    "ReplayQuestion",
    "command",
    "replay",
    "replayed_runs",
]

_TICK_MS = 20.0
_PIECES = 10  # in which the records of a bin come, as an agent's intake is read several times in an epoch
_MAX_BINS, _MAX_QUERIES, _MAX_WINDOWS = 7_200, 200, 100_000
_MIN_BIN_MS, _MAX_BIN_MS = 200.0, 60_000.0
_DEFAULTS = ScheduleSettings()
_Time = Annotated[float, Number(least=0, most=1e12)]


@dataclass(frozen=True)
class ReplayQuery(Record):
    """Recorded arrivals of a query and delays of its watermarks."""

    TITLE: ClassVar[str] = "a query"
    JUDGES_PARTS: ClassVar[bool] = True

    id: Annotated[str, String()]
    cost_ms: Annotated[float, Number(least=0, most=1e6), Words("CPU time of a record through the whole pipeline")]
    arrivals: Annotated[
        tuple[Annotated[float, Number(least=0, most=1e12)], ...],
        ItemCount(1, _MAX_BINS),
        Words("records that came in each bin, oldest first; equally many bins for every query"),
    ]
    period_ms: Annotated[
        Annotated[float, Number(least=10, most=1e9)] | None, Words("of its windows; none: it has no windows")
    ] = None
    first_ms: Annotated[_Time | None, Words("first deadline, from the beginning of the first bin on; period_ms")] = None
    delays_ms: Annotated[
        tuple[_Time | None, ...],
        ItemCount(most=_MAX_WINDOWS),
        Words(
            "how long after its deadline each window's watermark came, oldest first; null where none came. Windows "
            "after the last one are not looked at"
        ),
    ] = ()
    record_bytes: Annotated[float, Number(above=0), Words("of a waiting record; 100")] = 100.0
    output_ratio: Annotated[float, Number(least=0), Words("records out per record in; 1")] = 1.0
    waits_ms: Annotated[
        _Time | None, Words("that a record may wait; by the schedule's backlog_periods and backlog_most_s")
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        """Delays without windows."""
        if self.delays_ms and self.period_ms is None:
            yield Fault("delays_ms", "delays_ms is given without period_ms; allowed: both or none")

    def simulated(self, cores: float, settings: ScheduleSettings) -> SimulatedQuery:
        """The query on so many cores: one operator for all of its pipeline."""
        period_ms = self.period_ms
        backlog_ms = 1e3 * settings.backlog_s(None if period_ms is None else period_ms / 1e3)
        return SimulatedQuery(
            id=self.id,
            operators=(SimulatedOperator(self.cost_ms / cores, self.output_ratio),),
            period_ms=period_ms,
            first_ms=(period_ms or 0.0) if self.first_ms is None else self.first_ms,
            event_bytes=self.record_bytes,
            waits_ms=backlog_ms if self.waits_ms is None else self.waits_ms,
        )


@dataclass(frozen=True)
class ReplayQuestion(Record):
    """A recording, and the policies under which it is replayed."""

    TITLE: ClassVar[str] = "replay"
    JUDGES_PARTS: ClassVar[bool] = True

    queries: Annotated[tuple[ReplayQuery, ...], ItemCount(1, _MAX_QUERIES)]
    bin_ms: Annotated[
        float, Number(least=_MIN_BIN_MS, most=_MAX_BIN_MS), Words("width of a bin of arrivals; 1,000")
    ] = 1_000.0
    policies: Annotated[
        tuple[Annotated[str, Enumeration(POLICIES)], ...], ItemCount(1), Words("which ones; those that agents know")
    ] = POLICIES
    schedule: Annotated[ScheduleSettings, Words("scheduling settings; the policy is ignored")] = _DEFAULTS
    cores: Annotated[float, Number(above=0), Words("CPU time per second that operators may use; 1")] = 1.0

    def find_faults(self) -> Iterator[Fault]:
        """Ids that occur twice, and different numbers of bins."""
        ids, bins = set(), 0
        for index, query in enumerate(() if self.queries is BAD else self.queries):
            if query is BAD:
                continue
            path = join_path("queries", index)
            if query.id is not BAD and query.id in ids:
                yield Fault(join_path(path, "id"), f"id is {query.id!r} again; allowed: each once")
            ids.add(query.id)
            if query.arrivals is BAD:
                continue
            bins = bins or len(query.arrivals)
            if len(query.arrivals) != bins:
                message = f"arrivals has {len(query.arrivals)} bins; allowed: {bins}, as the first query"
                yield Fault(join_path(path, "arrivals"), message)


@dataclass(frozen=True)
class ReplayFigures(Record):
    """Figures of all queries under a policy, or of one; latencies are those of windows, None without any."""

    windows: int
    mean_ms: float | None
    p99_ms: float | None
    most_ms: float | None
    unswept: int  #: windows that were not swept by the end
    records: float
    processed: float
    overflow: float
    overflow_share: float
    waiting: float
    memory_peak_bytes: float


@dataclass(frozen=True)
class PolicyFigures(ReplayFigures):
    """Figures of the core under a policy, and of each query by id."""

    busy_share: float
    queries: Mapping[str, ReplayFigures]


@dataclass(frozen=True)
class ReplayAnswer(Record):
    """Figures by policy, and the length of what was replayed."""

    policies: Mapping[str, PolicyFigures]
    duration_s: float
    bins: int


def command(document: Any) -> ReplayAnswer:
    """`replay` of the command line."""
    return replay(ReplayQuestion.parse(document))


def replay(asked: ReplayQuestion) -> ReplayAnswer:
    """Per policy and query: latencies of windows (ms), records that overflow, memory."""
    solving()
    queries, runs = replayed_runs(asked)
    bins = len(asked.queries[0].arrivals)
    return ReplayAnswer({name: _policy(queries, run) for name, run in runs.items()}, bins * asked.bin_ms / 1e3, bins)


def replayed_runs(asked: ReplayQuestion) -> tuple[list[SimulatedQuery], dict[str, KlinkRun]]:
    """Run a question: its queries, in the order of their figures, and the run under each policy."""
    from engine.klink.simulation.run import simulate  # it loads numba, and the console reads answers alone

    settings = asked.schedule
    given = sorted(asked.queries, key=lambda query: query.id)  # the order in which policies break ties
    queries = [query.simulated(asked.cores, settings) for query in given]
    arrivals = [_arrivals(recorded, query, asked.bin_ms) for recorded, query in zip(given, queries, strict=True)]
    names = dict.fromkeys(asked.policies)
    return queries, {name: simulate(queries, arrivals, _setting(name, settings)) for name in names}


def _arrivals(recorded: ReplayQuery, query: SimulatedQuery, bin_ms: float) -> Arrivals:
    """Records in pieces; a piece of a bin comes at the end of its part of the bin."""
    records = np.repeat(np.array(recorded.arrivals) / _PIECES, _PIECES)
    end_ms = len(recorded.arrivals) * bin_ms
    at_ms = (np.arange(len(records)) + 1) * (bin_ms / _PIECES)
    at = np.ceil(at_ms / _TICK_MS - 1e-9).astype(np.int64)
    bins = math.ceil(end_ms / _TICK_MS) + 1
    events, stimulus = np.zeros(bins), np.full(bins, math.inf)
    np.add.at(events, at, records)
    np.minimum.at(stimulus, at, at_ms - bin_ms / _PIECES)
    delays = np.array([math.inf if delay is None else delay for delay in recorded.delays_ms])
    due = query.first_ms + np.arange(len(delays)) * (query.period_ms or 0.0)
    seen = due < end_ms
    due, delays = due[seen], delays[seen]
    shown = np.where(np.isinf(delays), 0.0, delays)
    shown = shown[usual_epochs(shown.tolist())][:, None]  # as agents do
    return Arrivals(events, stimulus, (due + delays)[:, None], shown, shown**2)


def _setting(policy: str, settings: ScheduleSettings) -> SimulationSetting:
    """Simulation setting of an agent: memory mode and starvation limit belong to Sluice's default policy."""
    own = policy == "klink"
    return SimulationSetting(
        policy=policy,
        tick_ms=_TICK_MS,
        cycle_ms=settings.cycle_ms,
        cores=1,
        starvation_ms=1e3 * settings.starvation_s if own else math.inf,
        memory_bytes=float(settings.memory_bytes) if own else math.inf,
        release_share=settings.release_share,
        release_s=settings.release_s,
        history=settings.history,
    )


def _policy(queries: Sequence[SimulatedQuery], run: KlinkRun) -> PolicyFigures:
    each = {
        query.id: ReplayFigures(**_figures(run, index), memory_peak_bytes=float(run.peak[index] * query.event_bytes))
        for index, query in enumerate(queries)
    }
    return PolicyFigures(
        **_figures(run, None),
        memory_peak_bytes=float(run.memory_bytes.sum(axis=1).max()),
        busy_share=float(run.busy_ms.sum() / (run.end_ms * len(run.busy_ms))),
        queries=each,
    )


def _figures(run: KlinkRun, index: int | None) -> dict[str, Any]:
    chosen = slice(None) if index is None else slice(index, index + 1)
    latencies = run.latencies_ms(index=index)
    came, overflow = float(run.came[chosen].sum()), float(run.overflow[chosen].sum())
    return {
        "windows": len(latencies),
        "mean_ms": float(latencies.mean()) if len(latencies) else None,
        "p99_ms": float(np.quantile(latencies, 0.99)) if len(latencies) else None,
        "most_ms": float(latencies.max()) if len(latencies) else None,
        "unswept": int(sum(np.isnan(times).sum() for times in run.swept_ms[chosen])),
        "records": came,
        "processed": float(run.processed[chosen].sum()),
        "overflow": overflow,
        "overflow_share": overflow / came if came > 0 else 0.0,
        "waiting": float(run.waiting[chosen].sum()),
    }
