"""Placement in the browser: where things are, a search, its proposal, applying; who may, and at any size."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create, node_update
from apps.pages.placement.charts import Block, Letters, blocks_bar, scale_of, search_curve
from apps.planning.models import PlacementRun
from apps.planning.placement_search import LiveSearch, placement_live, placement_stop
from apps.queries.services import query_create, query_start
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.recordings import recorded

pytestmark = pytest.mark.django_db

PAGE = "/c/little/placement/"


@pytest.fixture
def cluster(db: None) -> Cluster:
    """`first` and `second` overload node a together; b and c stand empty."""
    return recorded(_crowded_cluster)


def _crowded_cluster() -> Cluster:
    cluster = small_cluster.small_cluster(nodes=("a", "b", "c"))
    small_cluster.start_query(cluster, "first", 0.7, "a")
    small_cluster.start_query(cluster, "second", 0.6, "a")
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    return cluster


def text(response: Any) -> str:
    """Text of the page: without tags, spaces as one."""
    html = re.sub(r"<(script|style|template).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ")


def search(client: Client, **fields: Any) -> PlacementRun:
    """Search through the form; done when it returns."""
    answer = client.post(PAGE, {"objective": "worst", "budget_s": "0.3", **fields})
    assert answer.status_code == 302, text(answer)
    small_cluster.run_jobs()
    return PlacementRun.objects.first()


def address(run: PlacementRun, action: str = "") -> str:
    return f"{PAGE}{run.pk}/{action}"


def test_placement_page_shows_nodes_with_their_operators(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(PAGE))
    assert "2 operators of 2 queries on 3 nodes; a carries the most excess" in html
    assert 'aria-label="a: first/work: 0.70 of the core; second/work: 0.60 of the core"' in html
    assert html.count('class="pl-core hot"') == 1
    assert re.findall(r'class="pl-node"><a class="name" href="[^"]*">(\w+)', html) == ["a", "b", "c"]
    assert "None yet. A search proposes moves" in html


def test_nodes_are_searched_by_their_operators(browser: Client, cluster: Cluster) -> None:
    assert "Nothing matches" in text(browser.get(f"{PAGE}?node=zebra"))
    html = body(browser.get(f"{PAGE}?node=second"))
    assert re.findall(r'class="pl-node"><a class="name" href="[^"]*">(\w+)', html) == ["a"]
    node_update(node=cluster.nodes.get(name="b"), state="draining")
    assert "draining" in text(browser.get(f"{PAGE}?node=b"))


def test_hundreds_of_nodes_are_paginated(browser: Client, cluster: Cluster) -> None:
    for i in range(60):
        node_create(pool=cluster.pools.get(), name=f"m{i:02}")
    first = body(browser.get(PAGE))
    assert "1 to 12 of 63 nodes" in first
    assert first.count('class="pl-node"') == 12
    assert browser.get(f"{PAGE}?nodes=6").content.decode().count('class="pl-node"') == 3


def test_empty_cluster_shows_the_first_step(browser: Client, db: None) -> None:
    bare = cluster_create(slug="bare", name="Bare", subinterval_s=1.0, horizon_s=60.0)
    assert "Register nodes first" in text(browser.get("/c/bare/placement/"))
    assert bare.placement_runs.count() == 0
    small_cluster.small_cluster()
    page = text(browser.get(PAGE))
    assert "Nothing runs yet" in page
    assert "Admit one first" in page


def test_search_ends_with_a_proposal(browser: Client, cluster: Cluster) -> None:
    run = search(browser, max_moves="2")
    page = browser.get(address(run))
    words = text(page)
    assert re.search(r"Moving 1 operator takes the worst case from [\d.]+ s to 0 s", words), words[:2000]
    assert "at most 2 moves" in words
    assert "1 that a move leaves or reaches" not in words
    assert "2 that a move leaves or reaches, of 3" in words
    html = body(page)
    assert "leaves" in html
    assert "comes here" in html
    assert 'data-open="apply-dialog"' in html
    assert "Moves 1" in words
    for part in ("queries", "nodes", "moves"):
        assert browser.get(f"{address(run)}?show={part}").status_code == 200
    assert "All 3, most excess first" in text(browser.get(f"{address(run)}?which=all"))
    rows = list(csv.DictReader(io.StringIO(browser.get(f"{address(run)}?show=moves&export=csv").content.decode())))
    assert rows[0]["Operator"] in {"first/work", "second/work"}
    assert (rows[0]["Order"], rows[0]["From"]) == ("1", "core 0 of a")
    assert text(browser.get(PAGE)).count("1 move: worst case") == 1
    assert "1 move: worst case" in text(browser.get(f"{PAGE}runs/?state=proposed"))


def test_proposal_says_why_operators_stay_apart(browser: Client, db: None) -> None:
    """Both operators need 0.7 of a core: on one node they would be at 1.4."""
    cluster = small_cluster.small_cluster(nodes=("a", "b"))
    parse = small_cluster.body(0.7)["operators"][0]
    count = {**parse, "id": "count", "inputs": [{**parse["inputs"][0], "from": "work"}]}
    query = query_create(cluster=cluster, name="pair", body={"operators": [parse, count]})
    where = [{"node": "a"}]
    query_start(version=query.versions.get(), placement={"work": where, "count": where})
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    words = text(browser.get(address(search(browser))))
    assert "Kept apart Operators that exchange events and are not on one node, and why 1 pair of operators" in words
    assert re.search(r"pair/\w+ is apart from pair/\w+, because [ab] would be at 1.40 of its capacity 0 s into", words)


def test_rules_are_kept_and_wrong_ones_are_named(browser: Client, cluster: Cluster) -> None:
    rules = {"rule_operator": ["second/work"], "rule_kind": ["pin"], "rule_other": ["a"]}
    run = search(browser, **rules)
    assert run.constraints == {"pin": {"second/work": "a"}}
    assert "second/work stays on a" in text(browser.get(address(run)))
    against = text(
        browser.get(address(search(browser, rule_operator="first/work", rule_kind="forbid", rule_other="a")))
    )
    assert "What runs now is not as the rules want it. After moving 1 operator the worst case is 0 s." in against
    wrong = {"rule_operator": ["second/work", "first/work"], "rule_kind": ["pin", "apart"], "rule_other": ["zz", ""]}
    answer = browser.post(PAGE, {"objective": "worst", "budget_s": "0.3", **wrong})
    assert answer.status_code == 422
    assert "first/work not with …”: enter an operator" in text(answer)
    wrong["rule_other"] = ["zz", "second/work"]
    answer = browser.post(PAGE, {"objective": "worst", "budget_s": "0.3", **wrong})
    assert "which is no node" in text(answer)
    assert 'value="zz"' in answer.content.decode()
    assert "rule_operator" in browser.get(f"{PAGE}rule/").content.decode()


def test_running_search_is_shown_live_and_stopped(browser: Client, cluster: Cluster) -> None:
    browser.post(PAGE, {"objective": "worst", "budget_s": "0.3"})
    run = PlacementRun.objects.get()
    page = text(browser.get(address(run)))
    assert "The first placement is on its way" in page
    placement_live(run=run, best=LiveSearch(None, 9.0, 5.0, 0.1, ()))
    assert "9 s after 0.1 s of 0.3 s by the cores alone" in text(browser.get(address(run, "live/")))
    placement_live(run=run, best=LiveSearch(8.0, None, 5.0, 0.1, ((0.05, 12.0), (0.1, 8.0))))
    live = browser.get(address(run, "live/"))
    assert "Best so far 8 s after 0.1 s of 0.3 s; no placement can be below 5 s" in text(live)
    assert "Best value 8 s after 0.1 s, at first 12 s, bound 5 s" in live.content.decode().replace("\u00a0", " ")
    assert browser.post(address(run, "stop/")).status_code == 302
    assert "Stops at its next step" in text(browser.get(address(run, "live/")))
    small_cluster.run_jobs()
    assert browser.get(address(run, "live/")).status_code == 204
    assert browser.post(address(run, "stop/")).status_code == 409


def test_proposal_is_applied_watched_and_undone(browser: Client, cluster: Cluster) -> None:
    run = search(browser)
    wrong = browser.post(address(run, "apply/"), {"pace": "-1", "batch_size": "x"})
    assert (wrong.status_code, "Pace" in text(wrong), "Moves at a time" in text(wrong)) == (400, True, True)
    assert browser.post(address(run, "apply/"), {"pace": "0", "batch_size": "5"}).status_code == 302
    applying = text(browser.get(address(run)))
    assert "0 of 1 move made" in applying
    assert "Abort" in applying
    small_cluster.run_jobs()
    applied = text(browser.get(address(run)))
    assert "Applied just now by a-operator: 1 of 1 move made" in applied
    assert "Undo 1 move" in applied and "nothing has moved by that" in applied
    browser.post(address(run, "done/"), {"note": "by savepoint"})
    assert "as a-operator says: by savepoint" in text(browser.get(address(run)))
    assert (
        "second/work" in browser.get(f"{PAGE}?node=b").content.decode() + browser.get(f"{PAGE}?node=c").content.decode()
    )
    browser.post(address(run, "undo/"))
    small_cluster.run_jobs()
    assert "every operator is where it was" in text(browser.get(address(run)))
    browser.post(address(run, "delete/"))
    assert not PlacementRun.objects.exists()


def test_proposal_on_a_moved_cluster_is_marked_stale(browser: Client, cluster: Cluster) -> None:
    run = search(browser)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    page = text(browser.get(address(run)))
    assert "The cluster has moved since the search looked at it" in page
    assert "node b: capacity changed from 1 kcycles/s to 900 cycles/s" in page
    refused = browser.post(address(run, "apply/"), {"pace": "1", "batch_size": "5"})
    assert (refused.status_code, "node b: capacity changed" in text(refused)) == (409, True)
    browser.post(address(run, "again/"))
    small_cluster.run_jobs()
    assert "Apply 1 move" in text(browser.get(address(PlacementRun.objects.first())))


def test_large_proposal_loads_its_staleness_separately(
    browser: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.pages.placement.facts._LARGE", 1)
    run = search(browser)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    page = body(browser.get(address(run)))
    assert "capacity changed" not in page
    assert f'hx-get="{address(run, "standing/")}"' in page
    assert "node b: capacity changed" in text(browser.get(address(run, "standing/")))


def test_failed_search_shows_its_error(browser: Client, cluster: Cluster) -> None:
    rules = {"rule_operator": ["first/work"] * 3, "rule_kind": ["forbid"] * 3, "rule_other": ["a", "b", "c"]}
    run = search(browser, **rules)
    page = text(browser.get(address(run)))
    assert "fits no node" in page
    assert "Search again" in page


def test_viewer_is_offered_no_search(browser: Client, browser_of: Callable[..., Client], cluster: Cluster) -> None:
    run = search(browser)
    viewer = browser_of("viewer")
    page = text(viewer.get(PAGE))
    assert "may look, not search" in page
    shown = body(viewer.get(address(run)))
    assert "apply-dialog" not in shown
    assert "Search again" not in shown
    assert browser.get(f"{PAGE}00000000-0000-0000-0000-000000000000/").status_code == 404


def test_cancelled_search_keeps_no_proposal(browser: Client, cluster: Cluster) -> None:
    browser.post(PAGE, {"objective": "worst", "budget_s": "0.3"})
    run = PlacementRun.objects.get()
    placement_stop(run=run)
    browser.post(f"/jobs/{run.job_id}/cancel/")
    assert "the search was cancelled and kept nothing" in text(browser.get(address(run)))


def test_blocks_are_as_wide_as_their_loads() -> None:
    letters = Letters()
    blocks = [Block("q", "small", 0.2), Block("r", "large", 0.9), Block("q", "tiny", 0.01)]
    scale = scale_of([blocks])
    html = blocks_bar("n1", blocks, letters, scale)
    assert scale == pytest.approx(1.11)
    assert re.findall(r"width:([\d.]+)%", html) == ["81.08", "18.02", "0.90"]
    assert [letters.letter("r"), letters.letter("q"), letters.style("q")] == ["A", "B", "q1"]
    assert html.count("<b>") == 2  # the tiny one has no room for a letter
    assert 'style="left:90.09%"' in html
    unknown = blocks_bar("n1", [Block("q", "a", None)] * 2, Letters(), 1.0)
    assert re.findall(r"width:([\d.]+)%", unknown) == ["12.00", "12.00"]
    assert [Letters({str(i): i for i in range(30)}).letter(str(i)) for i in (25, 26, 29)] == ["Z", "A1", "D1"]


def test_search_curve_falls_to_its_bound() -> None:
    html = search_curve([[0.1, 10.0], [0.4, 6.0]], 5.0, 1.0)
    assert 'aria-label="Best value 6 s after 0.4 s, at first 10 s, bound 5 s"' in html.replace("\u00a0", " ")
    assert search_curve([], 5.0, 1.0) == ""
    assert "Bound 80%" in search_curve([[0.1, 1.5]], 0.8, 1.0, share=True)


def test_phone_menu_reaches_every_page(browser: Client, cluster: Cluster) -> None:
    html = browser.get("/c/little/fleet/").content.decode()
    bar = html.split('class="bottom')[1].split("</nav>")[0]
    sheet = html.split('id="more-sheet"')[1].split("</dialog>")[0]
    assert re.findall(r"</svg>(\w+)</a>", bar) == ["Overview", "Queries", "Admission", "Placement"]
    assert 'aria-current="true"' in bar  # Fleet is behind "More"
    for place in ("Arrivals", "Fleet", "Jobs", "Settings", "API", "Help"):
        assert f"</svg>{place}" in sheet
    assert "Queries" not in sheet
