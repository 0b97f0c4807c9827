"""Profile of a stage (statistics of the job), hardware of a node and the question of a plan, as read from documents.

Nothing here needs numba, so that forms and REST can check what a worker will compute.

Reference: Li, Diao, Shenoy, Supporting Scalable Analytics with Latency Constraints (VLDB 2015), Table 1 and section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from engine.errors import DocumentError, Fault, join_path
from engine.fields import BAD, Enumeration, Field, FieldTable, Flag, Number, SettingsRecord, String
from engine.microbatch.model import quantile_level

__all__ = [
    "HARDWARE",
    "MAX_NODES",
    "MAX_THREADS",
    "PROFILE",
    "QUESTION",
    "NodeHardware",
    "StageProfile",
    "StageQuestion",
]

MAX_NODES, MAX_THREADS = 100_000, 128  # of a search: nodes, and threads of a kind per node
MIN_THREADS = 6  # of a kind that are tried on nodes of few cores too

_POSITIVE, _AMOUNT = Number(above=0), Number(least=0)

PROFILE = FieldTable(
    "a stage's profile",
    Field("alpha", _POSITIVE, help="map outputs per map input; 1"),
    Field("c_map", _AMOUNT, help="map work per input tuple, core-s; 1e-6"),
    Field("c_red", _AMOUNT, help="reduce work per map output, core-s, in all windows it falls into; 1e-6"),
    Field("b_in", _AMOUNT, help="size of an input tuple, bytes; 100"),
    Field("b_out", _AMOUNT, help="size of a map output, bytes; 50"),
    Field("cv2_map", _AMOUNT, help="squared coefficient of variation of a batch's service time, mapper; 0.05"),
    Field("cv2_red", _AMOUNT, help="the same at the reducer; 0.05"),
    Field("cv2_net", _AMOUNT, help="the same on the network; 0.05"),
    Field("cv2_disk", _AMOUNT, help="the same on the disk; 0.05"),
    Field("c_part", _AMOUNT, help="reducer work per received partition, core-s; 0"),
    Field("c_sh", _AMOUNT, help="mapper work per sent partition, core-s; 0"),
    Field("c_hb", _AMOUNT, help="reducer work per poll, core-s; 0"),
    Field("window", _AMOUNT, help="window length, s; 0: a stage without windows; 0"),
    Field("slide", _AMOUNT, help="time from one window's end to the next, s; 0: the window length (tumbling); 0"),
    Field("keys", _AMOUNT, help="non-empty keyed windows of the whole cluster at each window's end; 0"),
    Field("s_k", _AMOUNT, help="work to finalize one keyed window, core-s; 0"),
    Field("c_bat", _AMOUNT, help="mapper work per input batch, core-s; 0"),
)
HARDWARE = FieldTable(
    "a node's hardware",
    Field("n", Number(least=1, whole=True), help="cores; 4"),
    Field("v_net", _POSITIVE, help="inbound network speed, bytes/s; 125e6"),
    Field("v_disk", _POSITIVE, help="sequential write speed, bytes/s; 100e6"),
    Field("t_seek", _AMOUNT, help="extra time per write of a shuffle batch, s; 0"),
    Field("map_buf", _AMOUNT, help="map-output buffer of one mapper, bytes; 0: no limit; 0"),
    Field("rho_max", Number(above=0, most=1), help="utilisation ceiling of cores, threads, network and disk; 1"),
)


@dataclass(frozen=True)
class StageProfile(SettingsRecord):
    """Statistics of a map-reduce stage: seconds, bytes, tuples and core-seconds (fields as in `PROFILE`).

    With sliding windows (`slide` below `window`) a map output falls into window / slide windows: `c_red` is its work in
    all of them together, `keys` counts the keyed windows that end at one time.
    """

    TABLE: ClassVar[FieldTable] = PROFILE

    alpha: float = 1.0
    c_map: float = 1e-6
    c_red: float = 1e-6
    b_in: float = 100.0
    b_out: float = 50.0
    cv2_map: float = 0.05
    cv2_red: float = 0.05
    cv2_net: float = 0.05
    cv2_disk: float = 0.05
    c_part: float = 0.0
    c_sh: float = 0.0
    c_hb: float = 0.0
    window: float = 0.0
    slide: float = 0.0
    keys: float = 0.0
    s_k: float = 0.0
    c_bat: float = 0.0

    @property
    def period_s(self) -> float:
        """Time from one window's end to the next; 0 for a stage without windows."""
        return self.slide or self.window

    @classmethod
    def read(cls, document: Any, parent: str, key: str, faults: list[Fault]) -> Self | None:
        """Parse a profile within another document: add its faults, also across fields; None if there are any."""
        before = len(faults)
        fields = cls.TABLE.read(document, parent, key, faults)
        if fields is BAD:
            return None
        given = {name: value for name, value in fields.items() if value is not BAD}
        cls(**given)._check(join_path(parent, key) if key else parent, given.keys() == fields.keys(), faults)
        return cls(**fields) if len(faults) == before else None

    def _check(self, path: str, is_complete: bool, faults: list[Fault]) -> None:
        """Faults across fields; `is_complete` says that no field on its own was faulty."""
        if is_complete and self.c_map == 0.0 and self.c_red == 0.0:
            faults.append(Fault(join_path(path, "c_map"), "c_map and c_red are 0; allowed: one of them above 0"))
        if is_complete and self.window > 0.0 and self.keys < 1.0:
            faults.append(Fault(join_path(path, "keys"), f"keys is {self.keys:g}; allowed: at least 1 with a window"))
        if is_complete and self.slide > self.window:
            message = f"slide is {self.slide:g}; allowed: at most window ({self.window:g})"
            faults.append(Fault(join_path(path, "slide"), message))


@dataclass(frozen=True)
class NodeHardware(SettingsRecord):
    """One node of the cluster (fields as in `HARDWARE`); all nodes are alike."""

    TABLE: ClassVar[FieldTable] = HARDWARE

    n: int = 4
    v_net: float = 125e6
    v_disk: float = 100e6
    t_seek: float = 0.0
    map_buf: float = 0.0
    rho_max: float = 1.0


_THREADS = Number(least=1, most=MAX_THREADS, whole=True)
QUESTION = FieldTable(
    "a plan's question",
    Field("rate", Number(above=0), required=True, help="input rate of the whole cluster, tuples/s"),
    Field("max_nodes", Number(least=1, most=MAX_NODES, whole=True), required=True, help="nodes at most"),
    Field("constraint_s", Number(above=0), required=True, help="latency constraint, s"),
    Field("statistic", String(), help="mean, or a quantile such as q0.99; mean"),
    Field(
        "is_bound",
        Flag(),
        help="Cantelli's upper bound of the quantile, of any distribution with the model's mean and variance; false",
    ),
    Field("headroom", Number(least=0, most=0.95), help="share of the plan's largest rate to keep free; 0"),
    Field("utilisation_ceiling", Number(above=0, most=1), help="of cores, threads, network and disk; 0.85"),
    Field("aim", Number(above=0, most=1), help="share of the constraint that the plan aims at; 0.93"),
    Field("variant", Enumeration(("improved", "paper")), help="form of the model; improved"),
    Field("max_m", _THREADS, nullable=True, help="mapper threads per node at most; null: as many as cores, or 6"),
    Field("max_r", _THREADS, nullable=True, help="reducer threads per node at most; null: as many as cores, or 6"),
)


@dataclass(frozen=True)
class StageQuestion(SettingsRecord):
    """Question of a resource plan (fields as in `QUESTION`): fewest nodes for `rate` within `constraint_s`."""

    TABLE: ClassVar[FieldTable] = QUESTION

    rate: float
    max_nodes: int
    constraint_s: float
    statistic: str = "mean"
    is_bound: bool = False
    headroom: float = 0.0
    utilisation_ceiling: float = 0.85
    aim: float = 0.93
    variant: str = "improved"
    max_m: int | None = None
    max_r: int | None = None

    @property
    def aim_s(self) -> float:
        """Latency that the plan aims at."""
        return self.aim * self.constraint_s

    @property
    def target_rate(self) -> float:
        """Rate that the plan must bear, headroom included."""
        return self.rate / (1.0 - self.headroom)

    @classmethod
    def read(cls, document: Any, parent: str, key: str, faults: list[Fault]) -> Self | None:
        """Parse a question within another document: add its faults, the statistic's too; None if there are any."""
        before = len(faults)
        fields = cls.TABLE.read(document, parent, key, faults)
        if fields is BAD:
            return None
        statistic = fields.get("statistic", cls.statistic)
        if statistic is not BAD:
            try:
                quantile_level(statistic)
            except DocumentError as error:
                path = join_path(parent, key) if key else parent
                faults.extend(Fault(join_path(path, fault.path), fault.message) for fault in error.faults)
        return cls(**fields) if len(faults) == before else None
