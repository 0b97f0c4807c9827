"""What a policy sees of one query at one instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["QueryView", "SweepForecast"]


@dataclass(frozen=True, slots=True)
class SweepForecast:
    """When the next sweeping watermark of one stream is expected; milliseconds of any one clock."""

    mean_ms: float
    deviation_ms: float  #: 0 while only the period is known
    least_ms: float  #: of the interval that holds it with the wanted confidence
    most_ms: float
    epochs: int  #: windows behind it


@dataclass(slots=True)  # not frozen: one is made for every query at each pick, and that takes four times as long
class QueryView:
    """One query, to be compared with others at the same `now_ms` of the same clock.

    Queues are those of its operators in the order of the chain: `queued` records, `cost_ms` per record into the
    operator, `selectivity` records out per record in. Only queries that could run are shown to a policy.
    """

    id: str
    queued: Sequence[float]
    cost_ms: Sequence[float]
    selectivity: Sequence[float]
    work_ms: float  #: CPU time for everything that waits, through the whole chain, further nodes included
    queued_bytes: int = 0
    arrived_ms: float | None = None  #: when the record that has waited longest came
    stimulus_ms: float | None = None  #: event time of the earliest record waiting
    deadline_ms: float | None = None  #: of the earliest window that is not swept; None where it has no windows
    pending_ms: float | None = None  #: when the watermark that sweeps that window came; None while it has not
    pending_work_ms: float = 0.0  #: of `work_ms`, what lies before that watermark
    slack_ms: float | None = None  #: until it would be late, least of its streams; None where nothing is known
    ideal_ms: float = 0.0  #: CPU time of one record through the whole chain
    ran_ms: float = float("-inf")  #: when it last ran
    expires_ms: float | None = None  #: when the record that has waited longest is too old to wait; None: never
