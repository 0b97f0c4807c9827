"""The Live tab: what to do first, results, pictures, alerts and their rules; a new live query from a template."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.results.models import Alert, AlertRule
from apps.results.notices import alert_deliveries_send_due
from apps.telemetry.configs import fixed_settings
from apps.telemetry.epochs import epochs_add
from apps.telemetry.frames import frames_receive
from apps.telemetry.models import Agent, Assignment, LiveQuery, StaticTable, TelemetrySource
from apps.telemetry.pipelines import executable_of
from engine.dataflow.templates import TEMPLATES
from engine.rollouts.measures import EpochRow
from tests.apps.pages.html import body
from tests.apps.results.rows import live_query, result

pytestmark = pytest.mark.django_db

LIVE = "/c/little/queries/probes/live/"
AB, CD = ("a", "b"), ("c", "d")
RULE = {
    "name": "Slow links",
    "column": "rtt",
    "comparison": "gt",
    "threshold": "20",
    "for_windows": "1",
    "where": "dst = 'b'",
    "severity": "critical",
    "enabled": "on",
}


@pytest.fixture
def live(cluster: Cluster) -> LiveQuery:
    return live_query(cluster)


@pytest.fixture
def agent(cluster: Cluster) -> Agent:
    return Agent.objects.create(cluster=cluster, name="edge-1", secret_hash="x")


def described(browser: Client, template: str = "s2s-probe", **more: str) -> Any:
    """Fill in the form of a template."""
    form = {"name": "latency", "source": "probes", "rate_eps": "50", "bound_s": "10", "p_window_s": "10", **more}
    return browser.post(f"/c/little/queries/-/live/?template={template}", form)


def admitted(cluster: Cluster) -> Query:
    from apps.queries.services import query_start

    query = cluster.queries.get(name="latency")
    version = query.versions.get()
    query_start(version=version, placement={operator.name: [{"node": "a"}] for operator in version.operators.all()})
    query.refresh_from_db()
    return query


def test_query_without_expressions_names_what_is_missing(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/queries/calm/live/"))
    assert "This version cannot be executed" in html
    assert "has no expression that can be executed" in html
    assert "Start calm" not in html


def test_template_becomes_a_live_query(browser: Client, cluster: Cluster) -> None:
    chosen = body(browser.get("/c/little/queries/-/live/"))
    assert all(template.title.replace("'", "&#x27;") in chosen for template in TEMPLATES.values())
    html = body(browser.get("/c/little/queries/-/live/?template=s2s-probe"))
    assert html.count("may run at the source") == 3
    response = described(browser)
    assert response["Location"] == "/c/little/admission/new/?query=latency"
    query = cluster.queries.get(name="latency")
    assert TelemetrySource.objects.get(source_id="probes").kind == "tcp_probe"
    assert cluster.arrivals.get(source_id="probes").evidence == "assumed"
    assert cluster.arrivals.get(source_id="probes").mean_eps == pytest.approx(50.0)
    assert executable_of(query.versions.get()).faults == ()
    draft = body(browser.get("/c/little/queries/latency/live/"))
    assert "Admit it first" in draft
    admitted(cluster)
    assert "No agent has joined yet" in body(browser.get("/c/little/queries/latency/live/"))
    Agent.objects.create(cluster=cluster, name="edge-1", secret_hash="x")
    assert "Start latency" in body(browser.get("/c/little/queries/latency/live/"))
    start = "/c/little/queries/latency/live/start/"
    nobody = browser.post(start, {"idle_after_s": "60", "retain_s": "900"})
    assert nobody.status_code == 422
    assert browser.post(start, {"agents": ["edge-1"], "idle_after_s": "30", "retain_s": "900"}).status_code == 302
    live = LiveQuery.objects.get(query=query)
    assert (live.state, live.idle_after_s) == ("starting", 30.0)
    html = body(browser.get("/c/little/queries/latency/live/"))
    assert "No result yet" in html
    assert "edge-1" in html
    browser.post("/c/little/queries/latency/live/stop/")
    assert "Start it again" in body(browser.get("/c/little/queries/latency/live/"))


def test_share_of_the_rate_is_labelled_as_planning_figure(browser: Client, cluster: Cluster) -> None:
    described(browser)
    query = admitted(cluster)
    told = "Agents take every record"
    assert told not in body(browser.get("/c/little/queries/latency/live/"))
    query.rate_share = 0.72
    query.save()
    html = body(browser.get("/c/little/queries/latency/live/")).replace("\u00a0", " ")
    assert told in html
    assert "admitted with 72% of its rate" in html


def test_results_count_dropped_records_since_the_query_started(browser: Client, live: LiveQuery) -> None:
    frames_receive(
        [result(live.query, {AB: 3.0}, 0, late=4, early=2), result(live.query, {AB: 3.0}, 1, late=5, early=3)]
    )
    html = body(browser.get(LIVE)).replace("\u00a0", " ")
    assert "0 of 2 windows revised, 3 records too far ahead of time dropped" in html


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_is_executable(browser: Client, cluster: Cluster, name: str) -> None:
    template = TEMPLATES[name]
    options = '{"path": "/var/log/x.log"}' if template.collector == "log_file" else ""
    given = {f"p_{parameter.name}": f"{parameter.default:g}" for parameter in template.parameters}
    response = described(browser, name, source="from-template", options=options, **given)
    assert response.status_code == 302, body(response)
    query = cluster.queries.get(name="latency")
    found = executable_of(query.versions.get())
    assert found.faults == ()
    assert StaticTable.objects.count() == len(found.pipeline.tables if found.pipeline else {})


def test_faults_of_a_template_are_at_their_fields(browser: Client, cluster: Cluster, live: LiveQuery) -> None:
    html = body(described(browser, p_window_s="0", rate_eps="-1"))
    assert 'id="id_rate_eps_error"' in html
    window = described(browser, p_window_s="0")
    assert (window.status_code, 'id="id_p_window_s_error"' in body(window)) == (422, True)
    taken = described(browser, source="clicks")
    assert (taken.status_code, "which does not have" in body(taken)) == (422, True)
    assert not cluster.queries.filter(name="latency").exists()
    assert described(browser, name="calm").status_code == 422


def test_live_tab_shows_new_results(browser: Client, live: LiveQuery, agent: Agent) -> None:
    Assignment.objects.create(live=live, agent=agent, settings=fixed_settings([1.0, 0.5, 0.0]))
    frames_receive([result(live.query, {AB: 10.0 + w, CD: 3.0}, w, latency_s=1 + w) for w in range(3)])
    frames_receive([result(live.query, {AB: 40.0, CD: 3.0}, 3, missing=[str(agent.pk)], recovered={str(agent.pk): 12})])
    html = body(browser.get(LIVE))
    assert f"changed:results:{live.query_id} from:body" in html
    assert "2 rows from 1 agent" in html
    assert "Closed without edge-1" in html
    assert "Already counted of its open window: 12 records." in html
    table = html.split('id="t-results"')[1].split("</table>")[0]
    assert table.index("40") < table.index(">3<"), "the largest of the drawn column first"
    assert 'id="live-column"' in html
    assert "rtt of a, b; c, d over the last 4 windows" in html
    assert "Measured latency of 4 windows: median 1.8" in html
    assert "Objective 5" in html
    assert "load factors 1, 0.50, 0" in html
    assert "n over time" in body(browser.get(f"{LIVE}?column=n"))
    csv = browser.get(f"{LIVE}?export=csv").content.decode().splitlines()
    assert csv[0] == "src,dst,n,rtt"
    only = body(browser.get(f"{LIVE}?q=c")).split('id="t-results"')[1].split("</table>")[0]
    assert ">40<" not in only


def test_live_tab_shows_what_left_agents_on_time(browser: Client, live: LiveQuery, agent: Agent) -> None:
    Assignment.objects.create(live=live, agent=agent)
    frames_receive([result(live.query, {AB: 10.0}, 0)])
    assert "no agent has reported it yet" in body(browser.get(LIVE))
    now_us = int(time.time()) * 1_000_000
    row = EpochRow(now_us - 5_000_000, (1.0,), 100, 8600, 4000, 9, 0.02, 0.15, 0.1, 0.2, None)
    later = replace(row, epoch_us=now_us, timed=4, in_time=2, shed_late=9)
    epochs_add(str(agent.pk), {live.key: [replace(row, timed=4, in_time=4), later]})
    html = " ".join(body(browser.get(LIVE)).split())
    assert "Left on time" in html
    assert "of 8 windows at agents, for the objective of 5" in html
    assert "9 records shed as late everywhere" in html


def test_markup_in_results_is_escaped(browser: Client, live: LiveQuery) -> None:
    frames_receive([result(live.query, {("<script>alert(1)</script>", "b"): 1.0}, w) for w in range(2)])
    html = body(browser.get(LIVE))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_alert_rule_is_added_fires_and_is_acknowledged(browser: Client, live: LiveQuery) -> None:
    assert "None yet. A rule watches" in body(browser.get(LIVE))
    frames_receive([result(live.query, {AB: 10.0})])
    new = f"{LIVE}rules/new/"
    assert '<option value="rtt"' in body(browser.get(new))
    wrong = browser.post(new, {**RULE, "where": "no such thing", "for_windows": "0"})
    assert wrong.status_code == 422
    where = body(browser.post(new, {**RULE, "where": "nothing = 1"}))
    assert 'id="id_where_error"' in where
    assert browser.post(new, RULE).status_code == 302
    assert browser.post(new, RULE).status_code == 422, "the name is taken"
    frames_receive([result(live.query, {AB: 30.0, CD: 99.0}, 1)])
    html = body(browser.get(LIVE))
    assert "1 firing" in html
    assert "src = a, dst = b" in html
    overview = body(browser.get("/c/little/"))
    assert "Slow links: src = a, dst = b" in overview
    assert "rtt is 30, above 20" in overview
    alert = Alert.objects.get()
    path = f"{LIVE}alerts/{alert.pk}/acknowledge/"
    browser.post(path, {"note": "on it"})
    assert "Seen by a-operator" in body(browser.get(LIVE))
    assert "Slow links" not in body(browser.get("/c/little/")), "somebody is at it"
    frames_receive([result(live.query, {AB: 5.0}, 2)])
    assert "the value is back, 5 after 30 at worst" in body(browser.get(LIVE))
    rule = AlertRule.objects.get()
    address = f"{LIVE}rules/{rule.pk}/"
    assert 'value="Slow links"' in body(browser.get(address))
    told = {"emails": "ops@example.org\nnobody", "webhooks": "ftp://x"}
    refused = body(browser.post(address, {**RULE, **told}))
    assert "&#x27;nobody&#x27; is not a mail address" in refused and "allowed is an address that begins" in refused
    browser.post(address, {**RULE, "threshold": "50", "enabled": "", "emails": "ops@example.org, b@example.org"})
    assert "ops@example.org\nb@example.org" in body(browser.get(address))
    rule.refresh_from_db()
    assert rule.emails == ["ops@example.org", "b@example.org"]
    assert (rule.threshold, rule.enabled) == (50.0, False)
    assert "Switched off" in body(browser.get(LIVE))
    browser.post(f"{address}delete/")
    assert not AlertRule.objects.exists()
    assert browser.get(address).status_code == 404


def test_notices_of_an_alert_are_listed(browser: Client, live: LiveQuery) -> None:
    frames_receive([result(live.query, {AB: 10.0})])
    browser.post(f"{LIVE}rules/new/", {**RULE, "emails": "ops@example.org"})
    frames_receive([result(live.query, {AB: 30.0}, 1)])
    assert "mail to ops@example.org waiting" in body(browser.get(LIVE))
    alert_deliveries_send_due()  # there is no mail server
    html = body(browser.get(LIVE))
    assert "mail to ops@example.org not sent" in html
    assert "No mail server is configured" in html


def test_alerts_are_all_counted_and_the_worst_listed(browser: Client, live: LiveQuery) -> None:
    frames_receive([result(live.query, {AB: 10.0})])
    browser.post(f"{LIVE}rules/new/", {**RULE, "where": ""})
    frames_receive([result(live.query, {(f"host-{n}", "b"): 30.0 + n for n in range(11)}, 1)])
    html = body(browser.get(LIVE))
    assert "11 firing" in html
    assert "3 more fire" in html
    assert "src = host-10, dst = b" in html
    assert "src = host-0, dst = b" not in html.split("Newest results")[0]


def test_refused_start_shows_the_form_and_its_address_redirects(browser: Client, live: LiveQuery, agent: Agent) -> None:
    browser.post(f"{LIVE}stop/")
    refused = browser.post(f"{LIVE}start/", {"idle_after_s": "60", "retain_s": "900"})
    assert refused.status_code == 422
    assert 'id="query-page" hx-get' not in body(refused), "what was typed is not replaced by a refresh"
    back = browser.get(f"{LIVE}start/")
    assert (back.status_code, back.headers["Location"]) == (302, LIVE)


def test_agents_are_assigned_and_withdrawn(browser: Client, live: LiveQuery, agent: Agent) -> None:
    browser.post(f"{LIVE}assign/", {"agent": "edge-1", "part": "whole"})
    part = Assignment.objects.get()
    assert (part.enabled, part.settings) == (True, {})
    assert "never reported" in body(browser.get(LIVE))
    browser.post(f"{LIVE}assign/", {"agent": "edge-1", "part": "none"})
    part.refresh_from_db()
    assert not part.enabled
    assert browser.post(f"{LIVE}assign/", {"agent": "nobody"}).status_code == 404
    assert browser.post("/c/little/queries/calm/live/stop/").status_code == 404


def test_viewer_reads_the_live_tab_and_is_offered_no_changes(
    browser_of: Callable[..., Client], live: LiveQuery
) -> None:
    frames_receive([result(live.query, {AB: 10.0}, w) for w in range(2)])
    html = body(browser_of("viewer").get(LIVE))
    assert "Newest results" in html
    for action in ("Stop the live run", "Add a rule", "Assign"):
        assert action not in html
