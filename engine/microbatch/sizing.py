"""Sizes of a Spark query: fewest executors, partitions and trigger that keep a latency constraint at a rate.

The paper's question for an engine with one batch interval. Everything is in closed form but the quantile of a varying
batch, so that an answer takes milliseconds and no compiled code.

References: Li, Diao, Shenoy (VLDB 2015), section 3.4; Spark's guide to Structured Streaming, recovery semantics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from engine.fields import Field, FieldTable, Flag, Number, SettingsRecord, String
from engine.microbatch.model import BatchLatency, BatchModel, coefficients, quantile_level, wait_s
from engine.order_statistics import normal_maximum

__all__ = [
    "MODEL",
    "MicroBatchProfile",
    "MicroBatchQuestion",
    "MicroBatchSizing",
    "SettingEffect",
    "SparkPlan",
    "SparkSettings",
    "predict_latency",
    "profile_of_fit",
    "setting_effects",
    "size_microbatch",
]

MODEL = "micro-batch F + k n, 1"
UTILISATION_CEILING = 0.85
AIM = 0.93  # share of the constraint that plans aim at
INPUT_SHARE = 0.5  # of the time per row before the shuffle, where nothing tells
TASK_S = 0.01  # to start a wave of tasks, where nothing tells
_WAVES_SHARE = 0.5  # of a fitted fixed time at most: offsets, planning and commit cost the same on any cores
_MAX_RATE = 1e15  # of a question, and of plans whose rows cost next to nothing
MAX_EXECUTORS = 1_000
_MAX_PARTITIONS = 100_000
_CURVE_POINTS = 25
_BISECTIONS = 60

_COUNT = Number(least=1, most=_MAX_PARTITIONS, whole=True)
_SECONDS = Number(least=0, most=1e6)
_EXECUTORS = Number(least=1, most=MAX_EXECUTORS, whole=True)


@dataclass(frozen=True)
class MicroBatchProfile(SettingsRecord):
    """Costs of a Spark query of one map and one shuffle stage; see `engine.microbatch.model.coefficients`.

    `sd_s` is the standard deviation of a batch's duration beside the model.
    """

    TABLE: ClassVar[FieldTable] = FieldTable(
        "micro-batch profile",
        Field("f0_s", _SECONDS, required=True, help="seconds of a batch beside its tasks: offsets, planning, commit"),
        Field("t_task_s", _SECONDS, help="seconds to start a wave of tasks and wait for its end; 0.01"),
        Field("c_in_s", _SECONDS, required=True, help="core-seconds of an input row"),
        Field("c_sh_s", _SECONDS, help="core-seconds of a row after the shuffle; 0"),
        Field("alpha", Number(least=0, most=1e9), help="rows after the shuffle for an input row; 1"),
        Field("cv", Number(least=0, most=100), help="coefficient of variation of a stage's tasks; 0"),
        Field("sd_s", _SECONDS, help="standard deviation of a batch's duration; 0"),
    )

    f0_s: float
    c_in_s: float
    t_task_s: float = TASK_S
    c_sh_s: float = 0.0
    alpha: float = 1.0
    cv: float = 0.0
    sd_s: float = 0.0


@dataclass(frozen=True)
class SparkSettings(SettingsRecord):
    """Settings of a Spark query that decide about its latency."""

    TABLE: ClassVar[FieldTable] = FieldTable(
        "Spark settings",
        Field("executors", _EXECUTORS, required=True, help="spark.executor.instances"),
        Field("cores_per_executor", _COUNT, required=True, help="spark.executor.cores"),
        Field("input_partitions", _COUNT, required=True, help="tasks that read: partitions of the topic, or files"),
        Field("shuffle_partitions", _COUNT, required=True, help="spark.sql.shuffle.partitions"),
        Field("trigger_s", _SECONDS, required=True, help="processingTime of the trigger; 0: as soon as possible"),
        Field("stateful", Flag(), help="whether it keeps state: windows, joins, deduplication; false"),
        Field("max_rows_per_trigger", Number(least=1), nullable=True, help="maxOffsetsPerTrigger; null: no limit"),
    )

    executors: int
    cores_per_executor: int
    input_partitions: int
    shuffle_partitions: int
    trigger_s: float
    stateful: bool = False
    max_rows_per_trigger: float | None = None

    @property
    def cores(self) -> int:
        """Tasks that run at the same time."""
        return self.executors * self.cores_per_executor

    @property
    def waves(self) -> int:
        """Waves of tasks of both stages."""
        return math.ceil(self.input_partitions / self.cores) + math.ceil(self.shuffle_partitions / self.cores)

    @property
    def conf(self) -> list[tuple[str, str]]:
        """Settings of `spark-submit`."""
        return [
            ("spark.executor.instances", str(self.executors)),
            ("spark.executor.cores", str(self.cores_per_executor)),
            ("spark.sql.shuffle.partitions", str(self.shuffle_partitions)),
        ]

    @property
    def code(self) -> list[str]:
        """Options of the query's reader and writer, as Python: the most rows it takes at once, and its trigger."""
        limit = self.max_rows_per_trigger
        reader = [] if limit is None else [f'.option("maxOffsetsPerTrigger", {limit:.0f})']
        return [*reader, f'.trigger(processingTime="{round(self.trigger_s * 1000)} milliseconds")']


@dataclass(frozen=True)
class MicroBatchQuestion(SettingsRecord):
    """Rate, constraint and what may be chosen. Partitions that are given stay; others follow the cores.

    The plan bears `rate` / (1 - `headroom`), aims at `aim` of the constraint less the watermark delay, and fills no
    interval by more than `utilisation_ceiling`.
    """

    TABLE: ClassVar[FieldTable] = FieldTable(
        "micro-batch question",
        Field("rate", Number(above=0, most=_MAX_RATE), required=True, help="input rows per second"),
        Field("constraint_s", Number(above=0, most=1e6), required=True, help="latency constraint in seconds"),
        Field("statistic", String(), help="mean, or a quantile such as q0.95; mean"),
        Field("headroom", Number(least=0, most=0.95), help="share of the plan's rate to keep free; 0"),
        Field("utilisation_ceiling", Number(above=0, most=1), help="of an interval that its batch may take; 0.85"),
        Field("aim", Number(above=0, most=1), help="share of the constraint to aim at; 0.93"),
        Field("watermark_delay_s", _SECONDS, help="results wait for it as well, with windows in append mode; 0"),
        Field("max_executors", _EXECUTORS, help="100"),
        Field("cores_per_executor", _COUNT, help="4"),
        Field("input_partitions", _COUNT, nullable=True, help="given by the source; null: as many as cores"),
        Field("shuffle_partitions", _COUNT, nullable=True, help="fixed by a checkpoint; null: as many as cores"),
        Field("stateful", Flag(), help="whether the query keeps state; false"),
    )

    rate: float
    constraint_s: float
    statistic: str = "mean"
    headroom: float = 0.0
    utilisation_ceiling: float = UTILISATION_CEILING
    aim: float = AIM
    watermark_delay_s: float = 0.0
    max_executors: int = 100
    cores_per_executor: int = 4
    input_partitions: int | None = None
    shuffle_partitions: int | None = None
    stateful: bool = False

    def __post_init__(self) -> None:
        quantile_level(self.statistic)

    @property
    def target_rate(self) -> float:
        """Rate that a plan must bear."""
        return self.rate / (1 - self.headroom)

    @property
    def target_s(self) -> float:
        """Latency of wait and batch that plans aim at; not positive where the watermark delay takes it all."""
        return self.aim * self.constraint_s - self.watermark_delay_s


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """Settings with what they give at the question's rate; `mean_s` and `statistic_s` hold the watermark delay too."""

    settings: SparkSettings
    model: BatchModel
    max_rate: float
    headroom: float
    batch: BatchLatency
    mean_s: float
    statistic_s: float
    limit: str
    core_share: float

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "cores": self.settings.cores,
            "max_rate": self.max_rate,
            "headroom": self.headroom,
            "mean_s": self.mean_s,
            "metric_s": self.statistic_s,
            "batch_s": self.batch.batch_s,
            "interval_s": self.batch.interval_s,
            "rows": self.batch.rows,
            "util": {"batch": self.batch.utilisation, "cores": self.core_share},
            "fixed_s": self.model.fixed_s,
            "per_row_s": self.model.per_row_s,
            "conf": [list(pair) for pair in self.settings.conf],
            "code": self.settings.code,
            "binding": self.limit,
        }


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why no plan fits, and what would: the nearest constraint at this rate, the nearest rate under this constraint.

    Either is None where none would do.
    """

    limit: str
    nearest_constraint_s: float | None
    nearest_rate: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class MicroBatchSizing:
    """Answer of `size_microbatch`: the plan, both ends of its rate-latency curve, and the curve of its neighbours."""

    question: MicroBatchQuestion
    plan: SparkPlan | None
    fastest: SparkPlan | None
    curve: tuple[tuple[int, float, tuple[tuple[float, float | None], ...]], ...]
    infeasibility: Infeasibility | None
    duration_s: float

    def to_dict(self) -> dict[str, Any]:
        plan, fastest = (None if plan is None else plan.to_dict() for plan in (self.plan, self.fastest))
        return {
            "feasible": self.plan is not None,
            "constraint_s": self.question.constraint_s,
            "aim_s": self.question.aim * self.question.constraint_s,
            "statistic": self.question.statistic,
            "rate": self.question.rate,
            "plan": plan,
            "ends": {"throughput": plan, "latency": fastest},
            "curve": [
                {"executors": executors, "max_rate": max_rate, "points": [list(point) for point in points]}
                for executors, max_rate, points in self.curve
            ],
            "infeasible": None if self.infeasibility is None else self.infeasibility.to_dict(),
            "model": MODEL,
            "duration_s": self.duration_s,
        }


def profile_of_fit(
    model: BatchModel,
    settings: SparkSettings,
    *,
    input_share: float = INPUT_SHARE,
    t_task_s: float = TASK_S,
    cv: float = 0.0,
) -> MicroBatchProfile:
    """Costs that give the fitted F and k under the settings of the fit.

    A fit cannot tell the stages apart: the share of the input stage in the time per row, the start of a wave and the
    spread of tasks are assumed. At the same settings they do not matter; for others they do. Waves are given no more
    than half of the fixed time, so that fewer waves do not make it vanish.
    """
    wave_s = min(t_task_s, _WAVES_SHARE * model.fixed_s / settings.waves)
    of_input = _model(MicroBatchProfile(f0_s=0.0, c_in_s=1.0, cv=cv), settings).per_row_s
    of_shuffle = _model(MicroBatchProfile(f0_s=0.0, c_in_s=0.0, c_sh_s=1.0, cv=cv), settings).per_row_s
    return MicroBatchProfile(
        f0_s=model.fixed_s - settings.waves * wave_s,
        t_task_s=wave_s,
        c_in_s=input_share * model.per_row_s / of_input,
        c_sh_s=(1 - input_share) * model.per_row_s / of_shuffle,
        alpha=1.0,
        cv=cv,
        sd_s=model.sd_s,
    )


def _model(profile: MicroBatchProfile, settings: SparkSettings) -> BatchModel:
    fixed_s, per_row_s = coefficients(
        cores=settings.cores,
        input_partitions=settings.input_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        f0_s=profile.f0_s,
        t_task_s=profile.t_task_s,
        c_in_s=profile.c_in_s,
        c_sh_s=profile.c_sh_s,
        alpha=profile.alpha,
        cv=profile.cv,
    )
    return BatchModel(fixed_s, per_row_s, profile.sd_s)


def predict_latency(
    profile: MicroBatchProfile, settings: SparkSettings, rate: float, statistic: str = "mean"
) -> BatchLatency | None:
    """Latency under given settings; None where batches never keep up, or may not take all rows that come."""
    latency = _model(profile, settings).latency(rate, settings.trigger_s, statistic)
    limit = settings.max_rows_per_trigger
    return None if latency is None or (limit is not None and latency.rows > limit) else latency


def size_microbatch(profile: MicroBatchProfile, question: MicroBatchQuestion) -> MicroBatchSizing:
    """Fewest executors that keep the constraint at the rate, with trigger and partitions.

    For each number of executors the highest rate under the constraint is where wait and batch take the whole aim with
    the interval filled up to the ceiling: ceiling T + wait(T) = aim, and then rate = (ceiling - F / T) / k. The plan is
    the first number that bears the rate, at that trigger: of the admissible ones the longest, with the most room
    for a higher rate. `fastest` has the shortest trigger that the ceiling allows at the rate: F / (ceiling - rate k).
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
    curve = tuple((n, _max_rate(profile, question, n, longest_s), tuple(_curve(profile, question, n))) for n in around)
    return MicroBatchSizing(question, plan, fastest, curve, infeasibility, time.perf_counter() - began_s)


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
    low, high = 0.0, target_s / ceiling
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if ceiling * middle + wait_s(middle, profile.sd_s, level) <= target_s:
            low = middle
        else:
            high = middle
    return low


def _max_rate(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int, longest_s: float) -> float:
    """Highest rate under the constraint, at the trigger of `_longest_s`."""
    return _rate_at(_model(profile, _settings(question, executors)), question, longest_s)


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
    model = _model(profile, _settings(question, executors))
    rounded_s = _rounded_down(longest_s)
    fits = _rate_at(model, question, rounded_s) >= question.target_rate
    return _plan(profile, question, executors, rounded_s if fits else longest_s)


def _fastest_plan(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int) -> SparkPlan | None:
    shortest_s = _shortest_s(_model(profile, _settings(question, executors)), question, question.target_rate)
    if shortest_s is None:
        return None
    return _plan(profile, question, executors, math.ceil(shortest_s * 1000) / 1000)


def _plan(profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int, trigger_s: float) -> SparkPlan:
    settings = _settings(question, executors, trigger_s)
    model = _model(profile, settings)
    batch = model.latency(question.rate, trigger_s, question.statistic)
    assert batch is not None, "a plan bears its rate"
    max_rate = _rate_at(model, question, trigger_s)
    if max_rate < _MAX_RATE:  # a batch after an outage takes no more than one that fills the ceiling
        settings = replace(settings, max_rows_per_trigger=float(math.ceil(max_rate * trigger_s)))
    work_s = question.rate * (profile.c_in_s + profile.alpha * profile.c_sh_s)
    return SparkPlan(
        settings=settings,
        model=model,
        max_rate=max_rate,
        headroom=1 - question.rate / max_rate if max_rate > 0 else 0.0,
        batch=batch,
        mean_s=batch.mean_s + question.watermark_delay_s,
        statistic_s=batch.statistic_s + question.watermark_delay_s,
        limit=_limit(profile, question, settings),
        core_share=work_s / settings.cores,
    )


def _limit(profile: MicroBatchProfile, question: MicroBatchQuestion, settings: SparkSettings) -> str:
    """Name of what keeps the rate from being higher: the largest part of the interval at the highest rate."""
    model = _model(profile, settings)
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
    model = _model(profile, _settings(question, executors))
    shortest_s = _shortest_s(model, question, question.target_rate)
    latency = None if shortest_s is None else model.latency(question.target_rate, shortest_s, question.statistic)
    return None if latency is None else (latency.statistic_s + question.watermark_delay_s) / question.aim


def _curve(
    profile: MicroBatchProfile, question: MicroBatchQuestion, executors: int
) -> Iterator[tuple[float, float | None]]:
    """Least latency under the ceiling by rate, watermark delay included; None beyond the last rate it bears."""
    model = _model(profile, _settings(question, executors))
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


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """Effect of one setting with another value at the same rate; `latency` None: batches would not keep up.

    `takes_effect` is ``restart`` where the query goes on from its checkpoint, ``new checkpoint`` where the checkpoint
    fixes the setting, so that state is lost or computed again.
    """

    setting: str
    before: float
    after: float
    latency: BatchLatency | None
    takes_effect: str

    def to_dict(self) -> dict[str, Any]:
        latency = None if self.latency is None else self.latency.to_dict()
        return asdict(self) | {"latency": latency}


#: Settings that the offset log of a stateful query's checkpoint fixes.
FIXED_BY_CHECKPOINT = ("shuffle_partitions",)


def setting_effects(
    profile: MicroBatchProfile, settings: SparkSettings, rate: float, statistic: str = "mean"
) -> list[SettingEffect]:
    """Every setting changed alone: trigger halved and doubled, one executor and one core less and more, partitions
    halved, doubled and as many as cores.
    """
    cores = settings.cores
    values: list[tuple[str, list[float]]] = [
        ("trigger_s", [settings.trigger_s / 2, settings.trigger_s * 2]),
        ("executors", [settings.executors - 1, settings.executors + 1]),
        ("cores_per_executor", [settings.cores_per_executor - 1, settings.cores_per_executor + 1]),
        ("input_partitions", [settings.input_partitions // 2, cores, settings.input_partitions * 2]),
        ("shuffle_partitions", [settings.shuffle_partitions // 2, cores, settings.shuffle_partitions * 2]),
    ]
    effects = []
    for name, candidates in values:
        before = getattr(settings, name)
        for after in sorted({value for value in candidates if value > 0 and value != before}):
            changed = SparkSettings(**{**asdict(settings), name: after})
            fixed = settings.stateful and name in FIXED_BY_CHECKPOINT
            latency = predict_latency(profile, changed, rate, statistic)
            effects.append(SettingEffect(name, before, after, latency, "new checkpoint" if fixed else "restart"))
    return effects
