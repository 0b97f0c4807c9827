"""Sources and agents: the list and its numbers, enrolment, load factors after a preview, sources and tables."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.pages.sources import facts
from apps.pages.sources.facts import StreamCard
from apps.telemetry.configs import fixed_settings
from apps.telemetry.models import Agent, Assignment, EnrolmentToken, LiveQuery, StaticTable, TelemetrySource
from tests.apps.pages.html import body
from tests.apps.pages.sources.edges import agents_at_work, measure, report
from tests.apps.results.rows import live_query

pytestmark = pytest.mark.django_db

AGENT = "/c/little/sources/agents/edge-1/"


@pytest.fixture
def live(cluster: Cluster) -> LiveQuery:
    return agents_at_work(cluster)


def test_sources_page_without_agents_shows_the_first_step(
    browser: Client, browser_of: Callable[..., Client], cluster: Cluster
) -> None:
    html = body(browser.get("/c/little/sources/"))
    assert "No agent has joined yet" in html
    assert "Enrol an agent" in html
    assert "Enrol an agent" not in body(browser_of("viewer").get("/c/little/sources/"))


def test_agents_are_listed_with_load_factors_and_savings(browser: Client, live: LiveQuery) -> None:
    html = body(browser.get("/c/little/sources/"))
    assert (
        "1 of 3 agents processes <b>83%</b> of records before they leave the edge, which saves <b>55%</b> of the bytes."
        in html
    )
    assert "Edge-3 has not reported" not in html
    assert "edge-3 has not reported for 6\N{NO-BREAK SPACE}min" in html
    assert "Load factors: window, answered, pairs" in html
    assert "edge-1, probes: load factors: window 1, answered 1, pairs 0.50" in html
    assert "No report for 6" in html
    rows = browser.get("/c/little/sources/?export=csv").content.decode().splitlines()
    assert rows[0].startswith("Agent,")
    assert rows[1].split(",")[0] == "edge-1", "the busiest first"
    only = body(browser.get("/c/little/sources/?state=never")).split("<tbody>")[-1]
    assert "edge-2" in only
    assert "edge-1" not in only.split("</tbody>")[0]
    assert "edge-3" in body(browser.get("/c/little/sources/?q=EDGE-3"))


def test_agent_behind_its_config_is_marked(browser: Client, live: LiveQuery) -> None:
    report("edge-1", config_version=2)
    assert "behind" in body(browser.get("/c/little/sources/"))
    html = body(browser.get(AGENT))
    assert "version 2, 3 is current" in html
    assert "It runs configuration 2, the current one is 3." in html


def test_state_of_the_stream_processor_is_put_in_words(
    browser: Client, live: LiveQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = {agent.name: str(agent.pk) for agent in Agent.objects.all()}
    said = {
        "state": "ready",
        "batch": 7,
        "batch_s": 0.5,
        "trigger_s": 1.0,
        "lag": {"0": 700},
        "quarantined": 2,
        "queries": {
            "little/probes": {
                "watermark_us": 1,
                "waiting_for": [agents["edge-1"]],
                "excluded": [agents["edge-3"]],
                "windows_open": 4,
                "late": 9,
                "early": 41,
            },
            "other/probes": {"watermark_us": 1},
        },
    }
    monkeypatch.setattr(facts, "stream_state", lambda: said)
    html = body(browser.get("/c/little/sources/"))
    card = html.split('id="t-stream"')[1].split('id="t-agents"')[0]
    assert "700 frames behind" in card
    assert "41 too far ahead" in card
    assert "2 frames could not be read" in card
    assert [name in card for name in ("edge-1", "edge-3", "edge-2")] == [True, True, False]
    assert "other" not in card
    monkeypatch.setattr(facts, "stream_state", lambda: {"state": "warming"})
    html = body(browser.get("/c/little/sources/"))
    assert "Warming up" in html
    assert "The stream processor is warming up." in html
    assert StreamCard("little", {}, {"state": "new word"}).mark.label == "Not known"


def test_enrolment_token_and_command_are_shown_once(browser: Client, cluster: Cluster) -> None:
    wrong = browser.post("/c/little/sources/enrol/", {"uses": "0", "hours": "24"})
    assert wrong.status_code == 422
    assert not EnrolmentToken.objects.exists()
    joined = browser.post("/c/little/sources/enrol/", {"uses": "3", "hours": "24", "note": "rack r7"})
    assert joined.status_code == 201
    command = re.search(r'id="join-command">(.*?)</pre>', body(joined), re.S)
    assert command is not None
    assert max(map(len, command[1].splitlines())) < 80, "it fits beside its button"
    secret = re.search(r"sle_[\w-]+", command[1])
    assert secret is not None
    assert "./sluice agent run --config sluice-agent/agent.toml" in command[1]
    token = EnrolmentToken.objects.get()
    assert (token.uses_left, token.note) == (3, "rack r7")
    html = body(browser.get("/c/little/sources/"))
    assert secret[0] not in html
    assert "3 joins left of 3" in html
    browser.post(f"/c/little/sources/enrol/{token.pk}/revoke/")
    assert "joins left" not in body(browser.get("/c/little/sources/"))
    assert browser.post("/c/little/sources/enrol/999/revoke/").status_code == 404


def test_relay_shows_reasons_for_held_frames(browser: Client, live: LiveQuery) -> None:
    relay = Agent.objects.create(cluster=live.query.cluster, name="relay-1", kind="relay", secret_hash="r")
    child = Agent.objects.get(name="edge-2")
    child.parent = relay
    child.save()
    below = [{"agent": str(child.pk), "state": "sending", "silent_s": 1.5, "accepted_seq": 3}]
    report("relay-1", relay={"children": below}, sender={"state": "refused", "fault": "401: the secret is not known"})
    html = body(browser.get("/c/little/sources/agents/relay-1/"))
    assert "sending, heard 1.5\N{NO-BREAK SPACE}s ago" in html
    assert "Its frames are refused: 401: the secret is not known." in html
    assert "relay-1" in body(browser.get("/c/little/sources/agents/edge-2/")), "where it sends to"


def test_agent_page_shows_its_pipeline(browser: Client, live: LiveQuery) -> None:
    html = body(browser.get(AGENT))
    assert "keeps <b>55%</b>" in html
    assert "pairs runs for 50% of its records" in html
    assert "50% drained" in html
    assert "The cluster gets 44" in html
    assert "collecting" in html
    assert html.count("may run at the source") == 3
    silent = body(browser.get("/c/little/sources/agents/edge-3/"))
    assert "Its last report came" in silent
    assert "has not sent statistics yet" in silent
    assert browser.get("/c/little/sources/agents/nobody/").status_code == 404


def test_load_factors_are_previewed_then_applied(browser: Client, live: LiveQuery) -> None:
    path = f"{AGENT}load-factors/probes/"
    assert "Apply to" not in body(browser.get(path))
    wrong = browser.post(path, {"f0": "1", "f1": "1.5", "f2": "x"})
    assert wrong.status_code == 422
    assert "Apply to" not in body(wrong)
    form = {"f0": "1", "f1": "1", "f2": "1"}
    preview = body(browser.post(path, form))
    assert "It would send 50\N{NO-BREAK SPACE}B/s instead of 450\N{NO-BREAK SPACE}B/s" in preview
    assert "95% of bytes saved instead of 55%" in preview, "twice the records have the same groups"
    part = Assignment.objects.get(agent__name="edge-1")
    assert part.load_factors == [1.0, 1.0, 0.5], "a preview changes nothing"
    assert browser.post(path, {**form, "apply": "yes"}).status_code == 302
    part.refresh_from_db()
    assert part.load_factors == [1.0, 1.0, 1.0]
    same = body(browser.post(path, form))
    assert "These are the load factors it has already." in same
    assert "Apply to" not in same


def test_a_preview_beyond_the_budget_says_so(browser: Client, live: LiveQuery) -> None:
    StatisticsWindow.objects.filter(operator="pairs").update(cpu_ns=300_000_000)
    assert "more than the" in body(browser.post(f"{AGENT}load-factors/probes/", {"f0": "1", "f1": "1", "f2": "1"}))


def test_preview_without_statistics_predicts_nothing(browser: Client, live: LiveQuery) -> None:
    html = body(browser.post("/c/little/sources/agents/edge-2/load-factors/probes/", {"f0": "1", "f1": "1", "f2": "1"}))
    assert "A prediction needs costs, measured once each operator" in html
    assert "Apply to edge-2" in html


def test_agent_is_disabled_and_removed(browser: Client, live: LiveQuery) -> None:
    browser.post(f"{AGENT}enable/", {"enabled": "no"})
    assert "It is disabled" in body(browser.get(AGENT))
    browser.post(f"{AGENT}enable/", {"enabled": "yes"})
    assert Agent.objects.get(name="edge-1").enabled
    browser.post(f"{AGENT}remove/")
    assert not Agent.objects.filter(name="edge-1").exists()


def test_source_is_added_and_faults_are_shown_at_their_fields(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/sources/new/source/"
    form = {
        "source_id": "hits",
        "kind": "producer",
        "columns": "ts timestamp\nurl: string",
        "time": "ts",
        "lateness_s": "2",
    }
    wrong = body(browser.post(path, {**form, "columns": "ts timestamp\nurl text\n\nts int64\none", "options": "[1]"}))
    assert "Line 2: the type of url is &#x27;text&#x27;; allowed: int64, float64, string, bool, timestamp." in wrong
    assert "Line 4: ts is there already." in wrong
    assert "Line 5 is &#x27;one&#x27;" in wrong
    assert "It is list; allowed: an object" in wrong
    late = body(browser.post(path, {**form, "time": "when"}))
    assert 'id="id_time_error"' in late
    assert not TelemetrySource.objects.filter(source_id="hits").exists()
    browser.post(path, form)
    source = TelemetrySource.objects.get(source_id="hits")
    assert (source.columns, source.lateness_s) == ({"ts": "timestamp", "url": "string"}, 2.0)
    assert browser.post(path, form).status_code == 422, "the name is taken"
    address = "/c/little/sources/collected/hits/"
    assert "url string" in body(browser.get(address))
    browser.post(address, {**form, "lateness_s": "5"})
    source.refresh_from_db()
    assert source.lateness_s == 5.0
    browser.post(f"{address}delete/")
    assert not TelemetrySource.objects.filter(source_id="hits").exists()


def test_source_that_is_read_is_not_deleted(browser: Client, live: LiveQuery) -> None:
    refused = browser.post("/c/little/sources/collected/clicks/delete/")
    assert refused.status_code == 409
    assert "is read by probes" in body(refused)
    changed = browser.post(
        "/c/little/sources/collected/clicks/",
        {"kind": "producer", "columns": "ts timestamp", "time": "ts", "lateness_s": "1"},
    )
    assert changed.status_code == 422
    assert "stop them first" in body(changed)


def test_table_is_pasted_uploaded_and_checked_by_cell(browser: Client, cluster: Cluster) -> None:
    path = "/c/little/sources/new/table/"
    text = "ip,rack\n10.0.0.1,7\n10.0.0.2,\n"
    types = "ip string\nrack int64"
    wrong = body(browser.post(path, {"name": "rack_of", "text": "ip,rack\na,seven\nb\n", "columns": types}))
    assert "Line 2: rack is &#x27;seven&#x27;; allowed: a whole number." in wrong
    assert "Line 3 has 1 cells; the heading has 2." in wrong
    assert "There is no heading line" in body(browser.post(path, {"name": "rack_of"}))
    assert "tor: the heading has ip, rack." in body(
        browser.post(path, {"name": "rack_of", "text": text, "columns": "tor string"})
    )
    assert not StaticTable.objects.exists()
    browser.post(path, {"name": "rack_of", "text": text, "columns": types})
    assert StaticTable.objects.get().rows == [["10.0.0.1", 7], ["10.0.0.2", None]]
    address = "/c/little/sources/tables/rack_of/"
    assert "10.0.0.1,7" in body(browser.get(address))
    file = SimpleUploadedFile("racks.csv", b"rack,ip\n3,10.0.0.9\n")
    browser.post(address, {"columns": types, "file": file})
    assert StaticTable.objects.get().rows == [["10.0.0.9", 3]], "columns are found by their heading"
    browser.post(f"{address}delete/")
    assert not StaticTable.objects.exists()


@pytest.mark.parametrize("path", ["/c/little/sources/", AGENT, "/c/little/queries/probes/live/", "/c/little/"])
def test_sql_count_does_not_grow_with_agents(browser: Client, live: LiveQuery, path: str) -> None:
    def cost() -> int:
        browser.get(path)
        with CaptureQueriesContext(connection) as queries:
            assert browser.get(path).status_code == 200
        return len(queries)

    before = cost()
    for number in range(4, 9):
        agent = Agent.objects.create(cluster=live.query.cluster, name=f"edge-{number}", secret_hash=str(number))
        Assignment.objects.create(live=live, agent=agent, settings=fixed_settings([1.0, 1.0, 1.0]))
        report(agent.name)
        measure(live, agent.name)
    assert cost() == before


def test_silent_and_congested_agents_are_on_the_attention_list(browser: Client, live: LiveQuery) -> None:
    report("edge-1", spool={"state": "full", "bytes": 1, "limit_bytes": 1})
    html = body(browser.get("/c/little/"))
    assert "edge-3 does not report" in html
    assert "edge-1 spools faster than it sends" in html
    Agent.objects.filter(name="edge-3").update(enabled=False)
    assert "edge-3 does not report" not in body(browser.get("/c/little/")), "switched off by hand"


def test_queries_that_drain_are_listed_first(browser: Client, cluster: Cluster) -> None:
    agent = Agent.objects.create(cluster=cluster, name="edge-9", secret_hash="edge-9", last_seen=timezone.now())
    for number in range(8):
        factors = [1.0, 0.5, 0.0] if number == 7 else [1.0, 1.0, 1.0]
        Assignment.objects.create(
            live=live_query(cluster, f"many-{number}"), agent=agent, settings=fixed_settings(factors)
        )
    table = body(browser.get("/c/little/sources/")).split("Table: Agents")[1].split("</table>")[0]
    bars = table.split('class="src-bars"')[1].split("</td>")[0]
    assert bars.index(">many-7<") < bars.index(">many-0<")
    assert "and 3 more" in bars and ">many-5<" not in bars
