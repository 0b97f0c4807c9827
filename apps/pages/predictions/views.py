"""The prediction model of a cluster: its errors, fine-tuning, and roll-back."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.fleet.models import Cluster
from apps.pages.accuracy.facts import accuracy_tabs
from apps.pages.base import ClusterPage, done
from apps.pages.predictions.candidates import cost_text
from apps.pages.predictions.facts import COST_NAMES, VOTE_NAMES, q_text
from apps.pages.predictions.model import ModelFacts
from apps.predictions.choices import ExecutionOrigin
from apps.predictions.fine_tunings import FINE_TUNING
from apps.predictions.models import ObservedExecution
from apps.predictions.selectors import ExecutionFilter, executions_visible, models_of
from apps.predictions.services import model_put_in_force
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["ModelPage", "ModelPutInForce", "ModelTune"]


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
