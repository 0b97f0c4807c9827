"""Answers to Kubernetes: the list of a cluster."""

from __future__ import annotations

from functools import partial

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.kubernetes.models import KubernetesReview, ReviewBasis, ReviewOrigin
from apps.kubernetes.selectors import KubernetesReviewFilter, reviews_listed
from apps.kubernetes.words import admission_link
from apps.pages.admission.views import admission_tabs
from apps.pages.base import ClusterPage
from apps.ui.marks import Mark, icon
from apps.ui.numbers import seconds
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["KubernetesReviewsPage"]

_SERVICE_ACCOUNT = "system:serviceaccount:"
_MARKS = {
    True: Mark("ok", "ok", "Allowed"),
    False: Mark("bad", "bad", "Denied"),
    None: Mark("jobs", "muted", "Not answered"),
}


def reviews_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first; chips by answer and by sender."""
    rows = KubernetesReview.objects.filter(cluster=cluster).order_by()
    by_answer = dict(rows.values_list("allowed").annotate(number=Count("pk")))
    by_origin = dict(rows.values_list("origin").annotate(number=Count("pk")))
    answers = [
        Choice(value, mark.label, by_answer.get(allowed, 0), mark.drawing, mark.tone)
        for value, allowed, mark in (("true", True, _MARKS[True]), ("false", False, _MARKS[False]))
    ]
    origins = [Choice(value, label, by_origin.get(value, 0)) for value, label in ReviewOrigin.choices]
    return Table(
        request,
        _columns(cluster.slug),
        reviews_listed().filter(cluster=cluster),
        caption="Answers to Kubernetes",
        default_sort="-created",
        filters=[
            Filter("allowed", answers, all_label="Any answer", all_count=sum(by_answer.values())),
            Filter("origin", origins, all_label="Any sender"),
        ],
        filterset=KubernetesReviewFilter,
        search=["namespace", "name", "username", "message"],
        search_label="Object, person or answer",
        file_name=f"kubernetes-{cluster.slug}",
        empty={
            "icon": "admission",
            "title": "Kubernetes has not asked yet",
            "text": "Register the webhook of the guide, Kubernetes, or ask about a manifest: ./sluice admit "
            "MANIFEST.yaml --cluster " + cluster.slug,
        },
    )


def _columns(slug: str) -> list[Column]:
    return [
        Column("object", "Object", _object, sort="name", csv=lambda row: row.path, full=True),
        Column("answer", "Answer", lambda row: _MARKS[row.allowed].label, sort="allowed", csv=lambda row: row.allowed),
        Column("basis", "Ground", partial(_basis, slug), sort="basis", csv=lambda row: row.basis),
        Column("message", "Said", _message, csv=lambda row: row.message, full=True),
        Column(
            "waited",
            "Took",
            lambda row: seconds(row.waited_s).html,
            sort="waited_s",
            num=True,
            csv=lambda row: row.waited_s,
        ),
        Column(
            "created",
            "Asked",
            lambda row: time_tag(row.created_at),
            sort="created_at",
            csv=lambda row: row.created_at,
            high_first=True,
        ),
    ]


def _object(row: KubernetesReview) -> SafeString:
    mark = _MARKS[row.allowed]
    words = f"{'dry run: ' if row.dry_run else ''}{row.operation.lower()} {row.kind}"
    by = row.username.removeprefix(_SERVICE_ACCOUNT) or "nobody named"
    text = '<span class="nm">{}<span>{}<br><span class="muted sm kube-by">{}, {}</span></span></span>'
    return format_html(text, icon(mark.drawing, mark.tone), row.path, words, by)


def _basis(slug: str, row: KubernetesReview) -> SafeString | str:
    """The ground; of an answer with a request behind it a link to that, by its verdict where that was the ground."""
    label = row.get_basis_display() or "–"
    if row.admission is None:
        return label
    url = reverse("pages:admission", args=[slug, row.admission.pk])
    verdict = row.admission.get_verdict_display() if row.basis == ReviewBasis.VERDICT else label
    return format_html('<a href="{}">{}</a>', url, verdict or label)


def _message(row: KubernetesReview) -> SafeString:
    """The answer without the address of its request, which the ground links to."""
    text = row.message
    if row.admission is not None:
        text = text.replace(f" See {admission_link(row.admission)}", "")
    return format_html('<span class="finding">{}</span>', text)


class KubernetesReviewsPage(ClusterPage):
    """`/c/<slug>/admission/kubernetes/`"""

    template_name = "pages/kubernetes/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = reviews_table(request, self.cluster)
        rules = [
            (label, getattr(self.cluster, f"get_{name}_display")())
            for label, name in (
                ("A job that is not known", "kubernetes_unknown"),
                ("No verdict in time", "kubernetes_late"),
                ("A person has to decide", "kubernetes_review"),
            )
        ]
        return self.page({"table": table, "rules": rules, "tabs": admission_tabs(slug, "kubernetes")})
