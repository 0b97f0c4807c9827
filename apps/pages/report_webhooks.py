"""Webhooks of a cluster: addresses that are told of finished reports."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Missing
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.report_forms import WebhookForm
from apps.reports.models import Webhook
from apps.reports.selectors import webhooks_listed
from apps.reports.services import webhook_create, webhook_delete, webhook_renew_secret
from apps.reports.signing import webhook_secret

__all__ = ["WebhookDelete", "WebhookRenew", "WebhooksPage"]


class WebhooksPage(ClusterPage):
    """`/c/<slug>/reports/webhooks/`: the list, and a form to add one. The secret is shown once, in the answer."""

    template_name = "pages/reports/webhooks.html"
    scope = "operate"  # an address often holds a secret

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(WebhookForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = WebhookForm(request.POST)
        if form.is_valid():
            made, ok = try_service(form, lambda: webhook_create(cluster=self.cluster, **form.cleaned_data))
            if ok:
                return self.show(WebhookForm(), made=made, secret=webhook_secret(made))
        return self.show(form, 422)

    def show(self, form: WebhookForm, status: int = 200, **context: Any) -> HttpResponse:
        rows = webhooks_listed().filter(cluster=self.cluster)
        rest = {"cluster": self.slug, "name": "chat", "url": "https://hooks.example.org/sluice"}
        return self.page({"form": form, "webhooks": rows, "rest_body": rest, **context}, status)


class WebhookRenew(WebhooksPage):
    """POST: a new secret for a webhook; the page shows it once."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:  # type: ignore[override]
        row = webhook_renew_secret(webhook=_row(self, pk))
        return self.show(WebhookForm(), made=row, secret=webhook_secret(row))


class WebhookDelete(ClusterPage):
    """POST: forget a webhook."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        row = _row(self, pk)
        webhook_delete(webhook=row)
        return done(request, f"Webhook {row} is deleted.", "pages:report-webhooks", slug)


def _row(page: ClusterPage, pk: UUID) -> Webhook:
    row = webhooks_listed().filter(cluster=page.cluster, pk=pk).first()
    if row is None:
        raise Missing(f"Cluster {page.slug!r} has no webhook {pk}.")
    return row
