"""Answers of estimates as they are stored: of a query with what the console knows of it, and the curves of charts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import ClassVar

import numpy as np

from apps.fleet.choices import Evidence
from apps.queries.arrivals import series
from engine.arrays import FloatArray, step_maxima
from engine.capacity.answer import ClusterCapacity, QueryCapacity
from engine.document.backlog import InputBacklog
from engine.estimation.answer import EstimateAnswer, OperatorAnswer, QueryAnswer
from engine.measurement.microbatch import LiveLatency
from engine.measurement.trust import EstimateTrust
from engine.records import Flag, Omitted, Record
from engine.words import duration_words

__all__ = [
    "CURVE_POINTS",
    "STRIP_PARTS",
    "AppliedCalibration",
    "CatchUpTimes",
    "LiveParts",
    "OperatorLoad",
    "StoredEstimate",
    "StoredFacts",
    "curves_pack",
    "curves_unpack",
    "stored_estimates",
]

CURVE_POINTS = 1500  # more than a chart has pixels
STRIP_PARTS = 96


@dataclass(frozen=True)
class LiveParts(LiveLatency):
    """Parts of a live query's latency; their evidence is assumed until a batch was timed."""

    interval_s: float
    mean_work_s: float
    upper_s: float | None
    evidence: str


@dataclass(frozen=True)
class AppliedCalibration(Record):
    """Scaling of intervals: by which runs and factors, the interval as stated, and that of what a run shows.

    `scope` says whose runs the factors are of; empty: too few.
    """

    origin: str
    evidence: str
    windowed: Flag
    lower: float
    upper: float
    runs: int
    scope: str
    stated: tuple[float, float] | None
    run: tuple[float, float] | None
    trust: EstimateTrust


@dataclass(frozen=True)
class OperatorLoad(Record):
    """Load and output of an operator, mean and peak."""

    load_mean_cps: float
    load_peak_cps: float
    output_mean_eps: float
    output_peak_eps: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredEstimate(QueryAnswer):
    """The engine's answer about a running query, with its operators by their names within it."""

    backlogs: Omitted[tuple[InputBacklog, ...]] = None
    live: Omitted[LiveParts] = None
    calibration: Omitted[AppliedCalibration] = None
    operators: Mapping[str, OperatorLoad] = field(default_factory=dict)
    capacity: Omitted[QueryCapacity] = None

    @property
    def evidence(self) -> Evidence:
        """Measured where no input lacks a sample and, of a live query, batches were timed."""
        is_assumed = self.uncovered or (self.live is not None and self.live.evidence == Evidence.ASSUMED)
        return Evidence.ASSUMED if is_assumed else Evidence.MEASURED


@dataclass(frozen=True)
class CatchUpTimes(Record):
    """When a query that is behind has caught up, by the clock: within its 90 % interval, if it is known.

    `behind_s` is the age of the oldest event that waited. Without `back_at` it never catches up, or nobody knows when
    (`state` is ``unknown``, where a cost on its way is not known); `high_at` is None where that lies beyond the
    horizon, and both ends are None where the interval is not known.
    """

    TITLE: ClassVar[str] = "times of catching up"

    state: str
    behind_s: float | None
    back_at: datetime | None
    low_at: datetime | None
    high_at: datetime | None

    @property
    def behind(self) -> str:
        """Age of the oldest event in words; empty where nobody knows."""
        return duration_words(self.behind_s) if self.behind_s else ""

    @classmethod
    def of(cls, answer: StoredEstimate, begins_at: datetime) -> CatchUpTimes | None:
        """Times of an answer whose horizon begins at a moment; None of a query that is not behind."""
        found = answer.catch_up
        if found is None:
            return None
        ages = [backlog.behind_s for backlog in answer.backlogs or () if backlog.is_used and backlog.behind_s]

        def moment(after_s: float | None) -> datetime | None:
            return None if after_s is None else begins_at + timedelta(seconds=after_s)

        return cls(found.state, max(ages, default=None), moment(found.at_s), moment(found.low_s), moment(found.high_s))


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredFacts(EstimateAnswer):
    """Facts of a cluster as a whole, with its capacity; None of one that was kept without."""

    capacity: Omitted[ClusterCapacity] = None


def stored_estimates(answer: EstimateAnswer, among: Collection[str] | None = None) -> dict[str, StoredEstimate]:
    """Queries of an answer by their names, all or some, each with its operators and what waits at its inputs."""
    reports = {name: report for name, report in (answer.queries or {}).items() if among is None or name in among}
    operators: dict[str, dict[str, OperatorLoad]] = {name: {} for name in reports}
    for name, curves in (answer.operators or {}).items():
        query, _, own = name.partition("/")  # names of operators may have slashes, those of queries have none
        if query in operators:
            operators[query][own] = _operator_load(curves, answer.subinterval_s)
    backlogs: dict[str, list[InputBacklog]] = {}
    for backlog in answer.backlogs or ():
        backlogs.setdefault(backlog.query or "", []).append(backlog)
    kept = [item.name for item in fields(QueryAnswer)]
    return {
        name: StoredEstimate(
            **{field: getattr(report, field) for field in kept},
            backlogs=tuple(backlogs.get(name, ())) or None,
            operators=operators[name],
        )
        for name, report in reports.items()
    }


def _operator_load(series: OperatorAnswer, subinterval_s: float) -> OperatorLoad:
    load, output = series.load.tolist(), series.output.tolist()
    count = max(1, len(load))
    return OperatorLoad(
        load_mean_cps=sum(load) / count / subinterval_s,
        load_peak_cps=max(load, default=0.0) / subinterval_s,
        output_mean_eps=sum(output) / count / subinterval_s,
        output_peak_eps=max(output, default=0.0) / subinterval_s,
    )


def curves_pack(path: FloatArray, subinterval_s: float) -> bytes:
    """Pack the mean path per subinterval with its time axis, thinned by maximum to a few kilobytes."""
    width = max(1, math.ceil(len(path) / CURVE_POINTS))
    rows = [np.arange(0, len(path), width) * subinterval_s, step_maxima(path, CURVE_POINTS)]
    return series.pack(np.concatenate([[float(len(rows))], *rows]))


def curves_unpack(data: bytes | memoryview) -> dict[str, list[float]]:
    """The lists of a chart: `time_s` (start of each point's stretch) and `flow_s`, the mean path."""
    array = series.unpack(bytes(data))
    rows = array[1:].reshape(int(array[0]), -1)
    return {"time_s": rows[0].tolist(), "flow_s": rows[1].tolist()}
