"""Pages of groups: asked from the list of queries, shown with every verdict, and decided on whole."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.accounts.choices import Role
from apps.admission.models import AdmissionGroup
from apps.queries.models import Query
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db

NEW = "/c/little/admission/groups/new/"


@pytest.fixture
def client() -> Client:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    for name in ("third", "fourth", "fifth"):
        make_query(cluster, name, 0.35)
    browser = Client()
    browser.force_login(user(Role.ADMIN))
    return browser


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_queries_are_ticked_asked_together_and_applied(client: Client) -> None:
    ticked = client.post("/c/little/queries/-/change/", {"change": "together", "row": ["third", "fourth"]})
    assert ticked["Location"] == f"{NEW}?queries=third+fourth"
    assert 'value="third fourth"' in text(client.get(ticked["Location"]))
    page = client.post(NEW, {"queries": "third fourth", "reason": "one release"})["Location"]
    assert "Estimating" in text(client.get(page))
    run_jobs()
    shown = text(client.get(page))
    assert "third v1 and fourth v1: all or none. Reason: one release" in shown
    assert "Apply all" in shown
    member = AdmissionGroup.objects.get().members.first()
    assert member is not None
    own = f"/c/little/admission/{member.pk}/"
    assert "See the group and decide there" in text(client.get(own))
    refused = client.post(f"{own}apply/")
    assert (refused.status_code, "which is decided on whole" in text(refused)) == (409, True)
    assert client.post(f"{page}apply/")["Location"] == page
    assert "all of them run" in text(client.get(page))
    assert f"{own}replay/" not in text(client.get(own))
    assert Query.objects.filter(name__in=["third", "fourth"], state="running").count() == 2


def test_group_that_does_not_fit_says_which_do(client: Client) -> None:
    page = client.post(NEW, {"queries": "third, fourth, fifth"})["Location"]
    run_jobs()
    shown = text(client.get(page))
    assert "fit together: third and fourth" in shown
    assert "?queries=third+fourth" in shown
    refused = client.post(f"{page}apply/")
    assert (refused.status_code, "The verdict is reject" in text(refused)) == (422, True)


def test_faults_are_told_at_the_field(client: Client) -> None:
    for names, told in (("third", "allowed: 2 to 10"), ("third nobody", "&#x27;nobody&#x27; is not registered")):
        answer = client.post(NEW, {"queries": names})
        assert (answer.status_code, told in text(answer)) == (422, True), text(answer)
