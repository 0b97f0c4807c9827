"""Memory mode of the scheduler: the query that frees most memory runs next while waiting records fill it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.klink.policies import QueryView, slack_ms

__all__ = ["MemoryMode", "best_gain", "gain_as_printed", "pick_by_gain", "pick_for_memory"]


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
    gains = ((_gain(queued, selectivity, cost_ms, cycle_ms, k), k) for k in _targets(selectivity))
    return _best(gains)


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
    return _best(iter(gains))


def pick_by_gain(gains: Mapping[str, float], slacks_ms: Mapping[str, float]) -> str | None:
    """The query with the largest gain; of equals that with the least slack, then by id. None without queries."""
    return min(gains, key=lambda name: (-gains[name], slacks_ms[name], name), default=None)


def pick_for_memory(views: Sequence[QueryView], cycle_ms: float, now_ms: float) -> int | None:
    """Index of the query that frees most records in the next cycle; None without views."""
    gains = {view.id: best_gain(view.queued, view.selectivity, view.cost_ms, cycle_ms)[0] for view in views}
    picked = pick_by_gain(gains, {view.id: slack_ms(view, now_ms) for view in views})
    return next((index for index, view in enumerate(views) if view.id == picked), None)


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


def _targets(selectivity: Sequence[float]) -> Iterator[int]:
    last = len(selectivity)
    return (k for k, share in enumerate(selectivity, start=1) if share < 1 or k == last)


def _best(gains: Iterator[tuple[float, int]]) -> tuple[float, int]:
    """The first of the largest gains, if there is one above 0."""
    best = max(gains, key=lambda gain: gain[0], default=(0.0, 0))
    return best if best[0] > 0 else (0.0, 0)


def _gain(
    queued: Sequence[float], selectivity: Sequence[float], cost_ms: Sequence[float], cycle_ms: float, target: int
) -> float:
    gain, left_ms, reach, path_ms = 0.0, cycle_ms, 1.0, 0.0
    for i in range(target - 1, -1, -1):
        reach *= selectivity[i]  # events that come out at the target, per event of this queue
        path_ms = cost_ms[i] + selectivity[i] * path_ms
        events = queued[i] if queued[i] * path_ms <= left_ms else left_ms / path_ms
        gain += events * (1 - reach)
        left_ms = max(0.0, left_ms - events * path_ms)  # not below 0 by rounding
    return gain
