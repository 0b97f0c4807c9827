"""Search: hits, suggestions for the role and the text, and what was looked at last."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.fleet.models import Cluster
from apps.pages import search
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

SUGGESTIONS = "/c/little/search/suggestions/"


def suggested(browser: Client, text: str = "") -> list[str]:
    """Names of the options, in order."""
    html = body(browser.get(SUGGESTIONS, {"q": text}))
    return re.findall(r'<span class="name">([^<]*)</span>', html)


def test_rows_whose_name_begins_with_the_text_come_first(browser: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "alter", 0.1, bound_s=None)
    small_cluster.make_query(cluster, "late-2", 0.1, bound_s=None)
    assert suggested(browser, "late")[:2] == ["late", "late-2"]
    assert suggested(browser, "no such thing") == []


def test_pages_and_actions_are_found_by_their_words(browser: Client, cluster: Cluster) -> None:
    assert "Preview a query" in suggested(browser, "admit")
    assert "Settings" in suggested(browser, "time zone")
    assert suggested(browser, "new node")[0] == "New node"


def test_actions_are_those_of_the_role(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    assert "New node" not in suggested(viewer, "new")
    assert "People" not in suggested(browser_of("operator"), "people")
    assert "People" in suggested(browser_of("admin"), "people")
    assert suggested(viewer) == []


def test_what_was_looked_at_last_comes_first(browser: Client, cluster: Cluster) -> None:
    for path in ("queries/late/", "fleet/nodes/a/", "queries/calm/", "queries/late/"):
        assert browser.get(f"/c/little/{path}").status_code == 200
    assert suggested(browser)[:3] == ["late", "calm", "a"]
    assert "Looked at last" in body(browser.get("/c/little/search/"))
    cluster.queries.filter(name="late").update(name="renamed")
    assert suggested(browser)[:2] == ["calm", "a"]


def test_refresh_of_a_part_is_no_visit(browser: Client, cluster: Cluster) -> None:
    browser.get("/c/little/queries/late/")
    browser.get("/c/little/queries/calm/", headers={"HX-Request": "true"})
    assert suggested(browser)[0] == "late"


def test_suggestions_cost_few_statements(browser: Client, cluster: Cluster) -> None:
    browser.get(SUGGESTIONS, {"q": "a"})
    with CaptureQueriesContext(connection) as statements:
        browser.get(SUGGESTIONS, {"q": "a"})
    assert len(statements) <= 11  # session, person, grants, cluster, six kinds, which queries never ran


def test_every_place_has_an_address() -> None:
    for place in (*search._ACTIONS, *search._PAGES):
        assert reverse(place.page, args=["little"] if place.of_cluster else [])


def test_box_is_a_form_without_scripts(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/"))
    assert '<form class="search" role="search" action="/c/little/search/">' in html
    assert 'role="combobox"' in html
    assert "late" in body(browser.get("/c/little/search/", {"q": "late"}))
