"""The prediction model of a cluster: its errors, fine-tuning, and roll-back."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.pages.accuracy.facts import accuracy_tabs
from apps.pages.base import ClusterPage, done
from apps.pages.predictions.model import ModelFacts
from apps.pages.predictions.tables import executions_table
from apps.predictions.fine_tunings import fine_tuning_request
from apps.predictions.selectors import models_of
from apps.predictions.services import model_put_in_force

__all__ = ["ModelPage", "ModelPutInForce", "ModelTune"]


class ModelPage(ClusterPage):
    """`/c/<slug>/accuracy/model/`"""

    template_name = "pages/predictions/model.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = executions_table(request, self.cluster)
        if table.wants_csv:
            return table.csv_response()
        facts = ModelFacts(self.cluster, signed_in_user(request))
        return self.page({"facts": facts, "table": table, "tabs": accuracy_tabs(slug, "model")})


class ModelTune(ClusterPage):
    """POST: train the model further on what was observed; a guard judges it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        fine_tuning_request(cluster=self.cluster, user=signed_in_user(request))
        return done(request, "The fine-tuning is on its way.", "pages:prediction-model", slug)


class ModelPutInForce(ClusterPage):
    """POST: let a version predict from now on."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        version = self.find(models_of(self.cluster), "model version", pk=pk)
        model_put_in_force(cluster=self.cluster, version=version, user=signed_in_user(request))
        return done(request, f"{str(version).capitalize()} predicts from now on.", "pages:prediction-model", slug)
