"""When a query ran in an epoch: spans of the clock, few enough to be told."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["Spans"]

MOST_SPANS = 40
GAP_NS = 1_000_000  # between runs that are told as one


class Spans:
    """Runs of one query in one epoch, in order; those that follow each other closely are one."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, begin_ns: int, end_ns: int) -> None:
        """It ran from then to then on a clock that does not go back."""
        if self._spans and begin_ns - self._spans[-1][1] < GAP_NS:
            self._spans[-1] = (self._spans[-1][0], end_ns)
        else:
            self._spans.append((begin_ns, end_ns))
        if len(self._spans) > MOST_SPANS:
            self._join_nearest()

    def _join_nearest(self) -> None:
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(self._spans)]
        i = gaps.index(min(gaps))
        self._spans[i : i + 2] = [(self._spans[i][0], self._spans[i + 1][1])]

    def take(self, since_ns: int) -> list[list[float]]:
        """Begin after `since_ns` and length of each, in milliseconds; none are left."""
        spans, self._spans = self._spans, []
        return [[round((begin - since_ns) / 1e6, 2), round((end - begin) / 1e6, 2)] for begin, end in spans]
