"""No event is made up or lost on the way to a cluster's grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.queries.arrivals import series
from apps.queries.arrivals.grid import EventCounts, EventStamps, busiest_start, resample

EPOCH = 893_971_800.0  # a real time: what is left of a float's precision there matters


@st.composite
def counts_traces(draw: st.DrawFn) -> EventCounts:
    """Intervals with gaps, of any step, beginning at a real time."""
    n = draw(st.integers(1, 40))
    step = draw(st.sampled_from([0.1, 0.25, 1.0, 7.0, 60.0, 300.0]))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 3.0]), min_size=n, max_size=n))
    starts = EPOCH + step * (np.arange(n) + np.cumsum(gaps))
    values = draw(st.lists(st.floats(0, 1e9), min_size=n, max_size=n))
    return EventCounts(starts, np.full(n, step), np.array(values))


@given(counts_traces(), st.sampled_from([0.05, 0.25, 0.3, 1.0, 15.0, 1000.0]))
def test_totals_of_counts_are_conserved(trace: EventCounts, slice_s: float) -> None:
    span = trace.end_s - trace.start_s
    slices = min(5_000, int(np.ceil(span / slice_s)) + 1)
    got = resample(trace, start_s=trace.start_s, slice_s=slice_s, slices=slices)
    assert len(got) == slices and (got >= 0).all()
    if slices * slice_s >= span * (1 + 1e-6):
        assert got.sum() == pytest.approx(trace.counts.sum(), rel=1e-9, abs=1e-9)


@given(st.dictionaries(st.integers(0, 60), st.floats(0, 1e9), min_size=1), st.integers(0, 30), st.integers(1, 30))
def test_a_stretch_has_the_events_between_its_ends(known: dict[int, float], skipped: int, slices: int) -> None:
    """Slices as wide as the intervals and cut along them: each is one interval's count, or that of a gap."""
    starts = np.array(sorted(known), dtype=float)
    trace = EventCounts(starts, np.ones(len(starts)), np.array([known[int(start)] for start in starts]))
    start = trace.start_s + skipped
    if start < trace.end_s:
        got = resample(trace, start_s=start, slice_s=1.0, slices=slices)
        assert got == pytest.approx([known.get(int(start) + i, 0.0) for i in range(slices)], rel=1e-12)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=200), st.sampled_from([0.25, 1.0, 60.0]))
def test_every_stamp_is_in_one_slice(offsets: list[float], slice_s: float) -> None:
    trace = EventStamps(np.sort(np.array(offsets)) + EPOCH)
    slices = int((trace.end_s - trace.start_s) / slice_s) + 2
    got = resample(trace, start_s=trace.start_s, slice_s=slice_s, slices=slices)
    assert got.sum() == len(offsets)


def test_a_count_is_spread_evenly_and_gaps_stay_empty() -> None:
    trace = EventCounts(np.array([0.0, 10.0, 30.0]), np.full(3, 10.0), np.array([10.0, 40.0, 5.0]))
    got = resample(trace, start_s=0.0, slice_s=5.0, slices=8)
    assert got.tolist() == [5, 5, 20, 20, 0, 0, 2.5, 2.5]


def test_resampling_conserves_events_when_slices_do_not_fit_the_step() -> None:
    trace = EventCounts(np.array([0.0, 3.0]), np.full(2, 3.0), np.array([3.0, 6.0]))
    assert resample(trace, start_s=0.0, slice_s=2.0, slices=3).tolist() == [2, 1 + 2, 4]


def test_a_stretch_begins_where_it_is_told() -> None:
    trace = EventCounts(np.arange(6) * 10.0, np.full(6, 10.0), np.arange(6) * 10.0)
    assert resample(trace, start_s=25.0, slice_s=10.0, slices=2).tolist() == [25, 35]


def test_slices_after_the_end_are_filled_as_asked() -> None:
    trace = EventCounts(np.array([0.0, 1.0]), np.ones(2), np.array([4.0, 8.0]))
    assert resample(trace, start_s=0.0, slice_s=0.5, slices=6).tolist() == [2, 2, 4, 4, 0, 0]
    assert resample(trace, start_s=0.0, slice_s=0.5, slices=6, fill="repeat").tolist() == [2, 2, 4, 4, 2, 2]
    stamps = EventStamps(np.array([0.0, 0.1, 2.5]))
    assert resample(stamps, start_s=0.0, slice_s=1.0, slices=5, fill="repeat").tolist() == [2, 0, 1, 2, 0]


@pytest.mark.parametrize(("start_s", "fill"), [(9.0, "zero"), (-20.0, "zero"), (0.0, "loop")])
def test_invalid_traces_are_refused(start_s: float, fill: str) -> None:
    trace = EventCounts(np.array([0.0, 1.0]), np.ones(2), np.array([4.0, 8.0]))
    with pytest.raises(ValueError, match=r"fill is|nothing of the trace"):
        resample(trace, start_s=start_s, slice_s=0.5, slices=4, fill=fill)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 100))
def test_the_busiest_stretch_of_stamps_is_the_busiest(stamps: list[int], horizon: int) -> None:
    times = np.sort(np.array(stamps, dtype=float))
    trace = EventStamps(times)

    def inside(start: float) -> int:
        return int(((times >= start) & (times < start + horizon)).sum())

    best = max(inside(start) for start in range(-1, 301))
    assert inside(busiest_start(trace, float(horizon))) == best


def test_the_busiest_stretch_of_counts() -> None:
    values = np.array([1, 1, 9, 8, 1, 1, 7, 1], dtype=float)
    trace = EventCounts(np.arange(8) * 60.0, np.full(8, 60.0), values)
    assert busiest_start(trace, 120.0) == 120.0
    assert busiest_start(trace, 4000.0) == 0.0
    assert busiest_start(trace, 180.0) in {60.0, 120.0}


# -- series


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=50))
def test_packing_is_lossless_and_digests_tell_series_apart(values: list[float]) -> None:
    array = np.array(values)
    assert np.array_equal(series.unpack(series.pack(array)), array)
    assert series.digest(array) == series.digest(np.where(array == 0, -0.0, array))
    if len(values):
        other = array.copy()
        other[0] = 1.0 if other[0] != 1.0 else 2.0
        assert series.digest(other) != series.digest(array)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(1, 400))
def test_downsampling_keeps_the_peak(values: list[float], points: int) -> None:
    array = np.array(values)
    first, mean, largest = series.downsampled(array, points)
    assert len(first) == min(points, len(values)) and largest.max() == array.max()
    widths = np.diff(np.append(first, len(values)))
    assert (mean * widths).sum() == pytest.approx(array.sum(), abs=1e-6)
