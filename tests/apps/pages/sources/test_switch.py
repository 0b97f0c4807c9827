"""Another policy of scheduling: chosen, previewed, started with canaries; also as a part of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from apps.rollouts.models import RefinedConfig, Rollout
from apps.telemetry.models import Agent, LiveQuery
from tests.apps.pages.html import body
from tests.apps.pages.sources.cores import scheduling, shared_core
from tests.apps.pages.sources.edges import METHOD

pytestmark = pytest.mark.django_db

SOURCES = "/c/little/sources/"
SWITCH = f"{SOURCES}schedule/switch/"
WANTED = {
    "policy": "round-robin",
    "cycle_ms": "120",
    "confidence": "95",
    "history": "400",
    "memory_bytes": "4",
    "release_share": "50",
    "release_s": "3",
    "starvation_s": "5",
    "backlog_periods": "0.33",
    "backlog_most_s": "5",
}


@pytest.fixture
def core(cluster: Cluster) -> tuple[Agent, list[LiveQuery]]:
    return shared_core(cluster)


def test_switch_is_previewed_before_it_starts(browser: Client, core: Any) -> None:
    html = body(browser.post(SWITCH, WANTED))
    assert "1 agent would get it; it takes" in html
    row = html.split("Table: what would change at each agent")[1].split("</tbody>")[0]
    assert "Klink" in row and "<b>round robin</b>" in row and "as they are" in row
    assert "window latency" in html.lower().split("judged")[1], "what is judged is told"
    assert not RefinedConfig.objects.exists(), "a preview changes nothing"
    assert "Start with canaries" in html
    assert "&quot;settings&quot;: {&quot;policy&quot;: &quot;round-robin&quot;}" in html, "the same over REST"


def test_a_switch_starts_as_a_rollout(browser: Client, core: Any) -> None:
    form = {**WANTED, "cycle_ms": "60", "words": "Try it", "start": "yes"}
    response = browser.post(SWITCH, form, follow=True)
    config = RefinedConfig.objects.get()
    assert config.words == "Try it"
    assert config.schedule == {"policy": "round-robin", "cycle_ms": 60.0}
    assert Rollout.objects.get().config == config
    html = body(response)
    assert f"{config.name} is on its way: canaries first." in html
    assert f'Rollout of config <a class="name" href="{SOURCES}configs/{config.number}/"' in html
    shown = body(browser.get(f"{SOURCES}configs/{config.number}/"))
    assert "Scheduling policy" in shown and "<b>round robin</b>" in shown
    assert "Scheduling quantum" in shown and "<b>60\u00a0ms</b>" in shown
    again = body(browser.post(SWITCH, {**form, "words": ""}, follow=True))
    assert f"Nothing to change: {config.name} sets the same." in again


def test_switch_to_the_present_settings_starts_nothing(browser: Client, core: Any) -> None:
    html = body(browser.post(SWITCH, {**WANTED, "policy": "klink"}))
    assert "These are the settings that all of these agents have already." in html
    assert "Start with canaries" not in html


def test_every_fault_of_a_switch_is_shown_at_once(browser: Client, core: Any) -> None:
    response = browser.post(SWITCH, {**WANTED, "cycle_ms": "900", "confidence": "50", "memory_bytes": "x"})
    html = body(response)
    assert response.status_code == 422
    for said in ("It has to be 20 to 500 ms.", "It has to be 80 to 99%.", "It has to be 0.0625 to 1,024 MiB."):
        assert said in html
    assert "<details" in html and "open><summary>Parameters" in html, "what is wrong is in sight"
    assert not RefinedConfig.objects.exists()


def test_viewer_is_offered_no_switch(browser_of: Callable[..., Client], core: Any) -> None:
    viewer = browser_of("viewer")
    assert SWITCH not in body(viewer.get(f"{SOURCES}schedule/"))


def test_switch_without_live_queries_is_empty(browser: Client, cluster: Cluster) -> None:
    assert "Nothing to schedule yet" in body(browser.get(SWITCH))


def test_switch_form_starts_from_the_settings_in_force(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    browser.post(SWITCH, {**WANTED, "cycle_ms": "60", "start": "yes"})
    config = RefinedConfig.objects.get()
    scheduling(agent, lives, policy="round-robin", refined={"version": config.number, "config": config.name})
    html = body(browser.get(f"{SWITCH}?agent=edge-1"))
    assert 'value="60"' in html
    assert '<option value="round-robin" selected>' in html
    other = body(browser.get(f"{SWITCH}?agent=edge-1&policy=fcfs"))
    assert '<option value="fcfs" selected>' in other, "the replay's links choose a policy"
    ticked = '<input type="checkbox" name="agents" value="edge-1" id="id_agents_0" checked>'
    assert ticked in other, "for the agent that was replayed"
    assert ticked not in html


def test_config_may_set_scheduling(browser: Client, core: Any) -> None:
    new = f"{SOURCES}configs/new/"
    form = {f"schedule-{name}": value for name, value in WANTED.items()}
    wrong = browser.post(new, {**METHOD, **form, "margin": "5", "schedule-cycle_ms": "1", "with_schedule": "on"})
    assert wrong.status_code == 422
    html = body(wrong)
    assert "It has to be 90 to 98%." in html and "It has to be 20 to 500 ms." in html, "all faults at once"
    browser.post(new, {**METHOD, **form, "with_schedule": "on", "make": "yes"})
    assert RefinedConfig.objects.get().schedule == {"policy": "round-robin"}
    browser.post(new, {**METHOD, **form, "make": "yes"})
    assert RefinedConfig.objects.first().schedule is None, "unless it is ticked, scheduling stays as it is"


def test_agent_page_links_to_its_schedule(browser: Client, core: Any) -> None:
    html = body(browser.get(f"{SOURCES}agents/edge-1/"))
    assert "Scheduling policy: <b>Klink</b>; 3.8\u00a0MiB wait, the memory limit is 7.6\u00a0MiB." in html
    assert f"{SOURCES}schedule/?agent=edge-1" in html
    assert "schedule/?agent=" not in body(browser.get(f"{SOURCES}agents/edge-2/"))
