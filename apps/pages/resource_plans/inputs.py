"""Inputs of resource plans as pages lay them out, what forms allow, and the values of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from apps.fleet.choices import InputOrigin
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import PLAN_QUESTIONS, question_of
from apps.ui.numbers import significant
from apps.ui.record_forms import field_at, shown_kind
from engine.fields import Number
from engine.records import RecordField, Words

__all__ = [
    "CONSTRAINT",
    "INPUT_GROUPS",
    "InputGroup",
    "InputRow",
    "InputSpec",
    "field_names",
    "input_rows",
    "input_specs",
]

CONSTRAINT = "constraint_s"
_SHARE = Number(least=1.0, most=100.0)
#: What people may type, where that is less than what a program may ask.
_BOUNDS = {
    "rate": Number(least=1e-3, most=1e12),
    CONSTRAINT: Number(least=1e-3, most=1e6),
    "utilisation_ceiling": _SHARE,
    "aim": _SHARE,
}


@dataclass(frozen=True)
class InputSpec:
    """An input: its path in the question, and the field there. Few people give a folded one."""

    path: str
    field: RecordField
    is_folded: bool = False

    @property
    def name(self) -> str:
        """Name of the form's field: that of the path, without the points that ids in addresses must not have."""
        return self.path.replace(".", "-")

    @property
    def words(self) -> Words:
        return self.field.words

    @property
    def is_flag(self) -> bool:
        return isinstance(self.field.default, bool)

    @property
    def is_optional(self) -> bool:
        return self.field.default is None

    @property
    def kind(self) -> Number:
        """Bounds in the unit of the form."""
        return _BOUNDS.get(self.path) or shown_kind(self.field)


@dataclass(frozen=True)
class InputGroup:
    """Inputs under one heading; those that most people leave alone are folded."""

    title: str
    specs: tuple[InputSpec, ...]
    is_folded: bool = False


#: Headings with the inputs under them.
_MARGINS = {"Advanced: margins": "headroom utilisation_ceiling aim"}
_LAYOUTS = {
    PlanEngine.STAGE: {
        "Load and constraint": "rate constraint_s",
        "Work": "profile.c_map profile.c_red profile.alpha profile.b_in profile.b_out",
        "Nodes": "max_nodes hardware.n hardware.v_net hardware.v_disk",
        **_MARGINS,
        "Advanced: windows": "profile.window profile.slide profile.keys profile.s_k",
        "Advanced: overheads and spread": (
            "profile.c_bat profile.c_sh profile.c_part profile.c_hb hardware.t_seek hardware.map_buf "
            "profile.cv2_map profile.cv2_red profile.cv2_net profile.cv2_disk"
        ),
    },
    PlanEngine.MICROBATCH: {
        "Load and constraint": "rate constraint_s",
        "Work": "profile.c_in_s profile.alpha profile.c_sh_s profile.f0_s",
        "Spark": ("max_executors cores_per_executor input_partitions shuffle_partitions stateful watermark_delay_s"),
        **_MARGINS,
        "Advanced: tasks": "profile.t_task_s profile.cv profile.sd_s",
    },
}


def _groups(engine: PlanEngine) -> tuple[InputGroup, ...]:
    made = []
    for title, paths in _LAYOUTS[engine].items():
        is_folded = title.startswith("Advanced")
        specs = (InputSpec(path, field_at(PLAN_QUESTIONS[engine], path), is_folded) for path in paths.split())
        made.append(InputGroup(title, tuple(specs), is_folded))
    return tuple(made)


INPUT_GROUPS = {engine: _groups(engine) for engine in PlanEngine}


def input_specs(engine: str) -> list[InputSpec]:
    """Every input of an engine's form."""
    return [spec for group in INPUT_GROUPS[PlanEngine(engine)] for spec in group.specs]


def field_names(engine: str) -> dict[str, str]:
    """Fields of the form by the paths of the question, for faults of the service."""
    return {spec.path: spec.name for spec in input_specs(engine)}


@dataclass(frozen=True)
class InputRow:
    """An input of the question with its origin; `is_minor` where few people give it, and nobody has."""

    label: str
    value: str
    origin: str
    is_minor: bool = False


def input_rows(plan: ResourcePlan) -> list[InputRow]:
    """Every input of a plan's question but its constraint, with its origin."""
    rows = []
    asked = question_of(plan)
    for spec in input_specs(plan.engine):
        value = attrgetter(spec.path)(asked)
        if value is not None and spec.path != CONSTRAINT:
            origin = plan.origins.get(spec.path, "")
            is_minor = spec.is_folded and origin == InputOrigin.DEFAULT
            rows.append(InputRow(spec.words.label, _shown(spec, value), origin, is_minor))
    return rows


def _shown(spec: InputSpec, value: Any) -> str:
    if spec.is_flag:
        return "Yes" if value else "No"
    words = spec.words
    number = value * words.scale
    text = f"{number:,.0f}" if abs(number) >= 1e4 else significant(number)
    return f"{text}{'' if words.unit == '%' else ' '}{words.unit}".strip()
