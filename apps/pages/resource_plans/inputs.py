"""Inputs of resource plans as pages show them: labels, units, what is allowed, and the values of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from apps.fleet.choices import InputOrigin
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.questions import MAX_SIZE
from apps.ui.numbers import significant
from engine.fields import Number

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

_US, _PERCENT, _MEGA = 1e6, 100.0, 1e-6
_AMOUNT = Number(least=0.0)
_POSITIVE = Number(above=0.0)
_SECONDS = Number(least=1e-3, most=1e6)
_SHARE = Number(least=1.0, most=100.0)
_SIZE = Number(least=1, most=MAX_SIZE, whole=True)
_COUNT = Number(least=1, most=100_000, whole=True)


@dataclass(frozen=True)
class InputSpec:
    """An input as pages show it: `scale` of its units make one of the question's. Few people give a folded one."""

    path: str
    label: str
    help: str = ""
    unit: str = ""
    kind: Number = _AMOUNT
    scale: float = 1.0
    is_optional: bool = False
    is_flag: bool = False
    is_folded: bool = False

    @property
    def name(self) -> str:
        """Name of the field: that of the path, without the points that ids in addresses must not have."""
        return self.path.replace(".", "-")


@dataclass(frozen=True)
class InputGroup:
    """Inputs under one heading; those that most people leave alone are folded."""

    title: str
    specs: tuple[InputSpec, ...]
    is_folded: bool = False


_RATE = InputSpec("rate", "Input rate", "All sources together.", "events/s", Number(least=1e-3, most=1e12))
CONSTRAINT = InputSpec("constraint_s", "Latency constraint", "From an event's arrival to its result.", "s", _SECONDS)
_MARGINS = InputGroup(
    "Advanced: margins",
    (
        InputSpec(
            "headroom", "Headroom", "Of the largest rate, to keep free.", "%", Number(least=0, most=95), _PERCENT
        ),
        InputSpec("utilisation_ceiling", "Utilisation ceiling", "Nothing is planned fuller.", "%", _SHARE, _PERCENT),
        InputSpec("aim", "Aim", "Of the constraint, to plan for.", "%", _SHARE, _PERCENT),
    ),
    is_folded=True,
)
_STAGE = (
    InputGroup("Load and constraint", (_RATE, CONSTRAINT)),
    InputGroup(
        "Work",
        (
            InputSpec("profile.c_map", "Map work", "One core, per input event.", "µs", scale=_US),
            InputSpec("profile.c_red", "Reduce work", "One core, per map output.", "µs", scale=_US),
            InputSpec("profile.alpha", "Map outputs", "Per input event.", kind=_POSITIVE),
            InputSpec("profile.b_in", "Size of an input event", unit="bytes"),
            InputSpec("profile.b_out", "Size of a map output", unit="bytes"),
        ),
    ),
    InputGroup(
        "Nodes",
        (
            InputSpec("max_nodes", "Nodes at most", kind=_SIZE),
            InputSpec("hardware.n", "Cores of a node", kind=_COUNT),
            InputSpec("hardware.v_net", "Network", "Inbound.", "MB/s", _POSITIVE, _MEGA),
            InputSpec("hardware.v_disk", "Disk", "Sequential writes.", "MB/s", _POSITIVE, _MEGA),
        ),
    ),
    _MARGINS,
    InputGroup(
        "Advanced: windows",
        (
            InputSpec("profile.window", "Window", "0: no windows.", "s"),
            InputSpec("profile.slide", "Slide", "0: the window's length.", "s"),
            InputSpec("profile.keys", "Keyed windows", "That end together, in the whole cluster."),
            InputSpec("profile.s_k", "Finalize work", "One core, per keyed window.", "µs", scale=_US),
        ),
        is_folded=True,
    ),
    InputGroup(
        "Advanced: overheads and spread",
        (
            InputSpec("profile.c_bat", "Per input batch", "Work of a mapper.", "µs", scale=_US),
            InputSpec("profile.c_sh", "Per sent partition", "Work of a mapper.", "µs", scale=_US),
            InputSpec("profile.c_part", "Per received partition", "Work of a reducer.", "µs", scale=_US),
            InputSpec("profile.c_hb", "Per poll", "Work of a reducer.", "µs", scale=_US),
            InputSpec("hardware.t_seek", "Per disk write", "Time to seek.", "ms", scale=1e3),
            InputSpec("hardware.map_buf", "Map-output buffer", "Of a mapper; 0: no limit.", "MB", scale=_MEGA),
            InputSpec("profile.cv2_map", "Spread, mapper", "Squared coefficient of variation."),
            InputSpec("profile.cv2_red", "Spread, reducer", "Of a batch's service time."),
            InputSpec("profile.cv2_net", "Spread, network"),
            InputSpec("profile.cv2_disk", "Spread, disk"),
        ),
        is_folded=True,
    ),
)
_MICROBATCH = (
    InputGroup("Load and constraint", (_RATE, CONSTRAINT)),
    InputGroup(
        "Work",
        (
            InputSpec("profile.c_in_s", "Before the shuffle", "One core, per input row.", "µs", scale=_US),
            InputSpec("profile.alpha", "Rows shuffled", "Per input row; 0: no shuffle."),
            InputSpec("profile.c_sh_s", "After the shuffle", "One core, per shuffled row.", "µs", scale=_US),
            InputSpec("profile.f0_s", "Fixed time of a batch", "Offsets, planning, log, commit.", "ms", scale=1e3),
        ),
    ),
    InputGroup(
        "Spark",
        (
            InputSpec("max_executors", "Executors at most", kind=_SIZE),
            InputSpec("cores_per_executor", "Cores of an executor", kind=_COUNT),
            InputSpec(
                "input_partitions", "Input partitions", "Of the topic; empty: as many as cores.", kind=_COUNT,
                is_optional=True,
            ),
            InputSpec(
                "shuffle_partitions", "Shuffle partitions", "Of the checkpoint; empty: as many as cores.", kind=_COUNT,
                is_optional=True,
            ),
            InputSpec("stateful", "Keeps state", "Windows, joins, deduplication.", is_flag=True),
            InputSpec(
                "watermark_delay_s", "Watermark delay", "Windows wait for it too: part of the constraint.", "s",
                Number(least=0.0, most=1e6),
            ),
        ),
    ),
    _MARGINS,
    InputGroup(
        "Advanced: tasks",
        (
            InputSpec("profile.t_task_s", "Wave of tasks", "To start one and wait for its end.", "ms", scale=1e3),
            InputSpec("profile.cv", "Spread of tasks", "Coefficient of variation within a stage."),
            InputSpec("profile.sd_s", "Spread of batches", "Standard deviation of their duration.", "ms", scale=1e3),
        ),
        is_folded=True,
    ),
)  # fmt: skip
INPUT_GROUPS = {PlanEngine.STAGE: _STAGE, PlanEngine.MICROBATCH: _MICROBATCH}


def input_specs(engine: str) -> list[InputSpec]:
    """Every input of an engine's form."""
    groups = INPUT_GROUPS[PlanEngine(engine)]
    return [replace(spec, is_folded=group.is_folded) for group in groups for spec in group.specs]


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
    for spec in input_specs(plan.engine):
        group, _, name = spec.path.rpartition(".")
        value = (plan.question.get(group, {}) if group else plan.question).get(name)
        if value is not None and spec.path != CONSTRAINT.path:
            origin = plan.origins.get(spec.path, "")
            is_minor = spec.is_folded and origin == InputOrigin.DEFAULT
            rows.append(InputRow(spec.label, _shown(spec, value), origin, is_minor))
    return rows


def _shown(spec: InputSpec, value: Any) -> str:
    if spec.is_flag:
        return "Yes" if value else "No"
    number = value * spec.scale
    text = f"{number:,.0f}" if abs(number) >= 1e4 else significant(number)
    return f"{text}{'' if spec.unit == '%' else ' '}{spec.unit}".strip()
