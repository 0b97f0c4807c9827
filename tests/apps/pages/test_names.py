"""Suggestions of names as one types."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db

NAMES = "/c/little/search/names/"


def values(browser: Client, **asked: str) -> list[str]:
    answer = browser.get(NAMES, asked)
    assert answer.status_code == 200
    return [html.unescape(value) for value in re.findall(r'<option value="([^"]*)"', answer.content.decode())]


def test_names_have_what_was_typed_in_whatever_field(browser: Client, cluster: Cluster) -> None:
    small_cluster.start_query(cluster, "checkout", 0.1, "a")
    assert values(browser, of="queries", query="CHECK") == ["checkout"]
    assert values(browser, of="queries", anything="out") == ["checkout"]
    assert values(browser, of="queries", query="nobody") == []
    assert values(browser, of="nodes", source="b") == ["b"]
    assert values(browser, of="operators", rule_operator="check/") == ["checkout/work"]
    assert values(browser, of="places", rule_other="b") == ["b"]
    assert "query:checkout" in values(browser, of="plan-sources", source="query:check")


def test_last_of_several_sources_is_the_one_that_is_typed(browser: Client, cluster: Cluster) -> None:
    assert values(browser, of="sources", **{"o1-from": "other, cli"}) == ["other, clicks"]
    assert values(browser, of="sources", **{"o1-from": "cli"}) == ["clicks"]


def test_no_more_names_are_given_than_one_can_read(browser: Client, cluster: Cluster) -> None:
    for i in range(25):
        small_cluster.make_query(cluster, f"more-{i:02}", 0.001)
    assert values(browser, of="queries", query="more") == [f"more-{i:02}" for i in range(20)]


def test_unknown_kind_of_names_is_refused_with_those_there_are(browser: Client, cluster: Cluster) -> None:
    answer = browser.get(NAMES, {"of": "pigeons"})
    assert answer.status_code == 400 and "queries, nodes" in answer.content.decode()


def test_forms_suggest_names_in_place_of_listing_them(browser: Client, cluster: Cluster) -> None:
    for path, of in (
        ("admission/new/", "queries"),
        ("reports/new/", "queries"),
        ("provisioning/resource-plans/new/", "plan-sources"),
        ("fleet/new/link/", "nodes"),
        ("queries/-/new/?by=form", "sources"),
    ):
        page = browser.get(f"/c/little/{path}").content.decode()
        assert f"/search/names/?of={of}" in page, path
        assert '<datalist id="names">' in page, path
        assert '<option value="calm"' not in page and '<option value="a"' not in page, path
