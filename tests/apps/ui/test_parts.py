"""Live parts: cut out of pages, unchanged ones answered with 304."""

from __future__ import annotations

import html
import json
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.fleet.models import Cluster, Node
from apps.ui.parts import etag_of_part, part_named, parts_etags
from tests.apps import small_cluster

PAGE = """<main><section class="a" id="one" hx-select="#one"><div><section>in</section></div></section>
<section id="two" hx-get="/" hx-trigger="changed:x from:body"
  hx-select="#two" hx-select-oob="#one">rest</section></main>"""


def test_part_ends_where_its_own_element_ends() -> None:
    one = part_named(PAGE, "one")
    assert one.startswith('<section class="a"') and one.endswith("</div></section>")
    assert part_named(PAGE, "two").endswith(">rest</section>")
    assert part_named(PAGE, "three") == part_named(PAGE, "on") == ""


def test_parts_are_named_as_a_browser_asks_for_them() -> None:
    assert parts_etags(PAGE) == {"two one": etag_of_part(part_named(PAGE, "two") + part_named(PAGE, "one"))}


def test_tokens_and_running_times_change_no_etag_and_values_do() -> None:
    def part(token: str, ago: str, value: str) -> str:
        field = f'<input type="hidden" name="csrfmiddlewaretoken" value="{token}">'
        return f'<div>{field}<time datetime="t" title="x" data-rel>{ago}</time> {value}</div>'

    first = etag_of_part(part("abc", "1 min ago", "3"))
    assert etag_of_part(part("xyz", "2 min ago", "3")) == first
    assert etag_of_part(part("abc", "1 min ago", "4")) != first


@pytest.fixture
def cluster(db: None) -> Cluster:
    return small_cluster.small_cluster()


@pytest.fixture
def browser(admin_client: Client) -> Client:
    return admin_client


PATH = "/c/little/fleet/"


def ask(browser: Client, etag: str = "") -> tuple[int, str, str]:
    headers = {"HX-Request": "true", "Sluice-Part": "fleet-list", **({"If-None-Match": etag} if etag else {})}
    answer = browser.get(PATH, headers=headers)
    assert answer["Cache-Control"] == "no-store"
    return answer.status_code, answer["ETag"], answer.content.decode()


def test_page_says_what_its_parts_are_and_unchanged_ones_cost_no_bytes(browser: Client, cluster: Cluster) -> None:
    whole = browser.get(PATH).content.decode()
    told = re.search(r'data-parts="([^"]*)"', whole)
    assert told
    etag = json.loads(html.unescape(told[1]))["fleet-list"]
    assert ask(browser, etag) == (304, etag, "")
    Node.objects.filter(name="a").update(cores=7)
    status, other, text = ask(browser, etag)
    assert status == 200 and other != etag
    assert text.startswith("<section") and text.endswith("</section>") and 'id="fleet-list"' in text
    assert len(text) < len(whole) / 2


def test_part_costs_the_database_less_than_its_page(browser: Client, cluster: Cluster) -> None:
    counts = []
    for headers in ({}, {"HX-Request": "true", "Sluice-Part": "fleet-list"}):
        browser.get(PATH, headers=headers)
        with CaptureQueriesContext(connection) as statements:
            browser.get(PATH, headers=headers)
        counts.append(len(statements))
    assert counts[1] < counts[0]


def test_part_that_a_page_lacks_leaves_the_answer_whole(browser: Client, cluster: Cluster) -> None:
    for names in ("no-such-part", "a b c d e f", '"><script>'):
        answer = browser.get(PATH, headers={"HX-Request": "true", "Sluice-Part": names})
        assert answer.status_code == 200
        assert 'id="fleet-list"' in answer.content.decode()
