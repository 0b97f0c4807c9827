"""Resource plan of a stage: fewest nodes for a rate within a latency constraint, and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.planner.profile import NodeHardware, StageProfile

__all__ = ["SearchLimits", "StageSizing", "size_stage"]


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Ranges of the settings that are tried: threads per node, and (B_in, B_sh, B_ch) in seconds."""

    max_m: int = 6
    max_r: int = 6
    b_lo: tuple[float, float, float] = (0.001, 0.005, 0.005)
    b_hi: tuple[float, float, float] = (0.1, 2.0, 2.0)


@dataclass(frozen=True)
class StageSizing:
    """Answer of `size_stage`; `to_dict` has the layout of docs/models/planner.md."""

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError


def size_stage(
    profile: StageProfile,
    hardware: NodeHardware,
    *,
    rate: float,
    max_nodes: int,
    constraint_s: float,
    statistic: str = "mean",
    headroom: float = 0.0,
    utilisation_ceiling: float = 0.85,
    aim: float = 0.93,
    is_bound: bool = False,
    variant: str = "improved",
    limits: SearchLimits | None = None,
) -> StageSizing:
    """Smallest number of nodes, its settings, the ends and the curve; or why there is none.

    `statistic` is "mean" or a quantile such as "q0.99" (`is_bound` takes Cantelli's upper bound); the plan leaves
    `headroom` (a share of its own maximum) above `rate`; no utilisation exceeds `utilisation_ceiling` (or the
    hardware's `rho_max` if lower); the search aims at `aim` of `constraint_s`.
    """
    raise NotImplementedError
