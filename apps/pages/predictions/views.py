"""The prediction model of a cluster: its card, its errors, its versions, fine-tuning, and roll-back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Impossible
from apps.fleet.models import Cluster
from apps.pages.accuracy.facts import accuracy_tabs
from apps.pages.base import ClusterPage, done
from apps.pages.overview.findings import Stat
from apps.pages.predictions.candidates import cost_text
from apps.pages.predictions.charts import ErrorChart
from apps.pages.predictions.facts import COST_NAMES, VOTE_NAMES, q_text
from apps.predictions.choices import ExecutionOrigin, FineTuningState, ModelOrigin, ModelState, TargetMetric
from apps.predictions.ensembles import version_in_force
from apps.predictions.fine_tunings import FINE_TUNING, fine_tuning_obstacle
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution
from apps.predictions.selectors import (
    MIN_EXECUTIONS,
    ExecutionFilter,
    cluster_accuracy,
    executions_visible,
    models_of,
    q_errors_of,
)
from apps.predictions.services import model_put_in_force
from apps.ui.numbers import MISSING, Quantity, count, percent
from apps.ui.sentences import sentence
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import short, time_tag
from engine.costream.accuracy import PredictionRecord
from engine.costream.features import FEATURES
from engine.costream.weights import ModelCard, read_card
from engine.errors import EngineError
from engine.words import counted

__all__ = [
    "ErrorRow",
    "ModelFacts",
    "ModelPage",
    "ModelPutInForce",
    "ModelTune",
    "TuningLine",
    "VersionLine",
]


_TUNINGS, _VERSIONS = 10, 50
_VOTES = {"S": VOTE_NAMES["success"], "RO": VOTE_NAMES["backpressure"]}
_SUBJECTS = {"host": "node", "agg": "aggregation", "operator": "operator", "placement": "placement"}


@dataclass(frozen=True)
class ErrorRow:
    """Errors of one metric, by where they come from."""

    name: str
    measure: str
    simulated: str
    shipped: str
    fine_tuned: str


@dataclass(frozen=True)
class TuningLine:
    """A fine-tuning, with the errors of both models on the executions held out."""

    run: FineTuning

    @property
    def errors(self) -> list[tuple[str, str, str]]:
        """(metric, before, after), those that were observed."""
        before, after = (self.run.result.get(side) or {} for side in ("before", "after"))
        names = {metric.value: str(metric.label) for metric in TargetMetric} | _VOTES
        return [
            (name, _error_text(before[key]), _error_text(after[key]))
            for key, name in names.items()
            if key in before and key in after
        ]


@dataclass(frozen=True)
class VersionLine:
    """A version that the cluster has or may return to."""

    version: ModelVersion
    is_in_force: bool

    @property
    def state(self) -> str:
        if self.is_in_force:
            return str(ModelState.IN_FORCE)
        return str(ModelState.REFUSED if self.version.state == ModelState.REFUSED else ModelState.AVAILABLE)

    @property
    def can_return(self) -> bool:
        return self.state == ModelState.AVAILABLE

    @property
    def observed(self) -> str:
        """Executions that it was tuned on."""
        return count(self.version.card.get("observed", 0))

    @property
    def simulated(self) -> str:
        return count(self.version.card.get("simulated"))


class ModelFacts:
    """The model of a cluster; every property is computed when a template asks for it."""

    def __init__(self, cluster: Cluster, user: User) -> None:
        self.cluster, self.user = cluster, user

    # -- the version in force

    @cached_property
    def _in_force(self) -> tuple[ModelVersion | None, str]:
        try:
            return version_in_force(self.cluster), ""
        except Impossible as error:
            return None, error.message

    @property
    def version(self) -> ModelVersion | None:
        return self._in_force[0]

    @property
    def missing(self) -> str:
        """Why there is none."""
        return self._in_force[1]

    @cached_property
    def card(self) -> ModelCard | None:
        """Its card; None where this version of Sluice does not read it."""
        try:
            return read_card(self.version.card) if self.version else None
        except EngineError:
            return None

    @property
    def seed(self) -> str:
        """Seed of its corpus."""
        return "not stated" if self.card is None or self.card.seed is None else str(self.card.seed)

    @property
    def ranges(self) -> list[tuple[str, str]]:
        """Range of each feature in training."""
        if self.card is None:
            return []
        lines = []
        for name, feature in FEATURES.items():
            bounds = self.card.domain.ranges.get(name)
            subject = _SUBJECTS.get(name.partition(".")[0], name.partition(".")[0])
            label = f"{subject.capitalize()}: {feature.label}"
            if bounds is not None:
                unit = f" {feature.unit}" if feature.unit else ""
                lines.append((label, f"{feature.text(bounds[0])} to {feature.text(bounds[1])}{unit}"))
        return lines

    @property
    def trained_on(self) -> str:
        """Traces that the residual was trained on, and executions of this cluster."""
        card = self.card
        if card is None:
            return MISSING
        here = f"fitted to {counted(card.observed, 'execution')} of this cluster"
        return f"{count(card.simulated)} simulated traces, {counted(card.real, 'real execution')}; {here}"

    @property
    def calibrated_on(self) -> str:
        """Runs that the intervals were calibrated on."""
        if self.card is None:
            return MISSING
        here = counted(self.card.calibrated_here, "execution")
        return f"{count(self.card.calibrated)} traces not trained on; {here} of this cluster"

    @property
    def held_here(self) -> str:
        """Runs of this cluster that lay within their intervals, or what is missing."""
        record = self.accuracy["record"]
        words = PredictionRecord(record["runs"], record["held"], record["queries"]).words
        return f"{words[:1].upper()}{words[1:]}."

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/predictions/sentences/model.html", facts=self)

    @property
    def stats(self) -> list[Stat]:
        version, card, observed = self.version, self.card, self.accuracy["executions"]
        assert version is not None
        missing = Quantity(MISSING)
        simulated = Quantity(count(card.simulated)) if card else missing
        return [
            Stat("In force", Quantity(str(version).capitalize()), f"since {_day(version)}"),
            Stat("Simulated traces", simulated, f"simulator {card.simulator}, seed {self.seed}" if card else ""),
            Stat("Real executions", Quantity(count(card.real)) if card else missing, "trained on, not of this cluster"),
            Stat(
                "Fine-tuned on",
                Quantity(count(card.observed)) if card else missing,
                "observed executions of this cluster",
            ),
            Stat("Observed", Quantity(count(observed)), self.observed_words),
        ]

    # -- errors

    @cached_property
    def accuracy(self) -> Mapping[str, Any]:
        return cluster_accuracy(self.cluster)

    @property
    def record(self) -> SafeString:
        """Whether verdicts may rest on predictions, and what is missing."""
        return sentence("pages/predictions/sentences/record.html", record=self.accuracy["record"])

    @property
    def observed_words(self) -> str:
        """Number of executions that is missing, or what there are."""
        observed = self.accuracy["executions"]
        if observed < MIN_EXECUTIONS:
            return f"of the {MIN_EXECUTIONS} executions that errors need"
        return "executions held against their predictions"

    @property
    def simulated(self) -> Mapping[str, Any]:
        """Errors on simulated traces that were not trained on: the test's, else those of the validation."""
        errors = self.accuracy["simulated"]
        return next((errors[name] for name in ("test", "validation") if name in errors), {})

    @property
    def error_rows(self) -> list[ErrorRow]:
        by_origin = {origin: self.accuracy[origin] for origin in ModelOrigin.values}
        names = {metric.value: str(metric.label) for metric in TargetMetric} | _VOTES

        def cells(key: str) -> list[str]:
            return [
                _error_text(self.simulated.get(key)),
                *(_error_text((by_origin[origin] or {}).get(key)) for origin in ModelOrigin.values),
            ]

        return [
            ErrorRow(name, "balanced accuracy" if key in _VOTES else "q-error", *cells(key))
            for key, name in names.items()
        ]

    @property
    def observed_notes(self) -> dict[str, str]:
        """Per origin 12 of 30 observed executions, or how many there are."""
        traces = self.simulated.get("traces")
        notes = {"simulated": f"{count(traces)} traces not trained on" if traces else "traces not trained on"}
        for origin in ModelOrigin.values:
            observed = self.accuracy["observed"][origin]
            notes[origin] = f"{count(observed)} executions"
            if observed < MIN_EXECUTIONS:
                notes[origin] = f"{observed} of {MIN_EXECUTIONS} observed executions"
        return notes

    @cached_property
    def chart(self) -> ErrorChart | None:
        """Errors over the executions; None below thirty."""
        if self.accuracy["executions"] < MIN_EXECUTIONS:
            return None
        errors, models = q_errors_of(self.cluster)
        chart = ErrorChart(errors, models)
        return chart if chart.lines else None

    @property
    def newest_q50(self) -> tuple[str, str] | None:
        """Median and 95 % quantile of the end-to-end latency's error, of the origin in force; None without them."""
        assert self.version is not None
        errors = (self.accuracy[self.version.origin] or {}).get(TargetMetric.END_TO_END_LATENCY.value)
        return (q_text(errors["q50"]), q_text(errors["q95"])) if errors else None

    # -- fine-tuning

    @cached_property
    def tunings(self) -> list[TuningLine]:
        rows = FINE_TUNING.visible().filter(cluster=self.cluster)[:_TUNINGS]
        return [TuningLine(run) for run in rows]

    @property
    def under_way(self) -> FineTuning | None:
        return next((line.run for line in self.tunings if line.run.state == FineTuningState.RUNNING), None)

    @cached_property
    def why_off(self) -> str:
        """Why fine-tuning is not possible now; empty if it is."""
        return fine_tuning_obstacle(self.cluster)

    # -- versions

    @cached_property
    def versions(self) -> list[VersionLine]:
        pk = self.version.pk if self.version else None
        return [VersionLine(row, row.pk == pk) for row in models_of(self.cluster)[:_VERSIONS]]

    @property
    def can_operate(self) -> bool:
        return "operate" in self.user.scopes


def _day(version: ModelVersion) -> str:
    return short(version.in_force_at or version.created_at)


def _error_text(entry: Mapping[str, Any] | None) -> str:
    """1.11 / 1.57 of q-errors, 96% of votes."""
    if not entry:
        return MISSING
    if "q50" in entry:
        return f"{q_text(entry['q50'])} / {q_text(entry['q95'])}"
    accuracy = entry.get("balanced_accuracy", entry.get("accuracy"))
    return MISSING if accuracy is None else str(percent(accuracy))


def executions_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first."""
    return Table(
        request,
        _columns(cluster.slug),
        executions_visible().filter(cluster=cluster),
        caption="Observed executions",
        default_sort="-ended",
        filters=[Filter("origin", [Choice(value, label) for value, label in ExecutionOrigin.choices])],
        filterset=ExecutionFilter,
        search=["query__name"],
        search_label="Query",
        page_size=25,
        file_name=f"executions-{cluster.slug}",
        empty={
            "icon": "accuracy",
            "title": "No execution observed yet",
            "text": "A live query is observed for four minutes of each hour it runs; what a stream processor reports "
            "over REST (POST /api/v1/observed-executions) counts as well.",
        },
    )


def _columns(slug: str) -> list[Column]:
    return [
        Column("query", "Query", partial(_query, slug), sort="query__name", csv=lambda row: row.query.name),
        Column(
            "ended",
            "Ended",
            lambda row: time_tag(row.ends_at),
            sort="ends_at",
            csv=lambda row: row.ends_at,
            high_first=True,
        ),
        *(column for field in COST_NAMES for column in _cost_columns(field)),
        *(
            Column(field, name, partial(_vote, field), csv=partial(_observed, field))
            for field, name in VOTE_NAMES.items()
        ),
        Column("model", "Predicted by", lambda row: str(row.model or MISSING), csv=lambda row: str(row.model or "")),
        Column("origin", "Origin", lambda row: row.get_origin_display(), csv=lambda row: row.origin),
    ]


def _cost_columns(field: str) -> list[Column]:
    metric, name = COST_NAMES[field]
    error = f"q_{field.removesuffix('_s').removesuffix('_eps')}"
    return [
        Column(
            field,
            name,
            partial(_cost, metric, field),
            sort=field,
            csv=partial(_observed, field),
            num=True,
        ),
        Column(
            error,
            "q-error",
            lambda row: q_text(getattr(row, error)),
            sort=error,
            csv=lambda row: getattr(row, error),
            num=True,
            high_first=True,
            short=f"q-error, {name.lower()}",
        ),
    ]


def _query(slug: str, row: ObservedExecution) -> SafeString:
    return format_html(
        '<a class="name" href="{}">{}</a>', reverse("pages:query", args=[slug, row.query.name]), row.version
    )


def _cost(metric: str, field: str, row: ObservedExecution) -> SafeString:
    """118 /s, predicted 120 /s."""
    mean = (row.predicted.get(field) or {}).get("mean")
    return format_html(
        '{} <span class="muted sm pred-was">predicted {}</span>',
        cost_text(metric, getattr(row, field)).html,
        cost_text(metric, mean).html,
    )


def _vote(field: str, row: ObservedExecution) -> SafeString | str:
    observed, predicted = getattr(row, field), (row.predicted.get(field) or {}).get("holds")
    if observed is None:
        return MISSING
    word = "yes" if observed else "no"
    if predicted is None or predicted == observed:
        return word
    return format_html('{} <span class="muted sm">predicted {}</span>', word, "yes" if predicted else "no")


def _observed(field: str, row: ObservedExecution) -> Any:
    return getattr(row, field)


class ModelPage(ClusterPage):
    """`/c/<slug>/accuracy/model/`"""

    template_name = "pages/predictions/model.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = executions_table(request, self.cluster)
        facts = ModelFacts(self.cluster, signed_in_user(request))
        return self.page({"facts": facts, "table": table, "tabs": accuracy_tabs(slug, "model")})


class ModelTune(ClusterPage):
    """POST: train the model further on what was observed; a guard judges it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        FINE_TUNING.request(cluster=self.cluster, user=signed_in_user(request))
        return done(request, "The fine-tuning is on its way.", "pages:prediction-model", slug)


class ModelPutInForce(ClusterPage):
    """POST: let a version predict from now on."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        version = self.find(models_of(self.cluster), "model version", pk=pk)
        model_put_in_force(cluster=self.cluster, version=version, user=signed_in_user(request))
        return done(request, f"{str(version).capitalize()} predicts from now on.", "pages:prediction-model", slug)
