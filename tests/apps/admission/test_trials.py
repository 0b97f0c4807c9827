"""Trials of candidates: where they are offered, that they count nowhere as running, and what follows from them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from django.utils import timezone

from agent.wire.frames import Frame, FrameKind
from agent.wire.schemas import batch_bytes
from apps.accounts.models import User
from apps.admission.choices import AdmissionState, TrialState
from apps.admission.decisions import admission_apply, admission_withdraw
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.trials import (
    admission_trial_start,
    admission_trial_stop,
    trial_events,
    trial_newest,
    trial_offer,
    trials_advance,
)
from apps.core.errors import Conflict, Impossible, Malformed
from apps.estimates.refresh import estimate_refresh
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.measurements.services import refine_all
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput
from apps.queries.services import query_delete
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.results.windows import result_store
from apps.telemetry.agent_services import agent_delete
from apps.telemetry.configs import agent_config, live_served, stream_plan
from apps.telemetry.live_services import live_start
from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.selectors import assignments_adapting, lives_listed, parts_running, sources_listed
from apps.telemetry.sources import source_delete
from tests.apps.admission.trials import asked_request, previewed, report, run_out
from tests.apps.measurements.test_services import tell
from tests.apps.small_cluster import run_jobs

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

_WINDOW = {"window_us": 0, "width_us": 10_000_000, "revision": 1, "rows": 1, "emitted_us": 11_000_000}


@pytest.fixture
def request_() -> AdmissionRequest:
    return asked_request()


@pytest.fixture
def cluster(request_: AdmissionRequest) -> Cluster:
    return request_.cluster


@pytest.fixture
def operator(request_: AdmissionRequest) -> User:
    assert request_.requested_by is not None
    return request_.requested_by


def agent(cluster: Cluster, name: str = "agent-1") -> Agent:
    return cluster.agents.get(name=name)


def test_agents_are_offered_with_most_spare_processor_first(request_: AdmissionRequest) -> None:
    offer = trial_offer(request_)
    weakest = request_.result["robustness"]["weakest"]["operator"]
    assert offer.operator == weakest.rpartition("/")[2]
    assert [(row.agent.name, round(row.spare_cores, 2)) for row in offer.agents] == [
        ("agent-1", 0.15),
        ("agent-2", 0.1),
    ]


def test_busy_agents_are_named_with_figures(cluster: Cluster, request_: AdmissionRequest) -> None:
    report(agent(cluster), 0.16)
    report(agent(cluster, "agent-2"), 0.17)
    why = trial_offer(request_).why_not.replace("\u00a0", " ")
    assert "agent-1 uses 0.16 of its 0.2 cores; a trial needs 25% of them left over." in why
    assert "agent-2 uses 0.17 of its 0.2 cores" in why
    with pytest.raises(Impossible, match=r"agent-1 uses 0\.16") as refusal:
        admission_trial_start(request=request_, user=None)
    assert refusal.value.code == "no_trial"


@pytest.mark.parametrize("how", ["silent", "disabled", "collects nothing", "relay"])
def test_agent_that_does_not_collect_now_is_not_offered(cluster: Cluster, request_: AdmissionRequest, how: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "silent": {"last_seen": timezone.now() - timedelta(minutes=5)},
        "disabled": {"enabled": False},
        "collects nothing": {"heartbeat": {"cpu_cores": 0.0, "collectors": [{"source": "probes", "state": "failed"}]}},
        "relay": {"kind": "relay"},
    }
    Agent.objects.filter(cluster=cluster).update(**changes[how])
    assert trial_offer(request_).why_not == "No agent that reports collects probes."


def test_overflowing_agent_is_not_offered(cluster: Cluster, request_: AdmissionRequest) -> None:
    report(agent(cluster), queries=[{"query": "this-host/errors", "state": "overflowing"}])
    assert [row.agent.name for row in trial_offer(request_).agents] == ["agent-2"]


def test_version_that_cannot_be_executed_says_why(cluster: Cluster, request_: AdmissionRequest) -> None:
    request_.version.operators.filter(name="good").update(extra={})
    assert "good" in trial_offer(request_).why_not
    assert "cannot be executed" in trial_offer(request_).why_not


def test_wrong_agent_and_minutes_are_refused_with_what_is_allowed(cluster: Cluster, request_: AdmissionRequest) -> None:
    with pytest.raises(Malformed, match="minutes is 61; allowed: 1 to 60"):
        admission_trial_start(request=request_, user=None, minutes=61)
    with pytest.raises(Malformed, match="there is no such agent; allowed: agent-1, agent-2"):
        admission_trial_start(request=request_, user=None, agent="nobody")
    report(agent(cluster), 0.18)
    with pytest.raises(Malformed, match=r"agent-1 uses 0\.18 of its 0\.2 cores.*allowed: agent-2"):
        admission_trial_start(request=request_, user=None, agent="agent-1")
    assert not LiveQuery.with_trials.filter(trial_until__isnull=False).exists()


def test_one_trial_per_query_and_per_agent(cluster: Cluster, request_: AdmissionRequest, operator: User) -> None:
    other = previewed(cluster, operator, "other")
    admission_trial_start(request=request_, user=operator, agent="agent-1")
    with pytest.raises(Impossible, match="tried is tried already"):
        admission_trial_start(request=request_, user=operator, agent="agent-2")
    with pytest.raises(Malformed, match="agent-1 runs a trial of tried; allowed: agent-2"):
        admission_trial_start(request=other, user=operator, agent="agent-1")


def test_trial_is_executed_and_counts_nowhere_as_running(cluster: Cluster, request_: AdmissionRequest) -> None:
    def counted() -> dict[str, Any]:
        return {
            "snapshot": cluster_snapshot(cluster).digest,
            "served": list(live_served().values_list("query__name", flat=True)),
            "listed": [str(live) for live in lives_listed()],
            "parts": [str(part) for part in parts_running(cluster)],
            "adapting": [str(part) for part in assignments_adapting(cluster)],
            "readers": sources_listed().get(cluster=cluster).reader_count,
            "source": [str(live) for live in cluster.telemetry_sources.get().live_queries.all()],
        }

    estimate_refresh(cluster)
    run_jobs()
    before = counted()
    trial = admission_trial_start(request=request_, user=None, agent="agent-1", minutes=5)
    assert counted() == before
    assert estimate_refresh(cluster) is None  # nothing moved
    query = request_.query
    query.refresh_from_db()
    assert (query.state, query.running_version) == (QueryState.DRAFT, None)
    assert trial.ends_at - trial.started_at == timedelta(minutes=5)
    config = {row["query"]: row for row in agent_config(agent(cluster))["queries"]}
    assert config["this-host/tried"]["weight"] == 0.01
    assert "latency_constraint_s" not in config["this-host/tried"]  # it is promised nothing
    assert "latency_constraint_s" in config["this-host/errors"]
    assert [row["query"] for row in agent_config(agent(cluster, "agent-2"))["queries"]] == ["this-host/errors"]
    assert [row["query"] for row in stream_plan()["queries"]] == ["this-host/errors", "this-host/tried"]
    with pytest.raises(Conflict, match="tried"):
        source_delete(source=cluster.telemetry_sources.get())


def test_measured_trial_previews_again_with_what_was_measured(
    cluster: Cluster, request_: AdmissionRequest, operator: User
) -> None:
    trial = admission_trial_start(request=request_, user=operator, agent="agent-1")
    assert trials_advance() == 0
    run_out(trial)
    assert trial.live is not None
    tell(trial.live)
    refine_all()
    inputs = OperatorInput.objects.filter(operator__version=request_.version)
    assert {row.evidence for row in inputs} == {Evidence.ASSUMED}  # only the end takes it over
    assert trials_advance() == 1
    over = trial_newest(request_)
    assert over is not None
    assert over.state == TrialState.MEASURED
    assert over.events == trial_events(over) > 10_000
    true = {"window": 0.2, "good": 0.5, "count": 0.8}[over.operator]  # of the 1,000 cycles that were assumed
    assert over.cost_ratio == pytest.approx(true)
    assert {row.evidence for row in inputs.all()} == {Evidence.MEASURED}
    follower = over.follower
    assert follower is not None
    assert (follower.parent, follower.requested_by) == (request_, operator)
    request_.refresh_from_db()
    assert request_.state == AdmissionState.SUPERSEDED
    run_jobs()
    follower.refresh_from_db()
    assert follower.state == AdmissionState.PREVIEW
    assert follower.result["evidence"]["measured"] == 3
    assert not LiveQuery.with_trials.filter(query=request_.query).exists()
    assert [row["query"] for row in agent_config(agent(cluster))["queries"]] == ["this-host/errors"]
    assert trials_advance() == 0


def test_too_little_measured_previews_nothing(request_: AdmissionRequest) -> None:
    trial = admission_trial_start(request=request_, user=None)
    run_out(trial)
    assert trial.live is not None
    tell(trial.live, 2, per_agent=8)
    trials_advance()
    over = trial_newest(request_)
    assert over is not None
    assert (over.state, over.follower, over.cycles_per_event) == (TrialState.TOO_LITTLE, None, None)
    request_.refresh_from_db()
    assert request_.state == AdmissionState.PREVIEW
    assert not LiveQuery.with_trials.filter(query=request_.query).exists()


def test_stopped_trial_takes_nothing_over(request_: AdmissionRequest) -> None:
    trial = admission_trial_start(request=request_, user=None)
    assert trial.live is not None
    tell(trial.live)
    over = admission_trial_stop(request=request_)
    assert (over.state, over.follower) == (TrialState.STOPPED, None)
    inputs = OperatorInput.objects.filter(operator__version=request_.version)
    assert {row.evidence for row in inputs} == {Evidence.ASSUMED}
    assert not LiveQuery.with_trials.filter(query=request_.query).exists()
    with pytest.raises(Conflict, match="No trial of tried v1 runs"):
        admission_trial_stop(request=request_)
    assert trial_offer(request_).agents  # and it may be tried again


def test_results_of_a_trial_are_not_kept(request_: AdmissionRequest) -> None:
    trial = admission_trial_start(request=request_, user=None)
    assert trial.live is not None
    plan, key = trial.live.plan, trial.live.key

    def store() -> Any:
        body = batch_bytes(pa.table({"src": ["a"], "n": [1]}))
        return result_store(Frame(FrameKind.RESULT, "stream", "1", 1, query=key, plan=plan, body=body, extra=_WINDOW))

    assert store() is None
    admission_trial_stop(request=request_)
    assert store() is None  # what comes late
    assert not request_.query.result_windows.exists()


@pytest.mark.parametrize("how", ["silent", "deleted", "overflow"])
def test_trial_ends_with_its_agent(cluster: Cluster, request_: AdmissionRequest, how: str) -> None:
    trial = admission_trial_start(request=request_, user=None, agent="agent-1")
    chosen = agent(cluster)
    if how == "silent":
        Agent.objects.filter(pk=chosen.pk).update(last_seen=timezone.now() - timedelta(minutes=1))
    elif how == "deleted":
        agent_delete(agent=chosen)
    else:
        report(chosen, queries=[{"query": "this-host/errors", "state": "overflowing"}])
    assert trials_advance() == 1
    trial.refresh_from_db()
    assert trial.state == TrialState.TOO_LITTLE
    assert {"silent": "its last report", "deleted": "deleted", "overflow": "errors sends records"}[how] in trial.note
    assert not LiveQuery.with_trials.filter(query=request_.query).exists()


def test_withdrawn_request_ends_its_trial(request_: AdmissionRequest, operator: User) -> None:
    trial = admission_trial_start(request=request_, user=operator)
    admission_withdraw(request=request_, user=operator)
    assert trials_advance() == 1
    trial.refresh_from_db()
    assert (trial.state, trial.note) == (TrialState.STOPPED, "The request is withdrawn.")


def test_applied_request_ends_its_trial_at_once(cluster: Cluster, request_: AdmissionRequest, operator: User) -> None:
    admission_trial_start(request=request_, user=operator)
    admission_apply(request=request_, user=operator)
    assert not LiveQuery.with_trials.filter(query=request_.query).exists()
    live = live_start(query=request_.query, agents=[agent(cluster)])
    assert live in live_served()
    assert trials_advance() == 1
    assert AdmissionTrial.objects.get().state == TrialState.STOPPED
    assert live in live_served()


def test_trial_of_a_deleted_query_is_withdrawn(
    cluster: Cluster, request_: AdmissionRequest, django_capture_on_commit_callbacks: Any
) -> None:
    admission_trial_start(request=request_, user=None, agent="agent-1")
    version = agent(cluster).config_version
    with django_capture_on_commit_callbacks(execute=True):
        query_delete(query=request_.query)
    assert agent(cluster).config_version > version
    assert [row["query"] for row in agent_config(agent(cluster))["queries"]] == ["this-host/errors"]


def test_renamed_cluster_ends_its_trials(cluster: Cluster, request_: AdmissionRequest) -> None:
    admission_trial_start(request=request_, user=None)
    cluster.slug = "elsewhere"
    cluster.save()
    assert not LiveQuery.with_trials.filter(trial_until__isnull=False).exists()
