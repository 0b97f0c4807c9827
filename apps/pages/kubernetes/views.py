"""Answers to Kubernetes: the list of a cluster."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.pages.admission.views import admission_tabs
from apps.pages.base import ClusterPage
from apps.pages.kubernetes.tables import reviews_table

__all__ = ["KubernetesReviewsPage"]


class KubernetesReviewsPage(ClusterPage):
    """`/c/<slug>/admission/kubernetes/`"""

    template_name = "pages/kubernetes/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = reviews_table(request, self.cluster)
        if table.wants_csv:
            return table.csv_response()
        rules = [
            (label, getattr(self.cluster, f"get_{name}_display")())
            for label, name in (
                ("A job that is not known", "kubernetes_unknown"),
                ("No verdict in time", "kubernetes_late"),
                ("A person has to decide", "kubernetes_review"),
            )
        ]
        return self.page({"table": table, "rules": rules, "tabs": admission_tabs(slug, "kubernetes")})
