"""Rule of Flink's autoscaler: the parallelism that it would give an operator.

References
----------
Apache Flink Kubernetes Operator, documentation of the autoscaler and its options (defaults of 1.12); the rule builds
on DS2 (Kalavri et al., OSDI 2018): true processing rate is the rate over the share of time that a thread is busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from engine.kinds import Number
from engine.records import Record, Words

__all__ = ["AutoscalerOptions", "ObservedOperator", "is_outside", "scaled_parallelism"]


@dataclass(frozen=True)
class AutoscalerOptions(Record):
    """Options of the autoscaler, as it has them unless set."""

    TITLE: ClassVar[str] = "options of the autoscaler"

    utilisation: Annotated[float, Number(least=0.01, most=1), Words("utilization.target")] = 0.7
    boundary: Annotated[float, Number(least=0, most=1), Words("utilization.target.boundary")] = 0.3
    catch_up_s: Annotated[float, Number(least=0), Words("catch-up.duration; 0: backlogs count for nothing")] = 1800.0
    restart_s: Annotated[float, Number(least=0), Words("restart.time")] = 300.0
    scale_up: Annotated[float, Number(least=0), Words("scale-up.max-factor, of more subtasks")] = 100_000.0
    scale_down: Annotated[float, Number(least=0, most=1), Words("scale-down.max-factor, of fewer subtasks")] = 0.6
    max_parallelism: Annotated[int, Number(least=1, whole=True), Words("vertex.max-parallelism")] = 200


@dataclass(frozen=True, slots=True)
class ObservedOperator:
    """An operator as the autoscaler sees it.

    Attributes
    ----------
    parallelism : int
        Subtasks now.
    rate_per_s : float
        Events that come to it a second.
    busy : float
        Threads that it keeps busy at that rate: events a second times seconds an event.
    lag : float
        Events that wait before it, of sources.
    divisor : int
        Key groups or partitions that its parallelism is aligned with; 0: neither.
    max_parallelism : int
        Key groups at most, of any operator.
    """

    parallelism: int
    rate_per_s: float
    busy: float
    lag: float = 0.0
    divisor: int = 0
    max_parallelism: int = 128

    @property
    def true_rate_per_s(self) -> float:
        """Events a second that all its threads would take, never waiting: p rate / busy."""
        return math.inf if self.busy <= 0.0 else self.parallelism * self.rate_per_s / self.busy

    def target_per_s(self, utilisation: float, options: AutoscalerOptions, *, restarts: bool) -> float:
        """Rate that it is to manage: lag / catch-up + rate restart / catch-up + rate / utilisation."""
        catch_up_s = options.catch_up_s
        lag = self.lag / catch_up_s if catch_up_s > 0.0 else 0.0
        restart = self.rate_per_s * options.restart_s / catch_up_s if restarts and catch_up_s > 0.0 else 0.0
        return lag + restart + (self.rate_per_s / utilisation if utilisation > 0.0 else math.inf)


def is_outside(operator: ObservedOperator, options: AutoscalerOptions) -> bool:
    """Whether an operator is so busy, or so idle, that the autoscaler acts."""
    upper = min(1.0, options.utilisation + options.boundary)
    lower = max(0.0, options.utilisation - options.boundary)
    true = operator.true_rate_per_s
    too_busy = true < operator.target_per_s(upper, options, restarts=False)
    return too_busy or true > operator.target_per_s(lower, options, restarts=True)


def scaled_parallelism(operator: ObservedOperator, options: AutoscalerOptions) -> int:
    """Parallelism that the autoscaler gives an operator once it acts.

    The factor ``target / true processing rate`` is kept within the limits for one step, and the parallelism is aligned
    with key groups or partitions: the next one that divides them, if there is one.

    Examples
    --------
    >>> busy = ObservedOperator(parallelism=2, rate_per_s=1000.0, busy=1.9, divisor=128)
    >>> scaled_parallelism(busy, AutoscalerOptions())
    4
    """
    now, true = operator.parallelism, operator.true_rate_per_s
    factor = (
        0.0
        if math.isinf(true) or true <= 0.0
        else (operator.target_per_s(options.utilisation, options, restarts=True) / true)
    )
    factor = min(max(factor, 1.0 - options.scale_down), 1.0 + options.scale_up)
    most = max(1, min(operator.max_parallelism, max(now, options.max_parallelism)))
    wanted = min(max(1, math.ceil(factor * now - 1e-9)), most)
    if not operator.divisor or wanted == now:
        return wanted
    return _aligned(wanted, now, operator.divisor, min(operator.divisor, most))


def _aligned(wanted: int, now: int, divisor: int, most: int) -> int:
    """The next parallelism that divides key groups; where none does, the least that takes as much for each subtask."""
    grows = wanted > now
    for parallelism in range(wanted, (most if grows else min(now, most)) + 1):
        if divisor % parallelism == 0:
            return parallelism
    parallelism = wanted
    while parallelism > 0 and divisor // parallelism <= divisor // wanted:
        parallelism -= 1
    parallelism = max(1, parallelism if parallelism and divisor % parallelism == 0 else parallelism + 1)
    is_turned = parallelism <= now if grows else parallelism >= now
    return now if is_turned else parallelism
