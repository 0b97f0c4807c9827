"""Pages of answers to Kubernetes, and panels of exports."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.admission.choices import AdmissionSource
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.fleet.models import Cluster
from apps.kubernetes.models import KubernetesReview
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from tests.apps.exports.conftest import import_job
from tests.apps.pages.html import body
from tests.apps.small_cluster import make_query, run_jobs

pytestmark = pytest.mark.django_db


def _review(cluster: Cluster, **fields: Any) -> KubernetesReview:
    row = {
        "uid": fields.get("name", "1"),
        "digest": "0" * 64,
        "api_version": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "namespace": "streams",
        "name": "orders",
        "operation": "CREATE",
        "username": "system:serviceaccount:argocd:controller",
        "allowed": True,
        "basis": "unknown",
        "message": "Nobody knows it.",
    }
    return KubernetesReview.objects.create(cluster=cluster, **{**row, **fields})


def test_answers_are_listed_with_who_asked_and_why(browser: Client, cluster: Cluster) -> None:
    _review(cluster)
    _review(cluster, name="<b>", allowed=False, dry_run=True, message="No & never.")
    text = browser.get(f"/c/{cluster.slug}/admission/kubernetes/").content.decode()
    assert "streams/orders" in text and "argocd:controller" in text and "Nobody knows it." in text
    assert "dry run: create FlinkDeployment" in text and "&lt;b&gt;" in text and "No &amp; never." in text


def test_answers_are_filtered_by_answer(browser: Client, cluster: Cluster) -> None:
    _review(cluster)
    _review(cluster, name="second", allowed=False)
    text = browser.get(f"/c/{cluster.slug}/admission/kubernetes/?allowed=false").content.decode()
    assert "streams/second" in text and "streams/orders" not in text


def test_without_an_answer_the_page_says_how_to_ask(browser: Client, cluster: Cluster) -> None:
    assert "./sluice admit" in body(browser.get(f"/c/{cluster.slug}/admission/kubernetes/"))


def test_requests_of_kubernetes_are_shown_alone_by_their_source(browser: Client, cluster: Cluster) -> None:
    for name, source in (("by-hand", AdmissionSource.CONSOLE), ("by-cluster", AdmissionSource.KUBERNETES)):
        make_query(cluster, name, 0.1)
        ADMISSION.request(cluster=cluster, user=None, source=source, question=AdmissionQuestion(query=name))
    text = browser.get(f"/c/{cluster.slug}/admission/?source=kubernetes").content.decode()
    assert ">by-cluster v1<" in text and ">by-hand v1<" not in text


def test_a_decision_on_an_imported_query_has_a_panel_of_its_engine(browser: Client, cluster: Cluster) -> None:
    make_query(cluster, "orders", 0.1)
    import_job(Query.objects.get(name="orders"))
    request, _ = ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query="orders"))
    run_jobs()
    text = body(browser.get(f"/c/{cluster.slug}/admission/{request.pk}/"))
    assert "For Flink" in text and "pipeline.jobvertex-parallelism-overrides" in text
    assert AdmissionRequest.objects.get().verdict


def test_a_decision_on_another_query_has_none(browser: Client, cluster: Cluster) -> None:
    make_query(cluster, "plain", 0.1)
    request, _ = ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query="plain"))
    run_jobs()
    assert "For Flink" not in body(browser.get(f"/c/{cluster.slug}/admission/{request.pk}/"))


def test_a_proposal_has_the_engines_of_the_imported_queries_that_it_moves(browser: Client, cluster: Cluster) -> None:
    import_job(Query.objects.get(name="late"))
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.1)
    run_jobs()
    moved = run.moves.filter(query="late").exists()
    text = body(browser.get(f"/c/{cluster.slug}/placement/{run.pk}/"))
    assert ("For the engines" in text) is moved


def test_a_webhook_can_be_told_of_decisions(browser: Client, cluster: Cluster) -> None:
    address = f"/c/{cluster.slug}/reports/webhooks/"
    browser.post(address, {"name": "ops", "url": "https://hooks.example.org/x", "sends_decisions": "on"})
    assert "told of decisions" in body(browser.get(address))
