"""Costs and settings of a Spark query: what a fit says of its costs, what settings give, what others would.

References: Li, Diao, Shenoy (VLDB 2015), section 3.2; Spark's guide to Structured Streaming, recovery semantics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from engine.kinds import Number
from engine.microbatch.model import BatchLatency, BatchModel, coefficients
from engine.records import Flag, Record, Words

__all__ = [
    "MAX_EXECUTORS",
    "Count",
    "Executors",
    "MicroBatchProfile",
    "Seconds",
    "SettingEffect",
    "SparkChoice",
    "SparkSettings",
    "batch_model",
    "predict_latency",
    "profile_of_fit",
    "setting_effects",
]

INPUT_SHARE = 0.5  # of the time per row before the shuffle, where nothing tells
TASK_S = 0.01  # to start a wave of tasks, where nothing tells
_WAVES_SHARE = 0.5  # of a fitted fixed time at most: offsets, planning and commit cost the same on any cores
MAX_EXECUTORS = 1_000
_MAX_PARTITIONS = 100_000

Count = Annotated[int, Number(least=1, most=_MAX_PARTITIONS, whole=True)]
Seconds = Annotated[float, Number(least=0, most=1e6)]
Executors = Annotated[int, Number(least=1, most=MAX_EXECUTORS, whole=True)]

_US, _MS = 1e6, 1e3


@dataclass(frozen=True)
class MicroBatchProfile(Record):
    """Costs of a Spark query of one map and one shuffle stage; see `engine.microbatch.model.coefficients`.

    `sd_s` is the standard deviation of a batch's duration beside the model.
    """

    TITLE: ClassVar[str] = "micro-batch profile"

    f0_s: Annotated[Seconds, Words("Offsets, planning, log, commit.", "Fixed time of a batch", "ms", _MS)]
    c_in_s: Annotated[Seconds, Words("One core, per input row.", "Before the shuffle", "µs", _US)]
    t_task_s: Annotated[Seconds, Words("To start one and wait for its end.", "Wave of tasks", "ms", _MS)] = TASK_S
    c_sh_s: Annotated[Seconds, Words("One core, per shuffled row.", "After the shuffle", "µs", _US)] = 0.0
    alpha: Annotated[float, Number(least=0, most=1e9), Words("Per input row; 0: no shuffle.", "Rows shuffled")] = 1.0
    cv: Annotated[
        float, Number(least=0, most=100), Words("Coefficient of variation within a stage.", "Spread of tasks")
    ] = 0.0
    sd_s: Annotated[Seconds, Words("Standard deviation of their duration.", "Spread of batches", "ms", _MS)] = 0.0


@dataclass(frozen=True)
class SparkChoice(Record):
    """Executors, partitions and trigger of a Spark query."""

    TITLE: ClassVar[str] = "Spark settings"

    executors: Annotated[Executors, Words("spark.executor.instances", "Executors")]
    cores_per_executor: Annotated[Count, Words("spark.executor.cores", "Cores of an executor")]
    input_partitions: Annotated[Count, Words("tasks that read: partitions of the topic, or files", "Input partitions")]
    shuffle_partitions: Annotated[Count, Words("spark.sql.shuffle.partitions", "Shuffle partitions")]
    trigger_s: Annotated[Seconds, Words("processingTime of the trigger; 0: as soon as possible", "Trigger")]
    stateful: Annotated[Flag, Words("whether it keeps state: windows, joins, deduplication")] = False
    max_rows_per_trigger: Annotated[
        Annotated[float, Number(least=1)] | None,
        Words("maxOffsetsPerTrigger; null: no limit", "Rows of a batch at most"),
    ] = None


@dataclass(frozen=True)
class SparkSettings(SparkChoice):
    """Settings of a Spark query that decide about its latency."""

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
    than half of the fixed time, so that fewer waves do not make it vanish. Where batches do not tell the time per row,
    it is the most that it can be (`BatchModel.largest_per_row_s`): none would be borne at any rate.
    """
    total_s = model.per_row_s if model.is_told_apart else model.largest_per_row_s
    wave_s = min(t_task_s, _WAVES_SHARE * model.fixed_s / settings.waves)
    of_input = batch_model(MicroBatchProfile(f0_s=0.0, c_in_s=1.0, cv=cv), settings).per_row_s
    of_shuffle = batch_model(MicroBatchProfile(f0_s=0.0, c_in_s=0.0, c_sh_s=1.0, cv=cv), settings).per_row_s
    return MicroBatchProfile(
        f0_s=model.fixed_s - settings.waves * wave_s,
        t_task_s=wave_s,
        c_in_s=input_share * total_s / of_input,
        c_sh_s=(1 - input_share) * total_s / of_shuffle,
        alpha=1.0,
        cv=cv,
        sd_s=model.sd_s,
    )


def batch_model(profile: MicroBatchProfile, settings: SparkSettings) -> BatchModel:
    """Duration of batches of a profile under settings."""
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
    latency = batch_model(profile, settings).latency(rate, settings.trigger_s, statistic)
    limit = settings.max_rows_per_trigger
    return None if latency is None or (limit is not None and latency.rows > limit) else latency


@dataclass(frozen=True)
class SettingEffect(Record):
    """Effect of one setting with another value at the same rate; `latency` None: batches would not keep up.

    `takes_effect` is ``restart`` where the query goes on from its checkpoint, ``new checkpoint`` where the checkpoint
    fixes the setting, so that state is lost or computed again.
    """

    setting: str
    before: float
    after: float
    latency: BatchLatency | None
    takes_effect: str


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
            fixed = settings.stateful and name in FIXED_BY_CHECKPOINT
            changes: dict[str, Any] = {name: after}
            latency = predict_latency(profile, replace(settings, **changes), rate, statistic)
            effects.append(SettingEffect(name, before, after, latency, "new checkpoint" if fixed else "restart"))
    return effects
