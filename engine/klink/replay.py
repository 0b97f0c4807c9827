"""Replay of an agent's arrivals under other policies: the latencies that each would give.

The same simulation as in the benchmarks (docs/models/klink-scheduling.md), on one core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.errors import DocumentError, Fault, join_path
from engine.fields import BAD, Enumeration, Field, FieldKind, FieldTable, ListOf, Number, RecordOf, String
from engine.klink.settings import POLICIES, ScheduleSettings
from engine.klink.simulation.run import (
    Arrivals,
    KlinkRun,
    SimulatedOperator,
    SimulatedQuery,
    SimulationSetting,
    simulate,
)
from engine.klink.watermarks import usual_epochs

__all__ = ["REPLAY", "command", "replay"]

_TICK_MS = 20.0
_PIECES = 10  # in which the records of a bin come, as an agent's intake is read several times in an epoch
_MAX_BINS, _MAX_QUERIES, _MAX_WINDOWS = 7_200, 200, 100_000
_MIN_BIN_MS, _MAX_BIN_MS = 200.0, 60_000.0
_RECORD_BYTES = 100.0
_TIME = Number(least=0, most=1e12)


class _Delay(FieldKind):
    """Milliseconds, or null where no watermark came."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        return math.inf if value is None else _TIME.read(value, parent, key, faults)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [_TIME.schema(), {"type": "null"}]}


_QUERY = FieldTable(
    "a query",
    Field("id", String(), required=True),
    Field("cost_ms", Number(least=0, most=1e6), required=True, help="CPU time of a record through the whole pipeline"),
    Field("arrivals", ListOf(Number(least=0, most=1e12), least=1, most=_MAX_BINS), required=True,
          help="records that came in each bin, oldest first; equally many bins for every query"),
    Field("period_ms", Number(least=10, most=1e9), nullable=True, help="of its windows; none: it has no windows"),
    Field("first_ms", _TIME, help="first deadline, from the beginning of the first bin on; period_ms"),
    Field("delays_ms", ListOf(_Delay(), most=_MAX_WINDOWS), help="how long after its deadline each window's "
          "watermark came, oldest first; null where none came. Windows after the last one are not looked at"),
    Field("record_bytes", Number(above=0), help="of a waiting record; 100"),
    Field("output_ratio", Number(least=0), help="records out per record in; 1"),
    Field("waits_ms", _TIME, help="that a record may wait; by the schedule's backlog_periods and backlog_most_s"),
)  # fmt: skip

REPLAY = FieldTable(
    "replay",
    Field("queries", ListOf(_QUERY, least=1, most=_MAX_QUERIES), required=True),
    Field("bin_ms", Number(least=_MIN_BIN_MS, most=_MAX_BIN_MS), help="width of a bin of arrivals; 1,000"),
    Field("policies", ListOf(Enumeration(POLICIES), least=1), help="which ones; those that agents know"),
    Field("schedule", RecordOf(ScheduleSettings), help="scheduling settings; the policy is ignored"),
    Field("cores", Number(above=0), help="CPU time per second that operators may use; 1"),
)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`replay` of the command line."""
    return replay(document)


def replay(document: Any) -> dict[str, Any]:
    """Per policy and query: latencies of windows (ms), records that overflow, memory.

    Returns
    -------
    dict
        ``policies``: by name, each with ``windows``, ``mean_ms``, ``p99_ms``, ``most_ms`` (null without windows),
        ``unswept``, ``records``, ``processed``, ``overflow``, ``overflow_share``, ``waiting``, ``memory_peak_bytes``,
        ``busy_share`` and ``queries``: the same by id, without what belongs to the core.
        ``duration_s`` and ``bins`` of what was replayed.

    Raises
    ------
    DocumentError
        With every fault of the document.
    """
    read = _read(document)
    bin_ms, cores = read.get("bin_ms", 1_000.0), read.get("cores", 1.0)
    settings = read.get("schedule") or ScheduleSettings()
    given = sorted(read["queries"], key=lambda entry: str(entry["id"]))  # the order in which policies break ties
    queries = [_query(entry, cores, settings) for entry in given]
    arrivals = [_arrivals(entry, query, bin_ms) for entry, query in zip(given, queries, strict=True)]
    names = list(dict.fromkeys(read.get("policies", POLICIES)))
    runs = {name: simulate(queries, arrivals, _setting(name, settings)) for name in names}
    bins = len(given[0]["arrivals"])
    return {
        "policies": {name: _told(queries, run) for name, run in runs.items()},
        "duration_s": bins * bin_ms / 1e3,
        "bins": bins,
    }


def _read(document: Any) -> dict[str, Any]:
    faults: list[Fault] = []
    read = REPLAY.read(document, "", "", faults)
    if read is not BAD and read["queries"] is not BAD:
        faults += _clashes(read["queries"])
    if faults:
        raise DocumentError(faults, "replay")
    checked: dict[str, Any] = read
    return checked


def _clashes(queries: Sequence[Any]) -> list[Fault]:
    """Faults across fields: duplicate ids, different numbers of bins, delays without windows."""
    faults, ids, bins = [], set(), None
    for index, query in enumerate(queries):
        path = join_path("queries", index)
        if query is BAD:
            continue
        if query["id"] is not BAD and query["id"] in ids:
            faults.append(Fault(join_path(path, "id"), f"id is {query['id']!r} again; allowed: each once"))
        ids.add(query["id"])
        if query["arrivals"] is not BAD:
            bins = bins or len(query["arrivals"])
            if len(query["arrivals"]) != bins:
                said = f"arrivals has {len(query['arrivals'])} bins; allowed: {bins}, as the first query"
                faults.append(Fault(join_path(path, "arrivals"), said))
        if "delays_ms" in query and "period_ms" not in query:
            said = "delays_ms is given without period_ms; allowed: both or none"
            faults.append(Fault(join_path(path, "delays_ms"), said))
    return faults


def _query(document: Mapping[str, Any], cores: float, settings: ScheduleSettings) -> SimulatedQuery:
    period_ms = document.get("period_ms")
    backlog_ms = 1e3 * settings.backlog_s(None if period_ms is None else period_ms / 1e3)
    return SimulatedQuery(
        id=document["id"],
        operators=(SimulatedOperator(document["cost_ms"] / cores, document.get("output_ratio", 1.0)),),
        period_ms=period_ms,
        first_ms=document.get("first_ms", period_ms or 0.0),
        event_bytes=document.get("record_bytes", _RECORD_BYTES),
        waits_ms=document.get("waits_ms", backlog_ms),
    )


def _arrivals(document: Mapping[str, Any], query: SimulatedQuery, bin_ms: float) -> Arrivals:
    """Records in pieces; a piece of a bin comes at the end of its part of the bin."""
    records = np.repeat(np.array(document["arrivals"]) / _PIECES, _PIECES)
    end_ms = len(document["arrivals"]) * bin_ms
    at_ms = (np.arange(len(records)) + 1) * (bin_ms / _PIECES)
    at = np.ceil(at_ms / _TICK_MS - 1e-9).astype(np.int64)
    bins = math.ceil(end_ms / _TICK_MS) + 1
    events, stimulus = np.zeros(bins), np.full(bins, math.inf)
    np.add.at(events, at, records)
    np.minimum.at(stimulus, at, at_ms - bin_ms / _PIECES)
    delays = np.array(document.get("delays_ms", [])) if query.period_ms is not None else np.empty(0)
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


def _told(queries: Sequence[SimulatedQuery], run: KlinkRun) -> dict[str, Any]:
    whole = _figures(run, None) | {
        "memory_peak_bytes": float(run.memory_bytes.sum(axis=1).max()),
        "busy_share": float(run.busy_ms.sum() / (run.end_ms * len(run.busy_ms))),
    }
    each = {query.id: _figures(run, index) | {"memory_peak_bytes": float(run.peak[index] * query.event_bytes)}
            for index, query in enumerate(queries)}  # fmt: skip
    return whole | {"queries": each}


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
