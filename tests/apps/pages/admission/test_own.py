"""A decision's page for members of a team who see a part of the cluster."""

from __future__ import annotations

import pytest
from django.db.models import QuerySet
from django.test import Client

from apps.accounts.grants import grant_give
from apps.accounts.models import User
from apps.accounts.teams import team_named
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.jobs.models import Job
from apps.queries.models import Query
from tests.apps.pages.html import body
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db


def test_others_stand_in_sums_and_what_leaves_them_be_is_applied() -> None:
    cluster = small_cluster()
    start_query(cluster, "zqcanaryzqzq", 0.4, "a")
    make_query(cluster, "own", 0.2)
    QuerySet(Query).filter(name="own").update(team=team_named("bids"))
    asked, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="own"))
    run_jobs()
    member, client = User.objects.create_user("member"), Client()
    grant_give(user=member, role="admitter", team=team_named("bids"))
    client.force_login(member)
    path = f"/c/little/admission/{asked.pk}/"
    assert path in body(client.get("/c/little/queries/own/decisions/"))
    page = body(client.get(path))
    assert "Effect on your query" in page and "zqcanary" not in page
    assert "Queries of other teams: 1 query, 0.4 cores" in page
    assert 'id="act-dialog"' in page
    assert client.post(f"{path}apply/").status_code == 302
    assert Query.objects.get(name="own").state == "running"
    assert "zqcanary" not in body(client.get(path))


def test_estimate_that_waits_or_failed_says_so_and_masks_others() -> None:
    cluster = small_cluster()
    start_query(cluster, "zqcanaryzqzq", 0.4, "a")
    make_query(cluster, "own", 0.2)
    QuerySet(Query).filter(name="own").update(team=team_named("bids"))
    asked, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="own"))
    member, client = User.objects.create_user("member"), Client()
    grant_give(user=member, role="admitter", team=team_named("bids"))
    client.force_login(member)
    path, rows = f"/c/little/admission/{asked.pk}/", QuerySet(AdmissionRequest).filter(pk=asked.pk)
    job = asked.job
    rows.update(job=None)
    assert "It waits to be sent" in body(client.get(path))
    rows.update(job=job, state="failed")
    assert "not kept any more" in body(client.get(path))
    faults = [{"path": "operators[0]", "message": "work has no cost"}]
    for message, words in (("work has no cost.", "work has no cost"), ("zqcanaryzqzq is gone.", "of another team")):
        Job.objects.update(error={"message": message, "faults": faults})
        page = body(client.get(path))
        assert words in page and "zqcanary" not in page
