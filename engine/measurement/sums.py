"""Additive sums of one operator at one place over one subinterval, and how they merge.

Everything that is kept of telemetry adds up: a ratio is only ever taken of two totals, never averaged. Older sums weigh
less, by a half-life; each is weighted from its own time to a common reference, so the order of merging does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Stamped", "Sums", "decay", "merged", "scaled"]


@dataclass(frozen=True, slots=True)
class Sums:
    """What adds up. `events` are the records the operator worked on, some of which may have come in before.

    `wn2` to `wgt` are the normal equations of cost = a n + b g over epochs of n records and g groups that took T CPU
    seconds, with weights w = 1 / n^2; `cost_count`, `cost_sum` and `cost_sum2` are of CPU seconds per record.
    """

    records_in: float = 0.0
    events: float = 0.0
    outputs: float = 0.0
    drained: float = 0.0
    overflow: float = 0.0
    shed: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    bytes_drained: float = 0.0
    groups: float = 0.0
    cpu_s: float = 0.0
    sampled: float = 0.0
    wn2: float = 0.0
    wng: float = 0.0
    wg2: float = 0.0
    wnt: float = 0.0
    wgt: float = 0.0
    cost_count: float = 0.0
    cost_sum: float = 0.0
    cost_sum2: float = 0.0

    @classmethod
    def of_wire(cls, row: Mapping[str, Any]) -> Sums:
        """The sums of a row of `agent.wire.schemas.STATISTICS`."""
        return cls(
            records_in=row["records_in"],
            events=row["records_processed"],
            outputs=row["records_out"],
            drained=row["records_drained"],
            overflow=row["records_overflow"],
            shed=row["records_shed"],
            bytes_in=row["bytes_in"],
            bytes_out=row["bytes_out"],
            bytes_drained=row["bytes_drained"],
            groups=row["groups_out"],
            cpu_s=row["cpu_ns"] / 1e9,
            sampled=row["sampled"],
            wn2=row["sum_wn2"],
            wng=row["sum_wng"],
            wg2=row["sum_wg2"],
            wnt=row["sum_wnt"],
            wgt=row["sum_wgt"],
            cost_count=row["cost_count"],
            cost_sum=row["cost_sum"],
            cost_sum2=row["cost_sum2"],
        )


_NAMES = tuple(field.name for field in fields(Sums))


@dataclass(frozen=True, slots=True)
class Stamped:
    """Sums and the moment (seconds since 1970) that their weight refers to."""

    at_s: float
    sums: Sums


def decay(age_s: float, half_life_s: float) -> float:
    """Weight of what is `age_s` old: 2^(-age / half-life). What lies ahead of the reference weighs more than 1."""
    return math.exp2(-age_s / half_life_s)


def scaled(sums: Sums, by: float) -> Sums:
    """Every sum times `by`."""
    return Sums(**{name: getattr(sums, name) * by for name in _NAMES})


def merged(parts: Iterable[Stamped], *, reference_s: float, half_life_s: float = math.inf) -> Stamped:
    """All parts, decayed to `reference_s` and added.

    Sums are exactly rounded (`math.fsum`), so every order of the parts gives the same bits.
    """
    found = [(decay(reference_s - one.at_s, half_life_s), one.sums) for one in parts]
    totals = {name: math.fsum(weight * getattr(sums, name) for weight, sums in found) for name in _NAMES}
    return Stamped(reference_s, Sums(**totals))
