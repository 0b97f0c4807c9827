"""Scheduling policies of queries that share a core: Sluice's default and those it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import NamedTuple, Protocol

__all__ = [
    "MAKERS",
    "MIN_WORK_MS",
    "Klink",
    "MemoryMode",
    "QueryPolicy",
    "QueryView",
    "RankedPolicy",
    "best_gain",
    "due_ms",
    "freeing_rate",
    "gain_as_printed",
    "make_policy",
    "or_last",
    "pick_by_gain",
    "slack_ms",
    "starving_query",
]

_UNKNOWN_MS = 1000.0  # that records of a query may wait of which no slack is known, so that age still counts
MIN_WORK_MS = 1e-3
_SHARES = 0.65, 1.25  # see `Klink`: of windows alike, and of windows that differ; found by `./sluice lab klink`
_SPREADS = 0.7, 1.0  # of windows' work, standard deviation over mean: alike below, different above
_MIN_COUNTED, _MAX_COUNTED = 8, 50  # windows of a query before their mean work counts, and after which it forgets
_MAX_SIZES = 10_000
_FREES = 0.5  # of the most records that a CPU millisecond can free: measured costs of queries alike differ


@dataclass(slots=True)  # not frozen: one is made for every query at each pick, and that takes four times as long
class QueryView:
    """One query, to be compared with others at the same `now_ms` of the same clock.

    Queues are those of its operators in the order of the pipeline: `queued` records, `cost_ms` per record into the
    operator, `selectivity` records out per record in. Only queries that could run are shown to a policy.
    """

    id: str
    queued: Sequence[float]
    cost_ms: Sequence[float]
    selectivity: Sequence[float]
    work_ms: float  #: CPU time for everything that waits, through the whole pipeline, further nodes included
    arrived_ms: float | None = None  #: when the record that has waited longest came
    stimulus_ms: float | None = None  #: event time of the earliest record waiting
    deadline_ms: float | None = None  #: of the earliest window that is not swept; None where it has no windows
    pending_ms: float | None = None  #: when the watermark that sweeps that window came; None while it has not
    pending_work_ms: float = 0.0  #: of `work_ms`, what lies before that watermark
    slack_ms: float | None = None  #: until it would be late, least of its streams; None where nothing is known
    ideal_ms: float = 0.0  #: CPU time of one record through the whole pipeline
    ran_ms: float = float("-inf")  #: when it last ran
    expires_ms: float | None = None  #: when the record that has waited longest is too old to wait; None: never


class QueryPolicy(Protocol):
    """Policy that picks the query to run next."""

    def pick(self, views: Sequence[QueryView], now_ms: float, saturated: bool = False) -> int | None:
        """Index into `views`; None where there are none; equals are decided by id.

        `saturated` says that for some time the core has had more work than it can do.
        """


class _Size(NamedTuple):
    """Work of a query's windows."""

    windows: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def after(self, work_ms: float) -> _Size:
        """The figures with one window more."""
        count = min(self.windows + 1, _MAX_COUNTED)
        off = work_ms - self.mean
        mean = self.mean + off / count
        return _Size(count, mean, self.variance + (off * (work_ms - mean) - self.variance) / count)


_UNSEEN = (None, _Size())


class Klink:
    """Sluice's default: watermarks that are here by response ratio, then least slack; above saturation the short first.

    While the core keeps up, a window whose sweeping watermark is here can only be made later by waiting: of these the
    one that is late most, measured by the work left, goes first. Where none is here, the least slack decides. Above
    saturation this would leave long queries behind for good: there the window with the least work left goes first, but
    none is to be later than a share of the time that all waiting work takes; what is goes before, by deadline. Where
    windows differ much in work, going first helps the short ones most: there the share is larger (`_SHARES`).
    A query whose records would soon be too old to wait is due, too: else they overflow while its deadline is far.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[float | None, _Size]] = {}  # last window's deadline, and what work they are

    def pick(self, views: Sequence[QueryView], now_ms: float, saturated: bool = False) -> int | None:
        """Pick like `QueryPolicy.pick`."""
        return next(iter(self.order(views, now_ms, saturated)), None)

    def order(
        self, views: Sequence[QueryView], now_ms: float, saturated: bool = False, freeing_ms: float | None = None
    ) -> list[int]:
        """Indices into `views`, the first to run first: an order for all turns of a cycle.

        With `freeing_ms`, a cycle in memory mode, what is not due and does not free memory well comes last. Well: at
        least `_FREES` as many records per CPU millisecond of the cycle as the query that frees most. Where queries are
        alike all do, and the order stays as it is; the gain of a whole cycle alone would leave behind whoever has
        little waiting, with its windows.
        """
        self._remember(views)
        bound_ms = self._bound_ms(views) if saturated else inf
        behind = [False] * len(views)
        if freeing_ms is not None:
            rates = [freeing_rate(view, freeing_ms) for view in views]
            least = _FREES * max(rates, default=0.0)
            behind = [rate < least and not _is_due(view, now_ms) for rate, view in zip(rates, views, strict=True)]
        ranks = [(late, *_rank(view, now_ms, bound_ms), view.id) for late, view in zip(behind, views, strict=True)]
        return sorted(range(len(views)), key=ranks.__getitem__)

    def _bound_ms(self, views: Sequence[QueryView]) -> float:
        """Lateness that windows may have before they go first: a share of the time that all waiting work takes."""
        return self._share() * fsum(view.work_ms for view in views)

    def _remember(self, views: Sequence[QueryView]) -> None:
        """Work of windows whose watermark is here, each window once."""
        for view in views:
            deadline_ms, size = self._sizes.get(view.id, _UNSEEN)
            if view.pending_ms is None or (size.windows and deadline_ms == view.deadline_ms):
                continue
            if not size.windows and len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            self._sizes[view.id] = view.deadline_ms, size.after(view.pending_work_ms)

    def _share(self) -> float:
        """Share of the time that all waiting work takes, by which windows may be late before short ones yield.

        By how much queries' usual windows differ (deviation over mean), less what chance adds to that.
        """
        sizes = [size for _, size in self._sizes.values() if size.windows >= _MIN_COUNTED]
        mean = fsum(size.mean for size in sizes) / len(sizes) if sizes else 0.0
        if not 0 < mean < inf:
            return _SHARES[0]
        variance = fsum((size.mean - mean) ** 2 - size.variance / (size.windows - 1) for size in sizes) / len(sizes)
        spread = max(0.0, variance) ** 0.5 / mean
        between = min(1.0, max(0.0, (spread - _SPREADS[0]) / (_SPREADS[1] - _SPREADS[0])))
        return _SHARES[0] + between * (_SHARES[1] - _SHARES[0])


class RoundRobin:
    """Round robin by id: the query after the one picked last."""

    def __init__(self) -> None:
        self._last = ""

    def pick(self, views: Sequence[QueryView], now_ms: float, saturated: bool = False) -> int | None:
        """Pick like `QueryPolicy.pick`."""
        picked = _first(views, lambda view: view.id <= self._last)
        if picked is not None:
            self._last = views[picked].id
        return picked


class RankedPolicy:
    """The least of one figure, which does not ask whether the core is saturated."""

    def __init__(self, rank: Callable[[QueryView, float], float]) -> None:
        self._rank = rank

    def pick(self, views: Sequence[QueryView], now_ms: float, saturated: bool = False) -> int | None:
        """Pick like `QueryPolicy.pick`."""
        return _first(views, lambda view: self._rank(view, now_ms))


def make_policy(name: str) -> QueryPolicy:
    """A new policy of this name (`MAKERS`); those with a state keep their own.

    Raises
    ------
    KeyError
        There is none of this name.
    """
    return MAKERS[name]()


def starving_query(views: Sequence[QueryView], now_ms: float, starvation_s: float) -> int | None:
    """Index of the query that has waited longest for its turn, if for `starvation_s` or more; ties by id."""
    picked = _first(views, lambda view: _waiting_since_ms(view, now_ms))
    if picked is None or now_ms - _waiting_since_ms(views[picked], now_ms) < starvation_s * 1000:
        return None
    return picked


def slack_ms(view: QueryView, now_ms: float) -> float:
    """Time that is left before the query is late; where nothing is known, records may wait a second."""
    slack = view.slack_ms
    if slack is not None and slack == slack:  # NaN is not equal to itself, and orders nothing
        return slack
    arrived_ms = now_ms if view.arrived_ms is None else view.arrived_ms
    return arrived_ms + _UNKNOWN_MS - now_ms - view.work_ms


def due_ms(view: QueryView, now_ms: float) -> float:
    """Deadline of the earliest window that is not swept; of a query without windows the end of its slack."""
    return now_ms + slack_ms(view, now_ms) + view.work_ms if view.deadline_ms is None else view.deadline_ms


def _rank(view: QueryView, now_ms: float, bound_ms: float) -> tuple[int, float]:
    """Group and rank in it: what is later than the bound; what is here; what is not. The least goes first."""
    if not _is_here(view, now_ms):
        return 2, min(slack_ms(view, now_ms), _patience_ms(view, now_ms))
    if bound_ms == inf:
        return 1, -_lateness(view, now_ms)
    if not _is_early(view) and now_ms - due_ms(view, now_ms) > bound_ms:
        return 0, due_ms(view, now_ms)
    return 1, _due_work_ms(view)


def _is_here(view: QueryView, now_ms: float) -> bool:
    """Whether its sweeping watermark has arrived; without windows, whether its records have waited long enough."""
    if view.deadline_ms is None:
        return slack_ms(view, now_ms) <= 0
    return view.pending_ms is not None or _patience_ms(view, now_ms) <= 0


def _is_due(view: QueryView, now_ms: float) -> bool:
    """Whether it is here for more than the age of its records."""
    return _is_here(view, now_ms) and not _is_early(view)


def _is_early(view: QueryView) -> bool:
    """Whether a due query is due by the age of its records alone, before its watermark arrives."""
    return view.deadline_ms is not None and view.pending_ms is None


def _patience_ms(view: QueryView, now_ms: float) -> float:
    """Time until its work must begin, so that no record becomes too old to wait."""
    return inf if view.expires_ms is None else view.expires_ms - now_ms - view.work_ms


def _lateness(view: QueryView, now_ms: float) -> float:
    """Response ratio of what is due: the time since it was, for each unit of the work that is left of it."""
    late_ms = -_patience_ms(view, now_ms) if _is_early(view) else now_ms - due_ms(view, now_ms)
    return max(0.0, late_ms) / max(_due_work_ms(view), MIN_WORK_MS)


def _due_work_ms(view: QueryView) -> float:
    """CPU time until what is due is done."""
    return view.work_ms if view.deadline_ms is None or _is_early(view) else view.pending_work_ms


def _waiting_since_ms(view: QueryView, now_ms: float) -> float:
    """Time since which it has had records and has not run."""
    return max(view.ran_ms, now_ms if view.arrived_ms is None else view.arrived_ms)


def or_last(time_ms: float | None) -> float:
    """The time; after all others where there is none."""
    return inf if time_ms is None else time_ms


def _first(views: Sequence[QueryView], rank: Callable[[QueryView], float]) -> int | None:
    """Index of the least rank, ties by id; None without views."""
    if not views:
        return None
    return min(range(len(views)), key=lambda index: (rank(views[index]), views[index].id))


#: Policies by name: those that agents know.
MAKERS: dict[str, Callable[[], QueryPolicy]] = {
    "klink": Klink,
    "stimulus-time": lambda: RankedPolicy(lambda view, _: or_last(view.stimulus_ms)),
    "fcfs": lambda: RankedPolicy(lambda view, _: or_last(view.arrived_ms)),
    "round-robin": RoundRobin,
}


def best_gain(
    queued: Sequence[float], selectivity: Sequence[float], cost_ms: Sequence[float], cycle_ms: float
) -> tuple[float, int]:
    """Events removed within one cycle, and the operator to run to (1-based); (0, 0) where nothing removes any.

    A target is an operator that lets fewer events out than in, or the last one. The cycle is spent on the deepest
    queue before it first; an event costs all operators from its queue to the target, as many times as it reaches them.
    The first target with the largest gain is taken.

    Examples
    --------
    >>> best_gain([100.0, 50.0], [0.5, 0.1], [0.0, 0.0], 120.0)
    (140.0, 2)
    """
    return _best((_gain(queued, selectivity, cost_ms, cycle_ms, k), k) for k in _targets(selectivity))


def gain_as_printed(queued: Sequence[float], selectivity: Sequence[float]) -> tuple[float, int]:
    """The paper's p_k: every event as if it stood in the first queue, and the cycle without an end.

    References
    ----------
    Klink, section 3.4.
    """
    gains, product = [], 1.0
    targets = set(_targets(selectivity))
    for k, share in enumerate(selectivity, start=1):
        product *= share
        if k in targets:
            gains.append((sum(queued[:k]) * (1 - product), k))
    return _best(gains)


def pick_by_gain(gains: Mapping[str, float], slacks_ms: Mapping[str, float]) -> str | None:
    """The query with the largest gain; of equals that with the least slack, then by id. None without queries."""
    return min(gains, key=lambda name: (-gains[name], slacks_ms[name], name), default=None)


def freeing_rate(view: QueryView, cycle_ms: float) -> float:
    """Records of a query that a CPU millisecond of the next cycle frees."""
    gain, _ = best_gain(view.queued, view.selectivity, view.cost_ms, cycle_ms)
    return gain / max(min(cycle_ms, view.work_ms), MIN_WORK_MS)


class MemoryMode:
    """Memory mode: on from `bound_bytes`, until enough memory is free or its time is over.

    It ends when `release_share` of the bound is free, or after `release_s`. Ended by time it rests for as long, so
    that under an overload that nothing frees slack has every other turn.
    """

    def __init__(self, bound_bytes: float, release_share: float, release_s: float) -> None:
        self.active = False
        self._bound_bytes = bound_bytes
        self._free_bytes = bound_bytes * (1 - release_share)
        self._release_ms = release_s * 1000
        self._since_ms = float("-inf")  # of this state; for ever before the first

    def update(self, used_bytes: float, now_ms: float) -> bool:
        """Update the mode for the cycle that begins at `now_ms` of a monotonic clock; whether it is on."""
        over = now_ms - self._since_ms >= self._release_ms
        if self.active and used_bytes <= self._free_bytes:
            self.active, self._since_ms = False, float("-inf")
        elif over and (self.active or used_bytes >= self._bound_bytes):
            self.active, self._since_ms = not self.active, now_ms
        return self.active


def _targets(selectivity: Sequence[float]) -> list[int]:
    last = len(selectivity)
    return [k for k, share in enumerate(selectivity, start=1) if share < 1 or k == last]


def _best(gains: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """The first of the largest gains, if there is one above 0."""
    best = 0.0, 0
    for gain in gains:
        if gain[0] > best[0]:
            best = gain
    return best


def _gain(
    queued: Sequence[float], selectivity: Sequence[float], cost_ms: Sequence[float], cycle_ms: float, target: int
) -> float:
    gain, left_ms, reach, path_ms = 0.0, cycle_ms, 1.0, 0.0
    for i in range(target - 1, -1, -1):
        reach *= selectivity[i]  # events that come out at the target, per event of this queue
        path_ms = cost_ms[i] + selectivity[i] * path_ms
        if not queued[i]:
            continue
        events = queued[i] if queued[i] * path_ms <= left_ms else left_ms / path_ms
        gain += events * (1 - reach)
        left_ms = max(0.0, left_ms - events * path_ms)  # not below 0 by rounding
    return gain
