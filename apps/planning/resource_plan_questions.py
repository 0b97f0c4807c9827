"""Question of a resource plan: its inputs read strictly, laid over those of a profile's source, with their origins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from apps.core.errors import Malformed, fault_count
from apps.fleet.choices import InputOrigin
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from engine.errors import DocumentError, Fault
from engine.kinds import Number
from engine.microbatch.settings import MicroBatchProfile
from engine.microbatch.sizing import MicroBatchQuestion
from engine.planner.profile import NodeHardware, StageProfile, StageQuestion
from engine.records import Record, Words

__all__ = [
    "PLAN_QUESTIONS",
    "MicroBatchPlanQuestion",
    "PlanInput",
    "PlanQuestion",
    "ResourceQuestion",
    "StagePlanQuestion",
    "base_inputs",
    "origin_of",
    "plan_inputs",
    "question_of",
    "read_question",
]

_MAX_SIZE = 1000  # nodes or executors of one plan
_DEFAULT_SIZE = 64
_DEFAULT_F0_S = 0.3  # offsets, planning, log and commit of a batch, where nothing tells
#: Core-seconds of a batch, a sent and a received partition, a poll; seconds of a disk seek. Where all are 0, as by
#: default in the engine, ever shorter intervals are free and plans promise latencies that nothing keeps.
_OVERHEADS = {"c_bat": 2e-4, "c_sh": 8e-6, "c_part": 3e-5, "c_hb": 5e-3}
_SEEK_S = 5e-4
_SAME = 5.001e-6  # forms show six digits, so half of the last one: a number that agrees in those was not changed


@dataclass(frozen=True, slots=True)
class PlanInput:
    """An input of a plan with its origin."""

    value: float | int | bool | str
    origin: InputOrigin


_Size = Annotated[int, Number(least=1, most=_MAX_SIZE, whole=True)]


@dataclass(frozen=True, kw_only=True)
class StagePlanQuestion(StageQuestion):
    """Question of a resource plan of a stage."""

    TITLE: ClassVar[str] = "a resource plan"

    max_nodes: Annotated[_Size, Words("", "Nodes at most")]
    profile: Annotated[StageProfile, Words("Work per event and per task; see the API guide.")]
    hardware: Annotated[NodeHardware, Words("One node; see the API guide.")]

    @property
    def max_size(self) -> int:
        return self.max_nodes


@dataclass(frozen=True, kw_only=True)
class MicroBatchPlanQuestion(MicroBatchQuestion):
    """Question of a resource plan of Spark's micro-batches."""

    TITLE: ClassVar[str] = "a resource plan"

    max_executors: Annotated[_Size, Words("", "Executors at most")]
    profile: Annotated[MicroBatchProfile, Words("Work per event and per task; see the API guide.")]

    @property
    def max_size(self) -> int:
        return self.max_executors

    def find_faults(self) -> Iterator[Fault]:
        """No work at all."""
        if self.profile.c_in_s == 0 and self.profile.c_sh_s * self.profile.alpha == 0:
            message = "c_in_s is 0, as is the work after the shuffle; allowed: one above 0"
            yield Fault("profile.c_in_s", message)


PlanQuestion = StagePlanQuestion | MicroBatchPlanQuestion
PLAN_QUESTIONS: dict[PlanEngine, type[StagePlanQuestion] | type[MicroBatchPlanQuestion]] = {
    PlanEngine.STAGE: StagePlanQuestion,
    PlanEngine.MICROBATCH: MicroBatchPlanQuestion,
}
#: Parts of a question that are objects themselves.
_GROUPS = {PlanEngine.STAGE: ("profile", "hardware"), PlanEngine.MICROBATCH: ("profile",)}
_LEFT_OUT = {"hardware.rho_max", "rate", "constraint_s", "profile.c_in_s"}  # no default, or said by the ceiling


@dataclass(frozen=True, slots=True)
class ResourceQuestion:
    """A question as its engine takes it, its document, and the origin of each input by its path."""

    asked: PlanQuestion
    document: dict[str, object]
    origins: dict[str, str]


def question_of(row: ResourcePlan) -> PlanQuestion:
    """The question of a stored plan."""
    return PLAN_QUESTIONS[PlanEngine(row.engine)].parse(row.question)


def base_inputs(engine: str) -> dict[str, PlanInput]:
    """Every input that has a default, by its path in the question."""
    if engine == PlanEngine.MICROBATCH:
        values = MicroBatchQuestion(rate=1.0, constraint_s=1.0, max_executors=_DEFAULT_SIZE).to_dict()
        groups = {"profile": MicroBatchProfile(f0_s=_DEFAULT_F0_S, c_in_s=0.0).to_dict()}
    else:
        values = StageQuestion(rate=1.0, constraint_s=1.0, max_nodes=_DEFAULT_SIZE).to_dict()
        groups = {
            "profile": {**StageProfile().to_dict(), **_OVERHEADS},
            "hardware": {**NodeHardware().to_dict(), "t_seek": _SEEK_S},
        }
    for group, record in groups.items():
        values |= {f"{group}.{name}": value for name, value in record.items()}
    return {
        path: PlanInput(value, InputOrigin.DEFAULT)
        for path, value in values.items()
        if value is not None and path not in _LEFT_OUT
    }


def plan_inputs(document: Mapping[str, object], origins: Mapping[str, str]) -> dict[str, PlanInput]:
    """Inputs of a stored question, by path."""
    return {
        path: PlanInput(value, InputOrigin(origins.get(path, InputOrigin.ASSUMED)))
        for path, value in _flat(document, [name for names in _GROUPS.values() for name in names]).items()
        if value is not None
    }


def read_question(engine: str, given: Mapping[str, object], base: Mapping[str, PlanInput]) -> ResourceQuestion:
    """Lay what is given over the base, and check the whole.

    A value that is the base's keeps the base's origin; any other is assumed.

    Raises
    ------
    Malformed
        With every fault, each with its path in the question.
    """
    kind = PlanEngine(engine)
    values: dict[str, object] = {path: entry.value for path, entry in base.items()}
    origins = {path: str(entry.origin) for path, entry in base.items()}
    for path, value in _flat(given, _GROUPS[kind]).items():
        if path not in base or not _is_same(value, base[path].value):
            values[path], origins[path] = value, str(InputOrigin.ASSUMED)
    groups: dict[str, dict[str, object]] = {group: {} for group in _GROUPS[kind]}
    document: dict[str, object] = {**groups}
    for path, value in values.items():
        group, _, name = path.partition(".")
        if name and group in groups:
            groups[group][name] = value
        else:
            document[path] = value
    try:
        asked = PLAN_QUESTIONS[kind].parse(document)
    except DocumentError as error:
        faults = list(error.faults)
        raise Malformed(f"The question has {fault_count(faults)}; first: {faults[0].message}", faults) from None
    return ResourceQuestion(asked, _filled_in(document, asked), dict(sorted(origins.items())))


def _flat(document: Mapping[str, object], groups: Iterable[str]) -> dict[str, object]:
    """Values by their paths, those of the groups one by one."""
    flat: dict[str, object] = {}
    for name, value in document.items():
        if name in groups and isinstance(value, Mapping):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return flat


def _filled_in(document: Mapping[str, object], asked: Record) -> dict[str, object]:
    """A document with its values as they were read."""
    read = {name: getattr(asked, name) for name in document}
    return {
        name: _filled_in(document[name], value) if isinstance(value, Record) else value
        for name, value in read.items()
        if value is not None
    }


def origin_of(path: str, value: Any, base: Mapping[str, PlanInput]) -> str:
    """Origin of an input: the base's where the value is the base's, else assumed; empty where there is no value."""
    if value is None:
        return ""
    entry = base.get(path)
    return str(entry.origin if entry is not None and _is_same(value, entry.value) else InputOrigin.ASSUMED)


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, (bool, int, str)):
        return type(value) is type(other) and bool(value == other)
    return isinstance(value, (int, float)) and math.isclose(value, other, rel_tol=_SAME)
