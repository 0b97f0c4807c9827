"""Load generator: records by a seed and a rate curve, the same ones after every restart."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from string import Formatter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agent.collect import LATEST_US, Collector, digest_of
from agent.collect.options import DrawnPart, GeneratorOptions, TextTemplate

__all__ = ["LoadGenerator", "RateCurve"]

BLOCK = 4096  #: records drawn at once


class RateCurve:
    """Records per second over time: `rate_per_s` times a factor that runs straight between its points.

    Parameters
    ----------
    rate_per_s
        Records per second where the factor is 1.
    points
        ``(second, factor)``, seconds ascending from 0 on, factors >= 0. Before the first point and after the last the
        factor stays as it is there. Without points it is 1.
    period_s
        The curve repeats after this time; points behind it do not count.

    Notes
    -----
    The number of records due until ``t`` is the integral of the rate, a quadratic in each piece, so the due time of
    record ``n`` follows in closed form: within a piece of rate ``r`` and slope ``s``, ``m`` records take
    ``2 m / (r + sqrt(r^2 + 2 s m))`` seconds. Numbers start at 0, and so does time.

    Examples
    --------
    >>> RateCurve(10.0).due_s(np.array([0, 5, 20])).tolist()
    [0.0, 0.5, 2.0]
    """

    def __init__(
        self, rate_per_s: float, points: Sequence[Sequence[float]] = (), period_s: float | None = None
    ) -> None:
        knots = [(float(at), rate_per_s * float(factor)) for at, factor in points] or [(0.0, rate_per_s)]
        if period_s is not None:
            knots = _until(knots, period_s)
        if knots[0][0] > 0:
            knots.insert(0, (0.0, knots[0][1]))
        self._at = np.array([at for at, _ in knots])
        self._rate = np.array([rate for _, rate in knots])
        width = np.diff(self._at)
        self._slope = np.append(np.diff(self._rate) / np.where(width > 0, width, 1.0), 0.0)
        self._due = np.append(0.0, np.cumsum(width * (self._rate[1:] + self._rate[:-1]) / 2))
        self._period_s = period_s

    @property
    def records(self) -> float:
        """Number of records under the whole curve; infinite unless its rate ends at 0."""
        ends = self._period_s is None and self._rate[-1] == 0
        return float(np.floor(self._due[-1])) if ends else np.inf

    def due_s(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds after the start at which the records `numbers` are due; infinite for those that never are."""
        records = numbers.astype(np.float64)
        if self._period_s is None:
            return self._within(records)
        rounds = np.floor(records / self._due[-1])
        return rounds * self._period_s + self._within(records - rounds * self._due[-1])

    def _within(self, records: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        piece = np.clip(np.searchsorted(self._due, records, side="right") - 1, 0, len(self._due) - 1)
        more = records - self._due[piece]
        rate, slope = self._rate[piece], self._slope[piece]
        root = np.sqrt(np.maximum(rate**2 + 2 * slope * more, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            took = np.where(more > 0, 2 * more / (rate + root), 0.0)
        return np.asarray(self._at[piece] + took)


def _until(knots: list[tuple[float, float]], period_s: float) -> list[tuple[float, float]]:
    """The knots up to the period's end, with one at the end itself."""
    kept = [knot for knot in knots if knot[0] < period_s] or [(0.0, knots[0][1])]
    behind = next((knot for knot in knots if knot[0] >= period_s), None)
    (at, rate) = kept[-1]
    if behind is not None and behind[0] > at:
        rate += (behind[1] - rate) * (period_s - at) / (behind[0] - at)
    return [*kept, (period_s, rate)]


def draw(part: DrawnPart, kind: pa.DataType, *, seed: int, name: str, block: int) -> pa.Array:
    """Values of the records ``block * BLOCK`` to ``(block + 1) * BLOCK - 1`` of one column."""
    way, how = part.rule
    if way == "template":
        return _filled(how, seed=seed, name=name, block=block)
    if way == "constant":
        return pa.repeat(pa.scalar(how, kind), BLOCK)
    if way == "sequence":
        numbers = (np.arange(BLOCK, dtype=np.int64) + block * BLOCK) % how
        return pa.array(numbers).cast(kind)
    random = _random(seed, name, block)
    if way in ("choice", "skewed"):
        return _chosen(how, kind, random, skewed=way == "skewed")
    return _numbers(way, how, kind, random)


def _random(seed: int, name: str, block: int) -> np.random.Generator:
    # a counter-based generator goes to any block at once; a block stays far within one step of the counter's next word
    key = np.array([seed % 2**64, zlib.crc32(name.encode())], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, block, 0, 0]))


def _numbers(way: str, how: Sequence[float], kind: pa.DataType, random: np.random.Generator) -> pa.Array:
    first, second = how
    whole = pa.types.is_integer(kind)
    drawn: npt.NDArray[Any]
    if way == "uniform" and whole:
        drawn = random.integers(int(first), int(second), BLOCK, endpoint=True)
    elif way == "uniform":
        drawn = random.uniform(first, second, BLOCK)
    elif way == "normal":
        drawn = random.normal(first, second, BLOCK)
    else:
        drawn = first * np.exp(random.normal(0.0, second, BLOCK))
    return pa.array(np.rint(drawn).astype(np.int64) if whole else drawn).cast(kind)


def _chosen(values: Sequence[Any], kind: pa.DataType, random: np.random.Generator, *, skewed: bool) -> pa.Array:
    if skewed:
        weights = 1.0 / np.arange(1, len(values) + 1)
        numbers = random.choice(len(values), BLOCK, p=weights / weights.sum())
    else:
        numbers = random.integers(0, len(values), BLOCK)
    return pc.take(pa.array(values, kind), pa.array(numbers))


def _filled(how: TextTemplate, *, seed: int, name: str, block: int) -> pa.Array:
    """A text with the parts filled in, each drawn as a column of its own."""
    pieces: list[Any] = []
    for text, name_of_part, _, _ in Formatter().parse(how.text):
        if text:
            pieces.append(pa.scalar(text))
        if name_of_part is not None:
            part = how.parts[name_of_part]
            drawn = draw(part, part_type(part), seed=seed, name=f"{name}.{name_of_part}", block=block)
            pieces.append(drawn.cast(pa.string()))
    filled = pc.binary_join_element_wise(*pieces, pa.scalar(""))
    return filled if isinstance(filled, pa.Array) else pa.repeat(filled, BLOCK)


def part_type(part: DrawnPart) -> pa.DataType:
    """Integers where all given numbers are whole, as a reader of the text would expect."""
    way, how = part.rule
    values = how if isinstance(how, tuple) else [how]
    if any(isinstance(value, str) for value in values):
        return pa.string()
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    return pa.int64() if way == "sequence" or all(float(value).is_integer() for value in values) else pa.float64()


class LoadGenerator(Collector):
    """Record n is due by the rate curve, has that event time, and depends on the seed and n alone."""

    kind = "generator"
    replayable = True

    def __init__(self, name: str, schema: pa.Schema, time: str, options: GeneratorOptions) -> None:
        super().__init__(name, schema)
        self._time = time
        self._of = digest_of(options)
        self._columns = options.columns
        self._seed = options.seed
        self._max_lag_us = int(options.max_lag_s * 1e6)
        rate = options.rate_per_s * options.times
        self._curve = RateCurve(rate, options.curve or (), options.period_s)
        self._end = min(options.records or np.inf, self._curve.records)
        self._next = 0
        self._now_us = 0
        self._start_us: int | None = None
        self._block = -1
        self._due_us: npt.NDArray[np.float64] = np.empty(0)
        self._drawn: pa.RecordBatch | None = None

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        self._now_us = now_us
        if self._start_us is None:
            self._start_us = now_us
        self._shed(now_us)
        batches: list[pa.RecordBatch] = []
        while most > 0 and self._next < self._end and (batch := self._due(now_us, most)).num_rows:
            batches += self.given(batch)
            self._next += batch.num_rows
            most -= batch.num_rows
        self.state = "ended" if self._next >= self._end else "collecting"
        return batches

    def watermark_us(self) -> int:
        if self._start_us is None:
            return 0
        if self._next >= self._end:
            return self._now_us  # nothing more comes; a restart would not begin before now
        due_us = self._start_us + float(self._curve.due_s(np.array([self._next]))[0]) * 1e6
        return int(min(due_us, LATEST_US))

    def position(self) -> Any:
        return {"of": self._of, "start_us": self._start_us, "next": self._next, "shed": self.records_shed}

    def seek(self, position: Any) -> None:
        if position is None:
            return
        if position["of"] != self._of:
            raise ValueError(f"{self.name} has other options than before: it begins anew")
        self._start_us, self._next, self.records_shed = position["start_us"], position["next"], position["shed"]
        self._block = -1

    def _due(self, now_us: int, most: int) -> pa.RecordBatch:
        """Records due by now, of the block in which the next one lies."""
        number, at = divmod(self._next, BLOCK)
        if number != self._block:
            self._fill(number)
        assert self._drawn is not None
        until = int(np.searchsorted(self._due_us, now_us, side="right"))
        until = int(min(until, self._end - number * BLOCK, at + most))
        return self._drawn.slice(at, max(until - at, 0))

    def _fill(self, number: int) -> None:
        assert self._start_us is not None
        records = np.arange(number * BLOCK, (number + 1) * BLOCK)
        self._due_us = self._start_us + self._curve.due_s(records) * 1e6
        stamps = pa.array(np.minimum(self._due_us, LATEST_US).astype(np.int64)).cast(self.schema.field(self._time).type)
        arrays = [
            stamps
            if field.name == self._time
            else draw(self._columns[field.name], field.type, seed=self._seed, name=field.name, block=number)
            for field in self.schema
        ]
        self._drawn = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._block = number

    def _shed(self, now_us: int) -> None:
        """Drop records that have been due for too long: a generator that was paused for an hour does not catch up in
        a burst.
        """
        assert self._start_us is not None
        late_us = now_us - self._max_lag_us
        if self._next >= self._end or self._due_at(self._next) >= late_us:
            return
        begin, low, high = self._next, self._next, int(min(self._end, 2**62))
        step = BLOCK
        while low + step < high and self._due_at(low + step) < late_us:
            low, step = low + step, step * 2
        high = min(high, low + step)
        while low < high:  # the first record that is not too late
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._due_at(middle) < late_us else (low, middle)
        self._next = low
        self.records_shed += low - begin

    def _due_at(self, record: int) -> float:
        assert self._start_us is not None
        return self._start_us + float(self._curve.due_s(np.array([record]))[0]) * 1e6
