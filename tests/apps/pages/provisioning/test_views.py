"""The bench, its scenarios, searches and answers, and the way to the fleet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, NodePool
from apps.fleet.services import cluster_create, node_create
from apps.pages.provisioning import bench
from apps.pages.provisioning.charts import BenchChart
from apps.pages.provisioning.results import RESULTS
from apps.pages.provisioning.tables import option_words
from apps.planning import sweeps
from apps.planning.choices import Find
from apps.planning.models import Scenario, WhatIf
from apps.planning.scenarios import scenario_create
from apps.planning.sweeps import BenchSweep
from apps.planning.what_ifs import stored_answer
from apps.queries.models import Query
from engine.document.elements import Objective
from engine.provisioning.answers.pools import PoolSize
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.recordings import recorded
from tests.servers import PATIENCE_S

pytestmark = pytest.mark.django_db

BENCH = "/c/little/provisioning/"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first bench of a process takes seconds."""
    monkeypatch.setattr(bench, "_PATIENCE_S", PATIENCE_S)


@pytest.fixture
def fleet(db: None) -> Cluster:
    """Two nodes with a price; both queries hold, and would not on one node."""
    return recorded(_priced_cluster)


def _priced_cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    NodePool.objects.update(price_per_hour="0.9400")
    small_cluster.start_query(cluster, "one", 0.6, "a")
    small_cluster.start_query(cluster, "two", 0.6, "b")
    return cluster


def sentence(html: str) -> str:
    match = re.search(r'<p class="answer"[^>]*>(.*?)</p>', html)
    assert match
    return re.sub(r"<[^>]+>", "", match[1]).replace("\u00a0", " ")


def test_bench_opens_with_its_answer_in_numbers(browser: Client, fleet: Cluster) -> None:
    html = body(browser.get(f"{BENCH}?rate=1.5"))
    assert sentence(html) == (
        "3 nodes keep every worst case within the 2 s objective at 1.5 × the load: "
        "no excess with all nodes up and no excess with one lost, for € 2.82 per hour."
    )
    callout = html.split('class="callout"')[1].split("</div>")[0].replace("\u00a0", " ")
    assert "2 nodes save € 0.94 per hour, but with a lost one and two would never catch up." in callout
    assert 'data-nodes="3"' in html
    assert "€ 2.82" in html.replace("\u00a0", " ")
    assert "/api/v1/what-ifs/sweep" in html


def test_too_few_nodes_are_shown_with_the_reason(browser: Client, fleet: Cluster) -> None:
    said = sentence(body(browser.get(f"{BENCH}?rate=1.5&nodes=1")))
    assert said.startswith("1 node does not keep every objective at 1.5 × the load: ")
    assert said.endswith("3 nodes would do.")
    never = sentence(body(browser.get(f"{BENCH}?rate=2&bound=0.001&lost=0")))
    assert "No number up to" in never
    now = sentence(body(browser.get(f"{BENCH}?lost=0")))
    assert now.startswith("The 2 nodes of now can keep every worst case within the 2 s objective: ")


def test_slider_fetches_a_part_and_replaces_the_address(browser: Client, fleet: Cluster) -> None:
    part = browser.get(f"{BENCH}?rate=1.50&headroom=0&lost=1", headers={"HX-Request": "true", "HX-Target": "bench"})
    assert part["HX-Replace-Url"] == f"{BENCH}?rate=1.5"
    html = body(part)
    assert "<html" not in html
    assert 'id="bench-sentence" hx-swap-oob="true"' in html


def test_wrong_inputs_are_reported_and_ignored(browser: Client, fleet: Cluster) -> None:
    html = body(browser.get(f"{BENCH}?rate=fast&s.nope=2&pool=gold&headroom=1"))
    assert "Record rate is &#x27;fast&#x27;" in html
    assert "no source that is read" in html
    assert "allowed: pool" in html


def test_bench_works_without_nodes_queries_objectives_or_prices(browser: Client, fleet: Cluster) -> None:
    cluster_create(slug="bare", name="Bare")
    assert "No nodes yet" in body(browser.get("/c/bare/provisioning/"))
    assert browser.get("/c/bare/provisioning/nodes/")["Location"] == "/c/bare/fleet/"
    small_cluster.small_cluster("idle")
    assert "Nothing runs yet" in body(browser.get("/c/idle/provisioning/"))
    NodePool.objects.update(price_per_hour=None)
    Query.objects.update(objective_bound_s=None)
    html = body(browser.get(BENCH))
    assert "so any number is enough" in sentence(html)
    assert "a price per hour" in html
    assert "€" not in sentence(html)


def test_large_cluster_is_answered_by_a_job(browser: Client, fleet: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "is_quick", lambda deployment: False)
    assert "too many for an answer within a second" in body(browser.get(BENCH))
    part = body(browser.post(f"{BENCH}refine/", {"rate": "1.5"}))
    assert "changed:what-if:" in part
    small_cluster.run_jobs()
    assert sentence(body(browser.get(f"{BENCH}?rate=1.5"))).startswith("3 nodes keep")


def test_flow_and_intervals_are_computed_by_a_job(browser: Client, fleet: Cluster) -> None:
    assert "once the inputs rest" in body(browser.get(f"{BENCH}?rate=1.5"))
    asked = body(browser.post(f"{BENCH}refine/", {"rate": "1.5"}))
    assert "changed:what-if:" in asked
    assert WhatIf.objects.get().from_bench
    small_cluster.run_jobs()
    html = body(browser.get(f"{BENCH}?rate=1.5"))
    assert "estimated with 90% intervals" in html
    assert "once the inputs rest" not in html


def test_page_waits_for_a_job_that_ends_while_it_renders(
    browser: Client, fleet: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.post(f"{BENCH}refine/", {"rate": "1.5"})
    look = bench.what_if_same

    def look_before_it_ends(*question: Any) -> WhatIf | None:
        found = look(*question)
        small_cluster.run_jobs()
        return found

    monkeypatch.setattr(bench, "what_if_same", look_before_it_ends)
    assert "changed:what-if:" in body(browser.get(f"{BENCH}?rate=1.5"))
    assert "estimated with 90% intervals" in body(browser.get(f"{BENCH}?rate=1.5"))


def test_a_scenario_is_saved_opened_compared_and_deleted(browser: Client, fleet: Cluster) -> None:
    saved = browser.post(f"{BENCH}scenarios/new/", {"name": "Friday  peak", "rate": "1.5", "nodes": "3"})
    assert saved["Location"] == f"{BENCH}?rate=1.5&nodes=3"
    scenario = Scenario.objects.get()
    assert (scenario.name, scenario.place) == ("Friday peak", "search")
    assert scenario.changes == [{"scale_source": "*", "by": 1.5}, {"resize_pool": "pool", "nodes": 3}]
    assert "Not answered yet" in body(browser.get(BENCH))
    small_cluster.run_jobs()
    html = body(browser.get(BENCH))
    assert "€ 2.82" in html.split('id="scenarios"')[1].replace("\u00a0", " ")
    assert "Friday peak,3,1.5," in body(browser.get(f"{BENCH}?export=csv"))
    page = body(browser.get(f"{BENCH}scenarios/{scenario.pk}/"))
    assert f"{BENCH}?rate=1.5&amp;nodes=3" in page
    assert "every source at 1.5 times its load" in page
    compared = browser.post(f"{BENCH}scenarios/compare/", {"row": [str(scenario.pk)]})
    small_cluster.run_jobs()
    html = body(browser.get(compared["Location"]))
    assert "Side by side" in html
    assert "Now" in html
    node_create(pool=fleet.pools.get(), name="c")
    assert "The cluster has moved since" in body(browser.get(compared["Location"]))
    browser.post(f"{BENCH}scenarios/{scenario.pk}/delete/")
    assert not Scenario.objects.exists()
    assert browser.get(f"{BENCH}scenarios/{scenario.pk}/").status_code == 404


TYPES = {
    "type_name": ["small", ""],
    "type_capacity_cps": ["1000", ""],
    "type_cores": ["1", ""],
    "type_price_per_hour": ["0.5", ""],
    "type_max": ["4", ""],
}


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("smallest_pool", "Why not one node fewer"),
        ("smallest_pool", "With random costs and arrivals"),
        ("survival", "Each node lost in turn"),
        ("survival", "With random costs and arrivals"),
        ("growth", "Growth limit"),
        ("cheapest_mix", "New nodes"),
        ("cheapest_mix", "behind these numbers"),
        ("pareto", "Cost against latency"),
    ],
)
def test_each_what_if_has_a_page(browser: Client, fleet: Cluster, search: str, words: str) -> None:
    asked = browser.post(f"{BENCH}find/", {"search": search, "rate": "1.5", **TYPES})
    assert asked.status_code == 302, body(asked)
    assert "The answer appears here" in body(browser.get(asked["Location"]))
    small_cluster.run_jobs()
    html = body(browser.get(asked["Location"]))
    assert words in html
    assert sentence(html)
    assert "every source at 1.5 times its load" in html
    assert "lose_one" not in html.split("The REST call")[0]
    assert search in body(browser.get(f"{BENCH}what-ifs/?export=csv"))


def test_options_of_a_what_if_are_put_in_words() -> None:
    said = option_words({"lose_one": True, "headroom_s": 0.5, "types": [{"name": "small"}], "max_nodes": 64})
    assert said == [("Hold with any one node lost", "yes"), ("Headroom, s", "0.5"), ("At most nodes", "64")]


def test_survival_opens_with_queries_late_on_all_nodes() -> None:
    figures = dict.fromkeys(("bound_s", "low_s", "high_s")) | {"estimate_s": 1.0, "worst_s": 1.0}
    late = {"broken": ["q"], "queries": {"q": {"statistic": "worst", "state": "breached", **figures}}}
    now = {"name": "now", "place": "fill", "node_count": 1, "cost_per_hour": None, "by": "flow", **late}
    answer = {"survives": True, "now": now, "losses": [now | {"node": "a", "breaks": []}], "message": ""}
    row = WhatIf(cluster=Cluster(), find=Find.SURVIVAL, result=answer)
    words = RESULTS[Find.SURVIVAL](row, stored_answer(row)).sentence
    assert words == "<b>1 query</b> is late with every node up: q. Losing a node breaks no other."


def test_large_shares_of_objectives_are_shown_as_multiples() -> None:
    def size(nodes: int, share: float) -> PoolSize:
        return PoolSize(nodes, None, share, share, {"q": share, "r": 1.0}, ("q",), (), None, None)

    objectives = {"q": Objective("q", "worst", 1.0), "r": Objective("r", "mean", 5.0)}
    sweep = BenchSweep(1, [size(1, 125.0), size(2, 90.0)], objectives, lose_one=False)
    svg = str(BenchChart(sweep, sweep.sizes[0], "EUR", lambda nodes: f"?nodes={nodes}").svg)
    assert "Worst case, in times its objective" in svg
    assert "4 ×" in svg  # the axis ends there, so that the objective stays in sight
    assert "125 ×" in svg.replace(" ", " ")
    assert "%" not in svg


def test_bench_says_what_never_catches_up_before_a_job_does(browser: Client, db: None) -> None:
    """Half as much again as a node can do waits 30 s of its 60 within the horizon: by Mace alone it would hold."""
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "steady", 1.5, "a", bound_s=60.0)
    small_cluster.start_query(cluster, "calm", 0.2, "b", bound_s=60.0)
    html = body(browser.get(BENCH))
    assert "do not keep every objective" in sentence(html)
    assert "steady would never catch up." in sentence(html)
    rows = html[html.index("Queries with 2 nodes") :]
    assert rows.index("steady") < rows.index("calm")
    assert "Never catches up" in rows and "grows" in rows
    assert "2 nodes: never catches up with all up" in html
    assert "Preview" not in html[html.index('id="bench-acts"') :].split("</div>")[0]
    assert "Late with one lost" in rows.split("calm", 1)[1].split("</tr>")[0]


def test_bench_says_which_loss_never_ends(browser: Client, fleet: Cluster) -> None:
    html = body(browser.get(f"{BENCH}?rate=1&nodes=2&bound=59"))
    assert "two would never catch up" in sentence(html) or "one and two would never catch up" in sentence(html)
    assert "never catches up with one lost" in html


def test_search_from_the_bench_is_shown_on_the_bench(browser: Client, fleet: Cluster) -> None:
    part = browser.post(f"{BENCH}find/", {"search": "growth"}, headers={"HX-Request": "true"})
    row = WhatIf.objects.get()
    assert f"find={row.pk}" in part["HX-Replace-Url"]
    assert f"{BENCH}what-ifs/{row.pk}/" in body(browser.get(part["HX-Replace-Url"]))
    refused = browser.post(f"{BENCH}find/", {"search": "cheapest_mix", "type_name": ["x"]})
    assert refused.status_code == 400


def test_added_nodes_are_planned_not_active(browser: Client, fleet: Cluster) -> None:
    page = body(browser.get(f"{BENCH}nodes/?rate=1.5&nodes=4"))
    assert "Plan 2 more nodes" in page
    assert "€ 1.88 per hour" in page.replace("\u00a0", " ")
    assert fleet.nodes.count() == 2
    browser.post(f"{BENCH}nodes/", {"rate": "1.5", "nodes": "4"})
    assert fleet.nodes.filter(state=NodeState.PLANNED).count() == 2
    fewer = body(browser.get(f"{BENCH}nodes/?nodes=1"))
    assert "1 node fewer" in fewer
    assert browser.post(f"{BENCH}nodes/", {"nodes": "1"}).status_code == 400


def test_bench_sql_count_does_not_grow_with_rows(browser: Client, fleet: Cluster) -> None:
    def cost() -> int:
        browser.get(BENCH)
        with CaptureQueriesContext(connection) as queries:
            assert browser.get(BENCH).status_code == 200
        return len(queries)

    scenario_create(cluster=fleet, name="first", user=None)
    before = cost()
    for i in range(3):
        small_cluster.start_query(fleet, f"more-{i}", 0.01, "a")
        node_create(pool=fleet.pools.get(), name=f"m{i}")
        scenario_create(cluster=fleet, name=f"s{i}", user=None)
    assert cost() == before


def test_viewer_reads_the_bench_but_starts_nothing(browser_of: Callable[..., Client], fleet: Cluster) -> None:
    html = body(browser_of("viewer").get(BENCH))
    assert "Save scenario" not in html
    assert "refine/" not in html
