"""A source's load over weeks, made ready for a model: on the wall clock, gaps filled, seasons found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.errors import Fault, InfeasibleError
from engine.records import Fact

__all__ = ["DAY_S", "MIN_BUCKETS", "WEEK_S", "Prepared", "bucket_fault", "prepare", "wall_clock"]


DAY_S, WEEK_S = 86_400.0, 604_800.0
MIN_BUCKET_S = 60
MIN_BUCKETS = 16  # buckets below which no model is worth its name
MAX_MISSING_SHARE = 0.4
_SEASONAL_FROM = 0.15  # autocorrelation at a season's length below which the season is left out


def bucket_fault(bucket_s: object) -> str:
    """Fault of a bucket's length, in words; empty where there is none. Days are whole numbers of buckets, and the
    buckets of two histories have a common multiple that is one of them.

    Examples
    --------
    >>> bucket_fault(300), bucket_fault(700)
    ('', 'bucket_s is 700; allowed: whole seconds from 60 that divide a day, such as 60, 300, 900, 3600')
    """
    if (
        isinstance(bucket_s, int)
        and not isinstance(bucket_s, bool)
        and bucket_s >= MIN_BUCKET_S
        and DAY_S % bucket_s == 0
    ):
        return ""
    allowed = f"whole seconds from {MIN_BUCKET_S} that divide a day, such as 60, 300, 900, 3600"
    return f"bucket_s is {bucket_s!r}; allowed: {allowed}"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A history ready for a model.

    Attributes
    ----------
    values : array, shape (n,)
        log(events per bucket + offset), without gaps.
    offset : float
        Events added to every bucket before the logarithm, so that an empty bucket has one.
    seasons : tuple of int
        Lengths of the seasons in buckets, ascending.
    missing : array of bool, shape (n,)
        Buckets that were not known and have been filled.
    notes : tuple of Fact
        What was filled and which seasons were left out.
    """

    values: FloatArray
    offset: float
    seasons: tuple[int, ...]
    missing: npt.NDArray[np.bool_]
    notes: tuple[Fact, ...]

    def part(self, end: int) -> Prepared:
        """The history up to bucket `end`, with the seasons that it still holds twice."""
        return Prepared(
            self.values[:end],
            self.offset,
            tuple(p for p in self.seasons if 2 * p < end),
            self.missing[:end],
            self.notes,
        )

    def counts(self, logarithms: FloatArray) -> FloatArray:
        """Back from the logarithmic scale to events per bucket, at least 0."""
        return np.asarray(np.maximum(np.exp(np.minimum(logarithms, 60.0)) - self.offset, 0.0))


def prepare(history: FloatArray, *, bucket_s: float, seasons: Sequence[int] | None = None) -> Prepared:
    """Check a history, fill its gaps and find its seasons.

    Parameters
    ----------
    history : array, shape (n,)
        Events per bucket; NaN where nothing is known.
    bucket_s : float
        Length of a bucket, seconds.
    seasons : sequence of int, optional
        Lengths in buckets; by default a day and a week, each where the history holds it twice and repeats itself.

    Raises
    ------
    InfeasibleError
        Fewer than `MIN_BUCKETS` buckets, more than 40 % of them missing, or no event at all.
    """
    values = np.asarray(history, dtype=np.float64)
    missing = ~np.isfinite(values)
    _check(values, missing, bucket_s)
    known = values[~missing]
    offset = max(0.5, 0.01 * float(known.mean()))
    logs = np.where(missing, 0.0, np.log(np.where(missing, 1.0, values) + offset))
    candidates = _candidates(len(values), bucket_s) if seasons is None else tuple(sorted(seasons))
    filled = _fill_gaps(logs, missing, candidates)
    seasons_found = _seasons(filled, candidates) if seasons is None else candidates
    return Prepared(
        filled, offset, seasons_found, missing, tuple(_notes(missing, bucket_s, len(values), seasons_found))
    )


def _check(values: FloatArray, missing: npt.NDArray[np.bool_], bucket_s: float) -> None:
    faults = []
    if values.ndim != 1 or len(values) < MIN_BUCKETS:
        allowed = f"at least {MIN_BUCKETS}, and two days for a seasonal model"
        faults.append(Fault("history", f"history has {values.size} buckets of {bucket_s:g} s; allowed: {allowed}"))
    elif missing.mean() > MAX_MISSING_SHARE:
        share = f"{100 * missing.mean():.0f} % of its {len(values)} buckets are missing"
        faults.append(Fault("history", f"history: {share}; allowed: at most {100 * MAX_MISSING_SHARE:.0f} %"))
    elif (values[~missing] < 0.0).any():
        faults.append(Fault("history", "history has counts below 0; allowed: numbers of at least 0, or NaN for a gap"))
    elif not (values[~missing] > 0.0).any():
        faults.append(Fault("history", "history holds no event; allowed: a history with events"))
    if not bucket_s > 0.0:
        faults.append(Fault("bucket_s", f"bucket_s is {bucket_s}; allowed: a number above 0"))
    if faults:
        raise InfeasibleError(f"No forecast: {faults[0].message}", faults)


def _candidates(n: int, bucket_s: float) -> tuple[int, ...]:
    """Day and week in buckets, where they are whole numbers of them and the history is longer than two of them."""
    lengths = [length_s / bucket_s for length_s in (DAY_S, WEEK_S)]
    return tuple(round(p) for p in lengths if p > 1.5 and abs(p - round(p)) < 1e-9 and 2 * round(p) < n)


def _fill_gaps(logs: FloatArray, missing: npt.NDArray[np.bool_], seasons: tuple[int, ...]) -> FloatArray:
    """Gaps filled by the profile of the longest season that knows the place, on the level of the neighbourhood."""
    if not missing.any():
        return logs
    places, known = np.arange(len(logs)), ~missing
    profile = np.zeros(len(logs))
    for period in seasons:  # ascending: the longer season refines what the shorter has said
        rest = logs - profile
        sums = np.bincount(places[known] % period, rest[known], period)
        counts = np.bincount(places[known] % period, minlength=period)
        step = np.divide(sums, counts, out=np.full(period, rest[known].mean()), where=counts > 0)
        profile = profile + (step - step.mean())[places % period]
    level = np.interp(places, places[known], _smooth((logs - profile)[known], seasons))
    return np.where(missing, profile + level, logs)


def _smooth(values: FloatArray, seasons: tuple[int, ...]) -> FloatArray:
    """Moving mean over the shortest season, so that a gap is not bridged from two noisy neighbours."""
    width = min(seasons[0] if seasons else 5, len(values))
    sums = np.cumsum(np.concatenate([[0.0], values]))
    low = np.maximum(np.arange(len(values)) - width // 2, 0)
    high = np.minimum(low + width, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low))


def _seasons(values: FloatArray, candidates: tuple[int, ...]) -> tuple[int, ...]:
    """Candidates at whose length the series resembles itself, each judged without the shorter ones."""
    rest, seasons = values - np.poly1d(np.polyfit(np.arange(len(values)), values, 1))(np.arange(len(values))), []
    for period in candidates:
        if _autocorrelation(rest, period) >= max(_SEASONAL_FROM, 2.0 / np.sqrt(len(values))):
            seasons.append(period)
            rest = rest - _profile(rest, period)
    return tuple(seasons)


def _profile(values: FloatArray, period: int) -> FloatArray:
    place = np.arange(len(values)) % period
    return np.asarray((np.bincount(place, values) / np.bincount(place))[place])


def _autocorrelation(values: FloatArray, lag: int) -> float:
    centred = values - values.mean()
    spread = float(centred @ centred)
    # Per pair, or a long lag in a short history would count as no likeness.
    return float(centred[lag:] @ centred[:-lag]) / spread * len(values) / (len(values) - lag) if spread > 0.0 else 0.0


def _notes(missing: npt.NDArray[np.bool_], bucket_s: float, n: int, seasons: tuple[int, ...]) -> list[Fact]:
    notes = []
    if missing.any():
        edges = np.flatnonzero(np.diff(np.concatenate([[0], missing.astype(np.int8), [0]])))
        longest_h = float(np.diff(edges)[::2].max()) * bucket_s / 3600.0
        counts = {"missing": int(missing.sum()), "of": n, "gaps": len(edges) // 2}
        notes.append(Fact("forecasts.gaps_filled", longest_h=longest_h, **counts))
    span_s = n * bucket_s
    if span_s <= 2 * WEEK_S and bucket_s <= DAY_S:
        is_short = span_s <= 2 * DAY_S or bucket_s == DAY_S
        kind = "forecasts.no_season_held" if is_short else "forecasts.no_week_held"
        notes.append(Fact(kind, days=span_s / DAY_S))
    elif not seasons:
        notes.append(Fact("forecasts.no_season"))
    return notes


def wall_clock(
    counts: FloatArray, starts_s: float, bucket_s: float, ahead: int, zone: tzinfo | None
) -> tuple[FloatArray, IntArray]:
    """A history by wall-clock buckets, and where future buckets lie after its end.

    Parameters
    ----------
    counts : array, shape (n,)
        Events per bucket from `starts_s` (unix seconds) on, NaN where nothing is known.
    ahead : int
        Future buckets that follow.
    zone : tzinfo or None
        None leaves everything as it is. So do buckets longer than the change of the clock: it cannot be seen in them.

    Returns
    -------
    local : array, shape (m,)
        The hour that clocks leave out is NaN, the one that comes twice is the mean of both.
    places : array of int, shape (ahead,)
        Wall-clock bucket of each future bucket, counted from the end of `local`.
    """
    n = len(counts)
    places = np.arange(n + ahead)
    if zone is not None and n:
        moved = np.array([_offset_s(starts_s + i * bucket_s, zone) for i in range(n + ahead)]) / bucket_s
        moved -= moved[0]
        if np.array_equal(moved, np.round(moved)):
            places = places + moved.astype(np.int64)
    if not n:
        return counts, places
    places -= places[:n].min()
    size = int(places[:n].max()) + 1
    known = np.isfinite(counts)
    hits = np.bincount(places[:n][known], minlength=size)
    sums = np.bincount(places[:n][known], counts[known], minlength=size)
    local = np.divide(sums, hits, out=np.full(size, np.nan), where=hits > 0)
    return local, np.maximum(places[n:] - size, 0)


def _offset_s(at_s: float, zone: tzinfo) -> float:
    offset = datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()
    return offset.total_seconds() if offset else 0.0
