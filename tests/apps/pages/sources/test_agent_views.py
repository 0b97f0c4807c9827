"""Pages of agents: phase and reason, settling, budget, methods, several agents at once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.pages.sources.agent_tables import agent_lines
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.ui.numbers import byte_rate, percent
from tests.apps.pages.html import body
from tests.apps.pages.sources.edges import METHOD, adapt, agents_at_work, measure, ran, report
from tests.apps.results.rows import live_query

pytestmark = pytest.mark.django_db

SOURCES = "/c/little/sources/"
AGENT = f"{SOURCES}agents/edge-1/"


@pytest.fixture
def live(cluster: Cluster) -> LiveQuery:
    return agents_at_work(cluster)


def budget_of(name: str) -> float:
    return Agent.objects.get(name=name).budget_cores


def test_agent_page_shows_phase_and_reason_of_adaptation(browser: Client, live: LiveQuery) -> None:
    adapt(live, "edge-1", reason="it used 93% of its CPU", refined={"version": 7, "config": "c-7"})
    html = body(browser.get(AGENT))
    assert "Within its budget. It used 93% of its CPU." in html
    assert "Plans with 1.02 × its budget." in html
    assert "<code>c-7</code>" in html
    adapt(live, "edge-1", refused={"version": 8, "config": "c-8", "reasons": ["it is for plan abc"]})
    assert "It refused the newest config: it is for plan abc." in body(browser.get(AGENT))
    assert "Give back" not in body(browser.get(AGENT)), "it has them already"


def test_change_is_shown_with_its_settling_time(browser: Client, live: LiveQuery) -> None:
    rows = ran(live, "edge-1", [[1, 1, 0.2]] * 5 + [[1, 1, 0.5]] * 5)
    change = {
        "epoch_us": rows[5].epoch_us,
        "why": "the budget went from 0.2 to 0.4 cores",
        "epochs": 2,
        "from": [1, 1, 0.2],
        "to": [1, 1, 0.5],
        "bytes_before": 7.2,
        "bytes_after": 4.5,
    }
    adapt(live, "edge-1", changes=[change])
    html = body(browser.get(AGENT))
    assert "It settled in 2 epochs after its last change." in html
    assert "load factors now window 1, answered 1, pairs 0.50; CPU 0.10 of 0.30 cores; 0% of records overflow." in html
    assert "The last of 1 change settled in 2 epochs." in html
    assert "Settling of probes" in html
    table = html.split("Table: changes of probes")[1]
    assert "The budget went from 0.2 to 0.4 cores" in table
    assert "pairs 0.20 → 0.50" in table
    assert "window 1" not in table.split("</table>")[0], "what did not move is not listed"
    adapt(live, "edge-1", changes=[{**change, "epochs": None}])
    assert "It settles after its last change." in body(browser.get(AGENT))


def test_settling_chart_is_absent_without_epochs(browser: Client, live: LiveQuery) -> None:
    assert "Settling of probes" not in body(browser.get(AGENT))


def test_budget_is_previewed_while_the_slider_moves(browser: Client, live: LiveQuery) -> None:
    adapt(live, "edge-1")
    StatisticsWindow.objects.filter(operator="pairs").update(cpu_ns=2e8)  # 5 ms a record, 0.4 cores for all of them
    less = body(browser.get(f"{AGENT}budget/preview/?budget_cores=0.15"))
    more = body(browser.get(f"{AGENT}budget/preview/?budget_cores=1"))
    assert "55% → <b>95%</b>" in more, "everything fits: twice the records have the same 40 groups in a window"
    assert "pairs 0.50 → <b>1.00</b>" in more
    assert "55% → <b>95%</b>" not in less
    assert "This is its budget now" in body(browser.get(f"{AGENT}budget/preview/?budget_cores=0.4"))
    assert budget_of("edge-1") == 0.4, "a preview changes nothing"
    assert "It has to be 0.01 to 1 cores." in body(browser.get(f"{AGENT}budget/preview/?budget_cores=7"))
    silent = body(browser.get(f"{SOURCES}agents/edge-2/budget/preview/?budget_cores=0.3"))
    assert "A prediction needs its costs" in silent


def test_preview_shows_the_budget_left_for_operators(browser: Client, live: LiveQuery) -> None:
    adapt(live, "edge-1")  # 0.1 cores in all
    StatisticsWindow.objects.filter(operator="pairs").update(cpu_ns=2e8)  # costs of operators, not what they take now
    ran(live, "edge-1", [[1, 1, 0.5]] * 20, used_s=0.04)
    now = body(browser.get(f"{AGENT}budget/preview/?budget_cores=0.4"))
    assert "Collecting, framing and sending take about 0.060 cores of it; 0.34 are left for operators." in now
    assert "Next to nothing is left" not in now
    little = body(browser.get(f"{AGENT}budget/preview/?budget_cores=0.065"))
    assert "about 0.060 cores of it; 0.005 are left for operators." in little
    assert "Next to nothing is left for operators; everything will be drained." in little
    assert "pairs 0.50 → <b>0</b>" in little, "the plan has what is left, not the whole budget"
    silent = body(browser.get(f"{SOURCES}agents/edge-2/budget/preview/?budget_cores=0.3"))
    assert "Collecting" not in silent, "it has said nothing of itself"


def test_fixed_load_factors_overflow_on_a_small_budget(browser: Client, live: LiveQuery) -> None:
    StatisticsWindow.objects.filter(operator="pairs").update(cpu_ns=2e8)
    html = body(browser.get(f"{AGENT}budget/preview/?budget_cores=0.05"))
    assert "of records would overflow: load factors set by hand ask for more" in html


def test_budget_is_saved_and_its_faults_are_shown(
    browser: Client, browser_of: Callable[..., Client], live: LiveQuery
) -> None:
    wrong = browser.post(f"{AGENT}budget/", {"budget_cores": "0"})
    assert wrong.status_code == 422
    assert "It has to be 0.01 to 1 cores." in body(wrong)
    assert browser.post(f"{AGENT}budget/", {"budget_cores": "0.8"}).status_code == 302
    assert budget_of("edge-1") == 0.8
    page = body(browser.get(AGENT))
    assert 'aria-valuetext="0.8 cores"' in page
    assert "budget/preview/" not in body(browser_of("viewer").get(AGENT)), "who may not change it has no slider"


def test_load_factors_are_returned_to_the_agent(browser: Client, live: LiveQuery) -> None:
    path = f"{AGENT}load-factors/probes/back/"
    assert browser.post(path).status_code == 302
    assert Assignment.objects.get(agent__name="edge-1").settings == {}


def test_adapted_load_factors_can_be_fixed(browser: Client, live: LiveQuery) -> None:
    adapt(live, "edge-1", load_factors=[1.0, 1.0, 0.5])
    html = body(browser.post(f"{AGENT}load-factors/probes/", {"f0": "1", "f1": "1", "f2": "0.5"}))
    assert "It would keep these load factors from now on." in html
    assert "Apply to edge-1" in html


def test_method_parameters_are_limited_to_safe_ranges(browser: Client, live: LiveQuery) -> None:
    path = f"{AGENT}method/probes/"
    offered = body(browser.get(path))
    assert 'value="95"' in offered and 'value="95.0"' not in offered
    wrong = browser.post(path, {**METHOD, "margin": "50", "z_most": "7.5"})
    assert wrong.status_code == 422
    assert "It has to be 90 to 98%." in body(wrong)
    assert "It has to be 1 to 4." in body(wrong)
    preview = body(browser.post(path, {**METHOD, "method": "all-sp"}))
    assert "It would send <b>1\N{NO-BREAK SPACE}kB/s</b> instead of 450\N{NO-BREAK SPACE}B/s" in preview
    part = Assignment.objects.get(agent__name="edge-1")
    assert part.by_hand, "a preview changes nothing"
    browser.post(path, {**METHOD, "method": "all-sp", "margin": "92", "apply": "yes"})
    part.refresh_from_db()
    assert part.settings == {"method": "all-sp", "margin": 0.92}, "only what differs from the defaults"
    assert browser.get(f"{AGENT}method/nothing/").status_code == 404


def test_adapting_agent_is_listed_as_adapting(browser: Client, live: LiveQuery) -> None:
    now = time.time()
    move = {"epoch_us": int((now - 2) * 1e6), "why": "", "epochs": None, "from": [1, 1, 0], "to": [1, 1, 0.5]}
    adapt(live, "edge-1", changes=[{**move, "bytes_before": None, "bytes_after": None}])
    report("edge-1", time=now, queries=Agent.objects.get(name="edge-1").heartbeat["queries"])
    html = body(browser.get(SOURCES))
    assert "Adapting" in html.split("<tbody>")[1]
    assert "edge-1" in body(browser.get(f"{SOURCES}?state=adapting")).split("<tbody>")[1]


def test_load_factors_of_several_agents_are_previewed_then_set(browser: Client, live: LiveQuery) -> None:
    report("edge-2")
    measure(live, "edge-2")
    path = f"{SOURCES}change/"
    page = body(browser.get(f"{path}?what=factors&row=edge-1&row=edge-2"))
    assert "Load factors of 2 agents" in page
    assert page.count("Now 1.00") == 1, "told only where all have the same"
    form = {"what": "factors", "query": "probes", "row": ["edge-1", "edge-2"], "f0": "1", "f1": "1", "f2": "1"}
    preview = body(browser.post(path, form))
    assert "Together they would send 100\N{NO-BREAK SPACE}B/s" in preview
    assert preview.count("55% → 95%") == 1
    assert Assignment.objects.get(agent__name="edge-2").load_factors == [1.0, 0.0, 0.0], "a preview changes nothing"
    browser.post(path, {**form, "apply": "yes"})
    assert Assignment.objects.get(agent__name="edge-2").load_factors == [1.0, 1.0, 1.0]
    assert Assignment.objects.get(agent__name="edge-3").load_factors == [1.0, 1.0, 1.0], "as it was"
    browser.post(path, {**form, "back": "yes"})
    assert not Assignment.objects.get(agent__name="edge-1").by_hand


def test_query_on_most_agents_is_offered_first(browser: Client, live: LiveQuery) -> None:
    Assignment.objects.create(live=live_query(live.query.cluster, "alarms"), agent=Agent.objects.get(name="edge-2"))
    path = f"{SOURCES}change/?what=factors&row=edge-1&row=edge-2"
    page = body(browser.get(path))
    assert '<option value="probes" selected>' in page and "2 of 2 agents run it" in page
    assert '<option value="alarms" selected>' in body(browser.get(f"{path}&query=alarms")), "as asked for"


def test_budget_is_set_for_several_agents(browser: Client, live: LiveQuery) -> None:
    path = f"{SOURCES}change/"
    form = {"what": "budget", "row": ["edge-1", "edge-3"], "budget_cores": "0.3"}
    wrong = browser.post(path, {**form, "budget_cores": "70"})
    assert wrong.status_code == 422
    assert "It has to be 0.01 to 1 cores." in body(wrong)
    preview = body(browser.post(path, form))
    assert "Of 1 agent nothing is known yet." in preview
    assert budget_of("edge-1") == 0.4
    browser.post(path, {**form, "apply": "yes"})
    assert (budget_of("edge-1"), budget_of("edge-2"), budget_of("edge-3")) == (0.3, 0.4, 0.3)


def test_refused_bulk_change_shows_its_reason(browser: Client, live: LiveQuery) -> None:
    path = f"{SOURCES}change/"
    assert "No agent is chosen" in body(browser.get(f"{path}?what=budget"))
    assert "No rollout takes canaries now" in body(browser.get(f"{path}?what=canary&row=edge-1"))
    assert browser.get(f"{path}?what=nonsense&row=edge-1").status_code == 400
    assert browser.get(f"{path}?what=budget&row=nobody").status_code == 404


def test_bytes_of_an_agent_are_those_of_the_list(browser: Client, live: LiveQuery) -> None:
    adapt(live, "edge-1")
    line = next(line for line in agent_lines(live.query.cluster) if line.agent.name == "edge-1")
    assert line.sent_bytes_s and line.saved is not None
    page, listed = body(browser.get(AGENT)), body(browser.get("/c/little/sources/"))
    assert f"{byte_rate(line.sent_bytes_s)} sent, over the last minute" in page
    assert byte_rate(line.sent_bytes_s).html in listed and percent(line.saved).html in listed
    assert f'data-l="Bytes sent"><span>{byte_rate(line.sent_bytes_s).html}' in page, "its only query sends all of it"
    Assignment.objects.filter(agent__name="edge-1").update(enabled=False)
    line = next(line for line in agent_lines(live.query.cluster) if line.agent.name == "edge-1")
    assert line.flow is None, "what a query that is not assigned any more sent is not counted"


def test_query_of_an_agent_is_picked_by_the_address(browser: Client, live: LiveQuery) -> None:
    """One pipeline is drawn, and the part that refreshes itself keeps the pick."""
    html = body(browser.get(f"{AGENT}?query=probes"))
    assert html.count('aria-label="Pipeline of ') == 1
    assert f'hx-get="{AGENT}?query=probes"' in html and 'hx-push-url="true"' in html
    assert 'aria-current="true">probes</a>' in html
    assert 'aria-label="Pipeline of probes"' in body(browser.get(f"{AGENT}?query=no-such-query"))
