"""Pages of a query that never ran: every tab stands, costs are not made up, and one may be typed in."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.admission.decisions import admission_approve
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.estimates.services import ESTIMATE
from apps.queries.models import OperatorInput
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.predictions.samples import make_cluster, make_model, make_query

pytestmark = pytest.mark.django_db

TABS = ("", "statistics/", "placement/", "versions/", "versions/new/", "estimates/", "plans/", "edit/")


def test_every_page_of_a_query_that_never_ran_stands(browser: Client) -> None:
    cluster = make_cluster()
    make_model(cluster, half=0.1)
    make_query(cluster)
    asker = small_cluster.user(name="asker")
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query="new"))
    small_cluster.run_jobs()
    html = body(browser.get(f"/c/lab/admission/{request.pk}/")).replace("\xa0", " ")
    assert "is predicted at" in html and "predicted, not measured" in html
    request.refresh_from_db()
    admission_approve(request=request, user=asker)  # no prediction is borne out by runs of this cluster yet
    ESTIMATE.request(cluster=cluster, user=asker)
    small_cluster.run_jobs()
    for tab in TABS:
        assert browser.get(f"/c/lab/queries/new/{tab}").status_code == 200, tab
    assert browser.get("/c/lab/").status_code == 200
    assert "Not measured" in body(browser.get("/c/lab/queries/new/statistics/"))


def test_cost_is_typed_in_where_it_is_known_and_left_empty_where_not(browser: Client) -> None:
    make_query(make_cluster())
    path = "/c/lab/queries/new/statistics/?edit=table"
    form = {f"{name}-{i}": "" for i in (0, 1) for name in ("cycles_per_event",)}
    form |= {"selectivity-0": "0.25", "events-0": "0", "evidence-0": "predicted"}
    form |= {"selectivity-1": "0.1", "events-1": "9", "evidence-1": "assumed", "cycles_per_event-1": "70"}
    assert browser.post(path, form).status_code == 302
    rows = OperatorInput.objects.order_by("operator__position")
    assert list(rows.values_list("selectivity", "cycles_per_event", "evidence")) == [
        (0.25, None, "predicted"),
        (0.1, 70.0, "assumed"),
    ]
