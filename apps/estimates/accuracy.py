"""Estimates held against what was measured: one observation for each interval of each live query."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.errors import Conflict, Fault, Impossible, Malformed, SluiceError, fault_count
from apps.core.events import announce
from apps.estimates.answers import OperatorLoad, StoredEstimate
from apps.estimates.calibration import INTERVAL, calibrations_refresh, group_of, is_windowed
from apps.estimates.choices import RunOrigin, UnscoredReason
from apps.estimates.models import AccuracyObservation, QueryEstimate, UnscoredInterval
from apps.measurements.stream_processor import stream_disturbances
from apps.measurements.subintervals import work_by_operator
from apps.queries.models import Query, QueryVersion
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery
from engine.words import listed

__all__ = [
    "KEEP",
    "accuracy_observe",
    "accuracy_observe_all",
    "accuracy_purge",
    "accuracy_report",
    "runs_set_aside",
    "scored_run",
    "work_by_kind",
]

_IMPORTED = (RunOrigin.FLINK, RunOrigin.SPARK, RunOrigin.PROMETHEUS)

KEEP = timedelta(days=30)
_SETTLE = timedelta(seconds=10)  # results of an interval have arrived by then
_BACK = timedelta(hours=1)  # what was missed while no worker ran
_MAX_DURATION_S = 86_400.0
_log = logging.getLogger(__name__)


def accuracy_observe_all(now: datetime | None = None) -> int:
    """Judge every interval that is over, and calibrate with them; returns how many."""
    present = now or timezone.now()
    since = present - _BACK
    rows: list[AccuracyObservation] = []
    queries = Query.objects.filter(live__in=LiveQuery.objects.all(), estimates__run__created_at__lte=present)
    for query in queries.select_related("cluster").distinct():
        try:
            rows += accuracy_observe(query=query, since=since, now=present)
        except SluiceError as error:
            _log.warning("estimates of %s cannot be observed now: %s", query, error)
    calibrations_refresh({group_of(row) for row in rows}, now=present)
    return len(rows)


def accuracy_observe(*, query: Query, since: datetime, now: datetime) -> list[AccuracyObservation]:
    """Join the intervals of a query that are over since the last observation with the estimates in force.

    An interval that cannot be scored has no observation; it is kept with the reason.
    """
    last = AccuracyObservation.objects.filter(query=query, origin=RunOrigin.LIVE).order_by("-starts_at").first()
    begin = max(since, last.ends_at) if last else since
    found = [_observation(query, starts_at, windows) for starts_at, windows in _by_interval(query, begin, now)]
    rows = [row for row in found if isinstance(row, AccuracyObservation)]
    unscored = [row for row in found if isinstance(row, UnscoredInterval)]
    with transaction.atomic():  # two workers at once: the one that comes second changes nothing
        AccuracyObservation.objects.bulk_create(rows, ignore_conflicts=True)
        UnscoredInterval.objects.bulk_create(unscored, ignore_conflicts=True)
        if rows:
            announce(f"accuracy:{query.cluster.slug}")
    return rows


def accuracy_report(
    *,
    query: Query,
    origin: str,
    latency_s: float,
    statistic: str,
    ends_at: datetime | None = None,
    duration_s: float = INTERVAL.total_seconds(),
    windows: int = 1,
    version: int | None = None,
    work: Mapping[str, float] | None = None,
    now: datetime | None = None,
) -> AccuracyObservation:
    """Score the estimate of a query that another engine runs by the latency that was measured there.

    Parameters
    ----------
    latency_s : float
        The statistic of the query's objective over the `duration_s` up to `ends_at`, from `windows` results.
    version : int, optional
        Number of the version that ran, where the reporter knows it.
    work : mapping of operator name to cycles/s, optional
        Work that was measured over the same stretch, of some or all operators: their kinds' bias is learned from it.

    Raises
    ------
    Malformed
        With every fault of what was measured.
    Conflict
        The query is live, so Sluice measures it itself; or the same origin reported a part of the stretch before.
    Impossible
        No estimate was in force when the stretch began, or only one of another version than ran.
    """
    present = now or timezone.now()
    until = ends_at or present
    _refuse(_report_faults(origin, latency_s, until, duration_s, windows, work, present))
    with transaction.atomic():
        # two reports of a stretch at once: the second sees the first
        Query.objects.select_for_update().get(pk=query.pk)
        if LiveQuery.objects.filter(query=query).exists():
            message = f"{query.name} runs on live telemetry, of which latencies are measured here"
            raise Conflict(f"{message}.", [("query", message)])
        starts_at = until - timedelta(seconds=duration_s)
        reported = AccuracyObservation.objects.filter(query=query, origin=origin)
        if reported.filter(starts_at__lt=until, ends_at__gt=starts_at).exists():
            message = f"the stretch from {starts_at.isoformat()} overlaps one that was reported before"
            raise Conflict(f"Of {query.name} {message}.", [("ends_at", message)])
        estimate = _estimate_before(query, starts_at)
        if estimate is None or version not in (None, estimate.version.number):
            of_version = "" if version is None else f", version {version},"
            message = f"no estimate of {query.name}{of_version} was in force at {starts_at.isoformat()}"
            raise Impossible(f"There is nothing to score: {message}.", [("ends_at", message)])
        _refuse(_estimate_faults(estimate, statistic, work or {}))
        row = _scored(
            estimate,
            latency_s,
            starts_at=starts_at,
            ends_at=until,
            origin=origin,
            windows=windows,
            kinds=work_by_kind(estimate.version, estimate.answer.operators, work or {}),
        )
        row.save()
        announce(f"accuracy:{query.cluster.slug}")
    calibrations_refresh({group_of(row)}, now=present)
    return row


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise Malformed(f"The report has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def _report_faults(
    origin: str,
    latency_s: float,
    ends_at: datetime,
    duration_s: float,
    windows: int,
    work: Mapping[str, float] | None,
    now: datetime,
) -> list[Fault]:
    """Faults of a report that show without an estimate."""
    faults = []
    if origin not in _IMPORTED:
        faults.append(Fault("origin", f"origin is {origin!r}; allowed: {listed(list(_IMPORTED))}"))
    if not _is_amount(latency_s):
        faults.append(Fault("latency_s", f"latency_s is {latency_s!r}; allowed: a finite number of at least 0"))
    if not (_is_amount(duration_s) and 1.0 <= duration_s <= _MAX_DURATION_S):
        faults.append(Fault("duration_s", f"duration_s is {duration_s!r}; allowed: 1 to 86,400 seconds"))
    if timezone.is_naive(ends_at):
        faults.append(Fault("ends_at", f"ends_at is {ends_at.isoformat()}; allowed: a moment with its time zone"))
    elif not now - KEEP <= ends_at <= now:
        faults.append(Fault("ends_at", f"ends_at is {ends_at.isoformat()}; allowed: a moment of the last 30 days"))
    if not isinstance(windows, int) or isinstance(windows, bool) or windows < 1:
        faults.append(Fault("windows", f"windows is {windows!r}; allowed: a whole number of at least 1"))
    for name, cps in (work or {}).items():
        if not _is_amount(cps):
            faults.append(Fault(f"work.{name}", f"{cps!r}; allowed: cycles per second, a finite number of at least 0"))
    return faults


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0.0


def _estimate_faults(estimate: QueryEstimate, statistic: str, work: Mapping[str, float]) -> list[Fault]:
    """Faults of a report against the estimate that it is held against."""
    faults = []
    if statistic != estimate.statistic:
        message = f"statistic is {statistic!r}; allowed: {estimate.statistic!r}, which the estimate is of"
        faults.append(Fault("statistic", message))
    known = sorted(estimate.answer.operators)
    of_version = f"an operator of version {estimate.version.number}"
    faults += [
        Fault(f"work.{name}", f"{name} is not {of_version}; allowed: {listed(known)}")
        for name in work
        if name not in known
    ]
    return faults


def runs_set_aside(
    *, query: Query, since: datetime, until: datetime, stretches: Sequence[tuple[datetime, datetime]], now: datetime
) -> int:
    """Set the runs of a query aside that lie in some stretches, and take back the others from `since` to `until`.

    Its factors are made anew without those that are set aside; returns how many runs changed.
    """
    rows = AccuracyObservation.objects.filter(query=query).exclude(origin=RunOrigin.SIMULATED)
    inside = Q(pk__in=[])
    for begin, end in stretches:
        inside |= Q(starts_at__lt=end, ends_at__gt=begin)
    taken = rows.filter(inside, set_aside=False)
    given = rows.filter(starts_at__lt=until, ends_at__gt=since, set_aside=True).exclude(inside)
    groups = {group_of(row) for row in (*taken, *given)}
    with transaction.atomic():
        changed = taken.update(set_aside=True) + given.update(set_aside=False)
        if changed:
            announce(f"accuracy:{query.cluster.slug}")
    if changed:
        calibrations_refresh(groups, now=now)
    return changed


def accuracy_purge(now: datetime | None = None) -> int:
    """Purge observations and unscored intervals older than `KEEP`; returns how many."""
    before = (now or timezone.now()) - KEEP
    gone = [model.objects.filter(starts_at__lt=before).delete()[0] for model in (AccuracyObservation, UnscoredInterval)]
    return sum(gone)


def _by_interval(query: Query, begin: datetime, now: datetime) -> Iterable[tuple[datetime, list[ResultWindow]]]:
    """Windows by the interval in which their results came, of intervals that are over."""
    first, end = _floor(begin), _floor(now - _SETTLE)
    first = first if first >= begin else first + INTERVAL
    rows = ResultWindow.objects.filter(query=query, emitted_at__gte=first, emitted_at__lt=end)
    windows: dict[datetime, list[ResultWindow]] = {}
    for row in rows.defer("body").order_by("emitted_at"):
        windows.setdefault(_floor(row.emitted_at), []).append(row)
    return windows.items()


def _floor(moment: datetime) -> datetime:
    width = INTERVAL.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // width * width, moment.tzinfo)


def _observation(
    query: Query, starts_at: datetime, windows: list[ResultWindow]
) -> AccuracyObservation | UnscoredInterval:
    """The observation of one interval, or the interval with the reason why it is not scored."""
    usable = [window for window in windows if _is_usable(window)]
    estimate = _estimate_before(query, starts_at)
    kept = [window for window in usable if estimate is not None and _is_of_version(window, estimate)]
    if estimate is None or not kept:
        return UnscoredInterval(
            cluster=query.cluster,
            query=query,
            starts_at=starts_at,
            reason=_reason(windows, estimate, is_usable=bool(usable)),
            windows=len(windows),
        )
    measured = work_by_operator(query, starts_at, starts_at + INTERVAL)
    return _scored(
        estimate,
        _statistic([window.latency_s or 0.0 for window in kept], estimate.statistic),
        starts_at=starts_at,
        ends_at=starts_at + INTERVAL,
        origin=RunOrigin.LIVE,
        windows=len(kept),
        left_out=len(windows) - len(kept),
        disturbed=_disturbed(kept),
        kinds=work_by_kind(estimate.version, estimate.answer.operators, measured),
    )


def _estimate_before(query: Query, moment: datetime) -> QueryEstimate | None:
    """The estimate in force at a moment."""
    rows = QueryEstimate.objects.filter(query=query, run__created_at__lte=moment)
    return rows.select_related("run", "query", "version").order_by("-run__created_at", "-run_id").first()


def _scored(estimate: QueryEstimate, observed_s: float, **fields: Any) -> AccuracyObservation:
    """An unsaved run of a stored estimate."""
    columns = {name: getattr(estimate, name) for name in ("statistic", "estimate_s", "low_s", "high_s")}
    return scored_run(
        replace(estimate.answer, **columns),
        estimate.version,
        observed_s,
        cluster_id=estimate.run.cluster_id,
        query=estimate.query,
        estimate=estimate,
        estimated_at=estimate.run.created_at,
        **fields,
    )


def scored_run(
    answer: StoredEstimate, version: QueryVersion, observed_s: float, *, disturbed: str = "", **fields: Any
) -> AccuracyObservation:
    """An unsaved run: an estimate's answer with its interval of runs, as stated and as scaled, beside what was
    measured.
    """
    applied = answer.calibration
    stated_low_s, stated_high_s = (applied and applied.stated) or (answer.low_s, answer.high_s)
    low_s, high_s = (applied and applied.run) or (stated_low_s, stated_high_s)
    return AccuracyObservation(
        version=version.number,
        statistic=answer.statistic,
        evidence=answer.evidence,
        expected_s=answer.estimate_s,
        low_s=low_s,
        high_s=high_s,
        stated_low_s=stated_low_s,
        stated_high_s=stated_high_s,
        lower_factor=applied.lower if applied else 1.0,
        upper_factor=applied.upper if applied else 1.0,
        windowed=is_windowed(version),
        observed_s=observed_s,
        disturbed=disturbed,
        covered=None if low_s is None or high_s is None or disturbed else low_s <= observed_s <= high_s,
        parts=answer.live and {name: s for name, s in answer.live.to_dict().items() if name.endswith("_s")},
        **fields,
    )


def _is_usable(window: ResultWindow) -> bool:
    """Whether a window was complete in its first revision. A negative latency comes from clock skew."""
    return window.complete and window.revision == 0 and window.latency_s is not None and window.latency_s >= 0.0


def _is_of_version(window: ResultWindow, estimate: QueryEstimate) -> bool:
    """Whether the estimate was of the version that made the window; of old windows the version is not known."""
    return window.version_number is None or window.version_number == estimate.version.number


def _reason(windows: list[ResultWindow], estimate: QueryEstimate | None, *, is_usable: bool) -> UnscoredReason:
    if estimate is None:
        return UnscoredReason.NO_ESTIMATE
    if is_usable:
        return UnscoredReason.VERSION
    if all(window.revision > 0 for window in windows):
        return UnscoredReason.REVISED
    if any(not window.complete for window in windows if window.revision == 0):
        return UnscoredReason.INCOMPLETE
    return UnscoredReason.CLOCKS


def _disturbed(windows: list[ResultWindow]) -> str:
    """Activity of the stream processor while the records of some windows were under way; empty: nothing but its
    work.
    """
    spans = [(window.emitted_at - timedelta(seconds=window.latency_s or 0.0), window.emitted_at) for window in windows]
    stretches = stream_disturbances(min(since for since, _ in spans), max(until for _, until in spans))
    for row in stretches:
        if any(row.begins_at < until and row.ends_at > since for since, until in spans):
            return str(row.work)
    return ""


def _statistic(values: list[float], statistic: str) -> float:
    """The objective's statistic of the windows of an interval; quantiles by nearest rank."""
    if statistic == "mean":
        return math.fsum(values) / len(values)
    level = float(statistic[1:]) if statistic.startswith("q") else 1.0
    return sorted(values)[max(1, math.ceil(level * len(values) - 1e-9)) - 1]


def work_by_kind(
    version: QueryVersion, expected: Mapping[str, OperatorLoad], measured: Mapping[str, float]
) -> dict[str, list[float]]:
    """Work by operator kind, in cycles per second, of operators of which both are known: as estimated, as measured."""
    kinds = dict(version.operators.values_list("name", "kind")) if measured else {}
    totals: dict[str, list[float]] = {}
    for name, cps in measured.items():
        if name in expected and name in kinds:
            sums = totals.setdefault(kinds[name], [0.0, 0.0])
            sums[0] += expected[name].load_mean_cps
            sums[1] += cps
    return {kind: [round(value, 3) for value in sums] for kind, sums in totals.items()}
