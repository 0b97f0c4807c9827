"""Law of groups: n records of K equally likely keys make g = K (1 - exp(-n / K)) groups."""

from __future__ import annotations

import math

__all__ = ["GroupLaw", "distinct", "keys"]

_JUMP = 1.25  # of groups, against what was thought
_COMPARABLE = 0.1  # of the evidence that there is, for an epoch that may contradict all of it
_FORGETTING = 0.7
_FEW = 5.0  # collisions, below which an epoch waits for others
_STEPS, _HALVINGS = 30, 60
_FULL = 1e-3  # groups over records, at which none is missing: exp(-1000) is 0


def distinct(records: float, groups: float, most: float = math.inf) -> float:
    """Expected groups among `records`, where there are `groups` keys (K).

    With `most`, no key has more than m records, as of sources that ask all of K in turn: of these K m records any n
    are there, and g = K (1 - (1 - n / (K m))^m). For a large m it is the law of keys that come at random.

    Examples
    --------
    >>> round(distinct(1000, 500)), round(distinct(1000, 500, most=4))
    (432, 469)
    """
    if records <= 0 or groups <= 0:
        return 0.0
    if groups == math.inf:
        return records
    if most == math.inf:
        return -groups * math.expm1(-records / groups)
    share = records / (groups * most)
    return -groups * math.expm1(most * math.log1p(-share)) if share < 1 else groups


def keys(records: float, groups: float, most: float = math.inf) -> float:
    """K of so many groups among so many records; infinite where every record is its own group.

    Notes
    -----
    With x = n / K it is the positive root of x g / n = 1 - exp(-x). The difference is convex in x and positive at
    n / g, so Newton's steps come down to the root from there. With `most`, K is halved in: more keys make more groups.

    Examples
    --------
    >>> round(keys(1000, distinct(1000, 500))), round(keys(1000, distinct(1000, 500, most=4), most=4))
    (500, 500)
    """
    if records <= 0 or groups <= 0:
        return 0.0
    share = groups / records
    if share >= 1:
        return math.inf
    if share <= _FULL:
        return groups
    if most < math.inf:
        return _even_keys(records, groups, most)
    x = 1 / share
    for _ in range(_STEPS):
        rest = math.exp(-x)
        step = (x * share - 1 + rest) / (share - rest)
        x -= step
        if step <= 1e-9 * x:
            break
    return records / x if x > 0 else math.inf


def _even_keys(records: float, groups: float, most: float) -> float:
    """`keys` that have no more than `most` records each; between the groups that are there and those of the law."""
    low, high = max(groups, records / most), max(groups, records / most, keys(records, groups))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if distinct(records, middle, most) < groups else (low, middle)
    return high


class GroupLaw:
    """K learned from epochs; one with few collisions, which hardly says anything of K, hardly counts."""

    def __init__(self) -> None:
        self.groups: float | None = None
        self._evidence = 0.0
        self._squares = self._few = 0.0  # records^2 and collisions of epochs with few

    def seed(self, groups: float) -> None:
        """Seed from figures learned elsewhere, until there are own ones."""
        if not self._evidence:
            self.groups = groups

    def observe(self, records: float, groups: float) -> None:
        """Learn from an epoch, or a window, with these records and groups."""
        if records < 1 or groups <= 0:
            return
        collisions = max(records - groups, 0.0)
        if collisions < _FEW and not self._pool(records, collisions):
            return
        if collisions < _FEW:
            collisions = max(self._few, 0.5)
            seen = self._squares / (2 * collisions)
            self._squares = self._few = 0.0
        else:
            seen = keys(records, groups)
        known, self._evidence = self._evidence, _FORGETTING * self._evidence + collisions
        if self.groups is None or known <= 0 or self._contradicts(records, groups, collisions, known):
            self.groups, self._evidence = seen, collisions
        else:
            self.groups *= (seen / self.groups) ** (collisions / self._evidence)

    def _pool(self, records: float, collisions: float) -> bool:
        """Epochs with few collisions together: n^2 / 2K is what to expect. Are they enough to learn from?"""
        self._squares += records * records
        self._few += collisions
        thought = self._squares / (2 * self.groups) if self.groups else math.inf
        return self._few >= _FEW or thought >= 2 * _FEW

    def distinct(self, records: float) -> float:
        """Groups among so many records; every record is one while nothing is known."""
        return records if self.groups is None else distinct(records, self.groups)

    def _contradicts(self, records: float, groups: float, collisions: float, known: float) -> bool:
        thought = self.distinct(records)
        telling = max(collisions, records - thought)
        return telling >= _COMPARABLE * known and not 1 / _JUMP < groups / thought < _JUMP
