"""Queries in the browser: the list, the tabs of one, describing and changing them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.estimates.selectors import objectives_by_headroom
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.queries.arrivals.services import arrivals_dispersion_update
from apps.queries.choices import ArrivalOrigin, QueryState
from apps.queries.models import Query
from apps.queries.statistics import statistics_update
from tests.apps import small_cluster
from tests.apps.estimates.answers import widening
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

NEW = "/c/little/queries/-/new/"
DOCUMENT = json.dumps(
    {
        "operators": [
            {"id": "parse", "inputs": [{"from": "clicks", "selectivity": 0.5, "cycles_per_event": 2}]},
            {"id": "count", "inputs": [{"from": "parse", "selectivity": 0.1, "cycles_per_event": 1}]},
        ]
    }
)
FACTS = {"name": "orders", "team": "Shop", "statistic": "q0.99", "bound_s": "3", "priority": "1", "description": ""}


def table_of(html: str) -> str:
    return html.split("<tbody>")[1].split("</tbody>")[0]


def test_list_begins_with_queries_over_their_objective(browser: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "idea", 0.1)
    html = body(browser.get("/c/little/queries/"))
    assert "2 running: 1 expected over the objective, 1 within the objective by estimate. 1 not admitted yet." in html
    rows = table_of(html)
    assert rows.index("late") < rows.index("calm") < rows.index("idea")
    assert "none yet" in rows
    assert 'href="/c/little/fleet/nodes/b/"' in rows
    drafts = table_of(body(browser.get("/c/little/queries/?state=draft")))
    assert "idea" in drafts
    assert "late" not in drafts
    assert "calm" not in table_of(body(browser.get("/c/little/queries/?q=lat")))


def test_list_begins_with_what_never_catches_up_and_what_nobody_knows(browser: Client, cluster: Cluster) -> None:
    for name in ("endless", "unknown"):
        small_cluster.start_query(cluster, name, 0.01, "a")
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    run = EstimateRun.objects.filter(cluster=cluster).latest("created_at")
    rows = run.queries.all()
    rows.filter(query__name="endless").update(estimate_s=0.01, certainty="never_catches_up", state="breached")
    rows.filter(query__name="unknown").update(estimate_s=0.01, high_s=0.02, certainty="unknown", state="unknown")
    rows.filter(query__name="late").update(certainty="known")
    objectives_refresh(cluster)
    table = table_of(body(browser.get("/c/little/queries/")))
    places = [table.index(f"/queries/{name}/") for name in ("endless", "late", "unknown", "calm")]
    assert places == sorted(places)
    backwards = table_of(body(browser.get("/c/little/queries/?sort=-headroom")))
    places = [backwards.index(f"/queries/{name}/") for name in ("calm", "unknown", "late", "endless")]
    assert places == sorted(places)
    overview = table_of(body(browser.get("/c/little/")))
    places = [overview.index(f"/queries/{name}/") for name in ("endless", "late", "unknown", "calm")]
    assert places == sorted(places)
    names = [row.query.name for row in objectives_by_headroom(run)]
    assert names == ["endless", "late", "unknown", "calm"]


def test_list_is_exported_and_empty_list_names_the_first_step(browser: Client, cluster: Cluster) -> None:
    response = browser.get("/c/little/queries/?export=csv")
    lines = response.getvalue().decode().splitlines()
    assert lines[0].startswith("Query,State,Objective")
    assert lines[1].startswith("late,breached,2.0")
    Query.objects.all().update(running_version=None)
    Query.objects.all().delete()
    html = body(browser.get("/c/little/queries/"))
    assert "No queries yet" in html
    assert f'href="{NEW}"' in html


def test_list_needs_the_same_number_of_statements_for_more_rows(browser: Client, cluster: Cluster) -> None:
    def cost() -> int:
        browser.get("/c/little/queries/")
        with CaptureQueriesContext(connection) as queries:
            browser.get("/c/little/queries/")
        return len(queries)

    before = cost()
    for i in range(4):
        small_cluster.start_query(cluster, f"more-{i}", 0.01, "a")
    assert cost() == before


def test_late_query_shows_its_bottleneck(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/queries/late/")).replace("\xa0", " ")
    assert "It never catches up: b gets 1.20 times its capacity" in html
    assert "b runs at 1.20 of capacity at its peak." in html
    assert "Expected late" in html
    assert "▲ Bottleneck" in html
    assert "Where the" in html
    assert 'class="wherebar"' in html
    assert 'data-chart="latency"' in html
    assert "No input has a sample in batches: the interval takes their means as they are." in html
    assert "changed:cluster:little from:body" in html
    assert browser.get("/c/little/queries/nobody/").status_code == 404


def test_query_page_shows_each_statistic_once(browser: Client, cluster: Cluster) -> None:
    QueryEstimate.objects.filter(query__name="late").update(certainty="known")
    row = QueryEstimate.objects.get(query__name="late")
    html = body(browser.get("/c/little/queries/late/")).replace("\xa0", " ")
    panel = html.split("Other statistics</h2>")[1].split("</section>")[0]
    assert all(words in panel for words in ("Mean", "Median", "p90", "p99"))
    assert "Worst case" not in panel, "the statistic of the objective stands in the strip with its interval"
    assert "at 95%" in panel and "By mean costs alone" in panel and "Variation of the cost of" in panel
    assert "90% interval" in html.split("Other statistics</h2>")[0]
    del row.result["realised"]
    row.save()
    assert "Other statistics" not in body(browser.get("/c/little/queries/late/"))


def test_query_page_does_not_show_the_horizons_share_of_a_growing_latency_as_its_estimate(
    browser: Client, cluster: Cluster
) -> None:
    html = body(browser.get("/c/little/queries/late/")).replace("\xa0", " ")
    assert "Reached within the horizon, and it grows on" in html
    panel = html.split("Other statistics</h2>")[1].split("</section>")[0]
    assert "Within the horizon alone" in panel
    assert "at 95%" not in panel


def test_query_page_names_a_widened_interval_as_cause_of_a_risk(browser: Client, cluster: Cluster) -> None:
    row = QueryEstimate.objects.get(query__name="calm")
    row.result = {**row.result, "calibration": widening(12.3).to_dict()}
    row.estimate_s, row.high_s = 0.9 * row.bound_s, 2.0 * row.bound_s
    row.save()
    objectives_refresh(cluster)
    html = body(browser.get("/c/little/queries/calm/")).replace("\xa0", " ")
    assert "because recent estimates were so far off that the upper side of its interval is 12.3 times as wide." in html


def test_stale_estimate_names_the_changes_since(browser: Client, cluster: Cluster) -> None:
    assert "Since this estimate" not in body(browser.get("/c/little/queries/late/"))
    cluster.nodes.filter(name="b").update(capacity_cps=2000)
    html = body(browser.get("/c/little/queries/late/"))
    assert "Since this estimate node b: capacity changed from 1 kcycles/s to 2 kcycles/s" in html


def test_draft_links_to_its_admission_preview(browser: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "idea", 0.1)
    html = body(browser.get("/c/little/queries/idea/"))
    assert "it is not part of estimates" in html
    assert "?query=idea" in html
    assert "No estimate yet" in html
    assert "Estimate now" not in html
    assert "anywhere" in body(browser.get("/c/little/queries/idea/placement/"))


def test_every_tab_of_a_running_query_is_shown(browser: Client, cluster: Cluster) -> None:
    placement = body(browser.get("/c/little/queries/late/placement/"))
    assert "On 1 node and 1 core, shared with no other query." in placement
    assert "b: highest excess" in placement
    estimates = body(browser.get("/c/little/queries/late/estimates/"))
    assert "Expected late" in table_of(estimates)
    assert "No decisions yet" in body(browser.get("/c/little/queries/late/decisions/"))
    assert 'data-chart="history"' not in estimates
    response = browser.get("/c/little/queries/late/estimates/?export=csv")
    assert b"breached" in response.getvalue()


def test_query_is_created_from_a_document(browser: Client, cluster: Cluster) -> None:
    assert browser.get(NEW).status_code == 200
    assert "clicks" in body(browser.get("/c/little/queries/-/example/"))
    assert browser.post(NEW, {**FACTS, "document": DOCUMENT})["Location"] == "/c/little/queries/orders/"
    query = Query.objects.get(name="orders")
    assert (query.state, query.objective_statistic, query.objective_bound_s) == (QueryState.DRAFT, "q0.99", 3.0)
    file = SimpleUploadedFile("query.json", DOCUMENT.encode())
    facts = {**FACTS, "name": "second", "statistic": "none", "bound_s": ""}
    assert browser.post(NEW, {**facts, "document": "", "file": file}).status_code == 302
    assert Query.objects.get(name="second").objective_bound_s is None


def test_faults_of_a_document_are_listed_and_its_text_kept(browser: Client, cluster: Cluster) -> None:
    faulty = DOCUMENT.replace("0.5", "-1").replace("0.1", '"x"')
    response = browser.post(NEW, {**FACTS, "document": faulty, "bound_s": "-3"})
    assert response.status_code == 422
    html = body(response)
    assert "operators[0].inputs[0].selectivity" in html
    assert "operators[1].inputs[0].selectivity" in html
    assert 'id="id_bound_s_error"' in html
    assert "&quot;cycles_per_event&quot;: 2" in html
    assert "line 1, column 2" in body(browser.post(NEW, {**FACTS, "document": "{]"}))
    assert "Paste the operators" in body(browser.post(NEW, {**FACTS, "document": ""}))
    file = SimpleUploadedFile("query.json", faulty.encode())
    assert "&quot;cycles_per_event&quot;: 2" in body(browser.post(NEW, {**FACTS, "document": "", "file": file}))
    assert not Query.objects.filter(name="orders").exists()
    assert "another query" in body(browser.post(NEW, {**FACTS, "name": "late", "document": DOCUMENT})).lower()


def line(key: str, **values: str) -> dict[str, str]:
    known = {"id": "", "kind": "map", "from": "", "selectivity": "", "cycles_per_event": "", "bytes_per_event": ""}
    return {f"{key}-{name}": value for name, value in {**known, "stateless": "", **values}.items()}


def test_query_is_created_operator_by_operator(browser: Client, cluster: Cluster) -> None:
    assert body(browser.get(f"{NEW}?by=form")).count('class="op"') == 3
    assert 'value="o5"' in body(browser.get("/c/little/queries/-/operator/?row=o4"))
    small_cluster.make_query(cluster, "other", 0.1)
    first = line("o0", id="a", **{"from": "clicks"}, selectivity="1", cycles_per_event="2", stateless="yes")
    joined = line("o2", id="b", kind="join", **{"from": "clicks, a"}, selectivity="0.5", cycles_per_event="1e1")
    rows = {"row": ["o0", "o1", "o2"], **first, **line("o1"), **joined}
    assert browser.post(f"{NEW}?by=form", {**FACTS, **rows}).status_code == 302
    a, b = Query.objects.get(name="orders").versions.get().operators.all()
    assert (a.stateless, b.kind, b.inputs.count()) == (True, "join", 2)
    added = body(browser.post(f"{NEW}?by=form", {**FACTS, **rows, "add": "1"}))
    assert 'name="o3-id"' in added


def test_faults_are_shown_at_their_operator(browser: Client, cluster: Cluster) -> None:
    rows = {"row": ["o0"], **line("o0", id="a", **{"from": "clicks"}, selectivity="much", cycles_per_event="dear")}
    response = browser.post(f"{NEW}?by=form", {**FACTS, **rows})
    assert response.status_code == 422
    html = body(response)
    field = html.split('name="o0-selectivity"')[1].split("</div>")[0]
    assert "&#x27;much&#x27;" in field
    assert 'value="much"' in field
    assert "&#x27;dear&#x27;" in html.split('name="o0-cycles_per_event"')[1].split("</div>")[0]


def test_unit_of_cycles_is_stored_shown_and_kept_by_the_next_version(browser: Client, cluster: Cluster) -> None:
    cluster.nodes.update(cycle_unit="cpu_ns")
    typed = {"id": "a", "from": "clicks", "selectivity": "1", "cycles_per_event": "900", "cycle_unit": "cpu_ns"}
    new = {**FACTS, "row": ["o0"], **line("o0", **typed)}
    again = body(browser.post(f"{NEW}?by=form", {**new, "add": "1"}))
    assert '<option value="cpu_ns" selected' in again.split('name="o0-cycle_unit"')[1].split("</select>")[0]
    assert browser.post(f"{NEW}?by=form", new).status_code == 302
    entry = Query.objects.get(name="orders").versions.get().operators.get().inputs.get()
    assert (entry.cycles_per_event, entry.cycle_unit) == (900.0, "cpu_ns")
    for page in ("statistics/", "statistics/?edit=table"):
        assert "nanoseconds of CPU" in body(browser.get(f"/c/little/queries/orders/{page}"))
    assert "cpu_ns" in body(browser.get("/c/little/queries/orders/versions/new/"))


@pytest.mark.parametrize(("unit", "word"), [("cpu_ns", "nobody knows how to convert"), ("hours", "&#x27;hours&#x27;")])
def test_unit_of_cycles_is_refused_at_its_field_as_in_a_document(
    browser: Client, cluster: Cluster, unit: str, word: str
) -> None:
    typed = {"id": "a", "from": "clicks", "selectivity": "1", "cycles_per_event": "900", "cycle_unit": unit}
    response = browser.post(f"{NEW}?by=form", {**FACTS, "row": ["o0"], **line("o0", **typed)})
    assert response.status_code == 422
    assert word in body(response).split('name="o0-cycle_unit"')[1].split("</div>")[0]


def test_version_is_stored_and_compared(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/queries/late/versions/new/"
    assert "cycles_per_event" in body(browser.get(path))
    faulty = browser.post(path, {"note": "n", "document": DOCUMENT.replace("0.5", "-1")})
    assert faulty.status_code == 422
    assert "operators[0].inputs[0].selectivity" in body(faulty)
    assert browser.post(path, {"note": "Two steps", "document": DOCUMENT}).status_code == 302
    html = body(browser.get("/c/little/queries/late/versions/?from=1&to=2"))
    assert "Two steps" in html
    assert "From version 1 to 2" in html
    assert "removed" in html
    assert browser.get("/c/little/queries/late/versions/?from=1&to=9").status_code == 404


def test_statistics_are_changed_by_table_or_json(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/queries/calm/statistics/"
    assert "on assumed statistics" in body(browser.get(path))
    form = {"selectivity-0": "1", "cycles_per_event-0": "5", "events-0": "0", "evidence-0": "assumed"}
    assert 'name="selectivity-0"' in body(browser.get(f"{path}?edit=table"))
    refused = browser.post(f"{path}?edit=table", {**form, "selectivity-0": "-2"})
    assert refused.status_code == 422
    assert "work from clicks" in body(refused)
    assert 'value="-2"' in body(refused)
    browser.post(f"{path}?edit=table", {**form, "selectivity-0": "0.25", "evidence-0": "predicted"})
    entry = Query.objects.get(name="calm").versions.get().operators.get().inputs.get()
    assert (entry.selectivity, entry.evidence) == (0.25, "predicted")
    batches = [{"events": 100, "outputs": 50, "cycles": 300}, {"events": 100, "outputs": 30, "cycles": 500}]
    pasted = json.dumps([{"operator": "work", "batches": batches}])
    assert browser.post(f"{path}?edit=json", {"statistics": pasted}).status_code == 302
    entry.refresh_from_db()
    assert (entry.selectivity, entry.cycles_per_event, entry.events) == (0.4, 4.0, 200)
    broken = browser.post(f"{path}?edit=json", {"statistics": "[{"})
    assert broken.status_code == 422
    assert "[{</textarea>" in body(broken)


def test_a_query_is_edited_stopped_and_deleted(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/queries/late/"
    form = {"name": "late", "team": "Ops", "statistic": "mean", "bound_s": "4", "priority": "2", "description": "d"}
    assert 'value="2"' in body(browser.get(f"{path}edit/"))
    assert browser.post(f"{path}edit/", {**form, "bound_s": ""}).status_code == 422
    assert browser.post(f"{path}edit/", {**form, "name": "later"}).status_code == 422
    assert browser.post(f"{path}edit/", form)["Location"] == path
    query = Query.objects.get(name="late")
    assert (str(query.team), query.priority) == ("Ops", 2)
    assert (query.objective_statistic, query.objective_bound_s) == ("mean", 4.0)
    assert "Stop late" in body(browser.get(path))
    assert browser.post(f"{path}delete/").status_code == 409
    browser.post(f"{path}stop/")
    assert "Delete late" in body(browser.get(path))
    browser.post(f"{path}delete/")
    assert not Query.objects.filter(name="late").exists()


def test_a_viewer_is_offered_no_change_of_queries(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    for tab in ("", "statistics/?edit=table", "placement/", "versions/", "decisions/", "estimates/"):
        html = body(viewer.get(f"/c/little/queries/late/{tab}"))
        posts = [part for part in html.split("<form")[1:] if "post" in part.split(">")[0] and "logout" not in part]
        assert posts == []
        assert "Preview admission" not in html
    assert "-/new/" not in body(viewer.get("/c/little/queries/"))


def test_htmx_part_of_a_deleted_query_redirects_to_the_list(browser: Client, cluster: Cluster) -> None:
    response = browser.get("/c/little/queries/gone/", headers={"HX-Request": "true"})
    assert response["HX-Redirect"] == "/c/little/queries/"


def test_variation_of_costs_and_arrivals_is_told_with_its_evidence(browser: Client, cluster: Cluster) -> None:
    query = cluster.queries.get(name="late")
    address = f"/c/little/queries/{query.name}/statistics/"
    html = body(browser.get(address)).replace("\xa0", " ")
    assert "How its events arrive" in html
    assert "from the counts" in html
    version = query.running_version
    (operator, *_) = [row.name for row in version.operators.all()]
    noise = {"cost_cv2": 0.5, "cost_dispersion": 12.0, "cost_dispersion_events": 540}
    statistics_update(version=version, statistics=[{"operator": operator, **noise}])
    row = cluster.arrivals.get(source_id="clicks")
    arrivals_dispersion_update(arrivals=row, dispersion=3.1, dispersion_step_s=0.25)
    html = body(browser.get(address)).replace("\xa0", " ")
    assert "cv² 0.5, dispersion 12 over 540 events" in html
    assert '3.1 at 0.25 s <small class="muted">stated</small>' in html
    row.origin, row.spec, row.step_s = ArrivalOrigin.TELEMETRY, {"measured_s": 7200, "dispersion_pairs": 35_900}, 5.0
    row.save()
    html = body(browser.get(address)).replace("\xa0", " ")
    assert "measured over 2 h, 35" in html


CHANGE = "/c/little/queries/-/change/"


def test_team_and_priority_of_several_queries_are_set(browser: Client, cluster: Cluster) -> None:
    chosen = {"row": ["calm", "late"], "confirmed": "1"}
    assert 'name="team"' in body(browser.post(CHANGE, {"change": "team", "row": ["calm", "late"]}))
    browser.post(CHANGE, {**chosen, "change": "team", "team": "Ops"})
    browser.post(CHANGE, {**chosen, "change": "priority", "priority": "3"})
    assert set(cluster.queries.values_list("team__name", "priority")) == {("Ops", 3)}
    wrong = browser.post(CHANGE, {**chosen, "change": "priority", "priority": "high"})
    assert wrong.status_code == 422
    assert 'id="id_priority_error"' in body(wrong)


def test_running_queries_are_stopped_and_drafts_refused(browser: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "draft", 0.1)
    answer = browser.post(CHANGE, {"change": "stop", "row": ["calm", "draft"], "confirmed": "1"})
    html = body(answer)
    assert "Stop: 1 of 2 queries" in html
    assert "is draft; only a running or queued one stops" in html
    states = dict(cluster.queries.values_list("name", "state"))
    assert states == {"calm": QueryState.STOPPED, "late": QueryState.RUNNING, "draft": QueryState.DRAFT}


def test_viewer_chooses_no_rows(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    assert "data-row" not in body(viewer.get("/c/little/queries/"))


def test_next_query_keeps_team_and_objective_of_the_last(browser: Client, cluster: Cluster) -> None:
    saved = browser.post(NEW, {**FACTS, "document": DOCUMENT, "another": "1"})
    assert saved["Location"] == f"{NEW}?team=Shop&statistic=q0.99&bound_s=3&priority=1"
    form = browser.get(saved["Location"]).context["form"]
    assert (form["name"].value(), form["team"].value(), form["bound_s"].value()) == (None, "Shop", "3")
