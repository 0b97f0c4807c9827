"""Forms of resource plans: where the profile comes from, and every input with its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from django import forms
from django.core import signing

from apps.core.errors import Missing
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from apps.microbatch.selectors import spark_queries_visible
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import PLAN_QUESTIONS, PlanInput, origin_of, question_of
from apps.planning.resource_plan_sources import PlanSource, SourceInputs, spark_query_by_number
from apps.queries.choices import QueryState
from apps.queries.selectors import query_by_name
from apps.ui.forms import choice_field
from apps.ui.name_search import name_attributes
from apps.ui.numbers import as_float, rate, seconds, significant
from apps.ui.record_forms import field_at, shown_kind
from engine.kinds import Number
from engine.records import BAD, RecordField, Words
from engine.words import statistic_words

__all__ = [
    "CONSTRAINT",
    "INPUT_GROUPS",
    "InputGroup",
    "InputRow",
    "InputSpec",
    "ProfileSourceForm",
    "QuestionLine",
    "QuestionPart",
    "ResourcePlanForm",
    "field_names",
    "input_rows",
    "input_specs",
    "sign_inputs",
    "source_as_shown",
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
    if words.unit == "events/s":
        return str(rate(value))
    if words.unit in {"µs", "ms", "s"}:
        return str(seconds(value))
    number = value * words.scale
    text = f"{number:,.0f}" if abs(number) >= 1e4 else significant(number)
    return f"{text}{'' if words.unit == '%' else ' '}{words.unit}".strip()


#: 120,000 may be a hundred and twenty thousand, or 120 to three decimals: it is asked about, not guessed.
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_SALT = "inputs of a resource plan"
_STATISTICS = [(statistic, statistic_words(statistic)) for statistic in ("mean", "q0.95", "q0.99")]


class _InputField(forms.CharField):
    """A number in the form's unit, as the question's unit."""

    def __init__(self, spec: InputSpec) -> None:
        super().__init__(
            label=spec.words.label,
            help_text=spec.words.help,
            required=not spec.is_optional,
            widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
            error_messages={"required": f"It is missing; allowed: {spec.kind.allowed()}."},
        )
        self.spec = spec

    def clean(self, value: Any) -> float | int | None:
        text = super().clean(value)
        if not text:
            return None
        if _GROUPED.fullmatch(text):
            plain = text.replace(",", "")
            raise forms.ValidationError(f"It is {text[:40]}; write {plain[:40]}, or a point before decimals.")
        kind = self.spec.kind
        read = kind.read(as_float(text.replace(",", ".").replace("\u2212", "-")), "", "", [])
        if read is BAD:
            raise forms.ValidationError(f"It is {text[:40]}; allowed: {kind.allowed()}.")
        return int(read) if kind.whole else float(read) / self.spec.words.scale


@dataclass(frozen=True)
class QuestionLine:
    """A field as the page shows it."""

    field: forms.BoundField
    unit: str = ""
    origin: str = ""


@dataclass(frozen=True)
class QuestionPart:
    """Fields under one heading."""

    title: str
    lines: Sequence[QuestionLine]
    is_folded: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a folded part has a fault to show."""
        return any(line.field.errors for line in self.lines)


class ResourcePlanForm(forms.Form):
    """Every input of a question. `inputs` fill it; `overrides`, by path, replace some of them."""

    def __init__(
        self, data: Any = None, *, engine: str, inputs: Mapping[str, PlanInput], overrides: Mapping[str, str]
    ) -> None:
        super().__init__(data)
        self.engine, self.inputs, self.overrides = PlanEngine(engine), inputs, overrides
        for spec in input_specs(engine):
            self.fields[spec.name] = self._field(spec)
            self.initial[spec.name] = self._value(spec) if spec.is_flag else self._text(spec)
        statistic = overrides.get("statistic") or inputs["statistic"].value
        is_known = statistic in dict(_STATISTICS)
        choices = _STATISTICS if is_known else [*_STATISTICS, (statistic, statistic_words(str(statistic)))]
        self.fields["statistic"] = forms.ChoiceField(label="Statistic", choices=choices, initial=statistic)

    @staticmethod
    def _field(spec: InputSpec) -> forms.Field:
        if spec.is_flag:
            return forms.BooleanField(label=spec.words.label, help_text=spec.words.help, required=False)
        return _InputField(spec)

    def _value(self, spec: InputSpec) -> Any:
        if spec.path in self.overrides:
            text = self.overrides[spec.path]
            return text == "true" if spec.is_flag else as_float(text)
        return self.inputs[spec.path].value if spec.path in self.inputs else None

    def _text(self, spec: InputSpec) -> str:
        """Six digits: enough to find a value again that nobody has changed."""
        number = as_float(self._value(spec))
        if number is None:
            return ""
        scaled = number * spec.words.scale
        return f"{scaled:.0f}" if abs(scaled) >= 1e6 else f"{scaled:.6g}"

    @property
    def parts(self) -> list[QuestionPart]:
        """The form as the page lays it out."""
        return [QuestionPart(group.title, self._lines(group), group.is_folded) for group in INPUT_GROUPS[self.engine]]

    def _lines(self, group: InputGroup) -> list[QuestionLine]:
        lines = [QuestionLine(self[spec.name], spec.words.unit, self._origin(spec)) for spec in group.specs]
        asks_constraint = any(spec.path == CONSTRAINT for spec in group.specs)
        return [*lines, QuestionLine(self["statistic"])] if asks_constraint else lines

    def _origin(self, spec: InputSpec) -> str:
        """Origin of what stands in a field; what a constraint is known from is not a question."""
        if spec.path == CONSTRAINT or self[spec.name].errors:
            return ""
        value = self.cleaned_data.get(spec.name) if self.is_bound else self._value(spec)
        return origin_of(spec.path, self._whole(spec, value), self.inputs)

    @staticmethod
    def _whole(spec: InputSpec, value: Any) -> Any:
        """Numbers of an address are floats; counts are whole."""
        return (
            int(value)
            if not spec.is_flag and spec.kind.whole and isinstance(value, float) and value.is_integer()
            else value
        )

    @property
    def given(self) -> dict[str, object]:
        """Arguments of `resource_plan_request`: everything that is not empty."""
        given: dict[str, Any] = {"statistic": self.cleaned_data["statistic"]}
        for spec in input_specs(self.engine):
            value = self.cleaned_data[spec.name]
            group, _, name = spec.path.rpartition(".")
            if value is not None:
                (given.setdefault(group, {}) if group else given)[name] = value
        return given


class ProfileSourceForm(forms.Form):
    """Engine, and source of rate and profile. Sent by GET, it fills the other form."""

    engine = forms.ChoiceField(label="Plan for", choices=PlanEngine.choices, required=False)
    source = forms.CharField(
        label="Rate and work from",
        required=False,
        help_text="A name: statistics of a query, or the fit of a Spark query. Empty: typed in.",
    )
    pool = forms.ChoiceField(label="Nodes", required=False, help_text="Their capacity turns cycles into seconds.")

    def __init__(self, data: Mapping[str, Any], *, cluster: Cluster) -> None:
        super().__init__(data)
        self.cluster = cluster
        self.fields["source"].widget.attrs |= name_attributes(cluster.slug, "plan-sources")
        pools = [(name, name) for name in cluster.pools.values_list("name", flat=True)]
        choice_field(self, "pool").choices = [("", "Of most nodes"), *pools]

    def clean_source(self) -> str:
        """`query:NAME` or `spark:NUMBER`; a bare name is that of a query."""
        chosen = str(self.cleaned_data["source"])
        if chosen and chosen.partition(":")[0] not in ("query", "spark"):
            chosen = f"query:{chosen}"
        kind, _, name = chosen.partition(":")
        if kind == "spark":
            known = name.isdecimal() and len(name) < 19 and spark_queries_visible(self.cluster).filter(pk=name).exists()
        else:
            known = not name or self.cluster.queries.exclude(state=QueryState.STOPPED).filter(name=name).exists()
        if not known:
            raise forms.ValidationError("There is no query of that name that is not stopped, and no Spark query.")
        return chosen

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        if data.get("engine") == PlanEngine.STAGE and data.get("source", "").startswith("spark:"):
            self.add_error(
                "source", "Micro-batches do not tell map from reduce: choose a query, or Spark micro-batches."
            )

    @property
    def plan_source(self) -> PlanSource:
        """The source that was chosen; a wrong choice counts as none."""
        chosen = self.cleaned_data if self.is_valid() else {"engine": self.cleaned_data.get("engine")}
        kind, _, name = chosen.get("source", "").partition(":")
        engine = chosen.get("engine") or PlanEngine.MICROBATCH
        try:
            query = query_by_name(self.cluster, name) if kind == "query" else None
            spark = spark_query_by_number(self.cluster, int(name)) if kind == "spark" else None
        except Missing:  # gone since the choices were read
            query = spark = None
        return PlanSource(self.cluster, engine, query, spark, chosen.get("pool", ""))


def sign_inputs(source: PlanSource, inputs: Mapping[str, PlanInput]) -> str:
    """Inputs that a source gives now, signed, for its form to carry along."""
    flat = {path: [entry.value, str(entry.origin)] for path, entry in inputs.items()}
    held = {"of": _identity(source), "inputs": flat, "basis": source.basis()}
    return signing.dumps(held, salt=_SALT, compress=True)


def source_as_shown(source: PlanSource, signed: str) -> PlanSource:
    """The source with what it gave when its form was shown; as it is now where `signed` is not of this source."""
    try:
        held = signing.loads(signed, salt=_SALT)
    except signing.BadSignature:
        return source
    if held["of"] != _identity(source):
        return source
    inputs = {path: PlanInput(value, InputOrigin(origin)) for path, (value, origin) in held["inputs"].items()}
    return replace(source, shown=SourceInputs(inputs, held["basis"]))


def _identity(source: PlanSource) -> list[Any]:
    plan = str(source.plan.pk) if source.plan else ""
    spark = source.spark_query.pk if source.spark_query else 0
    return [
        source.cluster.slug,
        str(source.engine),
        source.query.name if source.query else "",
        spark,
        source.pool,
        plan,
    ]
