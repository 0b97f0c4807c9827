"""Bytes that really leave a source in an epoch: partial rows by their groups, frames, counters and checkpoints.

Records and rows are concave in the shares of the input that leave at each cut, as groups come more slowly than records.
The least of them over all shares that a budget allows is therefore at a vertex: one operator-level plan or a mixture of
two that uses the budget up. Frames and checkpoints come in whole ones, so the least of all bytes is looked for there
too, and may be short of the best by some of them (docs/models/jarvis.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from engine.errors import Fault
from engine.jarvis.group_law import distinct, keys
from engine.kinds import Number
from engine.records import Record, Words

__all__ = ["AggregateGroups", "Overhead", "PartialRows", "WireBytes", "checkpoint_bytes"]

EPOCH_BYTES, OPERATOR_BYTES = 3130.0, 388.0  # a mark and counters: of an epoch, and of each operator more
FRAME_BYTES = 1350.0  # lead, header and the schema of some eight columns
FRAME_RECORDS = 1000.0
WINDOW_BYTES = 2300.0  # a frame that tells when a window was swept
CHECKPOINT_SHARE = 0.1
_STEP = 1e-6  # of the CPU time of running everything: how much more budget the shadow price is taken over
_TIE = 1e-12  # relative
_WINDOWS = 200  # gone through, where they differ: a window sends too little for a copy of its own
_COPIES = 20  # of a window that are gone through; the rest are as the last one

_MAX_VALUE, _MAX_EPOCHS = 1e15, 1e6  # bytes, records and epochs beyond them are a mistake
_NON_NEGATIVE, _POSITIVE = Number(least=0, most=_MAX_VALUE), Number(above=0, most=_MAX_VALUE)


@dataclass(frozen=True, kw_only=True)
class AggregateGroups(Record):
    """Groups of the last operator, an aggregate."""

    TITLE: ClassVar[str] = "an aggregate"
    JUDGES_PARTS: ClassVar[bool] = True

    groups: Annotated[float, _POSITIVE, Words("keys that there are (K); see seen_records")]
    bytes: Annotated[float, _NON_NEGATIVE, Words("of a partial row, without its parts")]
    seen_records: Annotated[
        float | None, _POSITIVE, Words("groups are those seen among so many records of an epoch (or a window)")
    ] = None
    window_epochs: Annotated[
        float | None,
        Number(least=1, most=_MAX_EPOCHS),
        Words("epochs of a window; without it partial rows leave in every epoch"),
    ] = None
    records_per_key: Annotated[
        float | None,
        Number(least=1, most=_MAX_VALUE),
        Words(
            "most records of a key in an epoch (or a window), where they come evenly, as probes do; without it keys "
            "come at random"
        ),
    ] = None
    parts: Annotated[
        float | None,
        _POSITIVE,
        Words("of all rows, such as the buckets of their quantiles; counted as groups are"),
    ] = None
    part_bytes: Annotated[float | None, _NON_NEGATIVE, Words("of a part")] = None

    def find_faults(self) -> Iterator[Fault]:
        """More groups than records they were seen among, and parts without bytes."""
        seen = self.seen_records if _POSITIVE.fits(self.seen_records) else None
        for name, number in (("groups", self.groups), ("parts", self.parts)):
            if seen is not None and number is not None and _POSITIVE.fits(number) and number > seen:
                yield Fault(name, f"{name} is {number:g}; allowed: at most {seen:g}, as seen_records is")
        if (self.parts is None) != (self.part_bytes is None):
            yield Fault("part_bytes", "parts and part_bytes stand together, or neither does")
        most = self.records_per_key
        if seen is None or most is None or not (_POSITIVE.fits(self.groups) and _POSITIVE.fits(most)):
            return
        if most < seen / self.groups:
            words = f"at least {seen / self.groups:g}, as seen_records is that many times groups"
            yield Fault("records_per_key", f"records_per_key is {most:g}; allowed: {words}")


@dataclass(frozen=True, slots=True)
class PartialRows:
    """Partial rows of the last operator, an aggregate.

    Examples
    --------
    >>> partials = PartialRows(keys=500, bytes=40)
    >>> round(partials.rows(1000)), round(partials.rows(500))
    (432, 316)
    """

    keys: float  #: K, of which each record has one; infinite where every record is its own group
    bytes: float  #: of a row, without parts
    window_epochs: float | None = None  #: None: rows leave in every epoch
    most: float = math.inf  #: records of a key in an epoch, or a window
    parts: float = 0.0  #: that there are; infinite where every record makes its own
    part_bytes: float = 0.0

    @classmethod
    def of(cls, aggregate: AggregateGroups) -> PartialRows:
        """Those of the groups of a problem."""
        seen, most = aggregate.seen_records, aggregate.records_per_key or math.inf

        def there(number: float) -> float:
            return number if seen is None else keys(seen, number, most)

        return cls(
            keys=there(aggregate.groups),
            bytes=aggregate.bytes,
            window_epochs=aggregate.window_epochs,
            most=most,
            parts=there(aggregate.parts or 0.0),
            part_bytes=aggregate.part_bytes or 0.0,
        )

    def rows(self, records: float) -> float:
        """Rows that leave in an epoch of so many records, on average over a window."""
        epochs = self.window_epochs or 1.0
        return distinct(records * epochs, self.keys, self.most) / epochs

    def sent_bytes(self, records: float) -> float:
        """Bytes of these rows."""
        epochs = self.window_epochs or 1.0
        return self.bytes_of(records * epochs) / epochs

    def bytes_of(self, records: float) -> float:
        """Bytes of the rows of so many records of one window."""
        rows = distinct(records, self.keys, self.most) * self.bytes
        return rows + (distinct(records, self.parts, self.most) * self.part_bytes if self.part_bytes else 0.0)


@dataclass(frozen=True)
class Overhead(Record):
    """Bytes of an epoch beside rows; the defaults are those of our agent with one query."""

    TITLE: ClassVar[str] = "overhead"

    epoch_bytes: Annotated[
        float | None,
        _NON_NEGATIVE,
        Words(
            f"of an epoch whatever is sent: mark and counters ({EPOCH_BYTES:g} + {OPERATOR_BYTES:g} for each operator)"
        ),
    ] = None
    frame_bytes: Annotated[float, _NON_NEGATIVE, Words(f"of a frame beside its rows ({FRAME_BYTES:g})")] = FRAME_BYTES
    frame_records: Annotated[
        float, Number(least=1, most=_MAX_VALUE), Words(f"rows that one frame takes ({FRAME_RECORDS:g})")
    ] = FRAME_RECORDS
    window_bytes: Annotated[
        float, _NON_NEGATIVE, Words(f"of a window that ends, whatever is sent ({WINDOW_BYTES:g})")
    ] = WINDOW_BYTES
    checkpoint_share: Annotated[
        float,
        Number(least=0, most=1),
        Words(f"bytes of copies of open windows over those of records and rows, at most ({CHECKPOINT_SHARE:g})"),
    ] = CHECKPOINT_SHARE

    def frames(self, rows: float) -> float:
        """Frames of so many rows, where they are about as many every time: of several, the last is half full."""
        return max(1.0, rows / self.frame_records + 0.5) if rows > 0 else 0.0

    def every_epoch(self, operators: int) -> float:
        """Bytes of a mark and counters."""
        return EPOCH_BYTES + operators * OPERATOR_BYTES if self.epoch_bytes is None else self.epoch_bytes


@dataclass(frozen=True, slots=True)
class SentBytes:
    """Bytes that leave in an epoch, by what they are; means where they differ between epochs."""

    drained: float  #: records
    output: float  #: rows that the last operator puts out
    overhead: float  #: frames beside their rows, marks, counters and sweeps
    checkpoints: float  #: copies of open windows

    @property
    def total(self) -> float:
        return self.drained + self.output + self.overhead + self.checkpoints


@dataclass(frozen=True, slots=True)
class VertexPlan:
    """Mixture of the operator-level plans `lo` (1 - `theta`) and `hi` (`theta`)."""

    lo: int
    hi: int
    theta: float
    cpu_s: float  #: per epoch
    sent: SentBytes
    shadow_price: float  #: bytes saved by one more CPU second
    unique: bool


@dataclass(frozen=True)
class WireBytes:
    """Bytes and CPU time of a pipeline's operator-level plans in epochs of `n_records`.

    Parameters
    ----------
    relay, cost, sizes
        As of `engine.jarvis.partition.Frontier`; the last relay ratio and size do not count with `partials`.
    partials
        Rows of the last operator; None: it puts out `relay` records of `sizes` bytes for each.
    overhead
        None: none.
    """

    relay: Sequence[float]
    cost: Sequence[float]
    sizes: Sequence[float]
    n_records: float
    partials: PartialRows | None = None
    overhead: Overhead | None = None
    volumes: tuple[float, ...] = field(init=False)  #: M + 1, records behind each cut where all of the input runs so far
    cpu_s: tuple[float, ...] = field(init=False)  #: M + 1, of an epoch

    def __post_init__(self) -> None:
        volumes, cpu_s = [float(self.n_records)], [0.0]
        for ratio, seconds in zip(self.relay, self.cost, strict=True):
            cpu_s.append(cpu_s[-1] + volumes[-1] * seconds)
            volumes.append(volumes[-1] * ratio)
        object.__setattr__(self, "volumes", tuple(volumes))
        object.__setattr__(self, "cpu_s", tuple(cpu_s))

    def sent(self, shares: Mapping[int, float]) -> SentBytes:
        """Bytes of an epoch where these shares of the input, summing to 1, leave behind so many operators."""
        last = len(self.relay)
        records = {cut: share * self._reaching(cut) for cut, share in shares.items()}
        drained = {cut: came for cut, came in records.items() if cut < last and came > 0}
        drained_bytes = math.fsum(came * self.sizes[cut] for cut, came in drained.items())
        came, partials, over = records.get(last, 0.0), self.partials, self.overhead
        rows, output_bytes, window_epochs = came, came * self.sizes[last], 1.0
        if partials is not None:
            rows, output_bytes = partials.rows(came), partials.sent_bytes(came)
            window_epochs = partials.window_epochs or 1.0
        if over is None:
            return SentBytes(drained_bytes, output_bytes, 0.0, 0.0)
        drained_frames = math.fsum(map(over.frames, drained.values()))
        frames = drained_frames + over.frames(rows * window_epochs) / window_epochs
        windows = 1 / window_epochs if partials is not None and partials.window_epochs else 0.0
        return SentBytes(
            drained_bytes,
            output_bytes,
            over.every_epoch(last) + frames * over.frame_bytes + windows * over.window_bytes,
            self._checkpoints(came, drained_bytes + drained_frames * over.frame_bytes),
        )

    def _checkpoints(self, came: float, drained_bytes: float) -> float:
        """Bytes of copies of open windows an epoch, which drains so much in frames; none where it ends all windows."""
        partials, over = self.partials, self.overhead
        if partials is None or over is None or partials.window_epochs is None or came <= 0:
            return 0.0
        epochs = partials.window_epochs

        def framed_bytes(records: float) -> float:
            frames = over.frames(distinct(records, partials.keys, partials.most))
            return partials.bytes_of(records) + frames * over.frame_bytes

        return checkpoint_bytes(
            lambda lasted: framed_bytes(came * lasted),
            window_epochs=epochs,
            drained_bytes=drained_bytes,
            window_bytes=framed_bytes(came * epochs),
            share=over.checkpoint_share,
        )

    def best(self, budget_s: float) -> VertexPlan:
        """The vertex that sends the fewest bytes; of several as good the cheapest, then that with fewest operators.

        Every one is tried, M^2 / 4 at most.
        """
        plans = sorted(self._vertices(budget_s), key=lambda plan: plan[0].total)
        least = plans[0][0].total
        ties = [plan for plan in plans if plan[0].total <= least * (1 + _TIE)]
        sent, cpu_s, lo, hi, theta = min(ties, key=lambda plan: plan[1:])
        more_s = _STEP * self.cpu_s[-1]
        saved = least - min(plan[0].total for plan in self._vertices(budget_s + more_s))
        price = min(max(saved, 0.0) / more_s, sys.float_info.max) if more_s > 0 else 0.0
        return VertexPlan(lo, hi, theta, cpu_s, sent, price, unique=len(ties) == 1)

    def _reaching(self, cut: int) -> float:
        """Records that a cut passes on where all of the input comes so far; of an aggregate those that it takes."""
        return self.volumes[cut - 1 if self.partials is not None and cut == len(self.relay) else cut]

    def _vertices(self, budget_s: float) -> Iterator[tuple[SentBytes, float, int, int, float]]:
        """Bytes, CPU seconds, lo, hi and theta of each."""
        cpu_s = self.cpu_s
        for lo, spent in enumerate(cpu_s):
            if spent > budget_s:
                break
            yield self.sent({lo: 1.0}), spent, lo, lo, 0.0
            if spent == budget_s:
                continue
            for hi in range(lo + 1, len(cpu_s)):
                if cpu_s[hi] > budget_s:
                    theta = (budget_s - spent) / (cpu_s[hi] - spent)
                    yield self.sent({lo: 1 - theta, hi: theta}), budget_s, lo, hi, theta


def checkpoint_bytes(
    open_bytes: Callable[[int], float], *, window_epochs: float, drained_bytes: float, window_bytes: float, share: float
) -> float:
    """Bytes of checkpoints an epoch, on average.

    At an epoch's end an agent sends a copy of all that is open if it is at most `share` of what it has sent of records
    and rows since the last copy. Windows end all at once, so the first copy of a window is that of its first epoch.

    Parameters
    ----------
    open_bytes
        Bytes of a copy, by the epochs that the window has lasted; concave.
    window_epochs
        Epochs of a window, at least 1; a part of one counts as a whole.
    drained_bytes, window_bytes
        Of the records that an epoch drains, and of the rows of a window that ends.

    Examples
    --------
    One copy of 20 bytes in the first epoch of a window; then 300 bytes never allow for the next.

    >>> checkpoint_bytes(lambda e: 20.0 * e, window_epochs=4, drained_bytes=100, window_bytes=80, share=0.1)
    5.0
    """
    last = int(-(-window_epochs // 1)) - 1  # the epoch after which the window is open for the last time
    if last < 1 or share <= 0:
        return 0.0
    unsent, total = 0.0, 0.0
    for _ in range(_WINDOWS):
        before = unsent
        copies, unsent = _window_copies(open_bytes, last, unsent, drained_bytes, share)
        unsent += drained_bytes + window_bytes
        if copies > 0 and math.isclose(unsent, before):  # every window is as this one from now on
            return copies / (last + 1)
        total += copies
    return total / (_WINDOWS * (last + 1))


def _window_copies(
    open_bytes: Callable[[int], float], last: int, unsent: float, drained_bytes: float, share: float
) -> tuple[float, float]:
    """Bytes of the copies of one window, and what was sent since the last one; `unsent` before it began."""
    copies, before = 0.0, 0
    for _ in range(_COPIES):
        epoch = _next_copy(open_bytes, before, last, unsent, drained_bytes, share)
        if epoch is None:
            return copies, unsent + (last - before) * drained_bytes
        copies, before, unsent = copies + open_bytes(epoch), epoch, 0.0
    if before < last and drained_bytes > 0:
        size = open_bytes(last)
        copies += size * (last - before) / max(1, math.ceil(size / (share * drained_bytes)))
    return copies, 0.0


def _next_copy(
    open_bytes: Callable[[int], float], before: int, last: int, unsent: float, drained_bytes: float, share: float
) -> int | None:
    """First epoch after `before` with a copy; what may be sent less what is open is convex, so that it is halved in."""

    def fits(epoch: int) -> bool:
        return open_bytes(epoch) <= share * (unsent + (epoch - before) * drained_bytes)

    if before >= last:
        return None
    if fits(before + 1):
        return before + 1
    if not fits(last):
        return None
    low, high = before + 1, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
