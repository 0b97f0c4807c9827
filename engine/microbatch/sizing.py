"""Sizes of a Spark query: fewest executors, partitions and trigger that keep a latency constraint at a rate.

The paper's question for an engine with one batch interval. Everything is in closed form but the quantile of a varying
batch, so that an answer takes milliseconds and no compiled code.

Reference: Li, Diao, Shenoy (VLDB 2015), section 3.4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

from engine.kinds import Number
from engine.microbatch.model import BatchModel, Statistic, quantile_level, rising_root, wait_s
from engine.microbatch.settings import (
    Count,
    Executors,
    MicroBatchProfile,
    Seconds,
    SparkChoice,
    SparkSettings,
    batch_model,
)
from engine.order_statistics import normal_maximum
from engine.records import Flag, Record, Words

__all__ = [
    "AIM",
    "UTILISATION_CEILING",
    "Aim",
    "Headroom",
    "Infeasibility",
    "MicroBatchQuestion",
    "MicroBatchSizing",
    "SparkPlan",
    "UtilisationCeiling",
    "size_microbatch",
]

MODEL = "micro-batch F + k n, 1"
UTILISATION_CEILING = 0.85
AIM = 0.93  # share of the constraint that plans aim at
_MAX_RATE = 1e15  # of a question, and of plans whose rows cost next to nothing
_CURVE_POINTS = 25

_PERCENT = 100.0
Headroom = Annotated[
    float, Number(least=0, most=0.95), Words("Of the largest rate, to keep free.", "Headroom", "%", _PERCENT)
]
UtilisationCeiling = Annotated[
    float, Number(above=0, most=1), Words("Nothing is planned fuller.", "Utilisation ceiling", "%", _PERCENT)
]
Aim = Annotated[float, Number(above=0, most=1), Words("Of the constraint, to plan for.", "Aim", "%", _PERCENT)]


@dataclass(frozen=True)
class MicroBatchQuestion(Record):
    """Rate, constraint and what may be chosen. Partitions that are given stay; others follow the cores.

    The plan bears `rate` / (1 - `headroom`), aims at `aim` of the constraint less the watermark delay, and fills no
    interval by more than `utilisation_ceiling`.
    """

    TITLE: ClassVar[str] = "micro-batch question"

    rate: Annotated[float, Number(above=0, most=_MAX_RATE), Words("All sources together.", "Input rate", "events/s")]
    constraint_s: Annotated[
        float, Number(above=0, most=1e6), Words("From an event's arrival to its result.", "Latency constraint", "s")
    ]
    statistic: Annotated[str, Statistic(), Words("mean, or a quantile such as q0.95", "Statistic")] = "mean"
    headroom: Headroom = 0.0
    utilisation_ceiling: UtilisationCeiling = UTILISATION_CEILING
    aim: Aim = AIM
    watermark_delay_s: Annotated[
        Seconds, Words("Windows wait for it too: part of the constraint.", "Watermark delay", "s")
    ] = 0.0
    max_executors: Annotated[Executors, Words("", "Executors at most")] = 100
    cores_per_executor: Annotated[Count, Words("", "Cores of an executor")] = 4
    input_partitions: Annotated[Count | None, Words("Of the topic; empty: as many as cores.", "Input partitions")] = (
        None
    )
    shuffle_partitions: Annotated[
        Count | None, Words("Of the checkpoint; empty: as many as cores.", "Shuffle partitions")
    ] = None
    stateful: Annotated[Flag, Words("Windows, joins, deduplication.", "Keeps state")] = False

    @property
    def target_rate(self) -> float:
        """Rate that a plan must bear."""
        return self.rate / (1 - self.headroom)

    @property
    def target_s(self) -> float:
        """Latency of wait and batch that plans aim at; not positive where the watermark delay takes it all."""
        return self.aim * self.constraint_s - self.watermark_delay_s


@dataclass(frozen=True, kw_only=True)
class SparkPlan(SparkChoice):
    """Settings with what they give at the question's rate; `mean_s` and `metric_s` hold the watermark delay too."""

    cores: int
    max_rate: float
    headroom: float
    mean_s: float
    metric_s: float
    batch_s: float
    interval_s: float
    rows: float
    util: dict[str, float]
    fixed_s: float
    per_row_s: float
    conf: tuple[tuple[str, str], ...]
    code: tuple[str, ...]
    binding: str

    @property
    def settings(self) -> SparkSettings:
        """The settings alone."""
        return SparkSettings(**{field.name: getattr(self, field.name) for field in fields(SparkSettings)})

    @property
    def size(self) -> int:
        return self.executors

    @property
    def limit(self) -> str:
        """Name of what keeps the rate from being higher."""
        return self.binding


@dataclass(frozen=True)
class SparkEnds(Record):
    """Both ends of the curve: most throughput, least latency."""

    throughput: SparkPlan | None
    latency: SparkPlan | None


@dataclass(frozen=True)
class SparkCurve(Record):
    """Least latency by rate with so many executors; None where batches do not keep up."""

    executors: int
    max_rate: float
    points: tuple[tuple[float, float | None], ...]

    @property
    def size(self) -> int:
        return self.executors


@dataclass(frozen=True)
class Infeasibility(Record):
    """Why no plan fits, and what would: the nearest constraint at this rate, the nearest rate under this constraint.

    Either is None where none would do.
    """

    limit: str
    nearest_constraint_s: float | None
    nearest_rate: float | None


@dataclass(frozen=True, kw_only=True)
class MicroBatchSizing(Record):
    """Answer of `size_microbatch`: the plan, both ends of its rate-latency curve, and the curve of its neighbours."""

    TITLE: ClassVar[str] = "a plan of micro-batches"

    feasible: bool
    constraint_s: float
    aim_s: float
    statistic: str
    rate: float
    plan: SparkPlan | None
    ends: SparkEnds
    curve: tuple[SparkCurve, ...]
    infeasible: Infeasibility | None
    model: str = MODEL
    duration_s: float


def size_microbatch(profile: MicroBatchProfile, question: MicroBatchQuestion) -> MicroBatchSizing:
    """Fewest executors that keep the constraint at the rate, with trigger and partitions.

    For each number of executors the highest rate under the constraint is where wait and batch take the whole aim with
    the interval filled up to the ceiling: ceiling T + wait(T) = aim, and then rate = (ceiling - F / T) / k. The plan is
    the first number that bears the rate, at that trigger: of the admissible ones the longest, with the most room
    for a higher rate. The end of least latency has the shortest trigger that the ceiling allows at the rate:
    F / (ceiling - rate k).
    """
    began_s = time.perf_counter()
    numbers = range(1, question.max_executors + 1)
    longest_s = _longest_s(profile, question)
    chosen = next((n for n in numbers if _max_rate(profile, question, n, longest_s) >= question.target_rate), None)
    plan = fastest = infeasibility = None
    if chosen is None:
        infeasibility = _infeasibility(profile, question, longest_s)
        around: tuple[int, ...] = (question.max_executors,)
    else:
        plan = _throughput_plan(profile, question, chosen, longest_s)
        fastest = _fastest_plan(profile, question, chosen)
        around = tuple(n for n in (chosen - 1, chosen, chosen + 1) if n >= 1)
    curve = tuple(
        SparkCurve(n, _max_rate(profile, question, n, longest_s), tuple(_curve(profile, question, n))) for n in around
    )
    return MicroBatchSizing(
        feasible=plan is not None,
        constraint_s=question.constraint_s,
        aim_s=question.aim * question.constraint_s,
        statistic=question.statistic,
        rate=question.rate,
        plan=plan,
        ends=SparkEnds(plan, fastest),
        curve=curve,
        infeasible=infeasibility,
        duration_s=time.perf_counter() - began_s,
    )


def _settings(question: MicroBatchQuestion, executors: int, trigger_s: float = 0.0) -> SparkSettings:
    cores = executors * question.cores_per_executor
    return SparkSettings(
        executors=executors,
        cores_per_executor=question.cores_per_executor,
        input_partitions=question.input_partitions or cores,
        shuffle_partitions=question.shuffle_partitions or cores,
        trigger_s=trigger_s,
        stateful=question.stateful,
    )


def _longest_s(profile: MicroBatchProfile, question: MicroBatchQuestion) -> float:
    """Trigger at which a batch that fills the ceiling and the wait for it take exactly the aim; 0 where none does."""
    level, ceiling, target_s = quantile_level(question.statistic), question.utilisation_ceiling, question.target_s
    if target_s <= 0:
        return 0.0
    if profile.sd_s <= 0:
        return target_s / (ceiling + (0.5 if level is None else level))
    return rising_root(lambda s: ceiling * s + wait_s(s, profile.sd_s, level) - target_s, 0.0, target_s / ceiling)


def _max_rate(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int, longest_s: float) -> float:
    """Highest rate under the constraint, at the trigger of `_longest_s`."""
    return _rate_at(batch_model(profile, _settings(question, executors)), question, longest_s)


def _rate_at(model: BatchModel, question: MicroBatchQuestion, trigger_s: float) -> float:
    """Highest rate at a trigger: of the ceiling, and of the latency that is left beside the wait."""
    if trigger_s <= 0:
        return 0.0
    wait = wait_s(trigger_s, model.sd_s, quantile_level(question.statistic))
    batch_s = min(question.utilisation_ceiling * trigger_s, question.target_s - wait)
    if batch_s <= model.fixed_s:
        return 0.0
    rows_s = (batch_s - model.fixed_s) / trigger_s
    return rows_s / model.per_row_s if rows_s < _MAX_RATE * model.per_row_s else _MAX_RATE


def _shortest_s(model: BatchModel, question: MicroBatchQuestion, rate: float) -> float | None:
    """Shortest trigger at a rate that the ceiling allows; None where none does."""
    spare = question.utilisation_ceiling - rate * model.per_row_s
    return max(model.fixed_s / spare, 1e-3) if spare > 0 else None


def _throughput_plan(
    profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int, longest_s: float
) -> SparkPlan:
    model = batch_model(profile, _settings(question, executors))
    rounded_s = _rounded_down(longest_s)
    fits = _rate_at(model, question, rounded_s) >= question.target_rate
    return _plan(profile, question, executors, rounded_s if fits else longest_s)


def _fastest_plan(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int) -> SparkPlan | None:
    shortest_s = _shortest_s(batch_model(profile, _settings(question, executors)), question, question.target_rate)
    if shortest_s is None:
        return None
    return _plan(profile, question, executors, math.ceil(shortest_s * 1000) / 1000)


def _plan(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int, trigger_s: float) -> SparkPlan:
    settings = _settings(question, executors, trigger_s)
    model = batch_model(profile, settings)
    batch = model.latency(question.rate, trigger_s, question.statistic)
    assert batch is not None, "a plan bears its rate"
    max_rate = _rate_at(model, question, trigger_s)
    if max_rate < _MAX_RATE:  # a batch after an outage takes no more than one that fills the ceiling
        settings = replace(settings, max_rows_per_trigger=float(math.ceil(max_rate * trigger_s)))
    work_s = question.rate * (profile.c_in_s + profile.alpha * profile.c_sh_s)
    return SparkPlan(
        **vars(settings),
        cores=settings.cores,
        max_rate=max_rate,
        headroom=1 - question.rate / max_rate if max_rate > 0 else 0.0,
        mean_s=batch.mean_s + question.watermark_delay_s,
        metric_s=batch.statistic_s + question.watermark_delay_s,
        batch_s=batch.batch_s,
        interval_s=batch.interval_s,
        rows=batch.rows,
        util={"batch": batch.utilisation, "cores": work_s / settings.cores},
        fixed_s=model.fixed_s,
        per_row_s=model.per_row_s,
        conf=tuple(settings.conf),
        code=tuple(settings.code),
        binding=_limit(profile, question, settings),
    )


def _limit(profile: MicroBatchProfile, question: MicroBatchQuestion, settings: SparkSettings) -> str:
    """Name of what keeps the rate from being higher: the largest part of the interval at the highest rate."""
    model = batch_model(profile, settings)
    trigger_s = settings.trigger_s
    if question.target_s <= 0:
        return "watermark delay"
    rate = _rate_at(model, question, trigger_s)
    rows_s = rate * trigger_s * model.per_row_s
    if model.fixed_s >= rows_s:
        return "fixed time of a batch"
    if settings.input_partitions < settings.cores and profile.c_in_s > 0:
        return "input partitions"
    if settings.shuffle_partitions < settings.cores and profile.c_sh_s > 0:
        return "shuffle partitions"
    if profile.cv > 0 and normal_maximum(settings.cores)[0] * profile.cv > 1:
        return "slowest task"
    return "cores"


def _infeasibility(profile: MicroBatchProfile, question: MicroBatchQuestion, longest_s: float) -> Infeasibility:
    numbers = range(1, question.max_executors + 1)
    rates = [_max_rate(profile, question, n, longest_s) for n in numbers]
    best_rate = max(rates)
    most = max(n for n, rate in zip(numbers, rates, strict=True) if rate == best_rate)  # the first ones lack cores, too
    constraints = [found for n in numbers if (found := _least_constraint_s(profile, question, n)) is not None]
    return Infeasibility(
        limit=_limit(profile, question, _settings(question, most, longest_s)),
        nearest_constraint_s=min(constraints, default=None),
        nearest_rate=best_rate * (1 - question.headroom) if best_rate > 0 else None,
    )


def _least_constraint_s(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int) -> float | None:
    """The tightest constraint that can be kept at the rate."""
    model = batch_model(profile, _settings(question, executors))
    shortest_s = _shortest_s(model, question, question.target_rate)
    latency = None if shortest_s is None else model.latency(question.target_rate, shortest_s, question.statistic)
    return None if latency is None else (latency.statistic_s + question.watermark_delay_s) / question.aim


def _curve(
    profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int
) -> Iterator[tuple[float, float | None]]:
    """Least latency under the ceiling by rate, watermark delay included; None beyond the last rate it bears."""
    model = batch_model(profile, _settings(question, executors))
    reach = 1.5 * question.target_rate
    for number in range(1, _CURVE_POINTS + 1):
        rate = reach * number / _CURVE_POINTS
        shortest_s = _shortest_s(model, question, rate)
        latency = None if shortest_s is None else model.latency(rate, shortest_s, question.statistic)
        yield rate, None if latency is None else latency.statistic_s + question.watermark_delay_s


def _rounded_down(seconds: float) -> float:
    """The largest number of two digits that is no larger, for people to type; whole milliseconds at the least."""
    if seconds <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return max(math.floor(seconds / unit + 1e-9) * unit, 1e-3)
