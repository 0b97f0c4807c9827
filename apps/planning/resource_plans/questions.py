"""Question of a resource plan: its inputs read strictly, laid over those of a profile's source, with their origins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count, join_path
from apps.fleet.choices import InputOrigin
from apps.planning.choices import PlanEngine
from apps.planning.resource_plans.profiles import PlanInput
from engine.errors import DocumentError
from engine.fields import BAD, Field, FieldKind, FieldTable, Number
from engine.microbatch.model import quantile_level
from engine.microbatch.settings import MicroBatchProfile
from engine.microbatch.sizing import MicroBatchQuestion
from engine.planner.profile import NodeHardware, StageProfile, StageQuestion

__all__ = ["MAX_SIZE", "ResourceQuestion", "base_inputs", "origin_of", "plan_inputs", "read_question"]

MAX_SIZE = 1000  # nodes or executors of one plan
_DEFAULT_SIZE = 64
_DEFAULT_F0_S = 0.3  # offsets, planning, log and commit of a batch, where nothing tells
#: Core-seconds of a batch, a sent and a received partition, a poll; seconds of a disk seek. Where all are 0, as by
#: default in the engine, ever shorter intervals are free and plans promise latencies that nothing keeps.
_OVERHEADS = {"c_bat": 2e-4, "c_sh": 8e-6, "c_part": 3e-5, "c_hb": 5e-3}
_SEEK_S = 5e-4
_SAME = 5.001e-6  # forms show six digits, so half of the last one: a number that agrees in those was not changed


class _Statistic(FieldKind):
    """The mean, or a quantile between 0 and 1."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        try:
            quantile_level(str(value))
        except DocumentError as error:
            faults += [Fault(join_path(parent, str(key)), fault.message) for fault in error.faults]
            return BAD
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


_COUNT = Number(least=1, most=MAX_SIZE, whole=True)
_REPLACED = {
    "statistic": Field("statistic", _Statistic()),
    "max_executors": Field("max_executors", _COUNT),
    "max_nodes": Field("max_nodes", _COUNT),
}
_TABLES = {
    PlanEngine.STAGE: FieldTable(
        "a resource plan",
        *(_REPLACED.get(field.name, field) for field in StageQuestion.TABLE.fields),
        Field("profile", StageProfile.TABLE),
        Field("hardware", NodeHardware.TABLE),
    ),
    PlanEngine.MICROBATCH: FieldTable(
        "a resource plan",
        *(_REPLACED.get(field.name, field) for field in MicroBatchQuestion.TABLE.fields),
        Field("profile", MicroBatchProfile.TABLE),
    ),
}
#: Parts of a question that are objects themselves.
_GROUPS = {PlanEngine.STAGE: ("profile", "hardware"), PlanEngine.MICROBATCH: ("profile",)}
_LEFT_OUT = {"hardware.rho_max", "rate", "constraint_s", "profile.c_in_s"}  # no default, or said by the ceiling


@dataclass(frozen=True, slots=True)
class ResourceQuestion:
    """A question as its engine takes it, with every default filled in, and the origin of each input by its path."""

    document: dict[str, Any]
    origins: dict[str, str]


def base_inputs(engine: str) -> dict[str, PlanInput]:
    """Every input that has a default, by its path in the question."""
    values: dict[str, Any]
    if engine == PlanEngine.MICROBATCH:
        values = dict(MicroBatchQuestion(rate=1.0, constraint_s=1.0, max_executors=_DEFAULT_SIZE).to_dict())
        groups = {"profile": MicroBatchProfile(f0_s=_DEFAULT_F0_S, c_in_s=0.0).to_dict()}
    else:
        values = dict(StageQuestion(rate=1.0, constraint_s=1.0, max_nodes=_DEFAULT_SIZE).to_dict())
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


def plan_inputs(document: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, PlanInput]:
    """Inputs of a stored question, by path."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        flat |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {name: value}
    return {
        path: PlanInput(value, InputOrigin(origins.get(path, InputOrigin.ASSUMED)))
        for path, value in flat.items()
        if value is not None
    }


def read_question(engine: str, given: Mapping[str, Any], base: Mapping[str, PlanInput]) -> ResourceQuestion:
    """Lay what is given over the base, and check the whole.

    A value that is the base's keeps the base's origin; any other is assumed.

    Raises
    ------
    Malformed
        With every fault, each with its path in the question.
    """
    kind = PlanEngine(engine)
    document: dict[str, Any] = {group: {} for group in _GROUPS[kind]}
    origins: dict[str, str] = {}
    for path, entry in base.items():
        _put(document, path, entry.value)
        origins[path] = str(entry.origin)
    for name, value in given.items():
        if name in _GROUPS[kind] and isinstance(value, Mapping):
            for key, item in value.items():
                _lay(document, origins, f"{name}.{key}", item, base)
        elif name in _GROUPS[kind]:
            document[name] = value
        else:
            _lay(document, origins, name, value, base)
    faults: list[Fault] = []
    read = _TABLES[kind].read(document, "", "", faults)
    if not faults:
        _check_work(kind, read["profile"], faults)
    if faults:
        raise Malformed(f"The question has {fault_count(faults)}; first: {faults[0].message}", faults)
    return ResourceQuestion(read, dict(sorted(origins.items())))


def _check_work(engine: PlanEngine, profile: Mapping[str, Any], faults: list[Fault]) -> None:
    """Faults across the fields of a profile."""
    if engine == PlanEngine.STAGE:
        StageProfile.read(profile, "", "profile", faults)
    elif profile["c_in_s"] == 0 and profile["c_sh_s"] * profile["alpha"] == 0:
        faults.append(Fault("profile.c_in_s", "c_in_s is 0, as is the work after the shuffle; allowed: one above 0"))


def origin_of(path: str, value: Any, base: Mapping[str, PlanInput]) -> str:
    """Origin of an input: the base's where the value is the base's, else assumed; empty where there is no value."""
    if value is None:
        return ""
    entry = base.get(path)
    return str(entry.origin if entry is not None and _is_same(value, entry.value) else InputOrigin.ASSUMED)


def _lay(
    document: dict[str, Any], origins: dict[str, str], path: str, value: Any, base: Mapping[str, PlanInput]
) -> None:
    if path in base and _is_same(value, base[path].value):
        return
    _put(document, path, value)
    origins[path] = str(InputOrigin.ASSUMED)


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    group, _, name = path.rpartition(".")
    (document[group] if group else document)[name] = value


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, (bool, int, str)):
        return type(value) is type(other) and bool(value == other)
    return isinstance(value, (int, float)) and math.isclose(value, other, rel_tol=_SAME)
