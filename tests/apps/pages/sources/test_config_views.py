"""Configurations of agents: made and checked, rolled out, paused, rolled back; and the rollout policy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.rollouts.models import Learned, RefinedConfig, Rollout, RolloutMember, RolloutPolicy
from apps.rollouts.rollout_services import rollout_start
from apps.rollouts.services import ConfigRequest, config_create
from apps.telemetry.models import Agent, LiveQuery
from tests.apps.pages.html import body
from tests.apps.pages.sources.edges import adapt, agents_at_work, ran

pytestmark = pytest.mark.django_db

SOURCES = "/c/little/sources/"
CONFIGS = f"{SOURCES}configs/"
POLICY = f"{SOURCES}rollout-policy/"
WANTED = {
    "words": "Less margin",
    "method": "scalar",
    "objective": "bytes",
    "margin": "97",
    "floor": "0.5",
    "drained_thres": "5",
    "idle_thres": "10",
    "levels": "100",
    "z_least": "0.25",
    "z_most": "4",
    "learned": "on",
}
CAREFUL = {
    "canary_count": "1",
    "canary_share": "10",
    "canary_epochs": "20",
    "wave_epochs": "10",
    "silent_epochs": "30",
    "waves": "30, 100",
    "automatic": "on",
    "propose_every_s": "600",
    "overflow_pp": "1",
    "bytes_rel": "5",
    "latency_rel": "25",
    "latency_abs_s": "0.5",
    "cpu_rel": "10",
}


@pytest.fixture
def live(cluster: Cluster) -> LiveQuery:
    """edge-1 and edge-2 adapt and report; edge-3 is set by hand and silent."""
    live = agents_at_work(cluster)
    for name in ("edge-1", "edge-2"):
        adapt(live, name)
        ran(live, name, [[1, 1, 0.5]] * 30)
        learn(live, name)
    return live


def inside(page: str, part: str) -> str:
    """Ids of the dialogs within the element with this id."""
    match = re.search(rf'<div [^>]*id="{part}"', page)
    assert match is not None
    depth, ids = 0, []
    for tag in re.finditer(r"<(/?)div\b|<dialog [^>]*id=\"([^\"]+)\"", page[match.start() :]):
        if tag[2]:
            ids.append(tag[2])
            continue
        depth += -1 if tag[1] else 1
        if not depth:
            break
    return " ".join(ids)


def learn(live: LiveQuery, name: str) -> None:
    """Learned costs: 100 records/s take 0.01, 0.01 and 0.2 CPU seconds."""
    operators = [
        {"id": "window", "cost_s": 1e-4, "relay": 1.0, "records": 5000},
        {"id": "answered", "cost_s": 1e-4, "relay": 0.8, "records": 5000},
        {"id": "pairs", "cost_s": 2.5e-3, "relay": 0.1, "records": 5000, "standard_error": 0.03},
    ]
    learned = {
        "record_bytes": [10.0, 10.0, 10.0, 12.5],
        "operators": operators,
        "fitted": {"records": [90, 110], "cores": [0.3, 0.3]},
        "plan_prior": {"lo": 2, "hi": 3, "theta": 0.5, "load_factors": [1.0, 1.0, 0.5]},
    }
    agent = Agent.objects.get(name=name)
    now_us = int(time.time() * 1e6)
    Learned.objects.create(live=live, agent=agent, plan=live.plan, measured_us=now_us, document=learned)


def made(live: LiveQuery, user: User, settings: dict[str, Any], words: str = "Less margin") -> RefinedConfig:
    return config_create(cluster=live.query.cluster, wish=ConfigRequest(settings), words=words, user=user)


def taken(live: LiveQuery, config: RefinedConfig, name: str) -> None:
    """An agent says that it has a configuration."""
    adapt(live, name, refined={"version": config.number, "config": config.name})
    RolloutMember.objects.filter(agent__name=name).update(state="applied")


def test_configs_page_without_configs_explains_their_origin(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(CONFIGS))
    assert "No config yet" in html
    assert "Nothing to configure yet" in body(browser.get(f"{CONFIGS}new/"))


def test_config_is_checked_before_it_is_created(browser: Client, live: LiveQuery) -> None:
    wrong = browser.post(f"{CONFIGS}new/", {**WANTED, "margin": "99", "agents": ["nobody"]})
    assert wrong.status_code == 422
    assert "It has to be 90 to 98%." in body(wrong)
    html = body(browser.post(f"{CONFIGS}new/", WANTED))
    assert "Within the limits" in html
    assert "Make it and start with canaries" in html
    assert not RefinedConfig.objects.exists(), "a check makes nothing"
    answer = browser.post(f"{CONFIGS}new/", {**WANTED, "make": "yes"})
    config = RefinedConfig.objects.get()
    assert (config.settings, config.words, config.state) == ({"margin": 0.97}, "Less margin", "draft")
    assert answer["Location"] == f"{CONFIGS}{config.number}/"


def test_config_that_predicts_a_loss_needs_force(browser: Client, live: LiveQuery) -> None:
    worse = {**WANTED, "method": "all-sp"}
    html = body(browser.post(f"{CONFIGS}new/", worse))
    assert "Worse than allowed" in html
    assert "Make it and start by force" in html
    browser.post(f"{CONFIGS}new/", {**worse, "start": "yes"})
    config = RefinedConfig.objects.get()
    assert config.state == "refused"
    assert not Rollout.objects.exists(), "without force it is not started"
    page = body(browser.get(f"{CONFIGS}{config.number}/"))
    assert "Start c-1 by force" in page
    assert browser.post(f"{CONFIGS}{config.number}/start/").status_code == 409
    assert browser.post(f"{CONFIGS}{config.number}/start/", {"force": "yes"}).status_code == 302
    assert Rollout.objects.get().config == config


def test_config_page_shows_settings_and_parts(browser: Client, live: LiveQuery, user_of: Callable[..., User]) -> None:
    made(live, user_of(), {"margin": 0.97})
    html = body(browser.get(f"{CONFIGS}1/"))
    assert "Less margin." in html
    assert "on no agent" in html
    sets = html.split('id="t-set"')[1].split("</section>")[0]
    assert "CPU margin" in sets
    assert "<b>97%</b>" in sets
    holds = html.split('id="t-parts"')[1]
    assert "2.5\N{NO-BREAK SPACE}ms ± 3%" in holds
    assert "Seen at 90 to 110 records an epoch and 0.30 cores." in holds
    assert browser.get(f"{CONFIGS}9/").status_code == 404
    rows = browser.get(f"{CONFIGS}?export=csv").content.decode().splitlines()
    assert rows[1].startswith("c-1,Less margin,a-operator,Draft,")


def test_rollout_is_shown_paused_and_rolled_back(
    browser: Client, browser_of: Callable[..., Client], live: LiveQuery, user_of: Callable[..., User]
) -> None:
    config = made(live, user_of(), {"margin": 0.97})
    row = rollout_start(config=config, user=user_of())
    canary = row.members.get(stage=0).agent.name
    other = {"edge-1": "edge-2", "edge-2": "edge-1"}[canary]
    taken(live, config, canary)
    html = body(browser.get(SOURCES))
    assert "Config c-1 is on 1 canary." in html
    panel = html.split('id="t-roll"')[1].split("</section>")[0]
    assert "Canary, 1 agent" in panel
    assert "Roll back 1 agent" in panel
    for page, part in ((html, "sources"), (body(browser.get(f"{CONFIGS}1/")), "config")):
        assert "roll-back-dialog" in inside(page, part), "the dialog is refreshed with its button"
    assert "Roll back" not in body(browser_of("viewer").get(SOURCES))
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert table.count(">canary<") == 1
    assert canary in body(browser.get(f"{SOURCES}?config=canary")).split("<tbody>")[1].split("</tbody>")[0]
    assert other not in body(browser.get(f"{SOURCES}?config=canary")).split("<tbody>")[1].split("</tbody>")[0]

    change = f"{SOURCES}rollouts/{row.pk}/"
    browser.post(f"{change}pause/")
    assert "Resume" in body(browser.get(SOURCES))
    browser.post(f"{change}resume/")
    assert "Pause" in body(browser.get(SOURCES))
    browser.post(f"{change}roll-back/", {"reason": "bytes rose"})
    row.refresh_from_db()
    assert row.state == "rolling-back"
    html = body(browser.get(SOURCES))
    assert "Config c-1 is being rolled back." in html
    assert "<b>Taken back:</b> bytes rose." in html
    assert "rolled back: bytes rose" in body(browser.get(f"{CONFIGS}1/")).lower()
    assert browser.post(f"{change}nonsense/").status_code == 404
    assert browser.post(f"{SOURCES}rollouts/999/pause/").status_code == 404


def test_second_rollout_waits_and_is_named(browser: Client, live: LiveQuery, user_of: Callable[..., User]) -> None:
    rollout_start(config=made(live, user_of(), {"margin": 0.97}), user=user_of())
    second = rollout_start(config=made(live, user_of(), {"margin": 0.96}, "Even less"), user=user_of())
    assert "c-2 waits until this rollout is over." in body(browser.get(SOURCES))
    assert "Stop" in body(browser.get(f"{CONFIGS}2/"))
    browser.post(f"{SOURCES}rollouts/{second.pk}/stop/")
    second.refresh_from_db()
    assert second.state == "stopped"
    assert "waits until" not in body(browser.get(SOURCES))


def test_agents_that_refuse_a_config_show_their_reason(
    browser: Client, live: LiveQuery, user_of: Callable[..., User]
) -> None:
    config = made(live, user_of(), {"margin": 0.97})
    row = rollout_start(config=config, user=user_of())
    canary = row.members.get(stage=0).agent.name
    refused = {"version": config.number, "config": config.name, "reasons": ["cost of pairs is tenfold"]}
    adapt(live, canary, refused=refused)
    row.members.filter(stage=0).update(state="refused", reasons=refused["reasons"])
    html = body(browser.get(SOURCES))
    assert 'title="cost of pairs is tenfold">refused' in html
    assert canary in body(browser.get(f"{SOURCES}?config=refused")).split("<tbody>")[1]
    rows = body(browser.get(f"{SOURCES}?export=csv"))
    assert "refused: cost of pairs is tenfold" in rows


def test_budget_preview_uses_the_settings_in_force(
    browser: Client, live: LiveQuery, user_of: Callable[..., User]
) -> None:
    agent = Agent.objects.get(name="edge-1")
    rollout_start(config=made(live, user_of(), {"method": "all-sp"}), user=user_of(), force=True, canaries=[agent])
    html = body(browser.get(f"{SOURCES}agents/edge-1/budget/preview/?budget_cores=1"))
    assert "450\N{NO-BREAK SPACE}B/s → <b>1\N{NO-BREAK SPACE}kB/s</b>" in html, "whatever it may use, it drains"


def test_uncertain_canary_shows_the_interval_of_the_change(
    browser: Client, live: LiveQuery, user_of: Callable[..., User]
) -> None:
    row = rollout_start(config=made(live, user_of(), {"margin": 0.97}), user=user_of())
    figure = {"change": 0.052, "uncertainty": 0.061, "limit": 0.05, "worse": False, "unsure": True}
    row.verdict = {"health": "waiting", "figures": {"bytes": figure}, "doubtful": True}
    row.save()
    html = body(browser.get(SOURCES))
    assert 'Bytes sent <b class="watch">+5.2 ± 6.1 %</b><span class="muted">limit +5 %</span>' in html
    assert "Canary doubtful" in html


def test_agents_are_added_to_the_canaries(browser: Client, live: LiveQuery, user_of: Callable[..., User]) -> None:
    row = rollout_start(config=made(live, user_of(), {"margin": 0.97}), user=user_of())
    other = row.members.exclude(stage=0).get().agent.name
    page = body(browser.get(f"{SOURCES}change/?what=canary&row={other}"))
    assert "Canaries of c-1" in page
    browser.post(f"{SOURCES}change/", {"what": "canary", "row": other, "apply": "yes"})
    assert row.members.filter(stage=0).count() == 2


def test_sent_bytes_are_compared_with_other_splits(browser: Client, live: LiveQuery) -> None:
    html = body(browser.get(f"{SOURCES}agents/edge-1/"))
    saved = html.split('id="t-saved"')[1].split("</section>")[0]
    assert "It sent 55% less than All-SP" in saved
    assert "450\N{NO-BREAK SPACE}B/s" in saved
    assert saved.index("All-SP") < saved.index("Best-OP") < saved.index("Now")
    assert "not known yet" not in saved
    Learned.objects.all().delete()
    assert body(browser.get(f"{SOURCES}agents/edge-1/")).count("not known yet: the cost of an operator is missing") == 3


def test_rollout_policy_is_changed_within_its_limits(browser: Client, cluster: Cluster) -> None:
    assert 'value="30, 100"' in body(browser.get(POLICY)), "the defaults, before anybody sets one"
    for wrong in ({"waves": "30, 20, 100"}, {"waves": "30, 90"}, {"canary_epochs": "5"}, {"waves": "many"}):
        assert browser.post(POLICY, {**CAREFUL, **wrong}).status_code == 422, wrong
    assert not RolloutPolicy.objects.exists()
    browser.post(POLICY, {**CAREFUL, "waves": "20, 50, 100", "bytes_rel": "8", "canary_count": "3"})
    policy = RolloutPolicy.objects.get(cluster=cluster)
    assert (policy.waves, policy.bytes_rel, policy.canary_count) == ([0.2, 0.5, 1.0], 0.08, 3)
    assert policy.automatic
