"""Holds on the way of an event: where it waits for something else than a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.estimation.waits.batches import BatchSchedule
from engine.estimation.waits.clocks import next_boundary
from engine.estimation.waits.horizon import Horizon

__all__ = [
    "BUFFER_BYTES",
    "BatchHold",
    "BatchedHold",
    "BufferHold",
    "BurstHold",
    "CheckpointHold",
    "ClosingHold",
    "CommitHold",
    "CountHold",
    "Hold",
    "KeyedGrowth",
    "LatenessHold",
    "PauseHold",
    "SessionHold",
    "Travellers",
    "TriggerHold",
    "WatermarkHold",
    "WindowHold",
]

BUFFER_BYTES = 32_768.0  #: of a network buffer of Flink, unless it is configured otherwise


_EACH = 64  # intervals of a session that are drawn one by one; of those beyond the mean counts
_ALL_KEYS = 0.999  # results of an event from which each is taken to have a key of its own
_HALVINGS = 60  # of a search for the number of keys, down to rounding
_MAX_USE = 0.95  # of a server, beyond which it is behind anyway and never makes up for a pause
_FIRST = 1e-9  # of a window: the first event of one may have to wait through a pause after its last


@dataclass
class Travellers:
    """Events on one way, n of them, and how far each has come. Times in seconds from the horizon's beginning.

    Attributes
    ----------
    since_s : array, shape (n,)
        Time that the latency of each counts from: its arrival, or the end of a window that counts from there.
    at_s : array, shape (n,)
        Time to which it was held.
    marked_s : array, shape (n,)
        Time at which the watermark passes that counts for it, which comes the same way; never after `at_s`.
    stamp_s : array, shape (n,)
        Event time: its arrival, or the end of the window whose result it is.
    phase_s : array, shape (n,)
        How long after a common multiple of all periods the horizon begins.
    world : array of int, shape (n,)
        Number of that phase, where batches are at hand for some of them only.
    draws : callable
        Numbers from 0 to 1, shape (n,), that say where in a hold each falls; 1 is the longest.
    """

    since_s: FloatArray
    at_s: FloatArray
    marked_s: FloatArray
    stamp_s: FloatArray
    phase_s: FloatArray
    world: IntArray
    draws: Callable[[], FloatArray]
    common_draws: Callable[[], FloatArray] | None = None  #: the same for all of a world, where worlds are told apart
    begun_s: FloatArray | None = None  #: start of the batch that each is in
    is_result: bool = False
    watermark_s: float | None = None  #: delay of the watermark, as far as it was waited for
    clump_s: float = 0.0  #: period in which results of windows come at once
    growth: FloatArray | None = None  #: as `growth_draws` gives it
    checkpoint: FloatArray | None = (
        None  #: how much of an interval the last checkpoint lay before all phases' beginning
    )

    @classmethod
    def arriving(
        cls,
        times_s: FloatArray,
        phase_s: FloatArray,
        world: IntArray,
        draws: Callable[[], FloatArray],
        common_draws: Callable[[], FloatArray] | None = None,
    ) -> Travellers:
        """Events that arrive at these times."""
        return cls(times_s, times_s, times_s, times_s, phase_s, world, draws, common_draws)

    @property
    def waited_s(self) -> FloatArray:
        """Seconds that each was held so far."""
        return np.asarray(self.at_s - self.since_s)

    def growth_draws(self) -> FloatArray:
        """Share of a window's load beyond the measured one adds to its results: 0 none, 1 all; alike for a run."""
        if self.growth is None:
            self.growth = self.alike_draws()
        return self.growth

    def alike_draws(self) -> FloatArray:
        """Numbers that are the same for all of a world, where worlds are told apart."""
        return self.common_draws() if self.common_draws else self.draws()

    def checkpoint_phase_s(self, interval_s: float) -> FloatArray:
        """Time from a checkpoint to the beginning of the horizon; checkpoints keep to no clock that windows keep to."""
        if not self.is_result:  # every phase is equally likely as it is
            return self.phase_s
        if self.checkpoint is None:
            self.checkpoint = self.alike_draws()
        return np.asarray(self.phase_s + interval_s * self.checkpoint)

    def move(self, seconds: FloatArray | float) -> None:
        """Hold all for so long."""
        self.at_s, self.marked_s = self.at_s + seconds, self.marked_s + seconds

    def move_to(self, times_s: FloatArray) -> None:
        """Hold all until these times."""
        self.at_s = self.marked_s = times_s

    def move_mark(self, seconds: FloatArray | float) -> None:
        """Hold all until a watermark that is so much later has passed."""
        self.marked_s = self.marked_s + seconds
        self.at_s = np.maximum(self.at_s, self.marked_s)


@dataclass(frozen=True)
class Hold:
    """A hold at an operator. `kind` is what a result calls it."""

    kind: ClassVar[str]

    operator: int

    @property
    def period_s(self) -> float | None:
        """Period at whose ends it lets go."""
        return None

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        """Move the events on to where it lets them go."""
        raise NotImplementedError


@dataclass(frozen=True)
class BufferHold(Hold):
    """Buffers of an exchange: each leaves when it is full or so old. Events fall anywhere in it alike.

    What a buffer holds comes to the reader at once. Its last events, which waited least for the buffer to leave, wait
    for those before them at the reader, which takes the share `use` of the time that the buffer took to fill: an event
    waits for `use` of it at the least. While the reader has a backlog, waiting for the buffer costs nothing.

    A second buffer on a way leaves a fixed time after the first one did: in one run, every event waits there alike.
    """

    kind = "buffer"

    timeout_s: float
    bytes_per_event: float  #: over the number of channels that share the events
    reader: int
    servers: tuple[int, ...]  #: of the reader
    is_second: bool = False

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        longest_s: FloatArray | float = self.timeout_s
        draws = events.alike_draws() if self.is_second else events.draws()
        if self.bytes_per_event > 0.0:
            full_s = horizon.emitted(self.operator).wait_for(events.at_s, BUFFER_BYTES / self.bytes_per_event)
            # However fast they fill, one may have been begun just before a pause: the longest wait is the timeout.
            longest_s = np.where(draws < 1.0, np.minimum(full_s, self.timeout_s), self.timeout_s)
        use = horizon.use(self.reader, events.at_s)
        backlog_s = np.min([horizon.work((server,)).backlog_s(events.at_s) for server in self.servers], axis=0)
        events.move(np.maximum((use + (1.0 - use) * draws) * longest_s - backlog_s, 0.0))


@dataclass(frozen=True)
class WindowHold(Hold):
    """A window by time: an event waits for the first end of a window that holds it.

    By event time the time of events counts, and how late they came is added afterwards; by processing time all that
    has come is in.
    """

    kind = "window"

    length_s: float
    by_event_time: bool
    restarts: bool  #: latency counts from the window's end

    def keeps(self, kind: str) -> bool:
        """Whether a hold of this kind, before one that restarts, still counts: it holds up the watermark as well."""
        return self.by_event_time and kind != self.kind

    @property
    def period_s(self) -> float:
        return self.length_s

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        if self.by_event_time:
            ends_s = next_boundary(events.stamp_s, self.length_s, events.phase_s, inclusive=events.is_result)
            events.move_mark(ends_s - events.stamp_s)
        else:
            ends_s = next_boundary(events.at_s, self.length_s, events.phase_s)
            events.move_to(ends_s)
        events.stamp_s, events.is_result = ends_s, True
        events.clump_s = max(1.0, np.ceil(events.clump_s / self.length_s)) * self.length_s
        if self.restarts:
            events.since_s = ends_s


@dataclass(frozen=True)
class CountHold(Hold):
    """A window by count: an event waits for the rest of so many events, of which it may be any.

    Where these are results that come at once, the last of them comes with one of the next such clumps.
    """

    kind = "window"

    size: float
    restarts: bool

    def keeps(self, kind: str) -> bool:
        """Whether a hold of this kind, before one that restarts, still counts."""
        return False

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        taken, missing = horizon.taken(self.operator), self.size * events.draws() * (1.0 + _FIRST)
        if events.clump_s > 0.0:
            place_s = events.at_s - events.clump_s * (1.0 - events.draws())
            filled_s = place_s + taken.wait_for(place_s, missing)
            clumps = np.ceil((filled_s - events.at_s) / events.clump_s)
            events.move(np.maximum(clumps, 0.0) * events.clump_s)
        else:
            events.move(taken.wait_for(events.at_s, missing))
        events.stamp_s, events.is_result, events.clump_s = events.at_s, True, 0.0
        if self.restarts:
            events.since_s = events.at_s


@dataclass(frozen=True)
class SessionHold(Hold):
    """A session of a key: an event waits until none of its key has come for a gap.

    An event in `closing` ends a session. With events of a key at random (Poisson, rate r) that share is exp(-r gap), so
    that r = -ln(closing) / gap; geometrically many events follow in the session, at intervals that are exponential and
    shorter than the gap. On average that takes gap (1 / closing - 1) / -ln(closing), the gap after the last included.
    """

    kind = "window"

    gap_s: float
    closing: float
    by_event_time: bool
    restarts: bool  #: latency counts from the session's end

    def keeps(self, kind: str) -> bool:
        """Whether a hold of this kind, before one that restarts, still counts: it holds up the watermark as well."""
        return self.by_event_time and kind != self.kind

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        ends_s = (events.stamp_s if self.by_event_time else events.at_s) + self._lasting_s(events, horizon)
        if self.by_event_time:
            events.move_mark(ends_s - events.stamp_s)
        else:
            events.move_to(ends_s)
        events.stamp_s, events.is_result, events.clump_s = ends_s, True, 0.0
        if self.restarts:
            events.since_s = ends_s

    def _lasting_s(self, events: Travellers, horizon: Horizon) -> FloatArray:
        """From each event to the end of its session; the longest is that of as many events as the horizon has."""
        gap_s = np.full(len(events.at_s), self.gap_s)
        if not 0.0 < self.closing < 1.0:
            return gap_s
        rate = -np.log(self.closing) / self.gap_s
        among = max(1.0, float(horizon.taken(self.operator).events.sum()))
        draws = events.draws() * among / (among + 1.0)
        following = np.floor(np.log1p(-draws) / np.log1p(-self.closing))
        mean_s = 1.0 / rate - self.gap_s * self.closing / (1.0 - self.closing)
        lasting_s = mean_s * np.maximum(following - _EACH, 0.0)
        for k in range(int(min(_EACH, following.max()))):
            drawn = events.draws()
            interval_s = -np.log1p(-drawn * (1.0 - self.closing)) / rate  # exponential, below the gap
            lasting_s += np.where(following > k, np.where(drawn < 1.0, interval_s, mean_s), 0.0)
        return np.asarray(gap_s + lasting_s)


@dataclass(frozen=True)
class WatermarkHold(Hold):
    """The watermark: a window closes when an event of every source, so much later than its end, has come.

    The next event comes after an exponential time; the longest is that of as many windows as the horizon has.
    """

    kind = "watermark"

    delay_s: float
    sources: tuple[int, ...]
    windows: float

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        if events.watermark_s is None:
            due_s = events.stamp_s + self.delay_s
            gaps = -np.log1p(-events.draws() * self.windows / (self.windows + 1.0))
            gaps_s = [horizon.arrivals(source).gap_after(due_s, gaps) for source in self.sources]
            events.move_mark(self.delay_s + (np.max(gaps_s, axis=0) if gaps_s else 0.0))
        elif self.delay_s > events.watermark_s:  # one stream has one watermark, however many windows it closes
            events.move_mark(self.delay_s - events.watermark_s)
        events.watermark_s = max(self.delay_s, events.watermark_s or 0.0)


@dataclass(frozen=True)
class LatenessHold(Hold):
    """Allowed lateness: what is final is known so long after the watermark."""

    kind = "lateness"

    lateness_s: float

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        events.at_s = events.at_s + self.lateness_s


@dataclass(frozen=True)
class KeyedGrowth:
    """Results of a window by key that takes more events than its statistics were measured at.

    A window has at most one result of each key. With N0 events it had s N0 of them; with N > N0 it has s N0 where all
    keys had come already, s N where new keys come with more load, and between these n (1 - exp(-N / n)) where n keys
    come alike, of which n (1 - exp(-N0 / n)) = s N0.
    """

    size_s: float  #: of a window
    measured: float  #: N0, events of a window
    share: float  #: s, results of a window over its events
    keys: float  #: n; infinite where each event has a result of its own

    @classmethod
    def of(cls, size_s: float, measured: float, share: float) -> KeyedGrowth:
        """By the results of a window over its events; as many as events or more are no results by key.

        Examples
        --------
        >>> round(KeyedGrowth.of(10.0, 1000.0, 0.2).keys), KeyedGrowth.of(10.0, 1000.0, 1.0).keys
        (201, inf)
        """
        if not 0.0 < share < _ALL_KEYS:
            return cls(size_s, measured, share, np.inf)
        low, high = 0.0, 1.0 / share  # around x = N0 / n, of which (1 - exp(-x)) / x = s
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if -np.expm1(-middle) > share * middle else (low, middle)
        return cls(size_s, measured, share, measured / high)

    def shares(self, events: FloatArray, draws: FloatArray, *, by_result: float = 1.0) -> FloatArray:
        """Results over those in proportion to so many events, shape (n,): the least at a draw of 0, all at 1.

        `by_result`: the usual part, at a draw of a half, that grows as results do and not as events.
        """
        grown = np.maximum(events, self.measured)
        least = self.measured / grown
        alike = np.ones(len(grown))
        if np.isfinite(self.keys):
            alike = np.minimum(-self.keys * np.expm1(-grown / self.keys) / (self.share * grown), 1.0)
        usual = 1.0 - by_result * (1.0 - np.maximum(alike, least))
        half = 2.0 * draws
        shares = np.where(half < 1.0, least + half * (usual - least), usual + (half - 1.0) * (1.0 - usual))
        return np.asarray(shares if 0.0 < self.share < _ALL_KEYS else np.ones(len(grown)))


def _held(operator: int, size_s: float, events: Travellers, horizon: Horizon) -> FloatArray:
    """Events that an operator took in so long before the ends of the windows that these are of."""
    taken = horizon.taken(operator)
    return np.asarray(taken.count(events.stamp_s) - taken.count(events.stamp_s - size_s))


@dataclass(frozen=True)
class ClosingHold(Hold):
    """Events of a window that are worked on when it closes: its results leave after half of that work or more."""

    kind = "closing"

    size_s: float  #: from one close to the next
    seconds_per_event: float  #: of the server that takes most of them
    growth: KeyedGrowth | None = None

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        # Slices are combined first, then results leave key by key: half of the work or more is before each of them.
        held = _held(self.operator, self.size_s, events, horizon)
        if self.growth is not None:  # which part of the work is by event, and which by result, nobody tells
            grown = _held(self.operator, self.growth.size_s, events, horizon)
            held = held * self.growth.shares(grown, events.growth_draws(), by_result=0.5)
        events.move((0.5 + 0.5 * events.draws()) * held * self.seconds_per_event)


@dataclass(frozen=True)
class BurstHold(Hold):
    """Results that a window puts out at once: each waits for those before it at the servers that follow."""

    kind = "burst"

    size: float  #: seconds or events from one window to the next
    by_count: bool
    seconds_per_result: float
    growth: KeyedGrowth | None = None

    def results(self, ends_s: FloatArray, horizon: Horizon) -> FloatArray:
        """Results of the windows that end at these times."""
        emitted, before_s = horizon.emitted(self.operator), ends_s - self.size
        if self.by_count:
            taken = horizon.taken(self.operator)
            before_s = taken.time_of(taken.count(ends_s) - self.size)
        return np.asarray(emitted.count(ends_s) - emitted.count(before_s))

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        results = self.results(events.stamp_s, horizon)
        if self.growth is not None:
            grown = _held(self.operator, self.growth.size_s, events, horizon)
            results = results * self.growth.shares(grown, events.growth_draws())
        events.move(events.draws() * results * self.seconds_per_result)


@dataclass(frozen=True)
class CheckpointHold(Hold):
    """Checkpoints that hold events up, one every `interval_s`, each for the least, mean and most of `spread_s`."""

    interval_s: float
    spread_s: tuple[float, float, float]

    @property
    def period_s(self) -> float:
        return self.interval_s

    def _lasting_s(self, events: Travellers) -> FloatArray:
        """Half of them last the mean or less."""
        return np.interp(events.alike_draws(), (0.0, 0.5, 1.0), self.spread_s)


@dataclass(frozen=True)
class PauseHold(CheckpointHold):
    """The part of a checkpoint in which an operator works on nothing; then it makes up for what came meanwhile.

    With a share u of its time in use, an event that comes x after the beginning of a pause p waits for
    max(0, p - (1 - u) x): the rest of the pause, and the work of those before it. On a way the next operator pauses
    about when this one does, so that who waited here finds most of that pause over.
    """

    kind = "pause"

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        since_s = np.mod(events.at_s + events.checkpoint_phase_s(self.interval_s), self.interval_s)
        since_s = np.where(self.interval_s - since_s < _FIRST * self.interval_s, 0.0, since_s)
        use = np.minimum(horizon.use(self.operator, events.at_s), _MAX_USE)
        events.move(np.maximum(self._lasting_s(events) - (1.0 - use) * since_s, 0.0))


@dataclass(frozen=True)
class CommitHold(CheckpointHold):
    """Results that are seen once a checkpoint is complete: the next one that begins after they left.

    It begins at the sources, ahead of what waits there, and passes the operators behind all that was read before it;
    how long that takes is part of its length, as is what its beginning may be late.
    """

    kind = "commit"

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        begun_s = next_boundary(events.at_s, self.interval_s, events.checkpoint_phase_s(self.interval_s))
        events.move_to(begun_s + self._lasting_s(events))


@dataclass(frozen=True)
class BatchedHold(Hold):
    """Part of a micro-batch that runs on some servers."""

    interval_s: float
    overhead_s: float
    servers: tuple[int, ...]

    def schedules(self, events: Travellers, horizon: Horizon) -> list[tuple[IntArray, BatchSchedule]]:
        """Batches of every world, and which events are in it."""
        found = []
        for world in np.unique(events.world):
            chosen = np.flatnonzero(events.world == world)
            phase_s = float(events.phase_s[chosen[0]])
            found.append((chosen, horizon.schedule(self.servers, self.interval_s, self.overhead_s, phase_s)))
        return found


@dataclass(frozen=True)
class TriggerHold(BatchedHold):
    """The trigger of micro-batches: an event waits for the batch that takes it, or for one so many `behind` it.

    What a watermark lets go is one behind: an engine moves its watermark when a batch has ended, and the next batch
    emits what that closes (Spark Structured Streaming).
    """

    kind = "trigger"

    behind: int = 0

    @property
    def period_s(self) -> float:
        return self.interval_s

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        begun_s = np.empty(len(events.at_s))
        for chosen, schedule in self.schedules(events, horizon):
            begun_s[chosen] = schedule.taking(events.at_s[chosen], self.behind)
        # What its events wait for a busy server is Flow's to count.
        counted_s = horizon.work(self.servers).backlog_s(events.since_s)
        events.move(np.maximum(begun_s - counted_s - events.at_s, 0.0))
        events.begun_s = begun_s


@dataclass(frozen=True)
class BatchHold(BatchedHold):
    """The batch itself: its results are there when it ends."""

    kind = "batch"

    def pass_on(self, events: Travellers, horizon: Horizon) -> None:
        assert events.begun_s is not None
        lasting_s = np.empty(len(events.at_s))
        for chosen, schedule in self.schedules(events, horizon):
            lasting_s[chosen] = schedule.end_of(events.begun_s[chosen]) - events.begun_s[chosen]
        events.move(lasting_s)
