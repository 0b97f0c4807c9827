"""Replay of a schedule: requested on the page, computed by a worker, shown beside round robin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.telemetry.models import Agent, LiveQuery
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.pages.sources.cores import epochs_with, shared_core

pytestmark = pytest.mark.django_db

SCHEDULE = "/c/little/sources/schedule/"
REPLAY = f"{SCHEDULE}replay/"
HTMX = {"HX-Request": "true"}


def figures(mean_ms: float, *, overflow_share: float = 0.0, **queries: Any) -> dict[str, Any]:
    return {
        "windows": 40,
        "mean_ms": mean_ms,
        "p99_ms": 3 * mean_ms,
        "most_ms": 4 * mean_ms,
        "unswept": 0,
        "records": 1000,
        "processed": 1000,
        "overflow": round(1000 * overflow_share),
        "overflow_share": overflow_share,
        "waiting": 0,
        "memory_peak_bytes": 2_000_000,
        "busy_share": 0.6,
        "queries": queries,
    }


def replayed(agent: Agent) -> Job:
    """A replay that is done: under Klink windows are twice as soon as under round robin."""
    own = {key: value for key, value in figures(200.0).items() if key not in ("queries", "busy_share")}
    policies = {
        "klink": figures(300.0, probes=own),
        "fcfs": figures(600.0, overflow_share=0.02, probes=own),
        "round-robin": figures(600.0, probes=own),
    }
    params = {
        "agent": str(agent.pk),
        "name": agent.name,
        "in_force": "klink",
        "since_us": 0,
        "until_us": 240_000_000,
        "windows": 40,
        "notes": ["racks has no costs yet"],
        "document": {},
    }
    return Job.objects.create(
        kind=JobKind.REPLAY,
        title="Replay",
        cluster=agent.cluster,
        params=params,
        state=JobState.SUCCEEDED,
        result={"bins": 240, "duration_s": 240.0, "policies": policies},
    )


@pytest.fixture
def core(cluster: Cluster) -> tuple[Agent, list[LiveQuery]]:
    return shared_core(cluster)


def row(html: str, name: str) -> str:
    table = html.split("Table: policies")[1].split("</table>")[0]
    return next(part for part in table.split("<tr") if f'"name">{name}<' in part)


def test_schedule_page_fetches_the_newest_replay(browser: Client, core: Any) -> None:
    assert f'hx-get="{REPLAY}?agent=edge-1" hx-trigger="load"' in body(browser.get(SCHEDULE))
    part = body(browser.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    assert "Nothing has been replayed yet." in part
    assert "Replay the last five minutes" in part
    read = browser.get(f"{REPLAY}?agent=edge-1")
    assert read.status_code == 302, "read by itself, it leads to its page"
    assert read["Location"] == f"{SCHEDULE}?agent=edge-1#replay"


def test_replayed_policies_are_shown_side_by_side(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    replayed(core[0])
    html = body(browser.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    said = "Under Klink results come 0.3\u00a0s after their window&#x27;s end on average, 50% sooner than"
    assert f"{said} under round robin. Their p99 is 50% lower." in html
    assert "in force" in row(html, "Klink") and "−50%" in row(html, "Klink")
    assert "policy=fcfs" in row(html, "First come, first served"), "a policy is switched to from its row"
    assert "the same" in row(html, "First come, first served")
    assert "in force" not in row(html, "Round robin")
    assert "Racks has no costs yet" in html
    by_query = html.split("Table: policies by query")[1]
    assert by_query.count("0.2\u00a0s, 0.6\u00a0s") == 3


def test_policy_to_compare_with_is_chosen(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    replayed(core[0])
    html = body(browser.get(f"{REPLAY}?agent=edge-1&against=klink", headers=HTMX))
    assert "No other policy would be sooner: results come 0.3\u00a0s" in html
    assert "+100%" in row(html, "Round robin")
    assert "under round robin" in body(browser.get(f"{REPLAY}?agent=edge-1&against=nothing", headers=HTMX))


def test_viewer_is_offered_no_replay(browser_of: Callable[..., Client], core: tuple[Agent, list[LiveQuery]]) -> None:
    replayed(core[0])
    viewer = browser_of("viewer")
    html = body(viewer.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    assert "under round robin" in html
    assert "Replay again" not in html and "policy=fcfs" not in html


def test_replay_of_too_few_epochs_is_refused(browser: Client, core: Any) -> None:
    html = body(browser.post(REPLAY, {"agent": "edge-1"}, headers=HTMX))
    assert not Job.objects.filter(kind=JobKind.REPLAY).exists()
    assert "recorded" in html
    assert "Replay the last five minutes" in html, "it can be tried again"


def test_replay_is_polled_until_it_is_done(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    agent, lives = core
    for live in lives:
        epochs_with(agent, live, windows=12)
    html = body(browser.post(REPLAY, {"agent": "edge-1"}, headers=HTMX))
    job = Job.objects.get(kind=JobKind.REPLAY)
    assert f"changed:job:{job.pk} from:body" in html
    small_cluster.run_jobs()
    html = body(browser.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    assert "in force" in row(html, "Klink")
    assert "Replay again" in html


def test_failed_replay_shows_its_error(browser: Client, core: tuple[Agent, list[LiveQuery]]) -> None:
    job = replayed(core[0])
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED, result=None, error={"message": "It ran out of time."})
    html = body(browser.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    assert "It ran out of time." in html
    assert "Replay the last five minutes" in html


def test_replay_after_a_switch_compares_with_the_new_policy(
    browser: Client, core: tuple[Agent, list[LiveQuery]]
) -> None:
    replayed(core[0])
    core[0].heartbeat = {**core[0].heartbeat, "schedule": {"policy": "fcfs"}}
    core[0].save()
    html = body(browser.get(f"{REPLAY}?agent=edge-1", headers=HTMX))
    assert "Under first come, first served results come 0.6" in html
    assert "in force" in row(html, "First come, first served") and "in force" not in row(html, "Klink")
    core[0].heartbeat["schedule"]["policy"] = "stimulus-time"
    core[0].save()
    html = body(browser.get(f"{REPLAY}?agent=edge-1&against=stimulus-time", headers=HTMX))
    assert "Stimulus time is in force, and not among what was replayed." in html
