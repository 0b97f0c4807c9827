"""Schedule of an agent: policy in force, timeline, table, and watermarks against their expected intervals."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.telemetry.models import Agent, Assignment, LiveQuery
from tests.apps.pages.html import body
from tests.apps.pages.sources.cores import epochs_with, scheduling, shared_core
from tests.apps.results.rows import live_query

pytestmark = pytest.mark.django_db

SCHEDULE = "/c/little/sources/schedule/"


def cells(html: str, query: str) -> list[str]:
    """A row of the table, without its marks."""
    table = html.split("Table: Queries at")[1].split("</table>")[0]
    row = next(row for row in table.split("<tr>") if f">{query}</a>" in row)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", cell)).strip() for cell in re.split(r"</t[hd]>", row)[:-1]]


@pytest.fixture
def core(cluster: Cluster) -> tuple[Agent, list[LiveQuery]]:
    return shared_core(cluster)


def test_schedule_page_without_agents_shows_the_first_step(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(SCHEDULE))
    assert "No agent yet" in html
    assert "/api/v1/clusters/little/schedule" in html


def test_schedule_of_an_agent_without_queries_is_empty(
    browser: Client, browser_of: Callable[..., Client], core: Any
) -> None:
    assert "New live query" in body(browser.get(f"{SCHEDULE}?agent=edge-2"))
    html = body(browser_of("viewer").get(f"{SCHEDULE}?agent=edge-2"))
    assert "Nothing to schedule yet" in html
    assert "New live query" not in html, "who may not make one is not asked to"
    assert browser.get(f"{SCHEDULE}?agent=nobody").status_code == 404


def test_schedule_before_the_first_epochs_is_marked(browser: Client, core: Any) -> None:
    html = body(browser.get(SCHEDULE))
    assert "No epoch is known yet." in html
    assert "edge-1 runs 2 queries by <b>Klink</b>." in html
    assert cells(html, "probes")[1] == "Not heard of yet"


def test_schedule_head_shows_policy_mode_memory_and_config(
    browser: Client, core: tuple[Agent, list[LiveQuery]]
) -> None:
    agent, lives = core
    refused = {"version": 13, "config": "c-13", "reasons": ["cycle_ms is 900; allowed: 20 to 500"]}
    refined = {"version": 12, "config": "c-12"}
    scheduling(agent, lives, mode="memory", reason="9 MB wait", starved=3, refined=refined, refused=refused)
    html = body(browser.get(SCHEDULE))
    stats = html.split('aria-label="How it schedules"')[1].split("</dl>")[0]
    for words in (
        ">Klink<",
        "scheduling quantum 0.12\u00a0s",
        "turns given after 5\u00a0s without one",
        ">Memory<",
        "9 MB wait",
        ">3<",
        ">c-12<",
    ):
        assert words in stats
    assert "memory limit 7.6\u00a0MiB" in stats
    assert 'style="width:50%"' in stats, "half of the bound is used"
    assert "It refused c-13: cycle_ms is 900; allowed: 20 to 500." in html


def test_the_timeline_has_a_lane_for_each_query(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    for live, slack_s in zip(lives, (1.4, -0.5), strict=True):
        epochs_with(agent, live, slack_s=slack_s)
    html = body(browser.get(f"{SCHEDULE}?span=30"))
    wide = html.split('class="fig wide"')[1].split("</svg>")[0]
    assert re.findall(r'id="lane-w(\d)" tabindex="0"', wide) == ["0", "1"], "both can be reached with the keyboard"
    assert "probes: had the core 25% of the time" in wide
    assert "slack −0.5\u00a0s" in wide
    assert len(re.findall(r"<circle class=\"mea\"", wide.split('id="lane-w1"')[0])) == 3, "windows of 30 s"
    assert "watermark 0.5\u00a0s after its end, as expected" in wide
    assert "next watermark expected" in wide
    assert "limit 7.6\u00a0MiB" in wide
    assert "least slack: racks, <b>−0.5" in html
    assert cells(html, "racks")[1] == "Behind its window"


def test_unknown_time_span_falls_back_to_the_default(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    epochs_with(core[0], core[1][0])
    for asked, shown in (("30", "30"), ("120", "120"), ("9999", "60"), ("x", "60")):
        html = body(browser.get(f"{SCHEDULE}?span={asked}"))
        assert f'aria-current="true">{shown}&nbsp;s<' in html


def test_schedule_table_shows_the_state_of_each_query(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    epochs_with(agent, lives[0], delay_s=0.5)
    epochs_with(agent, lives[1], delay_s=0.9, timed=4, in_time=3)
    html = body(browser.get(SCHEDULE))
    probes = cells(html, "probes")
    assert probes[0] == "probes every 10 s"
    assert probes[1:5] == ["In time", "1.4 s", "12", "3.3 s"]
    assert probes[6:] == ["+0.2 to 0.8 s", "+0.5 s", "100 % of 4", "1 s", "1 s", "–"]
    assert cells(html, "racks")[-1] == "75 %"
    assert html.count('<td class="num watch" data-l="On time">') == 1
    assert cells(html, "racks")[8] == "0 % of 4", "0.9 s after the end is not within 0.2 to 0.8 s"
    assert "/c/little/queries/probes/live/" in html
    assert "/c/little/sources/agents/edge-1/" in html


def test_query_without_watermarks_shows_its_agents_reason(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    epochs_with(agent, lives[0])
    scheduling(agent, lives, late="no watermark for 3 min")
    html = body(browser.get(SCHEDULE))
    assert cells(html, "probes")[1] == "No watermark for 3 min"
    assert "probes waits for its watermark." in html


def test_the_table_is_sorted_and_exported(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    epochs_with(agent, lives[0], slack_s=3.0)
    newest_us = epochs_with(agent, lives[1], slack_s=1.0)
    html = body(browser.get(f"{SCHEDULE}?sort=slack&span=120"))
    table = html.split("Table: Queries at")[1]
    assert table.index(">racks</a>") < table.index(">probes</a>")
    assert "sort=-slack" in html
    response = browser.get(f"{SCHEDULE}?agent=edge-1&export=csv")
    assert 'filename="schedule-little-edge-1.csv"' in response["Content-Disposition"]
    rows = {row["Query"]: row for row in csv.DictReader(io.StringIO(response.content.decode()))}
    assert rows["racks"]["Slack"] == "1.0"
    assert rows["racks"]["Latency, mean"] == "1.0"
    assert rows["racks"]["As expected"] == "1.0"
    ends = timezone.datetime.fromisoformat(rows["racks"]["Window ends"]).timestamp()
    assert ends == newest_us / 1e6 + 10


def test_watermarks_are_drawn_beside_their_intervals(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    epochs_with(agent, lives[0])
    epochs_with(agent, lives[1], delay_s=0.9)
    html = body(browser.get(SCHEDULE))
    assert "Watermarks of probes, expected and arrived" in html
    assert "4 of 4 watermarks came within the interval: 100%, 95% wanted." in html
    other = body(browser.get(f"{SCHEDULE}?query=racks"))
    assert "0 of 4 watermarks came within the interval: 0%, 95% wanted." in other
    picture = other.split('aria-label="Delay of the sweeping watermarks of racks')[1].split("</svg>")[0]
    assert picture.count('stroke="var(--bad)"') == 4, "each is marked by its shape"
    assert "expected 0.2\u00a0s to 0.8\u00a0s after it" in picture


def test_times_are_in_the_persons_zone(
    browser_of: Callable[..., Client], user_of: Callable[..., User], core: tuple[Agent, list[LiveQuery]]
) -> None:
    newest_us = epochs_with(core[0], core[1][0])
    person = user_of("operator")
    person.time_zone = "Asia/Kolkata"
    person.save()
    html = body(browser_of("operator").get(SCHEDULE))
    ends = timezone.datetime.fromtimestamp(newest_us / 1e6 + 10, timezone.get_fixed_timezone(330))
    assert cells(html, "probes")[5] == f"{ends:%H:%M:%S}"


def test_silent_agent_shows_its_last_state(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    epochs_with(agent, lives[0])
    Agent.objects.filter(pk=agent.pk).update(last_seen=timezone.now() - timedelta(minutes=3))
    html = body(browser.get(SCHEDULE))
    assert "edge-1 has not reported since" in html
    assert "probes: had the core" in html


def test_many_agents_are_searched_for(browser: Client, cluster: Cluster, core: Any) -> None:
    assert 'id="sch-agent"' not in body(browser.get(SCHEDULE))
    for number in range(3, 12):
        Agent.objects.create(cluster=cluster, name=f"edge-{number}", secret_hash=f"edge-{number}")
    html = body(browser.get(f"{SCHEDULE}?agent=edge-9"))
    assert 'id="sch-agent" name="agent" value="edge-9"' in html
    assert "names/?of=agents" in html


def test_sql_count_does_not_grow_with_queries(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    for live in lives:
        epochs_with(agent, live)
    browser.get(SCHEDULE)
    with CaptureQueriesContext(connection) as few:
        browser.get(SCHEDULE)
    for name in ("third", "fourth", "fifth"):
        lives.append(live_query(agent.cluster, name))
        Assignment.objects.create(live=lives[-1], agent=agent)
        epochs_with(agent, lives[-1])
    scheduling(agent, lives)
    with CaptureQueriesContext(connection) as many:
        assert "edge-1 runs 5 queries" in body(browser.get(SCHEDULE))
    assert len(many) == len(few)
