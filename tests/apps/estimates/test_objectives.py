"""Stored states of objectives: what is measured beats the estimate, and lists agree with pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from agent.wire.broker import write_state
from apps.estimates.models import AccuracyObservation, ObjectiveStatus
from apps.estimates.objectives import objectives_refresh, objectives_refresh_all
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import ESTIMATE
from apps.estimates.words import cause_sentence, evidence_words
from apps.fleet.models import Cluster
from apps.measurements.models import StreamStretch, StreamWork
from apps.pages.overview.attention import attention_list
from apps.pages.overview.findings import Findings
from apps.queries.models import Query
from apps.queries.services import query_stop
from apps.results.models import ResultWindow
from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.streams import stream_client
from engine.measurement.causes import LatenessCause
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.microbatch.own import own_batch
from tests.apps.small_cluster import run_jobs
from tests.clock import run_moment

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

NOW = run_moment()


@pytest.fixture
def live() -> LiveQuery:
    own_batch(NOW)
    live = live_query(make_live_cluster())
    write_state(stream_client(), {"state": "ready", "behind_s": 1.0, "trigger_s": 2.0}, life_s=600.0)
    Agent.objects.update(last_seen=NOW + timedelta(hours=1))
    ESTIMATE.request(cluster=live.query.cluster)
    run_jobs()
    return live


def windows(query: Query, latency_s: float, *, count: int = 30, ago_s: float = 0.0, **fields: Any) -> None:
    """One every ten seconds, the newest `ago_s` before now."""
    ResultWindow.objects.bulk_create(
        ResultWindow(
            query=query, plan="p", window_us=round(at.timestamp() * 1e6), width_us=10_000_000, row_count=0, body=b"",
            **{"complete": True, "emitted_at": at, "latency_s": latency_s, **fields},
        )
        for at in (NOW - timedelta(seconds=ago_s + 10 * i) for i in range(count))
    )  # fmt: skip


def refreshed(query: Query, at: datetime = NOW) -> ObjectiveStatus:
    objectives_refresh(query.cluster, now=at)
    return ObjectiveStatus.objects.select_related("estimate", "query").get(query=query)


def test_estimate_alone_decides_until_something_is_measured(live: LiveQuery) -> None:
    status = ObjectiveStatus.objects.get(query=live.query)  # judged with the estimate, in its transaction
    row = query_estimate_latest(live.query)
    assert row is not None and status.estimate_id == row.pk
    assert (status.state, status.decided_by, status.lacking) == ("holds", "estimate", "none")
    assert row.judged_state == "holds" and row.measured_s is None


def test_query_measured_beyond_its_objective_is_breached(live: LiveQuery) -> None:
    windows(live.query, 78.7)
    status = refreshed(live.query)
    assert (status.state, status.decided_by, status.measured_s, status.results) == ("breached", "measurement", 78.7, 30)
    assert status.headroom_share == pytest.approx(-6.87)
    row = query_estimate_latest(live.query)
    assert row is not None and row.state == "holds" and row.judged_state == "breached" and row.judged_s == 78.7
    words = evidence_words(status).replace("\xa0", " ")
    assert words.startswith("measured 78.7 s over the last 10 min against 10 s; estimate ")


def test_stale_and_few_measurements_do_not_count_and_say_so(live: LiveQuery) -> None:
    windows(live.query, 78.7, count=2)
    status = refreshed(live.query)
    assert (status.state, status.lacking) == ("holds", "few")
    assert "the measurement does not count yet: 2 results of the 3 it takes" in evidence_words(status)
    windows(live.query, 78.7, ago_s=20.0)
    assert refreshed(live.query).state == "breached"
    late = refreshed(live.query, NOW + timedelta(minutes=6))
    assert (late.state, late.decided_by, late.lacking) == ("holds", "estimate", "stale")


@pytest.mark.parametrize(
    ("stream", "agent", "words"),
    [
        ("failed", {}, "not known: the stream processor has failed; estimate "),
        ("ready", {"last_seen": NOW - timedelta(minutes=24)}, "not known: agent-2 does not report; estimate "),
        ("ready", {"last_seen": None}, "not known: agent-2 does not report; estimate "),
        (
            "ready",
            {"heartbeat": {"collectors": [{"source": "probes", "state": "shedding"}]}},
            "not known: agent-2 sheds records of probes; estimate ",
        ),
    ],
)
def test_estimate_says_of_no_chain_that_cannot_be_observed_that_it_holds(
    live: LiveQuery, stream: str, agent: dict[str, Any], words: str
) -> None:
    write_state(stream_client(), {"state": stream}, life_s=600.0)
    Agent.objects.filter(name="agent-2").update(**agent)
    status = refreshed(live.query)
    assert (status.state, status.decided_by, status.headroom_share) == ("unknown", "nothing", None)
    assert evidence_words(status).startswith(words)
    windows(live.query, 78.7)
    assert refreshed(live.query).state == "breached", "what is measured stays measured"


def test_overview_leads_with_what_cannot_be_observed(live: LiveQuery) -> None:
    write_state(stream_client(), {"state": "failed"}, life_s=600.0)
    objectives_refresh(live.query.cluster, now=NOW)
    findings = Findings(live.query.cluster)
    items, _ = attention_list(findings)
    assert items[0].title == "The stream processor has failed: 1 query not known"
    assert "The latency of errors is not known" not in {item.title for item in items}, "told once"
    assert "whether errors holds its objective is not known" in items[0].text
    assert "cannot be observed at present" in findings.sentence


def test_state_keeps_its_beginning_while_it_lasts(live: LiveQuery) -> None:
    windows(live.query, 78.7)
    begun = refreshed(live.query).since
    assert begun == NOW
    assert refreshed(live.query, NOW + timedelta(seconds=60)).since == begun
    assert refreshed(live.query, NOW + timedelta(minutes=30)).since == NOW + timedelta(minutes=30)


def test_results_while_the_stream_processor_caught_up_are_left_out(live: LiveQuery) -> None:
    windows(live.query, 78.7, count=12)
    StreamStretch.objects.create(
        work=StreamWork.CATCHING_UP, begins_at=NOW - timedelta(minutes=9), ends_at=NOW + timedelta(seconds=1)
    )
    status = refreshed(live.query)
    assert (status.state, status.lacking, status.left_out) == ("holds", "disturbed", 12)


def test_report_of_another_engine_is_a_measurement(live: LiveQuery) -> None:
    query = live.query
    LiveQuery.objects.all().delete()
    for i in range(4):
        ends_at = NOW - timedelta(seconds=30 * i)
        AccuracyObservation.objects.create(
            cluster=query.cluster,
            query=query,
            version=1,
            estimated_at=ends_at,
            starts_at=ends_at - timedelta(seconds=30),
            ends_at=ends_at,
            statistic="worst",
            evidence="assumed",
            expected_s=3.0,
            observed_s=12.0 + i,
            windows=5,
            origin="flink",
        )
    status = refreshed(query)
    assert (status.state, status.measured_s, status.results) == ("breached", 15.0, 20)


def test_stopped_query_loses_its_status(live: LiveQuery) -> None:
    live.delete()
    query_stop(query=Query.objects.get(pk=live.query_id))
    assert objectives_refresh_all(NOW) == 0
    assert not ObjectiveStatus.objects.exists()


def test_unchanged_status_is_not_written_again(live: LiveQuery) -> None:
    before = refreshed(live.query).updated_at
    assert refreshed(live.query, NOW + timedelta(seconds=15)).updated_at == before


def starve(cluster: Cluster, name: str, **says: Any) -> None:
    agent = Agent.objects.get(cluster=cluster, name=name)
    agent.last_seen, agent.heartbeat = NOW, says
    agent.save()


def test_starved_agent_is_named_not_the_idle_node_of_the_estimate(live: LiveQuery) -> None:
    cluster = live.query.cluster
    starve(cluster, "agent-1", cpu_cores=0.05)
    starve(cluster, "agent-2", cpu_cores=0.2)
    windows(live.query, 78.7)
    status = refreshed(live.query)
    assert [cause.kind for cause in status.lateness] == ["agent_starved"]
    assert cause_sentence(status.lateness[0]) == "agent-2 uses 0.2 of the 0.2 cores it may: its budget is used up."


def test_lag_of_the_stream_processor_is_named(live: LiveQuery) -> None:
    said = {"state": "ready", "behind_s": 71.0, "trigger_s": 2.0, "lag": {"0": 4000, "1": 812}}
    write_state(stream_client(), said)
    windows(live.query, 78.7)
    causes = refreshed(live.query).lateness
    assert causes[0] == LatenessCause("stream_behind", seconds=71.0, amount=4812.0)
    assert cause_sentence(causes[0]) == "The stream processor is 71\xa0s behind: 4,812 frames wait for it."


def test_lists_filter_and_sort_by_the_state_that_is_shown(live: LiveQuery, api: APIClient) -> None:
    windows(live.query, 78.7)
    objectives_refresh(live.query.cluster, now=NOW)
    shown = api.get("/api/v1/objectives?state=breached&sort=headroom_share").json()["results"]
    assert [(row["query"], row["decided_by"], row["measured_s"]) for row in shown] == [("errors", "measurement", 78.7)]
    assert api.get("/api/v1/objectives/summary").json() == {
        "breached": 1, "at_risk": 0, "holds": 0, "unknown": 0, "none": 0, "measured": 1,
    }  # fmt: skip
    assert api.get("/api/v1/objectives?state=holds").json()["results"] == []
    queries = api.get("/api/v1/queries?objective_state=breached").json()["results"]
    assert [(row["name"], row["objective_state"]) for row in queries] == [("errors", "breached")]
    latest = api.get(f"/api/v1/queries/{live.query_id}/estimate").json()
    assert latest["state"] == "holds" and latest["status"]["state"] == "breached"
