"""Key groups: how Flink spreads keyed state over subtasks, and the share of the events that the busiest of them takes.

A key belongs to the group ``murmur(hash(key)) % G`` of G, the maximum parallelism, and a group g to the subtask
``g * p // G`` of p. State moves by whole groups, so that p subtasks hold ceil(G / p) or floor(G / p) groups each.

References
----------
Flink, `KeyGroupRangeAssignment`; documentation, "Set the maximum parallelism".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["MAX_GROUPS", "MIN_GROUPS", "busiest_share", "default_groups", "group_shares", "hot_share"]

MIN_GROUPS, MAX_GROUPS = 128, 32_768


def default_groups(parallelism: int) -> int:
    """Key groups of a program that sets no maximum parallelism, by the parallelism that it began with.

    Examples
    --------
    >>> [default_groups(p) for p in (1, 85, 86, 200, 40_000)]
    [128, 128, 256, 512, 32768]
    """
    wanted = parallelism + parallelism // 2
    power = 1 << max(0, wanted - 1).bit_length()  # the next power of two
    return min(max(power, MIN_GROUPS), MAX_GROUPS)


def group_shares(parallelism: int, groups: int) -> tuple[float, ...]:
    """Share of the key groups that each subtask holds, shape (p,).

    Examples
    --------
    >>> group_shares(3, 128)
    (0.3359375, 0.3359375, 0.328125)
    """
    begins = [-(-k * groups // parallelism) for k in range(parallelism + 1)]  # g * p // G >= k from ceil(k G / p) on
    return tuple((end - begin) / groups for begin, end in pairwise(begins))


def hot_share(shares: Sequence[float]) -> float:
    """Share of all events by hot keys, as far as the busiest subtask shows it, 0 to 1.

    Beside hot keys of share h, which one subtask has, all others spread evenly: max = h + (1 - h) / p, hence
    ``h = (p max - 1) / (p - 1)``. One subtask shows nothing.

    Examples
    --------
    >>> round(hot_share((0.4, 0.2, 0.2, 0.2)), 3), hot_share((0.5, 0.5)), hot_share((1.0,))
    (0.2, 0.0, 0.0)
    """
    count = len(shares)
    return 0.0 if count < 2 else min(1.0, max(0.0, (count * max(shares) - 1.0) / (count - 1)))


def busiest_share(parallelism: int, groups: int, shares: Sequence[float] = ()) -> float:
    """Share of the events that the busiest of `parallelism` subtasks takes.

    Parameters
    ----------
    parallelism : int
        Subtasks; those beyond `groups` hold nothing.
    groups : int
        Key groups, G.
    shares : sequence of float, shape (now,)
        Measured shares of the subtasks of now. Hot keys stay together however many subtasks there are. With fewer
        subtasks than now each takes over the ranges of several. Left out: keys are taken for even.

    Examples
    --------
    >>> busiest_share(3, 128), busiest_share(200, 128) == 1 / 128, busiest_share(2, 128, (0.3, 0.3, 0.2, 0.2))
    (0.3359375, True, 0.6)
    """
    count = min(parallelism, groups)
    hot = hot_share(shares)
    most = hot + (1.0 - hot) * max(group_shares(count, groups))
    if len(shares) <= count:
        return most
    now, folded = len(shares), []
    for k in range(count):  # subtask i of now holds the range [i / now, (i + 1) / now) of the groups
        begin, end = k / count, (k + 1) / count
        overlaps = (max(0.0, min(end, (i + 1) / now) - max(begin, i / now)) * now for i in range(now))
        folded.append(sum(share * overlap for share, overlap in zip(shares, overlaps, strict=True)))
    return min(1.0, max(most, *folded))
