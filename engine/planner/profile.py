"""Profile of a stage (statistics of the job), hardware of a node and the question of a plan, as read from documents.

Nothing here needs numba, so that forms and REST can check what a worker will compute.

Reference: Li, Diao, Shenoy, Supporting Scalable Analytics with Latency Constraints (VLDB 2015), Table 1 and section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from engine.errors import Fault
from engine.kinds import Enumeration, Number
from engine.microbatch.model import Statistic
from engine.microbatch.sizing import AIM, UTILISATION_CEILING, Aim, Headroom, UtilisationCeiling
from engine.records import Flag, Record, Words

__all__ = ["MAX_NODES", "MAX_THREADS", "NodeHardware", "StageProfile", "StageQuestion"]

MAX_NODES, MAX_THREADS = 100_000, 128  # of a search: nodes, and threads of a kind per node
MIN_THREADS = 6  # of a kind that are tried on nodes of few cores too

_US, _MS, _MEGA = 1e6, 1e3, 1e-6
_Positive = Annotated[float, Number(above=0)]
_Amount = Annotated[float, Number(least=0)]


@dataclass(frozen=True)
class StageProfile(Record):
    """Statistics of a map-reduce stage: seconds, bytes, tuples and core-seconds.

    With sliding windows (`slide` below `window`) a map output falls into window / slide windows: `c_red` is its work in
    all of them together, `keys` counts the keyed windows that end at one time.
    """

    TITLE: ClassVar[str] = "a stage's profile"

    alpha: Annotated[_Positive, Words("Per input event.", "Map outputs")] = 1.0
    c_map: Annotated[_Amount, Words("One core, per input event.", "Map work", "µs", _US)] = 1e-6
    c_red: Annotated[_Amount, Words("One core, per map output.", "Reduce work", "µs", _US)] = 1e-6
    b_in: Annotated[_Amount, Words("", "Size of an input event", "bytes")] = 100.0
    b_out: Annotated[_Amount, Words("", "Size of a map output", "bytes")] = 50.0
    cv2_map: Annotated[_Amount, Words("Squared coefficient of variation.", "Spread, mapper")] = 0.05
    cv2_red: Annotated[_Amount, Words("Of a batch's service time.", "Spread, reducer")] = 0.05
    cv2_net: Annotated[_Amount, Words("", "Spread, network")] = 0.05
    cv2_disk: Annotated[_Amount, Words("", "Spread, disk")] = 0.05
    c_part: Annotated[_Amount, Words("Work of a reducer.", "Per received partition", "µs", _US)] = 0.0
    c_sh: Annotated[_Amount, Words("Work of a mapper.", "Per sent partition", "µs", _US)] = 0.0
    c_hb: Annotated[_Amount, Words("Work of a reducer.", "Per poll", "µs", _US)] = 0.0
    window: Annotated[_Amount, Words("0: no windows.", "Window", "s")] = 0.0
    slide: Annotated[_Amount, Words("0: the window's length.", "Slide", "s")] = 0.0
    keys: Annotated[_Amount, Words("That end together, in the whole cluster.", "Keyed windows")] = 0.0
    s_k: Annotated[_Amount, Words("One core, per keyed window.", "Finalize work", "µs", _US)] = 0.0
    c_bat: Annotated[_Amount, Words("Work of a mapper.", "Per input batch", "µs", _US)] = 0.0

    @property
    def period_s(self) -> float:
        """Time from one window's end to the next; 0 for a stage without windows."""
        return self.slide or self.window

    def find_faults(self) -> Iterator[Fault]:
        """No work at all, windows without keys, slides beyond the window."""
        if self.c_map == 0.0 and self.c_red == 0.0:
            yield Fault("c_map", "c_map and c_red are 0; allowed: one of them above 0")
        if self.window > 0.0 and self.keys < 1.0:
            yield Fault("keys", f"keys is {self.keys:g}; allowed: at least 1 with a window")
        if self.slide > self.window:
            yield Fault("slide", f"slide is {self.slide:g}; allowed: at most window ({self.window:g})")


@dataclass(frozen=True)
class NodeHardware(Record):
    """One node of the cluster; all nodes are alike."""

    TITLE: ClassVar[str] = "a node's hardware"

    n: Annotated[int, Number(least=1, whole=True), Words("", "Cores of a node")] = 4
    v_net: Annotated[_Positive, Words("Inbound.", "Network", "MB/s", _MEGA)] = 125e6
    v_disk: Annotated[_Positive, Words("Sequential writes.", "Disk", "MB/s", _MEGA)] = 100e6
    t_seek: Annotated[_Amount, Words("Time to seek.", "Per disk write", "ms", _MS)] = 0.0
    map_buf: Annotated[_Amount, Words("Of a mapper; 0: no limit.", "Map-output buffer", "MB", _MEGA)] = 0.0
    rho_max: Annotated[float, Number(above=0, most=1), Words("ceiling of cores, threads, network and disk")] = 1.0


_Threads = Annotated[int, Number(least=1, most=MAX_THREADS, whole=True)]


@dataclass(frozen=True)
class StageQuestion(Record):
    """Question of a resource plan: fewest nodes for `rate` within `constraint_s`."""

    TITLE: ClassVar[str] = "a plan's question"

    rate: Annotated[float, Number(above=0), Words("All sources together.", "Input rate", "events/s")]
    max_nodes: Annotated[int, Number(least=1, most=MAX_NODES, whole=True), Words("", "Nodes at most")]
    constraint_s: Annotated[
        float, Number(above=0), Words("From an event's arrival to its result.", "Latency constraint", "s")
    ]
    statistic: Annotated[str, Statistic(), Words("mean, or a quantile such as q0.99", "Statistic")] = "mean"
    is_bound: Annotated[
        Flag, Words("Cantelli's upper bound of the quantile, of any distribution with the model's mean and variance")
    ] = False
    headroom: Headroom = 0.0
    utilisation_ceiling: UtilisationCeiling = UTILISATION_CEILING
    aim: Aim = AIM
    variant: Annotated[str, Enumeration(("improved", "paper")), Words("form of the model")] = "improved"
    max_m: Annotated[_Threads | None, Words("mapper threads per node at most; null: as many as cores, or 6")] = None
    max_r: Annotated[_Threads | None, Words("reducer threads per node at most; null: as many as cores, or 6")] = None

    @property
    def aim_s(self) -> float:
        """Latency that the plan aims at."""
        return self.aim * self.constraint_s

    @property
    def target_rate(self) -> float:
        """Rate that the plan must bear, headroom included."""
        return self.rate / (1.0 - self.headroom)
