"""Latency of a mini-batch map-reduce stage under given settings: mean, variance, quantile, phases, utilisations.

Reference: Li, Diao, Shenoy, Supporting Scalable Analytics with Latency Constraints (VLDB 2015), section 3;
docs/models/planner.md says what is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar

import numpy as np

from engine.arrays import FloatArray
from engine.errors import Fault
from engine.kinds import Anything, Enumeration, Number
from engine.microbatch.model import quantile_level
from engine.order_statistics import gumbel_maximum, normal_maximum
from engine.planner.kernel import ANSWER_SIZE, REASONS, UNSTABLE, Slot, StageModel, judge
from engine.planner.plan import StagePhase, StageSettings
from engine.planner.profile import NodeHardware, StageProfile
from engine.records import Record

__all__ = [
    "MEANS",
    "VARIANCES",
    "VARIANTS",
    "LatencyOptions",
    "ModelOptions",
    "StageLatency",
    "evaluate_latency",
    "stage_model",
]

VARIANTS = ("paper", "improved")
MEANS = ("klb", "allen_cunneen", "kingman", "marchal")
VARIANCES = ("qna", "heavy_traffic", "third_moment")
KINDS = ("mean", "normal", "cantelli")
UTILISATIONS = ("cpu", "map", "red", "net", "disk")
_PHASES = (
    "input batch",
    "link queue",
    "input transfer",
    "mapper queue",
    "map",
    "shuffle batch",
    "disk queue",
    "disk write",
    "poll and fetch queue",
    "fetch",
    "reducer queue",
    "reduce",
)
_WINDOW_PHASES = ("slowest mapper", "poll", "last group", "fetch", "reduce", "finalize")
_PAPER_WINDOW_PHASES = ("last tuple", "finalize")


_LEVEL = Number(above=0)


@dataclass(frozen=True)
class ModelOptions(Record):
    """Form of the model and the statistic that `metric` is.

    `variant` is improved or paper; `mean` and `var` (one of `MEANS` and of `VARIANCES`) approximate the wait of a G/G/1
    queue; `kind` is mean, normal (the `x`-quantile; in the improved form by Cornish-Fisher) or cantelli (its upper
    bound). `x` counts for a quantile only.
    """

    TITLE: ClassVar[str] = "options of the latency model"

    variant: Annotated[str, Enumeration(VARIANTS)] = "improved"
    mean: Annotated[str, Enumeration(MEANS)] = "klb"
    var: Annotated[str, Enumeration(VARIANCES)] = "qna"
    kind: Annotated[str, Enumeration(KINDS)] = "mean"
    x: Annotated[float, Anything()] = 0.99

    def find_faults(self) -> Iterator[Fault]:
        """A level that is none, where it counts."""
        yield from super().find_faults()
        if self.kind != "mean" and not (_LEVEL.fits(self.x) and self.x < 1.0):
            yield Fault("x", f"x is {self.x!r}; allowed: a finite number above 0 and below 1")

    @property
    def width(self) -> float:
        """Distance of the quantile from the mean in standard deviations, as the paper has it; 0 for the mean."""
        if self.kind == "mean":
            return 0.0
        return NormalDist().inv_cdf(self.x) if self.kind == "normal" else math.sqrt(self.x / (1.0 - self.x))


@dataclass(frozen=True)
class LatencyOptions(ModelOptions):
    """Options of one latency; `order`, the largest of several normal draws, is exact or asymptotic."""

    order: Annotated[str, Enumeration(("exact", "asymptotic"))] = "exact"

    @classmethod
    def of_statistic(cls, statistic: str, *, variant: str = "improved", is_bound: bool = False) -> LatencyOptions:
        """Options for "mean" or a quantile such as "q0.99"; `is_bound` takes Cantelli's upper bound of it.

        Raises
        ------
        DocumentError
            Another statistic.

        Examples
        --------
        >>> options = LatencyOptions.of_statistic("q0.95")
        >>> options.kind, options.x
        ('normal', 0.95)
        """
        level = quantile_level(statistic)
        if level is None:
            return cls(variant=variant)
        return cls(variant=variant, kind="cantelli" if is_bound else "normal", x=level)


@dataclass(frozen=True, slots=True)
class StageLatency:
    """Latency of a stage under given settings; `mean`, `var` and `metric` (s, s2, s) are None unless `stable`.

    `phase_mean` and `phase_var` are the paper's twelve phases; `phases` are the parts that add up to `mean`: the twelve
    of a stage without windows, or those of a window's last tuple and its finalize. `util` has cpu, map, red, net, disk.
    `reason` names the first limit that is exceeded: "cpu of a node", "mapper thread", "reducer thread", "network",
    "disk", "map output buffer", "utilisation ceiling". `largest` are mean and standard deviation of the largest of as
    many normal draws as the cluster has mappers.
    """

    stable: bool
    reason: str
    mean: float | None
    var: float | None
    metric: float | None
    phase_mean: tuple[float, ...] | None
    phase_var: tuple[float, ...] | None
    phases: tuple[StagePhase, ...]
    util: dict[str, float]
    largest: tuple[float, float]


def stage_model(profile: StageProfile, hardware: NodeHardware, options: ModelOptions) -> StageModel:
    """Profile, hardware and options as the compiled functions take them."""
    fields = asdict(profile)
    for name in ("window", "slide"):
        del fields[name]
    return StageModel(
        **{name: float(value) for name, value in fields.items()},
        period_s=float(profile.period_s),
        cores=int(hardware.n),
        v_net=float(hardware.v_net),
        v_disk=float(hardware.v_disk),
        t_seek=float(hardware.t_seek),
        map_buf=float(hardware.map_buf),
        rho_max=float(hardware.rho_max),
        is_improved=options.variant == "improved",
        mean=MEANS.index(options.mean),
        var=VARIANCES.index(options.var),
        kind=KINDS.index(options.kind),
        width=options.width,
    )


def evaluate_latency(
    profile: StageProfile,
    hardware: NodeHardware,
    rate: float,
    settings: StageSettings,
    options: LatencyOptions | None = None,
) -> StageLatency:
    """Latency of the stage at `rate` (tuples/s of the whole cluster).

    Examples
    --------
    >>> profile = StageProfile(alpha=8, c_map=1.6e-5, c_red=2e-6, b_in=110, b_out=12)
    >>> latency = evaluate_latency(profile, NodeHardware(), 8e5, StageSettings(10, 2, 2, 0.005, 0.2, 0.2))
    >>> round(latency.mean, 3), latency.phases[5].name, round(latency.util["red"], 2)
    (0.278, 'shuffle batch', 0.64)
    """
    options = options or LatencyOptions()
    draws = settings.nodes * settings.mappers
    gumbel = gumbel_maximum(draws) if options.order == "asymptotic" else None
    largest = gumbel or normal_maximum(draws)
    answer = np.zeros(ANSWER_SIZE)
    metric = judge(
        stage_model(profile, hardware, options),
        float(rate),
        settings.nodes,
        settings.mappers,
        settings.reducers,
        float(settings.b_in_s),
        float(settings.b_sh_s),
        float(settings.b_ch_s),
        *largest,
        answer,
    )
    util = dict(zip(UTILISATIONS, answer[Slot.UTIL : Slot.MEAN].tolist(), strict=True))
    if metric >= UNSTABLE:
        reason = REASONS[int(answer[Slot.REASON])]
        return StageLatency(False, reason, None, None, None, None, None, (), util, largest)
    means, variances = answer[Slot.PHASE_MEAN : Slot.PHASE_VAR], answer[Slot.PHASE_VAR : Slot.PART_MEAN]
    return StageLatency(
        stable=True,
        reason="",
        mean=float(answer[Slot.MEAN]),
        var=float(answer[Slot.VAR]),
        metric=float(metric),
        phase_mean=tuple(means.tolist()),
        phase_var=tuple(variances.tolist()),
        phases=_parts(profile, options, answer),
        util=util,
        largest=largest,
    )


def _parts(profile: StageProfile, options: LatencyOptions, answer: FloatArray) -> tuple[StagePhase, ...]:
    """The parts that add up to the mean."""
    if profile.window > 0.0:
        names: tuple[str, ...] = _WINDOW_PHASES if options.variant == "improved" else _PAPER_WINDOW_PHASES
        means, variances = answer[Slot.PART_MEAN :], answer[Slot.PART_VAR :]
    else:
        names, means, variances = _PHASES, answer[Slot.PHASE_MEAN :], answer[Slot.PHASE_VAR :]
    return tuple(
        StagePhase(name, float(mean), math.sqrt(variance))
        for name, mean, variance in zip(names, means, variances, strict=False)
    )
