"""Facts of a resource plan for its page: the answer, both ends of its curve, utilisation, other settings, inputs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString

from apps.microbatch.models import SparkQuery
from apps.pages.context import url_of
from apps.pages.overview.findings import Stat
from apps.pages.resource_plans.charts import CurveChart, OperatingPoint
from apps.pages.resource_plans.forms import InputRow, input_rows
from apps.planning.choices import PlanChoice, PlanEngine, RunState
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import MicroBatchPlanQuestion, StagePlanQuestion, question_of
from apps.planning.resource_plans import MicroBatchAnswer, PlanAnswer, SizedPlan, answer_of
from apps.ui.numbers import Quantity, percent, rate, scaled, seconds, significant
from apps.ui.pictures import load_bar
from apps.ui.sentences import sentence
from engine.microbatch.settings import SettingEffect, SparkSettings
from engine.microbatch.sizing import SparkPlan
from engine.planner.plan import StagePlan
from engine.records import record_fields
from engine.words import counted, statistic_words

__all__ = [
    "EndCard",
    "ResourcePlanFacts",
    "SettingEffectRow",
    "UtilisationRow",
    "size_words",
    "subject_words",
]

_NOUNS = {PlanEngine.STAGE: "node", PlanEngine.MICROBATCH: "executor"}
_UTILISATIONS = {
    "batch": "Batch over interval",
    "cores": "Cores",
    "cpu": "Cores of a node",
    "map": "Mapper threads",
    "red": "Reducer threads",
    "net": "Network",
    "disk": "Disk",
}
_ADVICE_DIGITS = 3
_BRIEF_S = 1e-6


def size_words(row: ResourcePlan) -> str:
    """Size of the smallest plan: 7 executors of 4 cores; what came of the question where there is none."""
    if row.state != RunState.ANSWERED:
        return str(row.get_state_display())
    if not row.facts["feasible"]:
        return "Not feasible"
    if row.engine == PlanEngine.STAGE:
        return counted(row.facts["nodes"], "node")
    asked = question_of(row)
    assert isinstance(asked, MicroBatchPlanQuestion)
    return f"{counted(row.facts['executors'], 'executor')} of {counted(asked.cores_per_executor, 'core')}"


def subject_words(row: ResourcePlan) -> str:
    """Name of what is planned for."""
    if row.spark_query is not None:
        return row.spark_query.name
    return row.query.name if row.query is not None else "Profile typed in"


@dataclass(frozen=True)
class EndCard:
    """One end of the curve as a card that can be chosen."""

    label: str
    url: str
    is_chosen: bool
    settings: str
    latency: Quantity
    max_rate: Quantity


@dataclass(frozen=True)
class UtilisationRow:
    """A resource and how full it is."""

    name: str
    bar: SafeString


@dataclass(frozen=True)
class SettingEffectRow:
    """One setting with another value; `latency` is None where batches would not keep up."""

    setting: str
    before: str
    after: str
    mean: Quantity | None
    latency: Quantity | None
    utilisation: SafeString | None
    breaks: bool
    needs_checkpoint: bool


class ResourcePlanFacts:
    """Facts of a resource plan.

    `choice`: the end of the curve whose settings are shown, a value of `PlanChoice`.
    """

    def __init__(self, row: ResourcePlan, choice: str = "") -> None:
        self.row, self.cluster, self.question = row, row.cluster, question_of(row)
        self.choice = PlanChoice(choice) if choice in PlanChoice.values else PlanChoice.THROUGHPUT
        self.noun = _NOUNS[PlanEngine(row.engine)]
        self.is_spark = row.engine == PlanEngine.MICROBATCH
        self._delay_s: float = getattr(self.question, "watermark_delay_s", 0.0)

    @property
    def subject(self) -> str:
        return subject_words(self.row)

    @property
    def title(self) -> str:
        return f"Resources for {self.subject}" if self.row.query or self.row.spark_query else "Resources for a profile"

    @cached_property
    def answer(self) -> PlanAnswer | None:
        """The engine's answer; None while there is none."""
        return answer_of(self.row)

    @property
    def plan(self) -> SizedPlan | None:
        """The smallest plan, with the settings of the most throughput."""
        return self.answer.plan if self.answer else None

    @property
    def end(self) -> SizedPlan:
        """The chosen settings with what they give."""
        end = self._ends.get(self.choice) or self.plan
        assert end is not None
        return end

    @property
    def _ends(self) -> dict[PlanChoice, SizedPlan]:
        """Settings at the ends of the curve that there are."""
        assert self.answer is not None
        ends: dict[PlanChoice, SizedPlan | None] = {choice: getattr(self.answer.ends, choice) for choice in PlanChoice}
        return {choice: end for choice, end in ends.items() if end is not None}

    # -- the finding

    @property
    def sentence(self) -> SafeString:
        """The finding with its numbers."""
        return sentence("pages/resource_plans/sentences/answer.html", facts=self)

    @property
    def limit(self) -> str:
        """Name of the binding limit, or of the one in the way."""
        assert self.answer is not None
        return self.answer.infeasible.limit if self.answer.infeasible else self.end.limit

    @property
    def limit_sentence(self) -> SafeString:
        return sentence("pages/resource_plans/sentences/limit.html", facts=self)

    @property
    def size(self) -> str:
        return size_words(self.row)

    @property
    def most(self) -> str:
        """The largest size that was looked at."""
        return counted(self.question.max_size, self.noun)

    @property
    def rate(self) -> Quantity:
        return rate(self.question.rate)

    @property
    def constraint(self) -> Quantity:
        return seconds(self.question.constraint_s)

    @property
    def statistic(self) -> str:
        """Statistic of the constraint in words: mean, p95."""
        return statistic_words(self.question.statistic)

    @property
    def metric(self) -> str:
        """Name of the latency that the constraint is about: mean latency, p95 latency."""
        return f"{self.statistic} latency"

    @property
    def latency(self) -> Quantity:
        return self._latency(self.end.metric_s)

    def _latency(self, value: Any) -> Quantity:
        return seconds(value, apart_from=self.question.constraint_s)

    @property
    def max_rate(self) -> Quantity:
        return _apart(self.end.max_rate, self.question.rate)

    @property
    def trigger(self) -> Quantity:
        assert isinstance(self.end, SparkPlan)
        return seconds(self.end.trigger_s)

    @property
    def watermark_delay(self) -> Quantity | None:
        """The part of the latency that nothing planned here shortens."""
        return seconds(self._delay_s) if self._delay_s else None

    @property
    def is_mostly_watermark(self) -> bool:
        return self._delay_s > self.question.constraint_s / 2

    @property
    def is_all_watermark(self) -> bool:
        """Whether it leaves nothing of the constraint."""
        return self._delay_s >= self.question.constraint_s

    @property
    def notes(self) -> list[str]:
        """Doubts about the source of the inputs."""
        return list(self.answer.notes) if isinstance(self.answer, MicroBatchAnswer) else []

    @property
    def stats(self) -> list[Stat]:
        """The answer in four numbers."""
        end, constraint = self.end, f"of {self.constraint}"
        size = Quantity(str(end.size), f"{self.noun}s" if end.size != 1 else self.noun)
        hardware = self.question.hardware if isinstance(self.question, StagePlanQuestion) else None
        cores = end.cores if isinstance(end, SparkPlan) else end.nodes * (hardware.n if hardware else 1)
        stats = [
            Stat("Smallest size", size, counted(cores, "core")),
            Stat("Largest rate", self.max_rate, f"{percent(end.headroom)} of it free at {self.rate}"),
        ]
        if self.statistic != "mean":
            stats.append(Stat("Mean latency", seconds(end.mean_s), "predicted"))
        name = "Mean latency" if self.statistic == "mean" else self.metric
        return [*stats, Stat(name, self.latency, f"predicted, {constraint}"), self._fullest]

    @property
    def _fullest(self) -> Stat:
        name, value = max(self.end.util.items(), key=lambda item: item[1])
        note = f"{_UTILISATIONS[name].lower()}; ceiling {percent(self.question.utilisation_ceiling)}"
        return Stat("Highest utilisation", percent(value), note)

    # -- nothing is feasible

    @property
    def nearest_constraint(self) -> tuple[Quantity, str] | None:
        """The tightest constraint that can be kept at the rate, rounded up, and the form with it filled in."""
        value = self._nearest("nearest_constraint_s", ROUND_CEILING)
        return None if value is None else (seconds(value), self.again(constraint_s=f"{value:.12g}"))

    @property
    def nearest_rate(self) -> tuple[Quantity, str] | None:
        """The highest rate under the constraint, rounded down, and the form with it filled in."""
        value = self._nearest("nearest_rate", ROUND_FLOOR)
        return None if value is None else (rate(value), self.again(rate=f"{value:.12g}"))

    def _nearest(self, name: str, rounding: str) -> float | None:
        assert self.answer is not None
        value = getattr(self.answer.infeasible, name) if self.answer.infeasible else None
        if not value:
            return None
        return float(Context(_ADVICE_DIGITS, rounding).create_decimal(f"{value:.12g}"))  # less what binary adds

    def again(self, **changes: str) -> str:
        """The form with this plan's inputs, some of them changed."""
        page = reverse("pages:resource-plan-new", args=[self.cluster.slug])
        return f"{page}?{urlencode({'plan': str(self.row.pk), **changes})}"

    # -- the curve and its ends

    @cached_property
    def chart(self) -> CurveChart:
        assert self.answer is not None
        points = [OperatingPoint(end.metric_s or 0.0, choice == self.choice) for choice, end in self._ends.items()]
        return CurveChart(self.answer, self.noun, sorted(points, key=lambda point: point.is_chosen))

    @property
    def cards(self) -> list[EndCard]:
        """Both ends of the curve of the smallest size."""
        page = reverse("pages:resource-plan", args=[self.cluster.slug, self.row.pk])
        return [
            EndCard(
                label=str(choice.label),
                url=f"{page}?choice={choice}",
                is_chosen=choice == self.choice,
                settings=self._brief(end),
                latency=self._latency(end.metric_s),
                max_rate=_apart(end.max_rate, self.question.rate),
            )
            for choice, end in self._ends.items()
        ]

    @staticmethod
    def _brief(end: SizedPlan) -> str:
        if isinstance(end, SparkPlan):
            return f"Trigger every {seconds(end.trigger_s)}"
        mappers, reducers = counted(end.mappers, "mapper"), counted(end.reducers, "reducer")
        intervals = ", ".join(str(seconds(interval_s)) for interval_s in (end.b_in_s, end.b_sh_s, end.b_ch_s))
        return f"{mappers} and {reducers} a node; intervals {intervals}"

    # -- settings

    @property
    def settings(self) -> list[tuple[str, str]]:
        """(name, value) of every setting."""
        settings = self.end.settings
        values = {
            name: (field.words.label, getattr(settings, name)) for name, field in record_fields(type(settings)).items()
        }
        return [(label, _setting(name, value)) for name, (label, value) in values.items() if label and value]

    @property
    def conf(self) -> str:
        """Options of `spark-submit`, one a line."""
        return " \\\n".join(f"--conf {name}={value}" for name, value in self._submitted.conf) if self._submitted else ""

    @property
    def document(self) -> str:
        """Settings of a stage as JSON."""
        return "" if self.is_spark else json.dumps(self.end.settings.to_dict(), indent=2)

    @property
    def code(self) -> str:
        """Options of the query's reader and writer."""
        return "\n".join(self._submitted.code) if self._submitted else ""

    @property
    def _submitted(self) -> SparkPlan | None:
        """The chosen settings, where they are Spark's."""
        return self.end if isinstance(self.end, SparkPlan) else None

    @property
    def utilisations(self) -> list[UtilisationRow]:
        ceiling = self.question.utilisation_ceiling
        return [
            UtilisationRow(_UTILISATIONS[name], load_bar(share, limit=ceiling)) for name, share in self.end.util.items()
        ]

    @property
    def effects(self) -> list[SettingEffectRow]:
        """Every setting changed alone."""
        effects = self.answer.effects if isinstance(self.answer, MicroBatchAnswer) else {}
        return [self._effect(effect) for effect in effects.get(self.choice, ())]

    def _effect(self, effect: SettingEffect) -> SettingEffectRow:
        latency, delay_s = effect.latency, self._delay_s
        name, ceiling = effect.setting, self.question.utilisation_ceiling
        return SettingEffectRow(
            setting=record_fields(SparkSettings)[name].words.label,
            before=_setting(name, effect.before),
            after=_setting(name, effect.after),
            mean=seconds(latency.mean_s + delay_s) if latency else None,
            latency=self._latency(latency.statistic_s + delay_s) if latency else None,
            utilisation=load_bar(latency.utilisation, limit=ceiling) if latency else None,
            breaks=latency is None or latency.statistic_s + delay_s > self.question.constraint_s,
            needs_checkpoint=effect.takes_effect == "new checkpoint",
        )

    @property
    def has_windows(self) -> bool:
        """Whether the phases of a stage are those of its windows."""
        return isinstance(self.question, StagePlanQuestion) and self.question.profile.window > 0

    @property
    def phases(self) -> Sequence[tuple[str, Quantity, Quantity]]:
        """(phase, mean, standard deviation) of a stage."""
        return [
            (phase.name.capitalize(), _brief_s(phase.mean_s), _brief_s(phase.sd_s))
            for phase in (self.end.phases if isinstance(self.end, StagePlan) else ())
        ]

    # -- what it is for

    @property
    def spark_query(self) -> SparkQuery | None:
        return self.row.spark_query

    @property
    def spark_url(self) -> str:
        """Page of the Spark query, with predicted against measured batches."""
        return url_of("pages:spark-query", self.cluster.slug, self.row.spark_query_id) if self.row.spark_query else ""

    @property
    def can_apply(self) -> bool:
        return self.is_spark and self.spark_query is not None and self.plan is not None

    @property
    def fit(self) -> Mapping[str, Any] | None:
        """The fit that the profile was taken from."""
        return self.row.basis.get("fit")

    @property
    def fit_figures(self) -> tuple[Quantity, Quantity]:
        """Fixed time of a batch, and time per row."""
        fit = self.fit or {}
        return seconds(fit["fixed_s"]), _brief_s(fit["per_row_s"])

    @property
    def main_inputs(self) -> list[InputRow]:
        return [row for row in self._inputs if not row.is_minor]

    @property
    def minor_inputs(self) -> list[InputRow]:
        return [row for row in self._inputs if row.is_minor]

    @cached_property
    def _inputs(self) -> list[InputRow]:
        return input_rows(self.row)

    @property
    def rest_body(self) -> dict[str, object]:
        """The call that asks the same."""
        return {"cluster": self.cluster.slug, "engine": self.row.engine, **self.row.question}


def _setting(name: str, value: Any) -> str:
    return str(seconds(value)) if name.endswith("_s") else f"{value:,.0f}"


def _apart(value: Any, other: Any) -> Quantity:
    """A rate with enough digits to tell it from the asked one."""
    shown, asked = rate(value), rate(other)
    if str(shown) != str(asked) or math.isclose(value, other):
        return shown
    size = next((size for size in (1e12, 1e9, 1e6, 1e3) if value >= size), 1.0)
    return Quantity(significant(value / size, apart_from=other / size), scaled(size, "/s").unit)


def _brief_s(value: float) -> Quantity:
    """A duration that may be practically nothing."""
    return seconds(value) if value >= _BRIEF_S else Quantity(f"under {significant(_BRIEF_S * 1e6)}", "µs")
