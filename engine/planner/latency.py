"""Latency of a mini-batch map-reduce stage under given settings: mean, variance, quantile, phases, utilisations.

Reference: Li, Diao, Shenoy, Supporting Scalable Analytics with Latency Constraints (VLDB 2015), section 3;
docs/models/planner.md says what is corrected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.planner.profile import NodeHardware, StageProfile

__all__ = ["LatencyOptions", "StageLatency", "StagePhase", "StageSettings", "evaluate_latency"]


@dataclass(frozen=True, slots=True)
class StageSettings:
    """The settings a plan chooses: nodes, threads per node and the three intervals (s)."""

    nodes: int
    mappers: int
    reducers: int
    b_in_s: float
    b_sh_s: float
    b_ch_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """Form of the model and the statistic that `metric` is.

    `variant` is improved or paper; `mean` (klb, allen_cunneen, kingman, marchal) and `var` (qna, heavy_traffic,
    third_moment) approximate the wait of a G/G/1 queue; `kind` is mean, normal (the `x`-quantile; with the improved
    variant by Cornish-Fisher) or cantelli (its upper bound); `order` is exact or asymptotic.
    """

    variant: str = "improved"
    mean: str = "klb"
    var: str = "qna"
    kind: str = "mean"
    x: float = 0.99
    order: str = "exact"

    @classmethod
    def of_statistic(cls, statistic: str, *, variant: str = "improved", is_bound: bool = False) -> LatencyOptions:
        """Options for "mean" or a quantile such as "q0.99"; `is_bound` takes Cantelli's upper bound of it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StagePhase:
    """A part of the latency."""

    name: str
    mean_s: float
    sd_s: float


@dataclass(frozen=True, slots=True)
class StageLatency:
    """Latency of a stage under given settings; `mean`, `var` and `metric` (s, s2, s) are None unless `stable`.

    `phase_mean` and `phase_var` are the paper's twelve phases; `phases` are the parts that add up to `mean`: the twelve
    of a stage without windows, or those of a window's last tuple and its finalize. `util` has cpu, map, red, net, disk.
    `reason` names the limit that is exceeded: "cpu of a node", "mapper thread", "reducer thread", "network", "disk",
    "map output buffer", "utilisation ceiling".
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
    """Mean and standard deviation of the largest of as many normal draws as the cluster has mappers."""


def evaluate_latency(
    profile: StageProfile,
    hardware: NodeHardware,
    rate: float,
    settings: StageSettings,
    options: LatencyOptions | None = None,
) -> StageLatency:
    """Latency of the stage at `rate` (tuples/s of the whole cluster)."""
    raise NotImplementedError
