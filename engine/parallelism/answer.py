"""Answers about parallelism as records: each number of subtasks with its rate, latencies, slots and restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from pydantic import computed_field

from engine.capacity.answer import CapacityLimit
from engine.document.elements import Replica
from engine.parallelism.autoscaler import AutoscalerOptions
from engine.records import Fact, Flag, Omitted, Record, Sentence, Words

__all__ = ["NO_HOST", "NO_SLOTS", "SKEWS", "OperatorScaling", "ParallelismChoice", "ParallelismPlan", "RestartOutlook"]

#: States of a choice that needs more slots than there are, or hosts that take more of it; others are of capacities.
NO_SLOTS, NO_HOST = "no_slots", "no_host"
#: How much is known of the spread of keys.
SKEWS = ("not_keyed", "measured", "assumed_even")


@dataclass(frozen=True)
class OperatorScaling(Record):
    """Parallelism of an operator: what it is, and could be."""

    TITLE: ClassVar[str] = "an operator's parallelism"

    operator: str
    parallelism: Annotated[int, Words("subtasks now")]
    feed: Annotated[str, Words("source, keyed, spread, forward, global, broadcast or unknown")]
    most: Annotated[int, Words("largest parallelism: its key groups, or the partitions that it reads")]
    max_parallelism: Annotated[int | None, Words("key groups as the engine told; null: by default")]
    busiest_share: Annotated[float | None, Words("of its events, that its busiest subtask takes now; null: not known")]
    grounds: Annotated[Sentence | None, Words("why it keeps its parallelism; null: it can have another")] = None
    busy: Annotated[float | None, Words("threads that it keeps busy; null: its cost is not known")] = None
    autoscaler: Annotated[int | None, Words("parallelism by the autoscaler's rule; null: it sees no busy time")] = None


@dataclass(frozen=True)
class RestartOutlook(Record):
    """A change of parallelism from its beginning to its end.

    `low_s` to `high_s` are seconds from stopping to running with its state, by `basis`: ``measured`` on its restarts,
    ``stated``, or ``assumed``. `events` wait then, those that wait now included; after
    `back_s` seconds from now nothing is late any more: None where it never catches up, or nobody knows the rate;
    `back_high_s` is None where it may never.
    """

    TITLE: ClassVar[str] = "a restart"

    low_s: float
    high_s: float
    basis: str
    events: float
    events_high: float
    back_s: float | None
    back_low_s: float | None
    back_high_s: float | None


@dataclass(frozen=True, kw_only=True)
class ParallelismChoice(Record):
    """Subtasks of a query, and what they come to.

    Rates are events/s of its sources. `state` is that of a capacity, ``no_slots`` or
    ``no_host``. Without `rate_per_s` only
    `at_most_per_s` is sure. `gain` is the rate over that of now. Where keys are only assumed to be even, `low_per_s`
    and `gain_low` count a single key with all events. `latency_state` is that of the objective. `breaks` and `mends`
    are other queries whose objectives break, or hold again.
    """

    TITLE: ClassVar[str] = "a parallelism"

    parallelism: int
    is_now: Flag
    operators: Mapping[str, int]
    state: str
    slots: int
    slots_short: int
    rate_per_s: float | None = None
    low_per_s: float | None = None
    high_per_s: float | None = None
    at_most_per_s: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    limit: CapacityLimit | None = None
    skew: str = SKEWS[0]
    busiest_share: Annotated[float | None, Words("largest of all keyed operators, of their busiest subtask")] = None
    latency_state: str = "none"
    statistic: str | None = None
    bound_s: float | None = None
    estimate_s: float | None = None
    latency_low_s: float | None = None
    latency_high_s: float | None = None
    breaks: tuple[str, ...] = ()
    mends: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    restart: Omitted[RestartOutlook] = None
    placement: Mapping[str, tuple[Replica, ...]] = field(default_factory=dict)
    notes: tuple[Sentence, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about it."""
        values = asdict(self)
        return str(Fact("parallelism.choice", **{name: values[name] for name in _SAID}))


_SAID = (
    "parallelism",
    "is_now",
    "state",
    "slots",
    "slots_short",
    "rate_per_s",
    "low_per_s",
    "high_per_s",
    "at_most_per_s",
    "gain",
    "skew",
    "breaks",
)


@dataclass(frozen=True, kw_only=True)
class ParallelismPlan(Record):
    """Parallelisms of a query side by side.

    Attributes
    ----------
    now : int
        Parallelism of the job, that of its widest operator.
    scaled : tuple of str
        Operators that were asked about, all that can be where none was named.
    slots_there : int
        Slots that the job has or could have.
    backlog : float or None
        Events that wait now; None where nobody knows how many.
    recommended : int or None
        The least parallelism that sustains what comes, keeps the objective and breaks nobody's; None where none is
        known to. `is_if_even`: only if keys are even, which nobody measured.
    autoscaler : ParallelismChoice or None
        What the autoscaler would do; None where it sees no busy time. `autoscaler_acts`: whether any operator is
        outside of its bounds.
    """

    TITLE: ClassVar[str] = "parallelisms of a query"

    query: str
    now: int
    now_per_s: float
    scaled: tuple[str, ...]
    operators: tuple[OperatorScaling, ...]
    choices: tuple[ParallelismChoice, ...]
    slots_there: int
    is_engine_known: Flag
    backlog: float | None
    recommended: int | None
    is_if_even: Flag
    autoscaler: ParallelismChoice | None
    autoscaler_acts: Flag
    options: AutoscalerOptions
    notes: tuple[Sentence, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """A sentence about it."""
        present = self.choice(self.now)
        best = None if self.recommended is None else self.choice(self.recommended)
        return str(
            Fact(
                "parallelism.plan",
                now=self.now,
                recommended=self.recommended,
                is_if_even=self.is_if_even,
                is_known=present is not None and present.rate_per_s is not None,
                rate_per_s=None if best is None else best.rate_per_s,
                has_objective=present is not None and present.bound_s is not None,
                stuck=[row.operator for row in self.operators if row.grounds is not None],
            )
        )

    def choice(self, parallelism: int) -> ParallelismChoice | None:
        """The choice of a parallelism; None where it was not looked at."""
        return next((choice for choice in self.choices if choice.parallelism == parallelism), None)
